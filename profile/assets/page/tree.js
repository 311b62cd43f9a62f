// From samples to a tree and a table, for what is chosen.
//
// Does not: touch the screen.

// What a node or a row is a sum of. Of two profiles also: the squared error of each (noise.js).
const FIELDS = compared ? ["after", "before", "errorAfter", "errorBefore"] : ["after"];
const zero = compared ? () => ({ after: 0, before: 0, errorAfter: 0, errorBefore: 0 }) : () => ({ after: 0 });
const add = (to, from) => {
  for (const field of FIELDS) to[field] += from[field];
  return to;
};
const valueOf = (one) => (state.width === "before" ? one.before : one.after);
// What is in a node itself, and in nothing that it calls.
const ownOf = (node) => {
  const own = zero();
  for (const field of FIELDS) own[field] = node.children.reduce((left, child) => left - child[field], node[field]);
  return own;
};
const branch = (f, name, above) => Object.assign(zero(), { name, f, value: 0, children: [], above });

// Whether the samples with a set of labels are drawn: of each key that is chosen they have one of the values.
const wanted = () => {
  const chosen = [...state.labels.values()];
  return data.sets.map((set) => chosen.every((labels) => set.some((label) => labels.has(label))));
};
const nodeCount = data.nodes.length / 2 + 1;
const functionOf = (node) => (node === 0 ? -1 : data.nodes[2 * node - 1]);
const parentOf = (node) => (node === 0 ? -1 : data.nodes[2 * node - 2]);
const valueAt = (samples, i) => Math.max(0, samples[i + 2 + state.type]);
const READERS = {
  after: [data.samples, valueAt], before: [data.before, valueAt],
  errorAfter: [data.samples, squaredErrorAt], errorBefore: [data.before, squaredErrorAt],
};
// Totals of each node; parents stand before their children.
const totals = ([samples, read], sets, keep) => {
  const all = new Float64Array(nodeCount);
  for (let i = 0; i < samples.length; i += stride) {
    const node = samples[i];
    if (sets[samples[i + 1]] && keep(node)) all[node] += read(samples, i);
  }
  for (let node = nodeCount - 1; node > 0; node--) all[parentOf(node)] += all[node];
  return all;
};
const build = () => {
  if (state.moments) return ofMoments();
  const sets = wanted();
  const keep = keeps(nodeCount, parentOf, functionOf);
  const columns = FIELDS.map((field) => totals(READERS[field], sets, keep));
  const nodes = new Array(nodeCount);
  for (let node = 0; node < nodeCount; node++) {
    if (columns[0][node] <= 0 && (!compared || columns[1][node] <= 0)) continue;
    const f = functionOf(node);
    const one = branch(f, nameOf(f), nodes[parentOf(node)]);
    FIELDS.forEach((field, index) => { one[field] = columns[index][node]; });
    one.value = valueOf(one);
    nodes[node] = one;
    if (node > 0) one.above.children.push(one);
  }
  return planted(nodes[0] || branch(-1, nameOf(-1)));
};
// The tree with its sums and its table.
const planted = (root) => ({ ...add(zero(), root), root, rows: rows(root) });
// What was freed of memory that is older than the profile has no place in a flame graph.
const freed = () => {
  const sets = wanted();
  const keep = keeps(nodeCount, parentOf, functionOf);
  let sum = 0;
  for (let i = 0; i < data.samples.length; i += stride) {
    if (sets[data.samples[i + 1]] && keep(data.samples[i])) sum += Math.min(0, data.samples[i + 2 + state.type]);
  }
  return sum;
};
// Calls `enter` for each node with how often its function is on the stack above it.
const visit = (root, enter) => {
  const onPath = new Map();
  const open = [[root, false]];
  while (open.length > 0) {
    const [node, leaving] = open.pop();
    const depth = onPath.get(node.f) || 0;
    onPath.set(node.f, leaving ? depth - 1 : depth + 1);
    if (leaving) continue;
    enter(node, depth);
    open.push([node, true]);
    for (const child of node.children) open.push([child, false]);
  }
};
// A function that is on a stack several times counts once in its total.
const rows = (root) => {
  const table = new Map();
  visit(root, (node, depth) => {
    if (node.f < 0) return;
    if (!table.has(node.f)) table.set(node.f, { f: node.f, self: zero(), total: zero() });
    const row = table.get(node.f);
    add(row.self, ownOf(node));
    if (depth === 0) add(row.total, node);
  });
  return [...table.values()];
};
