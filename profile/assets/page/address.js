// The address holds the view, after `#`: a link shows the same, and the browser's way back works between graph and requests.
//
// Invariant: what an address says counts only where this profile has it.

const TIMED = ["requests", "request"];
const UNTIMED = ["both", "graph", "table", ...(hasLines ? ["lines"] : [])];
// What one key turns through.
const TURNED = ["both", "graph", "table"];
// What was shown before the list was.
let untimed = "both";

// ── from what is chosen to the address, and back ────────────────────────────
const fragment = () => {
  const words = new URLSearchParams();
  const say = (key, value, usual) => { if (value !== usual) words.append(key, value); };
  say("view", state.view, "both");
  say("graph", state.shape, "calls");
  say("type", data.types[state.type][0], data.types[data.chosen][0]);
  say("width", state.width, "after");
  for (const labels of state.labels.values()) for (const label of labels) words.append("label", data.labels[label].join("="));
  say("sort", orderOf(state), orderOf(usualOrder()));
  say("search", searched(), "");
  if (state.exact >= 0) words.append("function", keyOf(state.exact));
  for (const pattern of state.only) words.append("only", pattern);
  for (const pattern of state.without) words.append("without", pattern);
  say("zoom", state.zoom.join("."), "");
  say("span", state.span === null ? "" : state.span.join("-"), "");
  say("of", state.moments, "");
  say("file", state.view === "lines" ? state.file : "", "");
  return String(words);
};
// The table's column and direction.
const orderOf = ({ sort, descending }) => sort + (descending ? ".down" : ".up");
const usualOrder = () => ({ sort: COLUMNS[0][0], descending: true });
const orderIn = (text) => {
  const orders = [...COLUMNS.map(([id]) => id), "name"].flatMap((sort) => [{ sort, descending: false }, { sort, descending: true }]);
  return orders.find((order) => orderOf(order) === text) || usualOrder();
};
// Steps of the time strip, from and to.
const spanIn = (text) => {
  const [first, last, more] = /^\d{1,4}-\d{1,4}$/.test(text) ? text.split("-").map(Number) : [];
  return first <= last && last < steps && more === undefined ? [first, last] : null;
};
const recall = (words) => {
  const one = (key, known, usual) => (known.includes(words.get(key)) ? words.get(key) : usual);
  const type = data.types.findIndex(([name]) => name === words.get("type"));
  const patterns = (key) => [...new Set(words.getAll(key))].filter((pattern) => /^[*~=]./s.test(pattern) && testOf(pattern)).slice(0, MOST_PATTERNS / 2);
  const search = words.get("search") || "";
  const [pane, ...path] = (words.get("zoom") || "").split(".");
  Object.assign(state, {
    view: one("view", UNTIMED, "both"), shape: one("graph", Object.keys(SHAPES), "calls"), width: one("width", ["before", "after"], "after"),
    type: type < 0 ? data.chosen : type,
    labels: new Map(), search: search.slice(1), regex: search.startsWith("~"), exact: words.has("function") ? numberOfKey(words.get("function")) : -1,
    only: patterns("only"), without: patterns("without"), zoom: path.length > 0 ? [Number(pane), ...path] : [],
    file: words.get("file") || "", ...orderIn(words.get("sort")), span: spanIn(words.get("span")), moments: timeline ? one("of", ["requests", "parts"], "") : "",
  });
  const chosen = words.getAll("label");
  data.labels.forEach((label, number) => { if (chosen.includes(label.join("="))) choosesLabel(label[0], number, true); });
  at("search").value = state.search;
};
// A choice takes the place of the one before: only the list and a request are steps of the way back.
const remember = () => {
  if (TIMED.includes(state.view) || location.hash.slice(1) === fragment()) return;
  try {
    history.replaceState(history.state, "", "#" + fragment());
  } catch {
    // A page in a frame without an address of its own keeps what is shown to itself.
  }
};

// ── ways ────────────────────────────────────────────────────────────────────
const go = (words) => {
  if (location.hash.slice(1) === words) follow();
  else location.hash = words;
};
const show = (view) => {
  if (view === "requests") return go("view=requests");
  const isLeaving = TIMED.includes(state.view);
  state.view = view;
  if (isLeaving) go(fragment());
  else drawView();
};
const follow = () => {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = /^\d{1,6}$/.test(words.get("request")) ? Number(words.get("request")) : -1;
  if (requests[number] && isRecorded(requests[number])) return openRequest(number);
  if (timeline && words.get("view") === "requests") return openList();
  recall(words);
  if (timeline) drawBand();
  drawView();
};
const openList = () => {
  const opened = state.view === "request" ? shown.opened : -1;
  state.view = "requests";
  drawView();
  const link = opened < 0 ? null : at("asked").querySelector('a[href="#request=' + opened + '"]');
  if (link) link.focus();
};
