// The table of functions.

const COLUMNS = compared
  ? [
      ["change", ofHeaps ? "Self, growth" : "Self, points", ({ self }) => Math.abs(changeOf(self)), ({ self }, cell) => difference(cell, self)],
      ["changeTotal", ofHeaps ? "Total, growth" : "Total, points", ({ total }) => Math.abs(changeOf(total)), ({ total }, cell) => difference(cell, total)],
    ]
  : [
      ["self", "Self", ({ self }) => self.after, ({ self }, cell) => quantity(cell, self.after)],
      ["total", "Total", ({ total }) => total.after, ({ total }, cell) => quantity(cell, total.after)],
    ];
const quantity = (cell, value) => {
  const part = share(value, drawn.after);
  cell.append(amount(value));
  small(cell, percent(part));
  bar(cell, part);
};
const bar = (cell, part) => {
  cell.style.backgroundImage = "linear-gradient(var(--bar), var(--bar))";
  cell.style.backgroundSize = (100 * part).toFixed(1) + "% 3px";
  cell.style.backgroundPosition = "right bottom";
};
const difference = (cell, one) => {
  const part = changeOf(one);
  cell.classList.add(isNoise(one) ? "same" : part > 0 ? "grew" : "shrank");
  if (ofHeaps) {
    const growth = one.after - one.before;
    cell.append((growth > 0 ? "+" : growth < 0 ? "−" : "±") + amount(Math.abs(growth)));
    return small(cell, amount(one.before) + " → " + amount(one.after));
  }
  cell.append(points(part));
  if (isNoise(one)) cell.title = "No more than chance: up to " + points(noiseOf(one)).slice(1) + " points";
  small(cell, percent(partBefore(one)) + " → " + percent(partAfter(one)));
};
const small = (cell, text) => {
  const element = document.createElement("small");
  element.textContent = text;
  cell.append(element);
};
const sorted = () => {
  const matches = state.search === "" ? null : testOf(searched());
  const rows = matches ? drawn.rows.filter((row) => matches(row.f)) : drawn.rows.slice();
  const sign = state.descending ? -1 : 1;
  const column = COLUMNS.find(([id]) => id === state.sort);
  const byName = (a, b) => (nameOf(a.f) < nameOf(b.f) ? -1 : nameOf(a.f) > nameOf(b.f) ? 1 : a.f - b.f);
  return rows.sort((a, b) => (column ? sign * (column[2](a) - column[2](b)) || byName(a, b) : sign * byName(a, b)));
};
const drawTable = () => {
  const heads = at("heads");
  const focused = heads.contains(document.activeElement) ? document.activeElement.dataset.column : "";
  heads.textContent = "";
  for (const [id, title] of [...COLUMNS, ["name", ofHeaps ? "Class or step" : "Function"]]) {
    const head = document.createElement("th");
    head.className = id === "name" ? "name" : "number";
    head.scope = "col";
    if (compared && id !== "name") head.style.width = ofHeaps ? "160px" : "124px";
    if (state.sort === id) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title;
    button.dataset.column = id;
    button.addEventListener("click", () => {
      state.descending = state.sort === id ? !state.descending : id !== "name";
      state.sort = id;
      drawTable();
      remember();
    });
    head.append(button);
    heads.append(head);
    if (id === focused) button.focus();
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
  cell.title = nameOf(row.f) + "\n" + placeOf(row.f);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = nameOf(row.f);
  button.setAttribute("aria-pressed", String(row.f === state.exact));
  cell.append(button);
  small(cell, placeOf(row.f));
  element.append(cell);
  return element;
};
const markRows = () => {
  for (const row of at("rows").children) {
    const isChosen = Number(row.dataset.function) === state.exact;
    row.classList.toggle("chosen", isChosen);
    row.querySelector("button").setAttribute("aria-pressed", String(isChosen));
  }
};
const choose = (row) => {
  if (!row) return;
  const f = Number(row.dataset.function);
  state.exact = state.exact === f ? -1 : f;
  at("search").value = state.search = "";
  pick(f);
  markRows();
  if (state.shape === "sandwich") {
    state.zoom = [];
    drawGraph();
  } else {
    if (zoomed && zoomed.parent) zoomOutAll();
    drawSearch();
  }
  remember();
  markFindings();
};
