// A flame graph of the selected time: of what the recorded requests did in it, or of all that ran in whole parts of the run.

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
// The parts of the run that are selected: such as have their middle in the time, or else the one that the time's middle lies in.
const parts = (timeline && timeline.parts) || [];
const partsIn = (span) => {
  if (span === null) return parts;
  const [from, to] = spanOf(span);
  const inside = parts.filter(({ begin, end }) => begin + end >= 2 * from && begin + end < 2 * to);
  return inside.length > 0 ? inside : parts.filter(({ begin, end }) => 2 * begin <= from + to && from + to < 2 * end).slice(0, 1);
};
const tookOfParts = () => {
  const took = new Float64Array(timeline.nodes.length);
  for (const { stacks } of partsIn(state.span)) for (const [node, busy, waiting] of stacks) took[node] += busy + waiting;
  return took;
};
const clockOfParts = (chosen) => clock(Math.min(...chosen.map(({ begin }) => begin)), isFine) + " to " + clock(Math.max(...chosen.map(({ end }) => end)), isFine);
// What the graph of some parts does not show: stacks that took less than those that a part names.
const unnamed = (chosen) => {
  const other = chosen.reduce((sum, part) => sum + part.other, 0);
  const named = chosen.reduce((sum, part) => sum + part.stacks.reduce((own, [, busy, waiting]) => own + busy + waiting, 0), 0);
  return other > 0 ? percent(share(other, other + named)) + " of the time belongs to smaller stacks, which are not drawn. " : "";
};
// The tree without its lines: nodes of the same functions become one.
const ofMoments = () => {
  const took = state.moments === "parts" ? tookOfParts() : tookOfNodes();
  const keep = keeps(took.length, (node) => timeline.nodes[node][0], functionOfNode);
  took.forEach((_, node) => { if (!keep(node)) took[node] = 0; });
  const all = took.slice();
  for (let node = all.length - 1; node >= 0; node--) if (timeline.nodes[node][0] >= 0) all[timeline.nodes[node][0]] += all[node];
  const made = (f, above) => Object.assign(branch(f, nameOf(f), above), { known: new Map() });
  const root = made(-1);
  const grow = (parent, f) => {
    if (!parent.known.has(f)) {
      const child = made(f, parent);
      parent.known.set(f, child);
      parent.children.push(child);
    }
    return parent.known.get(f);
  };
  const take = (one, value) => { one.after = one.value = one.value + value; };
  const branches = [];
  timeline.nodes.forEach(([parent], node) => {
    if (all[node] <= 0) return;
    const above = parent < 0 ? root : branches[parent];
    const one = depthOfNode[node] > DEEPEST ? above : grow(above, functionOfNode(node));
    branches[node] = one;
    if (one !== above) take(one, all[node]);
    if (parent < 0) take(root, all[node]);
  });
  return planted(root);
};
const turnMoments = (kind) => {
  state.moments = state.moments === kind ? "" : kind;
  if (state.moments) state.exact = -1;
  if (state.view === "requests" || state.view === "request") show("both");
  else draw();
};
// Sample types and labels are of the profile: they choose nothing of the moments.
const markMoments = () => {
  for (const id of ["types", "waits", "filters"]) at(id).classList.toggle("off", state.moments !== "");
  if (timeline) drawSpan();
};
