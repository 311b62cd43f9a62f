// The heat map: the time of each line of a file, and its text where the reader has given it.
//
// Does not: know the text from the profiled machine: it stands in the element #texts, or is read from a folder of the reader's (folder.js).

const hasLines = Boolean(data.lines);
const texts = new Map(at("texts") ? Object.entries(JSON.parse(at("texts").textContent)) : []);
// More lines of a text than a browser shows at once are cut.
const MOST_SHOWN = 10000;
// Each file with its lines.
const lineFiles = new Map();
if (hasLines) {
  data.lines.lines.forEach(([file], line) => {
    if (!lineFiles.has(file)) lineFiles.set(file, []);
    lineFiles.get(file).push(line);
  });
}

// ── sums ────────────────────────────────────────────────────────────────────
// Rows are of sets of labels where the profile is not too large for that.
const lineSums = (rows, sets) => {
  const sums = new Float64Array(data.lines.lines.length);
  for (let i = 0; i < rows.length; i += stride) {
    if (!data.lines.apart || sets[rows[i + 1]]) sums[rows[i]] += valueAt(rows, i);
  }
  return sums;
};
const sumOfSets = (sets) => {
  let sum = 0;
  for (let i = 0; i < data.samples.length; i += stride) {
    if (!data.lines.apart || sets[data.samples[i + 1]]) sum += valueAt(data.samples, i);
  }
  return sum;
};
const heat = () => {
  const sets = wanted();
  return { own: lineSums(data.lines.own, sets), total: lineSums(data.lines.total, sets), all: sumOfSets(sets) };
};
const ofFile = (sums, file) => lineFiles.get(file).reduce((sum, line) => sum + sums[line], 0);
// A line that calls another one of its file is in the total of both, so that files are ordered by their own time.
const filesByTime = ({ own, total }) => {
  const most = (file) => lineFiles.get(file).reduce((max, line) => Math.max(max, total[line]), 0);
  const files = [...lineFiles.keys()].map((file) => [file, ofFile(own, file), most(file)]);
  return files.sort((one, other) => other[1] - one[1] || other[2] - one[2] || (one[0] < other[0] ? -1 : 1));
};

