// The profile that stands in the element #profile: what is chosen of it, and its values as text.
//
// Does not: touch the screen, load, send or keep anything. Names come from the profiled program and are not trusted: they reach
// the screen by textContent alone, never as HTML, as a style or as a pattern.

const at = (id) => document.getElementById(id);
const data = JSON.parse(at("profile").textContent);
// A function has the number of its file, because many share one.
for (const one of data.functions) one[1] = data.files[one[1]];
const compared = Array.isArray(data.before);
const stride = 2 + data.types.length;
// What is in heaps, by the paths that hold it: its types are IN_USE (src/builder.rs).
const ofHeaps = data.types.every(([name]) => name === "inuse_objects" || name === "inuse_space");
const MORE = 250;
// The key of the label that says what was waited for: src/waiting.rs.
const WAITING = "waiting";
const state = {
  type: data.chosen, view: "both", shape: "calls", width: "after",
  // Numbers of labels by their keys; stacks have one of each key.
  labels: new Map(),
  // What is searched for, and the function that is chosen; patterns that stacks must have, and must not: see pattern.js.
  search: "", regex: false, exact: -1, only: [], without: [],
  // Where the graph is zoomed in to: see graph.js.
  zoom: [],
  // The table's column and direction.
  sort: compared ? "change" : "self", descending: true, rows: MORE,
  // First and last step that are selected, and what the graph is of in them: "requests", "parts" or the whole profile: see time.js and moments.js.
  span: null, moments: "",
  // The file whose lines are shown: see lines.js.
  file: "",
};
// What is drawn now: the tree's root, the functions' sums, the totals.
let drawn = null;
// Whether a function is highlighted; null where none is.
let lit = null;

// ── values as text ──────────────────────────────────────────────────────────
const UNITS = {
  nanoseconds: [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]],
  bytes: [[2 ** 30, " GiB"], [2 ** 20, " MiB"], [1024, " KiB"], [1, " B"]],
};
const DECIMALS = [0, 1, 2].map((decimals) => new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
const amount = (value) => inUnit(value, state.moments ? "nanoseconds" : data.types[state.type][1]);
const inUnit = (value, unit) => {
  if (value === 0) return "0";
  const units = UNITS[unit] || [[1, ""]];
  const [size, suffix] = units.find(([least]) => Math.abs(value) >= least) || units[units.length - 1];
  const decimals = size === 1 ? 0 : Math.abs(value / size) >= 100 ? 1 : 2;
  return DECIMALS[decimals].format(value / size) + suffix;
};
const share = (value, total) => (total > 0 ? value / total : 0);
const percent = (part) => (part === 0 ? "0" : (100 * part).toFixed(Math.abs(part) >= 0.1 ? 1 : 2)) + " %";
const points = (part) => (part > 0 ? "+" : part < 0 ? "−" : "±") + (100 * Math.abs(part)).toFixed(2);
const nameOf = (number) => (number < 0 ? "all" : data.functions[number][0] || "(without a name)");
const placeOf = (number) => {
  if (number < 0 || ofHeaps) return "";
  const [, file, line] = data.functions[number];
  const origin = originOf(number);
  if (origin === "engine") return "the engine";
  return file ? file + (line > 0 ? ":" + line : "") : "built in";
};
// A frame that is a folder.
const FOLDER = -2;
// Composer's folder, and the ones of PEAR and of distributions, are code of others.
const originOf = (number) => {
  const [name, file] = data.functions[number];
  if (name.startsWith("[")) return "engine";
  if (!file || file.startsWith("<internal")) return "builtin";
  return /(^|\/)vendor\/|^\/usr\/share\/(php|pear)\//.test(file) ? "vendor" : "own";
};
