// The flame graph, drawn by d3-flame-graph: search, zoom, the way back, the arrow keys.

const describe = (node) => {
  const part = compared
    ? percent(share(node.before, drawn.before)) + " before, " + percent(share(node.after, drawn.after)) + " after"
    : amount(node.after) + ", " + percent(share(node.after, drawn.after)) + " of all";
  const own = node.after - node.children.reduce((sum, child) => sum + child.after, 0);
  return compared ? part : part + "; " + amount(own) + " in itself";
};
const tip = () => {};
tip.show = (event, d) => tip.say(event, nameOf(d.data.f), placeOf(d.data.f), describe(d.data));
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

const matching = () => {
  if (state.exact >= 0) return (f) => f === state.exact;
  const term = state.search.toLowerCase();
  if (term === "") return null;
  const known = new Map();
  return (f) => {
    if (f < 0) return false;
    if (!known.has(f)) known.set(f, (data.functions[f][0] + "\n" + data.functions[f][1]).toLowerCase().includes(term));
    return known.get(f);
  };
};
const makeChart = () => d3flame.flamegraph()
  .width(chartWidth()).cellHeight(20).inverted(true).sort(true).transitionDuration(0).minFrameSize(1)
  .resetHeightOnZoom(true).tooltip(tip).setDetailsHandler(() => {}).setColorMapper(colour)
  .setSearchHandler(() => {})
  .onClick((d) => { settle(); moveTo(d); showPath(d); });
const chartWidth = () => Math.max(320, at("graph").clientWidth - 26);

const drawGraph = () => {
  const host = at("chart");
  tip.hide();
  current = zoomed = null;
  host.textContent = "";
  const nothing = !drawn.root || drawn.root.value <= 0;
  at("empty").hidden = !nothing;
  at("path").textContent = "";
  at("out").hidden = true;
  if (nothing) {
    chart = null;
    at("matches").textContent = "";
    return;
  }
  chart = makeChart();
  d3flame.select(host).datum(drawn.root).call(chart);
  settle();
  current = zoomed = root();
  if (matching()) drawSearch();
};
// The component grows new frames for a quarter of a second, whatever it is told; here they stand at once.
const settle = () => {
  for (const frame of at("chart").querySelectorAll("g")) {
    d3flame.select(frame.querySelector("rect")).interrupt().attr("width", frame.getAttribute("width"));
  }
};
const root = () => d3flame.select(at("chart")).datum();
const drawSearch = () => {
  const matches = matching();
  if (!chart) return;
  if (!matches) {
    at("matches").textContent = "";
    chart.clear();
  } else {
    chart.setSearchMatch((d) => matches(d.data.f));
    chart.search("x");
    const sum = found(matches);
    at("matches").textContent = sum === null ? "not found" : percent(share(sum, drawn.root.value));
  }
  settle();
  mark();
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
const mark = () => {
  for (const frame of at("chart").querySelectorAll("g")) {
    frame.classList.toggle("current", current !== null && current.parent !== null && frame.__data__ === current);
  }
};
const moveTo = (d) => {
  current = d;
  mark();
  const place = placeOf(d.data.f);
  at("detail").textContent = nameOf(d.data.f) + (place ? " (" + place + ")" : "") + ": " + describe(d.data);
  const frame = at("chart").querySelector("g.current");
  if (frame) frame.scrollIntoView({ block: "nearest", inline: "nearest" });
};
const zoomTo = (d) => {
  if (chart) chart.zoomTo(d);
};
const showPath = (d) => {
  zoomed = d;
  const path = at("path");
  path.textContent = "";
  at("out").hidden = d.parent === null;
  if (d.parent === null) return;
  const line = document.createElement("bdi");
  const chain = d.ancestors().reverse();
  chain.slice(Math.max(0, chain.length - 12)).forEach((one, index) => {
    if (index > 0) line.append(" › ");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = nameOf(one.data.f);
    button.addEventListener("click", () => zoomTo(one));
    line.append(button);
  });
  path.append(line);
};
const walk = (key) => {
  if (!current) return;
  const seen = (list) => (list || []).filter((d) => d.value > 0).sort((a, b) => a.x0 - b.x0);
  if (key === "ArrowUp" && current.parent) return moveTo(current.parent);
  if (key === "ArrowDown") {
    const children = seen(current.children);
    if (children.length > 0) moveTo(children.reduce((a, b) => (b.value > a.value ? b : a)));
    return;
  }
  const row = seen(current.parent && current.parent.children);
  const next = row[row.indexOf(current) + (key === "ArrowRight" ? 1 : -1)];
  if (next && (key === "ArrowLeft" || key === "ArrowRight")) moveTo(next);
};
