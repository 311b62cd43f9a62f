// What there is to say of the profile, above the graph: findings, or of two profiles a verdict. Each shows its function in the graph, by the
// sample type that it is about.

const drawFindings = () => {
  at("findings").hidden = data.findings.length === 0 && !data.verdict;
  at("said").textContent = data.verdict || (data.findings.length === 1 ? "1 finding" : data.findings.length + " findings");
  for (const one of data.findings) {
    const line = document.createElement("li");
    const name = document.createElement("b");
    name.textContent = one.amount;
    const focused = one.function !== null;
    const host = focused ? document.createElement("button") : document.createElement("p");
    if (focused) {
      host.type = "button";
      host.title = "Show " + nameOf(one.function) + " in the graph";
      host.addEventListener("click", () => focusOn(one));
    }
    host.append(name, " ", one.sentence);
    line.append(host);
    at("list").append(line);
  }
};
const isFocused = (one) => one.function === state.exact && (one.type === null || one.type === state.type);
const focusOn = (one) => {
  const leaves = isFocused(one);
  at("search").value = state.search = "";
  if (one.function !== null && !leaves) picked = one.function;
  state.exact = leaves ? -1 : one.function;
  if (!leaves && one.type !== null) state.type = one.type;
  state.labels.delete(WAITING);
  state.moments = "";
  draw();
};
const markFindings = () => {
  const buttons = [...at("list").querySelectorAll("button")];
  data.findings.filter((one) => one.function !== null).forEach((one, index) => buttons[index].setAttribute("aria-pressed", String(isFocused(one))));
};
