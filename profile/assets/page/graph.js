// The graph, drawn by d3-flame-graph, or the two of a sandwich: search, zoom, the way back, the arrow keys.

// What is drawn: its element, the component, whether its root is at the bottom.
let panes = [];
// The frames that are looked at and zoomed in to, and the function that was touched last, in the graph or in the table.
let current = null;
let zoomed = null;
let picked = -1;

const describe = (node) => {
  if (compared && ofHeaps) return amount(node.before) + " before, " + amount(node.after) + " after";
  if (compared) {
    const words = percent(partBefore(node)) + " before, " + percent(partAfter(node)) + " after";
    return words + (data.requests ? " of what a request took before" : "") + (isNoise(node) ? ", no more than chance" : "");
  }
  const part = amount(node.after) + ", " + percent(share(node.after, drawn.after)) + " of all";
  return state.shape === "calls" ? part + "; " + amount(ownOf(node).after) + " in itself" : part;
};
const tip = () => {};
tip.show = (event, d) => tip.say(event, d.data.name, placeOf(d.data.f), describe(d.data));
tip.say = (event, name, place, value) => {
  const box = at("tip");
  box.querySelector("b").textContent = name;
  box.querySelector(".place").textContent = place;
  box.querySelector(".value").textContent = value;
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
  const above = event.clientY + 18 + height > window.innerHeight - 30;
  box.style.left = Math.max(8, left) + "px";
  box.style.top = (above ? event.clientY - height - 10 : event.clientY + 18) + "px";
};
tip.hide = () => { at("tip").hidden = true; };

// ── drawing ─────────────────────────────────────────────────────────────────
const makeChart = (upwards) => d3flame.flamegraph()
  .width(chartWidth()).cellHeight(20).inverted(!upwards).sort(true).transitionDuration(0).minFrameSize(1)
  .resetHeightOnZoom(true).tooltip(tip).setDetailsHandler(() => {}).setColorMapper(colour)
  .onClick((d) => { settle(); moveTo(d); showPath(d); });
const chartWidth = () => Math.max(320, at("graph").clientWidth - 26);
const makePane = ({ root, upwards = false }) => {
  const element = document.createElement("div");
  at("chart").append(element);
  const pane = { element, upwards, chart: makeChart(upwards) };
  d3flame.select(element).datum(root).call(pane.chart);
  return pane;
};
const rootOf = (pane) => d3flame.select(pane.element).datum();
const paneOf = (d) => panes.find((pane) => rootOf(pane) === d.ancestors().pop());

const drawGraph = () => {
  tip.hide();
  const before = current ? zoomOf(current) : [];
  current = zoomed = null;
  at("chart").textContent = "";
  lit = matching();
  panes = SHAPES[state.shape][1]().filter(({ root }) => root.value > 0).map(makePane);
  at("empty").hidden = panes.length > 0;
  at("empty").textContent = state.shape === "sandwich" && state.exact < 0
    ? "Select a function in the table, or a frame in another graph, to see its callers and callees."
    : "No sample has these labels and functions, or all their values are 0.";
  drawLegend();
  if (panes.length === 0) {
    at("matches").textContent = "";
    return showPath(null);
  }
  settle();
  // Another type or label leaves the reader where they were, as far as that is still there.
  const there = frameAt(state.zoom);
  if (there.parent) zoomTo(there);
  else showPath(there);
  current = before.length > 0 ? frameAt(before) : there;
  mark();
};
// A frame by what it is, the same in every drawing.
const idOf = ({ f, name }) => sumOf(f >= 0 ? keyOf(f) : name).toString(36);
const frameAt = ([number, ...path]) => {
  let d = rootOf(panes[number] || panes[0]);
  for (const id of path) {
    const next = (d.children || []).find((child) => child.value > 0 && idOf(child.data) === id);
    if (!next) return d;
    d = next;
  }
  return d;
};
const zoomOf = (d) => (d.parent ? [panes.indexOf(paneOf(d)), ...d.ancestors().reverse().slice(1).map((one) => idOf(one.data))] : []);
// The component grows new frames for a quarter of a second, whatever it is told; here they stand at once.
const settle = () => {
  for (const frame of at("chart").querySelectorAll("g")) {
    d3flame.select(frame.querySelector("rect")).interrupt().attr("width", frame.getAttribute("width"));
  }
};

