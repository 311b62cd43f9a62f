// The profile that stands in the element #profile: what is chosen of it, and its values as text.
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
