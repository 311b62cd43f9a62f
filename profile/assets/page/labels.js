// One list of values for each label that tells samples apart; any number of them can be chosen.

const MOST_VALUES = 500;
const choosesLabel = (key, label, isChosen) => {
  const chosen = state.labels.get(key) || new Set();
  if (isChosen) chosen.add(label);
  else chosen.delete(label);
  if (chosen.size > 0) state.labels.set(key, chosen);
  else state.labels.delete(key);
};
// The values with most of the first sample type first.
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
    at("filters").append(filterOf(key, labels.slice(0, MOST_VALUES)));
  }
};
const filterOf = (key, labels) => {
  const filter = document.createElement("details");
  filter.dataset.key = key;
  const list = document.createElement("div");
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "Label " + key);
  for (const label of labels) {
    const line = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.value = String(label);
    box.addEventListener("change", () => {
      choosesLabel(key, label, box.checked);
      draw();
    });
    line.append(box, data.labels[label][1] || "(empty)");
    list.append(line);
  }
  filter.append(document.createElement("summary"), list);
  return filter;
};
const markFilters = () => {
  for (const filter of at("filters").children) {
    const chosen = state.labels.get(filter.dataset.key) || new Set();
    const names = [...chosen].map((label) => data.labels[label][1]);
    const words = names.length === 0 ? "all" : names.length === 1 ? names[0] : names.length + " values";
    filter.classList.toggle("set", names.length > 0);
    filter.firstChild.textContent = filter.dataset.key + ": " + words;
    filter.firstChild.title = names.slice(0, 30).join("\n");
    for (const box of filter.querySelectorAll("input")) box.checked = chosen.has(Number(box.value));
  }
};
// Closes the lists but the one with this element; says whether one was open.
const closeFilters = (element) => {
  const open = [...at("filters").querySelectorAll("details[open]")].filter((filter) => !filter.contains(element));
  for (const filter of open) {
    if (filter.contains(document.activeElement)) filter.firstChild.focus();
    filter.open = false;
  }
  return open.length > 0;
};
