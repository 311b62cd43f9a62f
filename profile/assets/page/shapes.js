// The trees that a graph can be of: the calls, the calls from their ends, what calls a function and what it calls, the folders.
//
// Does not: touch the screen.

// Each shape gives its trees; a sandwich is two, and the upper one has its root at the bottom.
const SHAPES = {
  calls: [ofHeaps ? "Paths" : "Calls", () => [{ root: drawn.root }]],
  inverted: ["Inverted", () => [{ root: invertedTree() }]],
  sandwich: [ofHeaps ? "Holders and held" : "Callers and callees", () => (state.exact < 0 ? [] : [{ root: callersOf(state.exact), upwards: true }, { root: calleesOf(state.exact) }])],
  folders: ["Folders", () => [{ root: foldersOf(drawn.rows) }]],
};
// A class in a heap has no file.
if (ofHeaps) delete SHAPES.folders;
// A caller that is below one in twenty thousand is not told apart: an inverted tree may be as large as the tree times its depth.
const FINEST = 20000;
const valued = (node) => {
  node.value = valueOf(node);
  return node;
};
const grouped = (host, list) => {
  const groups = new Map();
  for (const [node, weight] of list) {
    if (!groups.has(node.f)) groups.set(node.f, [branch(node.f, node.name, host), []]);
    const [child, its] = groups.get(node.f);
    add(child, weight);
    its.push([node, weight]);
  }
  return [...groups.values()];
};
// Grows a tree below `host`; `next` gives the nodes that follow one of the tree of calls, each with what it brings.
const grow = (host, list, next, least) => {
  const open = [[host, list]];
  while (open.length > 0) {
    const [one, its] = open.pop();
    for (const [child, theirs] of grouped(one, its)) {
      if (Math.max(child.after, child.before || 0) < least) continue;
      one.children.push(valued(child));
      open.push([child, theirs.flatMap(next)]);
    }
  }
  return valued(host);
};
// The root calls nobody: it is where a stack begins.
const caller = ([node, weight]) => (node.above && node.above.f >= 0 ? [[node.above, weight]] : []);
const callees = ([node]) => node.children.map((child) => [child, child]);
const leastOf = (one) => Math.max(one.after, one.before || 0) / FINEST;
const invertedTree = () => {
  const ends = [];
  visit(drawn.root, (node) => {
    const own = ownOf(node);
    if (node.f >= 0 && (own.after > 0 || own.before > 0)) ends.push([node, own]);
  });
  return grow(add(branch(-1, nameOf(-1)), drawn), ends, caller, leastOf(drawn));
};
// Of a recursion the outermost call, so that both halves are as wide as the function's total.
const outermost = (f) => {
  const found = [];
  visit(drawn.root, (node, depth) => { if (node.f === f && depth === 0) found.push([node, node]); });
  return found;
};
const ofFound = (f, next) => {
  const found = outermost(f);
  const host = found.reduce((sum, [node]) => add(sum, node), branch(f, nameOf(f)));
  return grow(host, found.flatMap(next), next, leastOf(host));
};
const callersOf = (f) => ofFound(f, caller);
const calleesOf = (f) => ofFound(f, callees);

// ── folders: where a function's own time is, by its source ──────────────────
const ORIGINS = { own: "own code", vendor: "vendor", builtin: "built in", engine: "the engine" };
const foldersOf = (table) => {
  const root = add(branch(-1, nameOf(-1)), drawn);
  const known = new Map();
  const inside = (host, name, key, f) => {
    if (!known.has(key)) {
      known.set(key, branch(f, name, host));
      host.children.push(known.get(key));
    }
    return known.get(key);
  };
  for (const { f, self } of table) {
    if (self.after <= 0 && !(self.before > 0)) continue;
    const origin = originOf(f);
    let key = origin;
    const path = [inside(root, ORIGINS[origin], key, FOLDER)];
    for (const part of partsOf(f)) {
      key += "/" + part;
      path.push(inside(path[path.length - 1], part, key, FOLDER));
    }
    path.push(inside(path[path.length - 1], nameOf(f), key + "\n" + f, f));
    for (const one of path) valued(add(one, self)).origin = origin;
  }
  for (const origin of root.children) origin.children = origin.children.map(joined);
  return valued(root);
};
const partsOf = (f) => data.functions[f][1].split("/").filter(Boolean);
// A folder with nothing but a folder in it is one with it.
const joined = (node) => {
  while (node.children.length === 1 && node.children[0].f === FOLDER) {
    const [child] = node.children;
    Object.assign(node, { name: node.name + "/" + child.name, children: child.children });
  }
  node.children = node.children.map(joined);
  return node;
};
