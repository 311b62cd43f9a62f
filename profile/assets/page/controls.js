// What the reader presses and chooses, and the first drawing.

const segments = (host, options, chosen, pick) => {
  const focused = [...host.children].indexOf(document.activeElement);
  host.textContent = "";
  for (const [id, text] of options) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-pressed", String(id === chosen));
    button.addEventListener("click", () => pick(id));
    host.append(button);
  }
  // The button that was pressed is another one now.
  if (focused >= 0 && host.children[focused]) host.children[focused].focus();
};
const drawControls = () => {
  segments(at("types"), data.types.map(([name], index) => [index, name]), state.type, (index) => { state.type = index; draw(); });
  drawViews();
  drawWaits();
  drawShapes();
  markFilters();
  drawKept();
  at("widths").hidden = !compared;
  segments(at("widths"), [["before", "Before"], ["after", "After"]], state.width, (width) => { state.width = width; draw(); });
};
const drawViews = () => {
  const views = [["table", "Table"], ["both", "Both"], ["graph", "Flame graph"]];
  if (hasLines) views.push(["lines", "Lines"]);
  if (requests.length > 0) views.push(["requests", "Requests (" + requests.length.toLocaleString("en") + ")"]);
  segments(at("views"), views, state.view === "request" ? "requests" : state.view, show);
};
// What waits for the database has no CPU time: wall time shows it.
const drawWaits = () => {
  const kinds = data.labels.map(([key, kind], label) => [label, kind, key]).filter(([, , key]) => key === WAITING);
  at("waits").hidden = kinds.length === 0;
  if (kinds.length === 0) return;
  const options = [[-1, "All time"], ...kinds.map(([label, kind]) => [label, "Waits: " + kind])];
  const [chosen = -1] = state.labels.get(WAITING) || [];
  segments(at("waits"), options, chosen, (label) => {
    state.labels.delete(WAITING);
    if (label >= 0) choosesLabel(WAITING, label, true);
    const wall = data.types.findIndex(([name]) => name === "wall");
    if (label >= 0 && wall >= 0) state.type = wall;
    draw();
  });
};
const drawView = () => {
  document.body.dataset.view = state.view;
  tip.hide();
  paintStrip();
  if (!TIMED.includes(state.view)) {
    untimed = state.view;
    return draw();
  }
  drawViews();
  at("detail").textContent = "";
  drawRequests();
  drawPart();
};
const turnType = () => {
  state.type = (state.type + 1) % data.types.length;
  draw();
};
// How heaps were read: the numbers of `inHeap` (src/in_use.rs).
const heapFacts = (sum) => {
  const of = (key) => sum(({ inHeap }) => inHeap && inHeap[key]);
  const torn = of("workers") - of("moments");
  const facts = [torn > 0 ? torn + " of " + of("workers") + " heaps torn: in these, an object may be missing or there twice" : "each heap at one moment"];
  for (const [key, words] of [
    ["drawn", "heaps of which a part was drawn at random"],
    ["cut", "heaps of which not all paths were followed"],
    ["withoutHeap", "heaps that cannot be read"],
    ["late", "heaps for which there was no time"],
    ["lostObjects", "objects that could not be read or named"],
  ]) {
    if (of(key) > 0) facts.push(of(key) + " " + words);
  }
  return facts;
};
// How time was sampled, and what was lost.
const timeFacts = (receipts, sum) => {
  const facts = [];
  // A turn at which a worker was idle could not have been unstable.
  const busy = sum(({ quality }) => quality && quality.taken - quality.idle);
  if (busy > 0) facts.push(percent(sum(({ quality }) => quality && quality.unstable) / busy) + " unstable");
  const shareOf = (count, words) => count > 0 && busy > 0 && facts.push(percent(count / busy) + " " + words);
  const lost = ({ withoutName, withoutPath, withoutStack }) => (withoutName || 0) + (withoutPath || 0) + (withoutStack || 0);
  shareOf(sum(({ quality }) => quality && lost(quality)), "over the memory cap");
  shareOf(sum(({ quality }) => quality && quality.folded), "with a shorter recursion");
  shareOf(sum(({ quality }) => quality && quality.truncated), "with a part of the stack left out");
  shareOf(sum(({ quality }) => quality && quality.withoutLabels), "without labels of their request");
  shareOf(sum(({ quality }) => quality && quality.stopped), "of stopped workers");
  const waited = sum(({ quality }) => quality && quality.cpuWaitMilliseconds);
  const inRequests = sum(({ quality, effectiveSamplesPerSecond }) => quality && 1000 * (quality.taken - quality.idle) / effectiveSamplesPerSecond);
  if (waited > 0 && inRequests > 0) facts.push(percent(waited / inRequests) + " of the time waiting for a CPU");
  // Single turns come late on each node.
  const slow = receipts.filter((receipt) => receipt.effectiveSamplesPerSecond < 0.95 * receipt.samplesPerSecond)
    .sort((one, other) => one.effectiveSamplesPerSecond - other.effectiveSamplesPerSecond);
  if (slow.length > 0) {
    const many = receipts.length > 1 ? " in " + slow.length + " of " + receipts.length + " profiles" : "";
    facts.push(slow[0].effectiveSamplesPerSecond + " instead of " + slow[0].samplesPerSecond + " samples per second" + many);
  }
  const missed = (key) => sum((receipt) => receipt.missed && receipt.missed[key]);
  const [unseen, unseenCpu] = [missed("processes"), missed("cpuMilliseconds")];
  if (unseen > 0 || unseenCpu > 0) facts.push("up to " + unseen + " short-lived processes unseen, " + (unseenCpu / 1000).toFixed(2) + " s of CPU time of ended ones in no sample");
  return facts;
};
const drawFacts = () => {
  document.title = data.title;
  at("title").textContent = data.title;
  const receipts = data.comments.flatMap((text) => {
    try { return [JSON.parse(text)]; } catch { return []; }
  }).filter((receipt) => receipt !== null && typeof receipt === "object" && receipt.php);
  const facts = [];
  const versions = new Set(receipts.map(({ php }) => "PHP " + php.version + " " + php.sapi));
  if (versions.size > 0) facts.push([...versions].slice(0, 3).join(", "));
  const sum = (of) => receipts.reduce((total, receipt) => total + (Number(of(receipt)) || 0), 0);
  if (receipts.length > 0) {
    facts.push(receipts.length === 1 ? "1 profile" : receipts.length + " profiles");
    facts.push(sum((receipt) => receipt.workers) + " workers");
  }
  if (data.durationNanos > 0 && !ofHeaps) facts.push((data.durationNanos / 1e9).toFixed(0) + " s");
  const began = new Date(data.timeNanos / 1e6);
  if (data.timeNanos > 0 && !Number.isNaN(began.getTime())) facts.push(began.toISOString().slice(0, 16).replace("T", " ") + " UTC");
  facts.push(...(ofHeaps ? heapFacts(sum) : timeFacts(receipts, sum)));
  const less = state.moments ? 0 : freed();
  if (less < 0) facts.push(amount(less) + " of older memory, not drawn");
  if (data.requests) facts.push("time per request, in percent of what one took before: " + data.requests.map((count) => count.toLocaleString("en")).join(" requests before, ") + " after");
  else facts.push(compared ? "compared with an earlier profile" : amount(drawn.after) + " " + ({ requests: "of recorded requests", parts: "of wall time in whole parts of the run" }[state.moments] || data.types[state.type][0]));
  at("facts").textContent = facts.join(" · ");
};

