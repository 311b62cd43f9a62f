// The flame chart of one request, on a canvas: time from left to right, the stack from top to bottom, waiting hatched.

const CALL_HEIGHT = 20;
const LANE_TOP = 20;
const COURSE_TOP = 36;
// The calls of the request that is open, the part of its time that is shown, the call that is looked at.
const course = { request: null, depths: [], lane: [], whole: [0, 1], part: [0, 1], current: null };

const wholeOf = (request, lane) => {
  const first = lane.length > 0 ? lane[0][0] : 0;
  const last = lane.length > 0 ? lane[lane.length - 1][1] : 0;
  // What ran before the run was seen by nobody.
  const from = request.begin < 0 ? Math.min(first, last) : 0;
  return [from, Math.max(from + 1, request.end - request.begin, last)];
};
const setCourse = (request) => {
  const { depths, lane } = callsOf(request);
  const whole = wholeOf(request, lane);
  Object.assign(course, { request, depths, lane, whole, part: whole, current: null });
};
const courseWidth = () => Math.max(60, at("course").clientWidth);
const xOf = (time, width) => ((time - course.part[0]) / (course.part[1] - course.part[0])) * width;
const timeOf = (x, width) => course.part[0] + (x / width) * (course.part[1] - course.part[0]);
const isPart = () => course.part[0] > course.whole[0] || course.part[1] < course.whole[1];
// The first box, in the order of time, that ends after a moment.
const firstAfter = (boxes, time) => {
  let [low, high] = [0, boxes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (boxes[middle].end <= time) low = middle + 1;
    else high = middle;
  }
  return low;
};

const paintCourse = () => {
  if (course.request === null || state.view !== "request") return;
  const host = at("course");
  at("depth").style.height = COURSE_TOP + course.depths.length * CALL_HEIGHT + 4 + "px";
  const [width, height] = [courseWidth(), host.clientHeight];
  const pen = sharp(at("paper"), width, height);
  const ink = inks();
  pen.save();
  pen.beginPath();
  pen.rect(0, COURSE_TOP, width, height);
  pen.clip();
  pen.translate(0, COURSE_TOP - host.scrollTop);
  const first = Math.max(0, Math.floor(host.scrollTop / CALL_HEIGHT));
  const last = Math.min(course.depths.length, Math.ceil((host.scrollTop + height) / CALL_HEIGHT));
  for (let depth = first; depth < last; depth++) paintDepth(pen, course.depths[depth], depth, width, ink);
  paintCurrent(pen, width, ink);
  pen.restore();
  paintTimes(pen, width, height, ink);
};
const paintDepth = (pen, calls, depth, width, ink) => {
  const top = depth * CALL_HEIGHT;
  const lines = hatch(pen, "transparent", "rgb(20 23 26 / .42)");
  let painted = -1;
  for (let i = firstAfter(calls, course.part[0]); i < calls.length && calls[i].begin < course.part[1]; i++) {
    const call = calls[i];
    const left = Math.max(0, xOf(call.begin, width));
    const right = Math.min(width, Math.max(xOf(call.end, width), left + 1));
    // What is narrower than a point is not drawn on another.
    if (right - painted < 0.8) continue;
    painted = right;
    pen.fillStyle = ofCall(call.f);
    pen.fillRect(left, top, Math.max(0.7, right - left - 0.8), CALL_HEIGHT - 1);
    paintSleeps(pen, call, top, width, lines);
    if (right - left > 24) paintName(pen, call.f, left, right, top);
  }
};
const ofCall = (f) => {
  if (!colours.has(f)) colours.set(f, ofFunction(f));
  return colours.get(f);
};
const paintSleeps = (pen, call, top, width, lines) => {
  pen.fillStyle = lines;
  for (const [begin, end, waits] of call.own) {
    if (!waits || end <= course.part[0] || begin >= course.part[1]) continue;
    const left = Math.max(0, xOf(begin, width));
    pen.fillRect(left, top, Math.min(width, xOf(end, width)) - left - 0.8, CALL_HEIGHT - 1);
  }
};
const paintName = (pen, f, left, right, top) => {
  const name = nameOf(f);
  pen.font = "11.5px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  // No more letters than fit: the longest names have thousands.
  const fit = Math.floor((right - left - 8) / pen.measureText("m").width);
  if (fit < 2) return;
  const words = name.length > fit ? name.slice(0, fit - 1) + "…" : name;
  // The call's own colour around the letters: they are read on the lines of what waited, too.
  pen.strokeStyle = ofCall(f);
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  pen.strokeText(words, left + 4, top + CALL_HEIGHT / 2);
  pen.fillStyle = "#14171a";
  pen.fillText(words, left + 4, top + CALL_HEIGHT / 2);
};
const paintCurrent = (pen, width, ink) => {
  const call = course.current;
  if (call === null) return;
  const left = Math.max(1, xOf(call.begin, width));
  const right = Math.min(width - 1, Math.max(xOf(call.end, width), left + 3));
  for (const [stroke, breadth] of [[ink.ground, 5], [ink.accent, 2.5]]) {
    pen.strokeStyle = stroke;
    pen.lineWidth = breadth;
    pen.strokeRect(left, call.depth * CALL_HEIGHT + 1, right - left - 1, CALL_HEIGHT - 3);
  }
};
// The axis, and below it what the worker did.
const paintTimes = (pen, width, height, ink) => {
  const { marks, every } = ticks(course.part[0], course.part[1], Math.max(2, width / 90), 0);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  for (const mark of marks) {
    const x = Math.min(width, xOf(mark, width));
    pen.fillStyle = ink.soft;
    pen.textAlign = x < 24 ? "left" : x > width - 24 ? "right" : "center";
    pen.fillText(tickWords(mark, every), x, 3);
    pen.fillRect(Math.min(width - 1, x), 16, 1, 4);
  }
  const asleep = hatch(pen, ink.waiting, ink["waiting-line"]);
  for (const [begin, end, waits] of course.lane) {
    if (end <= course.part[0] || begin >= course.part[1]) continue;
    const left = Math.max(0, xOf(begin, width));
    pen.fillStyle = waits ? asleep : ink.busy;
    pen.fillRect(left, LANE_TOP + 1, Math.min(width, xOf(end, width)) - left, 10);
  }
};
const tickWords = (time, every) => {
  const [size, unit] = every >= 1e9 ? [1e9, " s"] : every >= 1e6 ? [1e6, " ms"] : [1e3, " µs"];
  return Math.round(time / size).toLocaleString("en") + unit;
};