// ── drawing ─────────────────────────────────────────────────────────────────
const MOST_CHOICES = 500;
const drawLines = () => {
  if (!hasLines || state.view !== "lines") return;
  const sums = heat();
  const files = filesByTime(sums);
  if (!lineFiles.has(state.file)) state.file = files[0][0];
  drawFiles(files, sums);
  drawLineNote();
  drawCode(sums);
  showCostliest(sums);
  drawTextNote();
  if (!texts.has(state.file)) readText(state.file);
};
const drawFiles = (files, { all }) => {
  const list = at("file");
  list.textContent = "";
  const shown = files.slice(0, MOST_CHOICES);
  if (!shown.some(([file]) => file === state.file)) shown.push(files.find(([file]) => file === state.file));
  for (const [file, own] of shown) {
    const option = document.createElement("option");
    option.value = file;
    option.textContent = percent(share(own, all)) + "  " + file;
    option.selected = file === state.file;
    list.append(option);
  }
};
// What the numbers are not of, although the graph is.
const drawLineNote = () => {
  const notes = [];
  if (state.moments) notes.push("Lines are of the whole run, not of the selected time.");
  if (state.only.length + state.without.length > 0) notes.push("Lines are of all stacks, whatever functions they have.");
  if (!data.lines.apart && state.labels.size > 0) notes.push("Lines are of all samples: the profile has too many labels to tell them apart.");
  at("lineless").textContent = notes.join(" ");
  at("lineless").hidden = notes.length === 0;
};
const textOf = (file) => (texts.get(file) ? texts.get(file).split(/\r\n|\r|\n/).slice(0, MOST_SHOWN) : null);
const drawCode = (sums) => {
  const known = new Map(lineFiles.get(state.file).map((line) => [data.lines.lines[line][1], line]));
  const text = textOf(state.file);
  // A line that the text does not have is of another version of the file.
  const numbers = text ? [...new Set([...text.keys()].map((index) => index + 1).concat([...known.keys()]))] : [...known.keys()];
  const most = lineFiles.get(state.file).reduce((max, line) => Math.max(max, sums.total[line]), 0);
  const body = at("code");
  const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.line : null;
  const rows = document.createDocumentFragment();
  let before = 0;
  for (const number of numbers.sort((one, other) => one - other)) {
    const row = codeRow(number, known.get(number), text, sums, most);
    row.classList.toggle("gap", before > 0 && number > before + 1);
    rows.append(row);
    before = number;
  }
  body.textContent = "";
  body.append(rows);
  // The text may come after the reader has gone to a line.
  if (focused !== null) goToLine(focused);
  at("outdated").hidden = !text || ![...known.keys()].some((number) => number > text.length);
};
// A file begins at its costliest line: the first one is often far from any time.
let lookedAt = "";
const showCostliest = ({ own, total }) => {
  const key = state.file + "\n" + texts.has(state.file);
  if (lookedAt === key || at("code").contains(document.activeElement)) return;
  lookedAt = key;
  const lines = lineFiles.get(state.file).slice().sort((one, other) => own[other] - own[one] || total[other] - total[one]);
  rowOf(data.lines.lines[lines[0]][1]).scrollIntoView({ block: "center" });
};
const rowOf = (number) => at("code").querySelector('tr[data-line="' + number + '"]');
const goToLine = (number) => {
  const row = rowOf(number);
  if (!row) return at("file").focus();
  row.scrollIntoView({ block: "center" });
  (row.querySelector("button") || at("file")).focus({ preventScroll: true });
};
const codeRow = (number, line, text, sums, most) => {
  const row = document.createElement("tr");
  row.dataset.line = String(number);
  const cell = (className, words) => {
    const element = document.createElement("td");
    element.className = className;
    element.textContent = words;
    row.append(element);
    return element;
  };
  const has = line !== undefined && sums.total[line] > 0;
  for (const sum of [sums.own, sums.total]) {
    const value = has ? sum[line] : 0;
    const element = cell("number", value > 0 ? amount(value) : "");
    if (value > 0) {
      small(element, percent(share(value, sums.all)));
      bar(element, share(value, sums.all));
    }
  }
  cell("number place", String(number));
  const code = cell("text", text ? text[number - 1] || "" : "");
  // The square root tells small differences apart: most lines have little.
  if (has) code.style.backgroundColor = "color-mix(in srgb, var(--bar) " + Math.round(100 * Math.sqrt(share(sums.total[line], most))) + "%, transparent)";
  const name = cell("name", "");
  if (has) name.append(lineButton(data.lines.lines[line][2]));
  return row;
};
const lineButton = (f) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = nameOf(f);
  button.title = "Callers and callees of " + nameOf(f);
  button.addEventListener("click", () => {
    pick(f);
    reshape("sandwich");
    at("chart").focus();
  });
  return button;
};

// ── ways there ──────────────────────────────────────────────────────────────
// The file of a function, at the first of its lines that has time.
const openLines = (f) => {
  const file = data.functions[f][1];
  if (!hasLines || !lineFiles.has(file)) return;
  state.file = file;
  show("lines");
  const lines = lineFiles.get(file).map((line) => data.lines.lines[line]).filter(([, , owner]) => owner === f);
  goToLine(Math.min(...lines.map(([, number]) => number)));
};
const listenToLines = () => {
  at("file").addEventListener("change", () => {
    state.file = at("file").value;
    drawLines();
    remember();
  });
  at("folder").addEventListener("click", () => at("chooser").click());
  at("chooser").addEventListener("change", () => takeFolder([...at("chooser").files]));
};
