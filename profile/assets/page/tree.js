// From samples to a tree and a table, for what is chosen.
//
// Does not: touch the screen.

const wanted = () => {
  if (state.labels.size === 0) return null;
  const need = [...state.labels.values()];
  return data.sets.map((set) => need.every((label) => set.includes(label)));
};
const nodeCount = data.nodes.length / 2 + 1;
const functionOf = (node) => (node === 0 ? -1 : data.nodes[2 * node - 1]);
// Own and total values of each node; parents stand before their children.
const sums = (samples, sets) => {
  const own = new Float64Array(nodeCount);
  for (let i = 0; i < samples.length; i += stride) {
    if (sets && !sets[samples[i + 1]]) continue;
    const value = samples[i + 2 + state.type];
    if (value > 0) own[samples[i]] += value;
  }
  const all = own.slice();
  for (let node = nodeCount - 1; node > 0; node--) all[data.nodes[2 * node - 2]] += all[node];
  return { own, all };
};
const build = () => {
  if (state.moments) return ofMoments();
  const sets = wanted();
  const after = sums(data.samples, sets);
  const before = compared ? sums(data.before, sets) : after;
  const nodes = new Array(nodeCount);
  for (let node = 0; node < nodeCount; node++) {
    if (after.all[node] <= 0 && before.all[node] <= 0) continue;
    const f = functionOf(node);
    const one = { name: nameOf(f), f, after: after.all[node], before: before.all[node], value: 0, children: [], node };
    one.value = state.width === "before" ? one.before : one.after;
    nodes[node] = one;
    if (node > 0) nodes[data.nodes[2 * node - 2]].children.push(one);
  }
  const root = nodes[0] || null;
  return { root, after: after.all[0], before: before.all[0], rows: root ? rows(root, after.own, before.own) : [] };
};
// What was freed of memory that is older than the profile has no place in a flame graph.
const freed = () => {
  const sets = wanted();
  let sum = 0;
  for (let i = 0; i < data.samples.length; i += stride) {
    if (!sets || sets[data.samples[i + 1]]) sum += Math.min(0, data.samples[i + 2 + state.type]);
  }
  return sum;
};
// A function that is on a stack several times counts once in its total.
const rows = (root, own, ownBefore) => {
  const table = new Map();
  const onPath = new Map();
  const open = [[root, false]];
  while (open.length > 0) {
    const [node, leaving] = open.pop();
    const depth = onPath.get(node.f) || 0;
    if (leaving) {
      onPath.set(node.f, depth - 1);
      continue;
    }
    if (node.f >= 0) {
      let row = table.get(node.f);
      if (!row) table.set(node.f, (row = { f: node.f, self: 0, total: 0, selfBefore: 0, totalBefore: 0 }));
      row.self += own[node.node];
      row.selfBefore += ownBefore[node.node];
      if (depth === 0) {
        row.total += node.after;
        row.totalBefore += node.before;
      }
    }
    onPath.set(node.f, depth + 1);
    open.push([node, true]);
    for (const child of node.children) open.push([child, false]);
  }
  return [...table.values()];
};
