// What ran when, from the element #timeline: rows of steps, times and places as text.
//
// Does not: touch the screen. A page without a timeline has no such element; where it was too large for the page it is `null`.

const timeline = at("timeline") ? JSON.parse(at("timeline").textContent) : undefined;
const STEPS = 600;
const step = timeline ? Math.max(1, timeline.stepNanoseconds) : 1;
const steps = timeline ? Math.max(1, Math.min(STEPS, Math.ceil(timeline.durationNanoseconds / step))) : 0;

// ── times as text ───────────────────────────────────────────────────────────
// Time of day in UTC, as the page says when the profile began; with milliseconds where a step is shorter than a second.
const clock = (since, exact) => new Date(Math.round((timeline.beganUnixNanoseconds + since) / 1e6)).toISOString().slice(11, exact ? 23 : 19);
const isFine = step < 1e9;
const clockOfSpan = ([first, last]) => {
  const end = Math.min((last + 1) * step, timeline.durationNanoseconds);
  return clock(first * step, isFine) + " to " + clock(end, isFine);
};
const NICE = [
  ...[1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((ten) => [ten, 2 * ten, 5 * ten]),
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400].map((seconds) => seconds * 1e9),
];
// Round times in a range, as many as fit; `origin` is what they are round in.
const ticks = (from, to, most, origin) => {
  const every = NICE.find((nice) => (to - from) / nice <= most) || (to - from) / most;
  const marks = [];
  const first = every - ((((origin + from) % every) + every) % every);
  for (let mark = from + (first === every ? 0 : first); mark <= to && marks.length < 100; mark += every) marks.push(mark);
  return { marks, every };
};

// ── rows ────────────────────────────────────────────────────────────────────
const workerName = ({ pod, pid, thread }) => {
  const own = pid === 0 ? "(other)" : "pid " + pid + (thread ? "/" + thread : "");
  return pod ? pod + " " + own : own;
};
const laneOf = (name, cells) => {
  const row = () => new Float64Array(steps);
  const lane = { name, busy: row(), waiting: row(), heap: row(), most: 0, heapMost: 0, busyAll: 0, waitingAll: 0 };
  for (const [number, busy, waiting, heap] of cells) {
    // What comes after the last step is of it: a run ends when it ends.
    const own = Math.min(number, steps - 1);
    lane.busy[own] += Math.max(0, busy);
    lane.waiting[own] += Math.max(0, waiting);
    lane.heap[own] = Math.max(lane.heap[own], heap);
    lane.heapMost = Math.max(lane.heapMost, heap);
    lane.most = Math.max(lane.most, lane.busy[own] + lane.waiting[own]);
    lane.busyAll += Math.max(0, busy);
    lane.waitingAll += Math.max(0, waiting);
  }
  return lane;
};
// The largest first.
const lanesOf = {
  routes: () => timeline.routes.map(({ route, cells }) => laneOf(route || "(route not known)", cells)),
  workers: () => timeline.workers.map((worker) => laneOf(workerName(worker), worker.cells)),
};
const lanes = (kind) => lanesOf[kind]().sort((one, other) => other.busyAll + other.waitingAll - one.busyAll - one.waitingAll);

// ── requests ────────────────────────────────────────────────────────────────
const isRecorded = ({ moments }) => Array.isArray(moments) && moments.length > 0;
const spanOf = ([first, last]) => [first * step, (last + 1) * step];
// Whether a request ran in the selected time; one that took no time did so in its moment.
const ranIn = (request, span) => {
  if (span === null) return true;
  const [from, to] = spanOf(span);
  return request.begin < to && Math.max(request.end, request.begin + 1) > from;
};
const requestName = (request) => {
  const name = [request.method, request.route || request.script].filter(Boolean).join(" ");
  return name || "a request of " + workerName(request);
};

// ── functions: those of the profile, and after them those that it has not ───
const timedFunctions = (() => {
  if (!timeline) return [];
  const known = new Map(data.functions.map(([name, file], f) => [name + "\n" + file, f]));
  return timeline.functions.map(([name, file]) => {
    const key = name + "\n" + file;
    if (!known.has(key)) known.set(key, data.functions.push([name, file, 0]) - 1);
    return known.get(key);
  });
})();
const functionOfNode = (node) => timedFunctions[timeline.nodes[node][1]];
// Frames of a stack that are drawn, from the root on; a recursion that does not end has any number. What is below is time of the last one.
const DEEPEST = 512;
// 1 for a root; parents stand before their children.
const depthOfNode = (() => {
  const nodes = timeline ? timeline.nodes : [];
  const depths = new Uint32Array(nodes.length);
  nodes.forEach(([parent], node) => { depths[node] = parent < 0 ? 1 : depths[parent] + 1; });
  return depths;
})();
const isCut = depthOfNode.some((depth) => depth > DEEPEST);
const cutWords = isCut ? "The graph shows stacks to a depth of " + DEEPEST + " frames." : "";
// Nodes from the root to this one.
const pathTo = (leaf) => {
  const path = [];
  for (let node = leaf; node >= 0; node = timeline.nodes[node][0]) {
    if (depthOfNode[node] <= DEEPEST) path.push(node);
  }
  return path.reverse();
};
