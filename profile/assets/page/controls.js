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
  at("widths").hidden = !compared;
  segments(at("widths"), [["before", "Before"], ["after", "After"]], state.width, (width) => { state.width = width; draw(); });
};
const drawViews = () => {
  const views = [["table", "Table"], ["both", "Both"], ["graph", "Flame graph"]];
  if (requests.length > 0) views.push(["requests", "Requests (" + requests.length.toLocaleString("en") + ")"]);
  segments(at("views"), views, state.view === "request" ? "requests" : state.view, show);
};
// What waits for the database has no CPU time: wall time shows it.
const drawWaits = () => {
  const kinds = data.labels.map(([key, kind], label) => [label, kind, key]).filter(([, , key]) => key === WAITING);
  at("waits").hidden = kinds.length === 0;
  if (kinds.length === 0) return;
  const options = [[-1, "All time"], ...kinds.map(([label, kind]) => [label, "Waits: " + kind])];
  segments(at("waits"), options, state.labels.has(WAITING) ? state.labels.get(WAITING) : -1, (label) => {
    if (label < 0) state.labels.delete(WAITING);
    else state.labels.set(WAITING, label);
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
// One list for each label that tells samples apart, the values with most of the first sample type first.
const drawFilters = () => {
  const keys = new Map();
  const weights = new Float64Array(data.labels.length);
  for (let i = 0; i < data.samples.length; i += stride) {
    for (const label of data.sets[data.samples[i + 1]]) weights[label] += Math.max(0, data.samples[i + 2]);
  }
  data.labels.forEach(([key], label) => {
    if (!keys.has(key)) keys.set(key, []);
    keys.get(key).push(label);
  });
  const order = ([one, its], [other, others]) => its.length - others.length || (one < other ? -1 : 1);
  for (const [key, labels] of [...keys].sort(order)) {
    if (labels.length < 2 || key === WAITING) continue;
    labels.sort((a, b) => weights[b] - weights[a] || a - b);
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Label " + key);
    select.append(new Option(key + ": all", "-1"));
    for (const label of labels.slice(0, 500)) select.append(new Option(key + ": " + data.labels[label][1], String(label)));
    select.addEventListener("change", () => {
      const label = Number(select.value);
      if (label < 0) state.labels.delete(key);
      else state.labels.set(key, label);
      select.classList.toggle("set", label >= 0);
      draw();
    });
    at("filters").append(select);
  }
};
const themes = window.matchMedia("(prefers-color-scheme: dark)");
let theme = null;
const drawTheme = () => {
  const dark = theme === null ? themes.matches : theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  at("theme").textContent = dark ? "Light" : "Dark";
  paintStrip();
  paintCourse();
};
const turnTheme = () => {
  theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  drawTheme();
};
const turnType = () => {
  state.type = (state.type + 1) % data.types.length;
  draw();
};
const turnHelp = () => {
  at("keys").hidden = !at("keys").hidden;
  at("help").setAttribute("aria-expanded", String(!at("keys").hidden));
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
  if (data.durationNanos > 0) facts.push((data.durationNanos / 1e9).toFixed(0) + " s");
  const began = new Date(data.timeNanos / 1e6);
  if (data.timeNanos > 0 && !Number.isNaN(began.getTime())) facts.push(began.toISOString().slice(0, 16).replace("T", " ") + " UTC");
  // A turn at which a worker was idle could not have been unstable.
  const busy = sum(({ quality }) => quality && quality.taken - quality.idle);
  if (busy > 0) facts.push(percent(sum(({ quality }) => quality && quality.unstable) / busy) + " unstable");
  const slow = receipts.filter((receipt) => receipt.effectiveSamplesPerSecond < 0.98 * receipt.samplesPerSecond)
    .sort((one, other) => one.effectiveSamplesPerSecond - other.effectiveSamplesPerSecond);
  if (slow.length > 0) {
    const many = receipts.length > 1 ? " in " + slow.length + " of " + receipts.length + " profiles" : "";
    facts.push(slow[0].effectiveSamplesPerSecond + " instead of " + slow[0].samplesPerSecond + " samples a second" + many);
  }
  const less = state.moments ? 0 : freed();
  if (less < 0) facts.push(amount(less) + " of older memory, not drawn");
  facts.push(compared ? "compared with an earlier profile: red takes more than before, blue less" : amount(drawn.after) + " " + (state.moments ? "of recorded requests" : data.types[state.type][0]));
  at("facts").textContent = facts.join(" · ");
};

const draw = () => {
  state.rows = MORE;
  drawn = build();
  drawControls();
  drawFacts();
  drawTable();
  drawGraph();
  markFindings();
  markMoments();
  at("detail").textContent = "";
};
const search = (term) => {
  state.search = term.trim();
  state.exact = -1;
  drawTable();
  drawSearch();
  markFindings();
};

let waiting = 0;
at("search").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => search(at("search").value), 120);
});
at("rows").addEventListener("click", (event) => choose(event.target.closest("tr")));
at("rows").addEventListener("keydown", (event) => {
  if (event.key === "Enter") choose(event.target.closest("tr"));
});
at("more").addEventListener("click", () => { state.rows += 4 * MORE; drawTable(); });
at("out").addEventListener("click", () => zoomTo(root()));
at("theme").addEventListener("click", turnTheme);
at("help").addEventListener("click", turnHelp);
at("chart").addEventListener("keydown", (event) => {
  if (event.key.startsWith("Arrow")) {
    walk(event.key);
    event.preventDefault();
  } else if (event.key === "Enter" && current) {
    zoomTo(current);
  }
});
at("chart").addEventListener("scroll", tip.hide);
themes.addEventListener("change", drawTheme);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (leaveRequest()) return;
    if (state.search !== "" || state.exact >= 0 || at("search").value !== "") {
      at("search").value = "";
      clearTimeout(waiting);
      search("");
    } else if (chart) {
      zoomTo(root());
    }
    at("search").blur();
    return;
  }
  if (["INPUT", "SELECT"].includes(event.target.tagName)) return;
  const next = (list, one) => list[(list.indexOf(one) + 1) % list.length];
  const keys = {
    "/": () => at(TIMED.includes(state.view) ? "sift" : "search").focus(),
    "?": turnHelp,
    0: () => chart && zoomTo(root()),
    t: () => show(next(["both", "graph", "table"], state.view)),
    r: () => requests.length > 0 && show("requests"),
    s: () => !TIMED.includes(state.view) && !state.moments && turnType(),
    d: turnTheme,
  };
  if (Object.hasOwn(keys, event.key)) {
    keys[event.key]();
    event.preventDefault();
  }
});
let resizing = 0;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    paintStrip();
    paintCourse();
    if (!chart) return;
    chart.width(chartWidth()).update();
    settle();
    mark();
  }, 100);
});

document.body.dataset.view = state.view;
drawTheme();
drawFilters();
drawFindings();
draw();
drawStrip();
listenToStrip();
listenToRequests();
listenToRequest();
window.addEventListener("hashchange", follow);
follow();
