// The list of requests and an open request stand in the address, after `#`: the browser's way back works, and a link opens them.

const TIMED = ["requests", "request"];
// What was shown before the list was.
let untimed = "both";
const go = (fragment) => {
  if (location.hash === "#" + fragment) follow();
  else location.hash = fragment;
};
const show = (view) => {
  if (view === "requests") return go("view=requests");
  if (location.hash !== "") location.hash = "";
  state.view = view;
  drawView();
};
const follow = () => {
  const [, number] = /^#request=(\d{1,6})$/.exec(location.hash) || [];
  const request = number === undefined ? undefined : requests[Number(number)];
  if (request && isRecorded(request)) return openRequest(Number(number));
  if (timeline && location.hash === "#view=requests") return openList();
  if (TIMED.includes(state.view)) show(untimed);
};
const openList = () => {
  const opened = state.view === "request" ? shown.opened : -1;
  state.view = "requests";
  drawView();
  const link = opened < 0 ? null : at("asked").querySelector('a[href="#request=' + opened + '"]');
  if (link) link.focus();
};
