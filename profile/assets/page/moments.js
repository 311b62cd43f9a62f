// A flame graph of the recorded requests: of what they did in the selected time.

// The part of a moment that is in the selected time.
const insideSpan = (request, [begin, duration]) => {
  if (state.span === null) return Math.max(0, duration);
  const [from, to] = spanOf(state.span);
  const start = request.begin + begin;
  return Math.max(0, Math.min(start + duration, to) - Math.max(start, from));
};
// What each node of the call tree took itself.
const tookOfNodes = () => {
  const took = new Float64Array(timeline.nodes.length);
  for (const request of timeline.requests.filter((one) => isRecorded(one) && ranIn(one, state.span))) {
    for (const moment of request.moments) took[moment[2]] += insideSpan(request, moment);
  }
  return took;
};
// The tree without its lines: nodes of the same functions become one.
const ofMoments = () => {
  const took = tookOfNodes();
  const all = took.slice();
  for (let node = all.length - 1; node >= 0; node--) if (timeline.nodes[node][0] >= 0) all[timeline.nodes[node][0]] += all[node];
  const branch = (f, node) => ({ name: nameOf(f), f, after: 0, before: 0, value: 0, children: [], node, known: new Map() });
  const root = branch(-1, 0);
  const own = [0];
  const grow = (parent, f) => {
    if (!parent.known.has(f)) {
      const child = branch(f, own.push(0) - 1);
      parent.known.set(f, child);
      parent.children.push(child);
    }
    return parent.known.get(f);
  };
  const add = (one, value) => { one.after = one.before = one.value = one.value + value; };
  const branches = [];
  timeline.nodes.forEach(([parent], node) => {
    if (all[node] <= 0) return;
    const above = parent < 0 ? root : branches[parent];
    const one = depthOfNode[node] > DEEPEST ? above : grow(above, functionOfNode(node));
    branches[node] = one;
    own[one.node] += took[node];
    if (one !== above) add(one, all[node]);
    if (parent < 0) add(root, all[node]);
  });
  return { root, after: root.after, before: root.after, rows: rows(root, own, own) };
};
const turnMoments = () => {
  state.moments = !state.moments;
  if (state.moments) state.exact = -1;
  if (state.view === "requests" || state.view === "request") show("both");
  else draw();
};
// Sample types and labels are of the profile: they choose nothing of the moments.
const markMoments = () => {
  for (const id of ["types", "waits", "filters"]) at(id).classList.toggle("off", state.moments);
  if (timeline) drawSpan();
};
