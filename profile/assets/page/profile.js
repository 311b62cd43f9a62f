// The profile that stands in the element #profile: its values as text, its colours, its tree and table for what is chosen.
//
// Does not: touch the screen, load, send or keep anything. Names come from the profiled program and are not trusted: they reach
// the screen by textContent alone, never as HTML, as a style or as a pattern.

const at = (id) => document.getElementById(id);
const data = JSON.parse(at("profile").textContent);
const compared = Array.isArray(data.before);
const stride = 2 + data.types.length;
const MORE = 250;
// The key of the label that says what was waited for: src/waiting.rs.
const WAITING = "waiting";
const state = {
  type: data.chosen, labels: new Map(), search: "", exact: -1, view: "both", width: "after",
  sort: compared ? "change" : "self", descending: true, rows: MORE,
  // First and last step that are selected, and whether the graph is of the moments in them: see time.js and moments.js.
  span: null, moments: false,
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
const amount = (value) => inUnit(value, state.moments ? "nanoseconds" : data.types[state.type][1]);
const inUnit = (value, unit) => {
  if (value === 0) return "0";
  const units = UNITS[unit] || [[1, ""]];
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
  if (state.moments) return ofMoments();
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
// What was freed of memory that is older than the profile has no place in a flame graph.
const freed = () => {
  const sets = wanted();
  let sum = 0;
  for (let i = 0; i < data.samples.length; i += stride) {
    if (!sets || sets[data.samples[i + 1]]) sum += Math.min(0, data.samples[i + 2 + state.type]);
  }
  return sum;
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