const draw = () => {
  state.rows = MORE;
  drawn = build();
  drawControls();
  drawFacts();
  drawTable();
  drawGraph();
  drawLines();
  drawSearchWords();
  drawPicked();
  markFindings();
  markMoments();
  at("detail").textContent = "";
  remember();
};
const search = (term) => {
  state.search = term.trim();
  state.exact = -1;
  drawTable();
  drawSearch();
  markFindings();
  remember();
};
let pause = 0;
const searchSoon = () => {
  clearTimeout(pause);
  pause = setTimeout(() => search(at("search").value), 120);
};
const turnRegex = () => {
  state.regex = !state.regex;
  search(at("search").value);
};
// What was searched for becomes a condition, and the search is free again.
const condition = (list) => {
  const pattern = searched();
  at("search").value = state.search = "";
  keepOnly(list, pattern);
};

const listenToTable = () => {
  at("rows").addEventListener("click", (event) => choose(event.target.closest("tr")));
  at("more").addEventListener("click", () => { state.rows += 4 * MORE; drawTable(); });
};
const listenToGraph = () => {
  at("out").addEventListener("click", zoomOutAll);
  for (const id of Object.keys(DOES)) at(id).addEventListener("click", () => does(id));
  for (const ending of Object.keys(SAVES)) at(ending).addEventListener("click", () => save(ending));
  at("chart").addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) {
      walk(event.key);
      event.preventDefault();
    } else if (event.key === "Enter" && current) {
      zoomTo(current);
    }
  });
  at("chart").addEventListener("scroll", tip.hide);
};
const listenToBar = () => {
  at("search").addEventListener("input", searchSoon);
  at("regex").addEventListener("click", turnRegex);
  at("keep").addEventListener("click", () => condition(state.only));
  at("drop").addEventListener("click", () => condition(state.without));
  at("theme").addEventListener("click", turnTheme);
  at("help").addEventListener("click", turnHelp);
  at("shortcuts").addEventListener("change", turnShortcuts);
  themes.addEventListener("change", drawTheme);
  document.addEventListener("pointerdown", (event) => closeFilters(event.target));
};
let resizing = 0;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    paintStrip();
    paintCourse();
    for (const { chart } of panes) chart.width(chartWidth()).update();
    settle();
    mark();
  }, 100);
});

if (ofHeaps) {
  const words = "Search classes and properties";
  at("search").placeholder = words + "   /";
  at("search").setAttribute("aria-label", words);
  at("callers").textContent = "Holders and held";
  at("source").hidden = true;
}
drawTheme();
drawShortcuts();
drawFilters();
drawFindings();
drawStrip();
for (const listen of [listenToTable, listenToGraph, listenToLines, listenToBar, listenToKeys, listenToStrip, listenToRequests, listenToRequest]) listen();
window.addEventListener("hashchange", follow);
follow();
