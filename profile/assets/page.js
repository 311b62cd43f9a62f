
// Draws the profile that stands in the element #profile: a flame graph by d3-flame-graph, and a table of functions.
//
// Does not: load, send or keep anything. Names come from the profiled program and are not trusted: they reach the
// screen by textContent alone, never as HTML, as a style or as a pattern.
(() => {
  "use strict";
  const at = (id) => document.getElementById(id);
  const data = JSON.parse(at("profile").textContent);
  const compared = Array.isArray(data.before);
  const stride = 2 + data.types.length;
  const MORE = 250;
  const state = {
    type: data.chosen, labels: new Map(), search: "", exact: -1, view: "both", width: "after",
    sort: compared ? "change" : "self", descending: true, rows: MORE,
  };
  // What is drawn now: the tree's root, the functions' sums, the totals.
  let drawn = null;
  let chart = null;
  let current = null;
  let zoomed = null;

  // ── values as text ──────────────────────────────────────────────────────────
  const UNITS = {
    nanoseconds: [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]],
    bytes: [[2 ** 30, " GiB"], [2 ** 20, " MiB"], [1024, " KiB"], [1, " B"]],
  };
  const amount = (value) => {
    if (value === 0) return "0";
    const units = UNITS[data.types[state.type][1]] || [[1, ""]];
    const [size, suffix] = units.find(([least]) => Math.abs(value) >= least) || units[units.length - 1];
    const decimals = size === 1 ? 0 : Math.abs(value / size) >= 100 ? 1 : 2;
    return (value / size).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + suffix;
  };
  const share = (value, total) => (total > 0 ? value / total : 0);
  const percent = (part) => (part === 0 ? "0" : (100 * part).toFixed(Math.abs(part) >= 0.1 ? 1 : 2)) + " %";
  const points = (part) => (part > 0 ? "+" : part < 0 ? "−" : "±") + (100 * Math.abs(part)).toFixed(2);
  const nameOf = (number) => (number < 0 ? "all" : data.functions[number][0] || "(without a name)");
  const placeOf = (number) => {
    if (number < 0) return "";
    const [name, file, line] = data.functions[number];
    if (!file) return name.startsWith("[") ? "the engine" : "built in";
    return file + (line > 0 ? ":" + line : "");
  };

  // ── colours: the rules of src/colour.rs ─────────────────────────────────────
  const hash = (text) => {
    let sum = 0x811c9dc5;
    for (let i = 0; i < text.length && i < 256; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193) >>> 0;
    return (sum >>> 8) / 2 ** 24;
  };
  const hex = (hue, saturation, lightness) => {
    const chroma = saturation * Math.min(lightness, 1 - lightness);
    const channel = (offset) => {
      const k = (((offset + hue / 30) % 12) + 12) % 12;
      const value = lightness - chroma * Math.max(-1, Math.min(k - 3, 9 - k, 1));
      return Math.round(Math.max(0, Math.min(255, value * 255))).toString(16).padStart(2, "0");
    };
    return "#" + channel(0) + channel(8) + channel(4);
  };
  const ofFunction = (number) => {
    if (number < 0) return hex(30, 0.1, 0.86);
    const [name, file] = data.functions[number];
    const [hue, saturation, lightness] = name.startsWith("[") ? [90, 0.06, 0.74] : file === "" ? [205, 0.55, 0.7] : [28, 0.85, 0.66];
    const spread = 0.75 * hash(name.split("::")[0]) + 0.25 * hash(name);
    const fraction = spread * 7 - Math.floor(spread * 7);
    return hex(hue + 34 * (spread - 0.5), saturation, lightness + 0.12 * (fraction - 0.5));
  };
  const ofChange = (before, after) => {
    const largest = Math.max(before, after);
    const change = largest > 0 ? (after - before) / largest : 0;
    const strength = Math.sqrt(Math.abs(change));
    return hex(change > 0 ? 8 : 212, 0.08 + 0.77 * strength, 0.86 - 0.22 * strength);
  };
  const colours = new Map();
  const colour = (d) => {
    if (state.search !== "" || state.exact >= 0) {
      if (d.highlight) return "#e05cff";
      return hex(0, 0, 0.8);
    }
    if (compared) return ofChange(share(d.data.before, drawn.before), share(d.data.after, drawn.after));
    const known = colours.get(d.data.f);
    if (known) return known;
    const made = ofFunction(d.data.f);
    colours.set(d.data.f, made);
    return made;
  };

  // ── from samples to a tree and a table ──────────────────────────────────────
  const wanted = () => {
    if (state.labels.size === 0) return null;
    const need = [...state.labels.values()];
    return data.sets.map((set) => need.every((label) => set.includes(label)));
  };
  const nodeCount = data.nodes.length / 2 + 1;
  const functionOf = (node) => (node === 0 ? -1 : data.nodes[2 * node - 1]);
  // Own and total values of each node; parents stand before their children.
  const sums = (samples, sets) => {
    const own = new Float64Array(nodeCount);
    for (let i = 0; i < samples.length; i += stride) {
      if (sets && !sets[samples[i + 1]]) continue;
      const value = samples[i + 2 + state.type];
      if (value > 0) own[samples[i]] += value;
    }
    const all = own.slice();
    for (let node = nodeCount - 1; node > 0; node--) all[data.nodes[2 * node - 2]] += all[node];
    return { own, all };
  };
  const build = () => {
    const sets = wanted();
    const after = sums(data.samples, sets);
    const before = compared ? sums(data.before, sets) : after;
    const nodes = new Array(nodeCount);
    for (let node = 0; node < nodeCount; node++) {
      if (after.all[node] <= 0 && before.all[node] <= 0) continue;
      const f = functionOf(node);
      const one = { name: nameOf(f), f, after: after.all[node], before: before.all[node], value: 0, children: [], node };
      one.value = state.width === "before" ? one.before : one.after;
      nodes[node] = one;
      if (node > 0) nodes[data.nodes[2 * node - 2]].children.push(one);
    }
    const root = nodes[0] || null;
    return { root, after: after.all[0], before: before.all[0], rows: root ? rows(root, after.own, before.own) : [] };
  };
  // A function that is on a stack several times counts once in its total.
  const rows = (root, own, ownBefore) => {
    const table = new Map();
    const onPath = new Map();
    const open = [[root, false]];
    while (open.length > 0) {
      const [node, leaving] = open.pop();
      const depth = onPath.get(node.f) || 0;
      if (leaving) {
        onPath.set(node.f, depth - 1);
        continue;
      }
      if (node.f >= 0) {
        let row = table.get(node.f);
        if (!row) table.set(node.f, (row = { f: node.f, self: 0, total: 0, selfBefore: 0, totalBefore: 0 }));
        row.self += own[node.node];
        row.selfBefore += ownBefore[node.node];
        if (depth === 0) {
          row.total += node.after;
          row.totalBefore += node.before;
        }
      }
      onPath.set(node.f, depth + 1);
      open.push([node, true]);
      for (const child of node.children) open.push([child, false]);
    }
    return [...table.values()];
  };

  // ── the graph ───────────────────────────────────────────────────────────────
  const describe = (node) => {
    const part = compared
      ? percent(share(node.before, drawn.before)) + " before, " + percent(share(node.after, drawn.after)) + " after"
      : amount(node.after) + ", " + percent(share(node.after, drawn.after)) + " of all";
    const own = node.after - node.children.reduce((sum, child) => sum + child.after, 0);
    return compared ? part : part + "; " + amount(own) + " in itself";
  };
  const tip = () => {};
  tip.show = (event, d) => {
    const box = at("tip");
    box.querySelector("b").textContent = nameOf(d.data.f);
    box.querySelector(".place").textContent = placeOf(d.data.f);
    box.querySelector(".value").textContent = describe(d.data);
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

  // ── the table ───────────────────────────────────────────────────────────────
  const change = (row) => share(row.self, drawn.after) - share(row.selfBefore, drawn.before);
  const changeTotal = (row) => share(row.total, drawn.after) - share(row.totalBefore, drawn.before);
  const COLUMNS = compared
    ? [
        ["change", "Self, points", (row) => Math.abs(change(row)), (row, cell) => difference(cell, change(row), row.selfBefore, row.self)],
        ["changeTotal", "Total, points", (row) => Math.abs(changeTotal(row)), (row, cell) => difference(cell, changeTotal(row), row.totalBefore, row.total)],
      ]
    : [
        ["self", "Self", (row) => row.self, (row, cell) => quantity(cell, row.self)],
        ["total", "Total", (row) => row.total, (row, cell) => quantity(cell, row.total)],
      ];
  const quantity = (cell, value) => {
    const part = share(value, drawn.after);
    cell.append(amount(value));
    small(cell, percent(part));
    cell.style.backgroundImage = "linear-gradient(var(--bar), var(--bar))";
    cell.style.backgroundSize = (100 * part).toFixed(1) + "% 3px";
    cell.style.backgroundPosition = "right bottom";
  };
  const difference = (cell, part, before, after) => {
    cell.append(points(part));
    cell.classList.add(part > 0 ? "grew" : part < 0 ? "shrank" : "same");
    small(cell, percent(share(before, drawn.before)) + " → " + percent(share(after, drawn.after)));
  };
  const small = (cell, text) => {
    const element = document.createElement("small");
    element.textContent = text;
    cell.append(element);
  };
  const sorted = () => {
    const matches = matching();
    const rows = matches && state.exact < 0 ? drawn.rows.filter((row) => matches(row.f)) : drawn.rows.slice();
    const sign = state.descending ? -1 : 1;
    const column = COLUMNS.find(([id]) => id === state.sort);
    const byName = (a, b) => (nameOf(a.f) < nameOf(b.f) ? -1 : nameOf(a.f) > nameOf(b.f) ? 1 : a.f - b.f);
    return rows.sort((a, b) => (column ? sign * (column[2](a) - column[2](b)) || byName(a, b) : sign * byName(a, b)));
  };
  const drawTable = () => {
    const heads = at("heads");
    heads.textContent = "";
    for (const [id, title] of [...COLUMNS, ["name", "Function"]]) {
      const head = document.createElement("th");
      head.className = id === "name" ? "name" : "number";
      if (compared && id !== "name") head.style.width = "124px";
      if (state.sort === id) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = title;
      button.addEventListener("click", () => {
        state.descending = state.sort === id ? !state.descending : id !== "name";
        state.sort = id;
        drawTable();
      });
      head.append(button);
      heads.append(head);
    }
    const all = sorted();
    const body = at("rows");
    body.textContent = "";
    const lines = document.createDocumentFragment();
    for (const row of all.slice(0, state.rows)) lines.append(line(row));
    body.append(lines);
    at("more").hidden = all.length <= state.rows;
    at("more").textContent = "Show more of " + all.length.toLocaleString("en") + " functions";
  };
  const line = (row) => {
    const element = document.createElement("tr");
    element.tabIndex = 0;
    element.classList.toggle("chosen", row.f === state.exact);
    element.dataset.function = String(row.f);
    for (const [, , , fill] of COLUMNS) {
      const cell = document.createElement("td");
      cell.className = "number";
      fill(row, cell);
      element.append(cell);
    }
    const cell = document.createElement("td");
    cell.className = "name";
    cell.textContent = nameOf(row.f);
    cell.title = nameOf(row.f) + "\n" + placeOf(row.f);
    small(cell, placeOf(row.f));
    element.append(cell);
    return element;
  };
  const choose = (row) => {
    if (!row) return;
    const f = Number(row.dataset.function);
    state.exact = state.exact === f ? -1 : f;
    at("search").value = state.search = "";
    for (const other of at("rows").children) other.classList.toggle("chosen", Number(other.dataset.function) === state.exact);
    if (chart && zoomed && zoomed.parent) zoomTo(root());
    drawSearch();
  };

  // ── the controls ────────────────────────────────────────────────────────────
  const segments = (host, options, chosen, pick) => {
    host.textContent = "";
    for (const [id, text] of options) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-pressed", String(id === chosen));
      button.addEventListener("click", () => pick(id));
      host.append(button);
    }
  };
  const drawControls = () => {
    segments(at("types"), data.types.map(([name], index) => [index, name]), state.type, (index) => { state.type = index; draw(); });
    segments(at("views"), [["table", "Table"], ["both", "Both"], ["graph", "Flame graph"]], state.view, (view) => { state.view = view; drawView(); });
    at("widths").hidden = !compared;
    segments(at("widths"), [["before", "Before"], ["after", "After"]], state.width, (width) => { state.width = width; draw(); });
  };
  const drawView = () => {
    at("main").dataset.view = state.view;
    draw();
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
      if (labels.length < 2) continue;
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
  };
  const turnTheme = () => {
    theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    drawTheme();
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
    const taken = sum((receipt) => receipt.quality && receipt.quality.taken);
    if (taken > 0) facts.push(percent(sum((receipt) => receipt.quality && receipt.quality.unstable) / taken) + " unstable");
    facts.push(compared ? "compared with an earlier profile: red takes more than before, blue less" : amount(drawn.after) + " " + data.types[state.type][0]);
    at("facts").textContent = facts.join(" · ");
  };

  const draw = () => {
    state.rows = MORE;
    drawn = build();
    drawControls();
    drawFacts();
    drawTable();
    drawGraph();
    at("detail").textContent = "";
  };
  const search = (term) => {
    state.search = term.trim();
    state.exact = -1;
    drawTable();
    drawSearch();
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
      "/": () => at("search").focus(),
      "?": turnHelp,
      0: () => chart && zoomTo(root()),
      t: () => { state.view = next(["both", "graph", "table"], state.view); drawView(); },
      s: () => { state.type = (state.type + 1) % data.types.length; draw(); },
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
      if (!chart) return;
      chart.width(chartWidth()).update();
      settle();
      mark();
    }, 100);
  });

  at("main").dataset.view = state.view;
  drawTheme();
  drawFilters();
  draw();
})();
