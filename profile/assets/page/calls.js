// From the moments of a request to its calls: one box for a call, from the moment at which it was seen first to the one at which it was seen last.
//
// Does not: touch the screen.

// Of two stacks in a row, how many calls are the same ones. A function that is called from another line is another call, while its
// caller, which has moved on to that line, is the same.
const sameCalls = (before, path) => {
  const least = Math.min(before.length, path.length);
  let same = 0;
  while (same < least && functionOfNode(before[same]) === functionOfNode(path[same]) && (same === 0 || before[same - 1] === path[same - 1])) same++;
  return same;
};
// All calls by depth, in the order of time; `sleeps` are the moments that waited, with their depth; `lane` is what the worker did.
const callsOf = (request) => {
  const depths = [];
  const lane = [];
  let open = [];
  let before = { path: [], end: -Infinity, duration: 0 };
  for (const [start, duration, node, waits] of [...request.moments].sort((one, other) => one[0] - other[0])) {
    const begin = Math.max(start, before.end);
    const end = start + duration;
    if (end <= begin) continue;
    const path = pathTo(node);
    // Where a while is missing, nobody knows whether a call went on.
    const same = begin - before.end > Math.max(duration, before.duration) ? 0 : sameCalls(before.path, path);
    open = open.slice(0, same);
    for (let depth = same; depth < path.length; depth++) open.push(openCall(depths, open[depth - 1] || null, path[depth], depth, begin));
    for (const [depth, call] of open.entries()) seen(call, timeline.nodes[path[depth]][2], end, waits ? end - begin : 0);
    if (open.length > 0) goOn(open[open.length - 1].own, begin, end, waits);
    goOn(lane, begin, end, waits);
    before = { path, end, duration };
  }
  return { depths, lane };
};
// The same as before goes on.
const goOn = (states, begin, end, waits) => {
  const last = states[states.length - 1];
  if (last && last[1] === begin && last[2] === waits) last[1] = end;
  else states.push([begin, end, waits]);
};
const openCall = (depths, parent, node, depth, begin) => {
  const call = { f: functionOfNode(node), begin, end: begin, depth, parent, children: [], first: Infinity, last: 0, waits: 0, own: [] };
  while (depths.length <= depth) depths.push([]);
  depths[depth].push(call);
  if (parent) parent.children.push(call);
  return call;
};
const seen = (call, line, end, waits) => {
  call.end = end;
  call.waits += waits;
  if (line > 0) call.first = Math.min(call.first, line);
  call.last = Math.max(call.last, line);
};
const placeOfCall = (call) => {
  const [name, file] = data.functions[call.f];
  if (!file) return name.startsWith("[") ? "the engine" : "built in";
  if (call.last === 0) return file;
  return file + ":" + call.first + (call.last > call.first ? "–" + call.last : "");
};
// The longest that are not all but the whole of one call below them.
const longestCalls = (depths, most) => {
  const length = (call) => call.end - call.begin;
  const passes = (call) => call.children.some((child) => length(child) > 0.95 * length(call));
  return depths.flat().filter((call) => !passes(call)).sort((one, other) => length(other) - length(one) || one.begin - other.begin).slice(0, most);
};
