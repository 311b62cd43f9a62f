// One request: its numbers, its chart, its longest calls; walking and zooming in the chart.

const LONGEST = 30;
const lengthOf = (call) => inUnit(call.end - call.begin, "nanoseconds");
const waitsOf = (call) => (call.waits > 0 ? inUnit(call.waits, "nanoseconds") : "");
const callWords = (call) => {
  const waits = call.waits > 0 ? ", of which " + waitsOf(call) + " waiting" : "";
  return "begins at " + inUnit(call.begin, "nanoseconds") + ", takes " + lengthOf(call) + waits;
};

const openRequest = (number) => {
  const request = requests[number];
  shown.opened = number;
  state.view = "request";
  setCourse(request);
  drawView();
  at("which").textContent = requestName(request);
  drawRequestFacts(request);
  drawLongest();
  at("request").scrollTop = at("course").scrollTop = 0;
  at("course").focus({ preventScroll: true });
};
const drawRequestFacts = (request) => {
  const facts = [
    (isPartial(request) ? "≥ " : "") + inUnit(request.duration, "nanoseconds") + (request.isUnfinished ? ", not ended" : ""),
    "began " + clock(request.begin, true) + " UTC" + (request.begin < 0 ? ", before the run" : ""),
    workerName(request),
    inUnit(request.cpuNanoseconds, "nanoseconds") + " CPU",
    inUnit(request.waits, "nanoseconds") + " waiting",
    ...(request.peakHeapBytes > 0 ? ["peak heap " + inUnit(request.peakHeapBytes, "bytes")] : []),
    request.samples.toLocaleString("en") + " samples",
    ...(request.traceId ? ["trace " + request.traceId] : []),
    ...(isCut ? [cutWords] : []),
  ];
  at("its").textContent = facts.join(" · ");
};
const drawLongest = () => {
  const list = at("spans");
  list.textContent = "";
  for (const call of longestCalls(course.depths, LONGEST)) {
    const row = document.createElement("tr");
    for (const text of [inUnit(call.begin, "nanoseconds"), lengthOf(call), waitsOf(call)]) {
      const cell = document.createElement("td");
      cell.className = "number";
      cell.textContent = text;
      row.append(cell);
    }
    const cell = document.createElement("td");
    cell.className = "name";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = nameOf(call.f);
    button.addEventListener("click", () => { zoomToCall(call); at("course").focus(); });
    cell.append(button);
    small(cell, placeOfCall(call));
    row.append(cell);
    list.append(row);
  }
};

// ── what is looked at ───────────────────────────────────────────────────────
const lookAt = (call) => {
  course.current = call;
  const place = placeOfCall(call);
  at("detail").textContent = nameOf(call.f) + (place ? " (" + place + ")" : "") + ": " + callWords(call);
  const top = call.depth * CALL_HEIGHT;
  const host = at("course");
  const room = host.clientHeight - COURSE_TOP - CALL_HEIGHT - 6;
  host.scrollTop = Math.max(Math.min(host.scrollTop, top), top - room);
  // What is outside of the shown part comes into it.
  const [from, to] = course.part;
  if (call.end <= from || call.begin >= to) course.part = [call.begin, Math.max(call.end, call.begin + 1)];
  drawPart();
};
const drawPart = () => {
  at("whole").hidden = !isPart();
  paintCourse();
};
const zoomToCall = (call) => {
  course.part = [call.begin, Math.max(call.end, call.begin + 1)];
  lookAt(call);
};
const zoomOut = () => {
  if (!isPart()) return false;
  course.part = course.whole;
  drawPart();
  return true;
};
// The way out of a request: first all of its time, then the list.
const leaveRequest = () => {
  if (state.view !== "request") return false;
  if (!zoomOut()) go("view=requests");
  return true;
};
const callAt = (event) => {
  const box = at("course").getBoundingClientRect();
  const y = event.clientY - box.top - at("course").clientTop;
  if (y < COURSE_TOP) return null;
  const calls = course.depths[Math.floor((y - COURSE_TOP + at("course").scrollTop) / CALL_HEIGHT)];
  if (!calls) return null;
  const time = timeOf(event.clientX - box.left - at("course").clientLeft, courseWidth());
  const call = calls[firstAfter(calls, time)];
  return call && call.begin <= time ? call : null;
};
const walkCourse = (key) => {
  const call = course.current;
  if (call === null) return course.depths.length > 0 && lookAt(course.depths[0][0]);
  const row = course.depths[call.depth];
  const longest = call.children.reduce((one, other) => (one && one.end - one.begin >= other.end - other.begin ? one : other), null);
  const next = {
    ArrowUp: call.parent, ArrowDown: longest,
    ArrowLeft: row[row.indexOf(call) - 1], ArrowRight: row[row.indexOf(call) + 1],
  }[key];
  if (next) lookAt(next);
};
const listenToRequest = () => {
  const host = at("course");
  host.addEventListener("scroll", () => { tip.hide(); paintCourse(); });
  host.addEventListener("pointerleave", tip.hide);
  host.addEventListener("pointermove", (event) => {
    const call = callAt(event);
    if (call) tip.say(event, nameOf(call.f), placeOfCall(call), callWords(call));
    else tip.hide();
  });
  host.addEventListener("click", (event) => {
    const call = callAt(event);
    tip.hide();
    if (call) zoomToCall(call);
  });
  host.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) walkCourse(event.key);
    else if (event.key === "Enter" && course.current) zoomToCall(course.current);
    else return;
    event.preventDefault();
  });
  at("whole").addEventListener("click", () => { zoomOut(); host.focus(); });
};
