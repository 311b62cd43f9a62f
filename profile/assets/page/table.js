// The table of functions.

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
  bar(cell, part);
};
const bar = (cell, part) => {
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
  markFindings();
};
