// The keys of the page. Letters can be turned off (WCAG 2.1.4); arrows, Enter and Escape stay.

const turnHelp = () => {
  at("keys").hidden = !at("keys").hidden;
  at("help").setAttribute("aria-expanded", String(!at("keys").hidden));
};
const next = (list, one) => list[(list.indexOf(one) + 1) % list.length];
const isOnGraph = () => !TIMED.includes(state.view);
const KEYS = {
  "/": () => at(isOnGraph() ? "search" : "sift").focus(),
  "?": turnHelp,
  0: zoomOutAll,
  t: () => show(next(TURNED, isOnGraph() ? state.view : "table")),
  l: () => hasLines && show("lines"),
  r: () => requests.length > 0 && show("requests"),
  s: () => isOnGraph() && !state.moments && turnType(),
  d: turnTheme,
  g: () => isOnGraph() && reshape(next(Object.keys(SHAPES), state.shape)),
  w: () => isOnGraph() && does("callers"),
  f: () => isOnGraph() && does("with"),
  x: () => isOnGraph() && does("lacking"),
  c: () => isOnGraph() && does("stack"),
};
// One step back: an open list, a request, a search, a sandwich, the zoom.
const escape = (event) => {
  if (closeFilters(null) || leaveRequest()) return;
  const isSearched = state.search !== "" || at("search").value !== "";
  if (isSearched || (state.exact >= 0 && state.shape !== "sandwich")) {
    at("search").value = "";
    clearTimeout(pause);
    search("");
  } else if (state.shape === "sandwich") {
    reshape("calls");
  } else {
    zoomOutAll();
  }
  if (event.target === at("search")) at("search").blur();
};
const listenToKeys = () => document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return escape(event);
  const isWritten = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (isWritten || !shortcuts || !Object.hasOwn(KEYS, event.key)) return;
  KEYS[event.key]();
  event.preventDefault();
});