// ── search ──────────────────────────────────────────────────────────────────
const matching = () => {
  if (state.search !== "") return testOf(searched());
  if (state.exact < 0 || state.shape === "sandwich") return null;
  return (f) => f === state.exact;
};
const drawSearch = () => {
  lit = matching();
  drawLegend();
  drawSearchWords();
  for (const frame of at("chart").querySelectorAll("g.frame")) frame.querySelector("rect").setAttribute("fill", colour(frame.__data__));
};
const drawSearchWords = () => {
  const isWrong = state.search !== "" && !lit;
  const sum = lit ? found(lit) : null;
  at("search").setAttribute("aria-invalid", String(isWrong));
  at("regex").setAttribute("aria-pressed", String(state.regex));
  at("matches").textContent = isWrong ? "not a regular expression" : !lit ? "" : sum === null ? "not found" : percent(share(sum, drawn.root.value));
  for (const id of ["keep", "drop"]) at(id).disabled = state.search === "" || isWrong;
};
// What is below any frame that matches, wherever the graph is zoomed in to; null where none does.
const found = (matches) => {
  let sum = null;
  const open = [drawn.root];
  while (open.length > 0) {
    const node = open.pop();
    if (matches(node.f)) sum += node.value;
    else for (const child of node.children) open.push(child);
  }
  return sum;
};

// ── walking and zooming ─────────────────────────────────────────────────────
const mark = () => {
  for (const frame of at("chart").querySelectorAll("g")) {
    frame.classList.toggle("current", current !== null && current.parent !== null && frame.__data__ === current);
  }
};
const moveTo = (d) => {
  current = d;
  if (d.data.f >= 0) pick(d.data.f);
  mark();
  const place = placeOf(d.data.f);
  at("detail").textContent = d.data.name + (place ? " (" + place + ")" : "") + ": " + describe(d.data);
  const frame = at("chart").querySelector("g.current");
  if (frame) frame.scrollIntoView({ block: "nearest", inline: "nearest" });
};
const pick = (f) => {
  picked = f;
  drawPicked();
};
const zoomTo = (d) => paneOf(d).chart.zoomTo(d);
const zoomOutAll = () => panes.forEach((pane) => zoomTo(rootOf(pane)));
const showPath = (d) => {
  zoomed = d;
  const path = at("path");
  path.textContent = "";
  at("out").hidden = !d || d.parent === null;
  if (!d) return;
  state.zoom = zoomOf(d);
  remember();
  if (d.parent === null) return;
  const line = document.createElement("bdi");
  const chain = d.ancestors().reverse();
  chain.slice(Math.max(0, chain.length - 12)).forEach((one, index) => {
    if (index > 0) line.append(" › ");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = one.data.name;
    button.addEventListener("click", () => zoomTo(one));
    line.append(button);
  });
  path.append(line);
};
const walk = (key) => {
  if (!current) return;
  const pane = paneOf(current);
  const seen = (list) => (list || []).filter((d) => d.value > 0).sort((a, b) => a.x0 - b.x0);
  if (key === (pane.upwards ? "ArrowDown" : "ArrowUp")) {
    // The two roots of a sandwich are the same function.
    const other = panes.find((one) => one !== pane);
    if (current.parent || other) moveTo(current.parent || rootOf(other));
    return;
  }
  if (key === "ArrowDown" || key === "ArrowUp") {
    const children = seen(current.children);
    if (children.length > 0) moveTo(children.reduce((a, b) => (b.value > a.value ? b : a)));
    return;
  }
  const row = seen(current.parent && current.parent.children);
  const next = row[row.indexOf(current) + (key === "ArrowRight" ? 1 : -1)];
  if (next) moveTo(next);
};

// ── shapes, and what can be done with the function that was touched last ────
const reshape = (shape) => {
  if (shape === "sandwich" && picked >= 0) state.exact = picked;
  Object.assign(state, { shape, zoom: [] });
  if (["table", "lines"].includes(state.view)) state.view = "both";
  drawView();
};
const drawShapes = () => {
  segments(at("shapes"), Object.entries(SHAPES).map(([shape, [words]]) => [shape, words]), state.shape, reshape);
};
const drawPicked = () => {
  at("picked").textContent = picked < 0 ? (ofHeaps ? "Nothing chosen" : "No function chosen") : nameOf(picked);
  for (const button of at("does").querySelectorAll("button")) button.disabled = picked < 0;
  at("source").disabled = picked < 0 || !hasLines || !lineFiles.has(data.functions[picked][1]);
};
const DOES = {
  callers: () => reshape("sandwich"),
  source: () => openLines(picked),
  with: () => keepOnly(state.only, "=" + keyOf(picked)),
  lacking: () => keepOnly(state.without, "=" + keyOf(picked)),
  stack: () => copyStack(),
};
const does = (id) => picked >= 0 && DOES[id]();
