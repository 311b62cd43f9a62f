// What is searched for, kept and left out: a text, a regular expression or one function.
//
// A pattern is one string, which the address holds as it is: a sign, and what it says. `*cart` is found in names and files, `~^Shop`
// is a regular expression on them, `=name@file` is the function itself.

const keyOf = (f) => data.functions[f][0] + "@" + data.functions[f][1];
const numberOfKey = (key) => data.functions.findIndex((_, f) => keyOf(f) === key);
const wordsOf = (pattern) => {
  const text = pattern.slice(1);
  return { "*": "“" + text + "”", "~": "/" + text + "/", "=": text.slice(0, text.lastIndexOf("@")) }[pattern[0]];
};
// Whether a function matches; null where the pattern is none, as a regular expression with an open bracket.
const testOf = (pattern) => {
  const text = pattern.slice(1);
  if (pattern[0] === "=") return (f) => f >= 0 && keyOf(f) === text;
  const find = finderOf(pattern[0], text);
  if (!find) return null;
  const known = new Map();
  return (f) => {
    if (f < 0) return false;
    if (!known.has(f)) known.set(f, find(data.functions[f][0] + "\n" + data.functions[f][1]));
    return known.get(f);
  };
};
const finderOf = (sign, text) => {
  const plain = text.toLowerCase();
  if (sign === "*") return (words) => words.toLowerCase().includes(plain);
  if (sign !== "~") return null;
  try {
    const expression = new RegExp(text, "im");
    return (words) => expression.test(words);
  } catch {
    return null;
  }
};
const searched = () => (state.search === "" ? "" : (state.regex ? "~" : "*") + state.search);

// ── which stacks are drawn ──────────────────────────────────────────────────
// A bit for each pattern says that the stack has one of its functions: all that are kept, none that are left out.
const MOST_PATTERNS = 30;
const keeps = (count, parentOf, functionAt) => {
  const tests = [...state.only, ...state.without].map(testOf);
  if (tests.length === 0) return () => true;
  const all = 2 ** state.only.length - 1;
  const has = new Int32Array(count);
  for (let node = 0; node < count; node++) {
    const parent = parentOf(node);
    const f = functionAt(node);
    has[node] = tests.reduce((bits, test, bit) => (test(f) ? bits | (1 << bit) : bits), parent < 0 ? 0 : has[parent]);
  }
  return (node) => has[node] === all;
};
const keepOnly = (list, pattern) => {
  if (list.includes(pattern) || state.only.length + state.without.length >= MOST_PATTERNS) return;
  list.push(pattern);
  draw();
};
// A chip for each pattern, which takes it back.
const drawKept = () => {
  const host = at("kept");
  host.textContent = "";
  for (const [list, word] of [[state.only, "only with "], [state.without, "without "]]) {
    for (const pattern of list) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = word + wordsOf(pattern) + " ×";
      button.title = "Remove: " + word + wordsOf(pattern);
      button.addEventListener("click", () => {
        list.splice(list.indexOf(pattern), 1);
        draw();
        (host.firstChild || at("search")).focus();
      });
      host.append(button);
    }
  }
};
