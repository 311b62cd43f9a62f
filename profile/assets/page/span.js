// A span of time is selected on the strip by drag or keyboard; what it selects is told beside it.

// The step and the row that are looked at, and where a selection began.
const cursor = { lane: 0, step: -1, anchor: -1 };
const stepAt = (clientX) => {
  const { left, width } = plot();
  const x = clientX - at("strip").getBoundingClientRect().left - at("strip").clientLeft - left;
  return Math.max(0, Math.min(steps - 1, Math.floor((x / width) * steps)));
};
const putOver = (element, [first, last]) => {
  const { left, width } = plot();
  element.style.left = left + (first * width) / steps + "px";
  element.style.width = Math.max(2, ((last - first + 1) * width) / steps) + "px";
};
const drawBand = () => {
  at("band").hidden = state.span === null;
  if (state.span !== null) putOver(at("band"), state.span);
  at("cursor").hidden = cursor.step < 0;
  if (cursor.step >= 0) putOver(at("cursor"), [cursor.step, cursor.step]);
  const current = cursor.step < 0 ? -1 : cursor.lane;
  strip.canvases.forEach((canvas, index) => canvas.parentElement.classList.toggle("current", index === current));
};
const stepWords = (lane, i) => {
  const heap = lane.heap[i] > 0 ? (strip.kind === "routes" ? ", largest heap " : ", heap ") + inUnit(lane.heap[i], "bytes") : "";
  return "busy " + inUnit(lane.busy[i], "nanoseconds") + ", waiting " + inUnit(lane.waiting[i], "nanoseconds") + heap;
};
const sayStep = () => {
  const lane = shownLanes()[cursor.lane];
  at("detail").textContent = lane.name + ", " + clockOfSpan([cursor.step, cursor.step]) + ": " + stepWords(lane, cursor.step);
};

// ── what is selected ────────────────────────────────────────────────────────
const selectSpan = (span) => {
  state.span = span;
  drawBand();
  drawSpan();
  shown.rows = MORE_REQUESTS;
  drawRequests();
  if (state.moments !== "") draw();
  else remember();
};
const clearSpan = () => {
  const isClear = state.span === null;
  cursor.anchor = -1;
  if (isClear) return false;
  selectSpan(null);
  at("detail").textContent = "No time is selected";
  return true;
};
const lengthOfSpan = ([first, last]) => inUnit((last - first + 1) * step, "nanoseconds");
const drawSpan = () => {
  at("span").hidden = state.span === null && state.moments === "";
  if (at("span").hidden) return;
  const inside = timeline.requests.filter((request) => ranIn(request, state.span));
  const recorded = inside.filter(isRecorded).length;
  const many = inside.length.toLocaleString("en") + (inside.length === 1 ? " request" : " requests");
  at("spanned").textContent = state.span === null ? "The whole run" : clockOfSpan(state.span) + " UTC (" + lengthOfSpan(state.span) + ")";
  at("within").textContent = "Show " + many;
  const whole = "Flame graph of the whole profile";
  at("moments").textContent = state.moments === "requests" ? whole : "Flame graph of the recorded requests in this span (" + recorded + " of " + many + ")";
  at("moments").disabled = recorded === 0 && state.moments !== "requests";
  const chosen = partsIn(state.span);
  at("parts").hidden = chosen.length === 0;
  at("parts").textContent = state.moments === "parts" || chosen.length === 0 ? whole : "Flame graph of all from " + clockOfParts(chosen);
  at("clear").hidden = state.span === null;
  at("unfiltered").textContent = {
    requests: "The flame graph shows the " + recorded + " recorded requests (of " + many + ") in this time: the slowest ones, not everything that ran. " + cutWords,
    parts: chosen.length === 0 ? "" : "The flame graph shows everything that ran from " + clockOfParts(chosen) + " UTC, as wall time, in whole parts of the run. " + unnamed(chosen) + cutWords,
    "": "The flame graph of the whole profile has no times, so " + (chosen.length > 0 ? "only whole parts of the run narrow it" : "this span does not narrow it") + ". The span narrows the list of requests.",
  }[state.moments];
};

// ── mouse, finger, pen ──────────────────────────────────────────────────────
const isOnPlot = (event) => timeline && event.clientX >= at("strip").getBoundingClientRect().left + plot().left;
const laneUnder = (event) => strip.canvases.findIndex((canvas) => {
  const { top, bottom } = canvas.parentElement.getBoundingClientRect();
  return event.clientY >= top && event.clientY < bottom;
});
let dragged = null;
const dragStart = (event) => {
  if (event.button !== 0 || !isOnPlot(event)) return;
  dragged = { from: stepAt(event.clientX), x: event.clientX, before: state.span, moved: false };
  at("strip").setPointerCapture(event.pointerId);
  tip.hide();
};
const dragMove = (event) => {
  if (dragged === null) return hover(event);
  dragged.moved = dragged.moved || Math.abs(event.clientX - dragged.x) > 3;
  if (!dragged.moved) return;
  const to = stepAt(event.clientX);
  state.span = [Math.min(dragged.from, to), Math.max(dragged.from, to)];
  drawBand();
  at("detail").textContent = clockOfSpan(state.span) + " UTC";
};
const dragEnd = (event) => {
  if (dragged === null) return;
  const { moved, before } = dragged;
  dragged = null;
  // A click without a way takes the selection back.
  if (event.type === "pointercancel") selectSpan(before);
  else selectSpan(moved ? state.span : null);
};
const hover = (event) => {
  const lane = laneUnder(event);
  if (lane < 0 || !isOnPlot(event)) return tip.hide();
  const under = stepAt(event.clientX);
  tip.say(event, shownLanes()[lane].name, clockOfSpan([under, under]) + " UTC", stepWords(shownLanes()[lane], under));
};

// ── keyboard ────────────────────────────────────────────────────────────────
const MOVES = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -STEPS, End: STEPS };
const moveCursor = (key, selects) => {
  const from = Math.max(0, cursor.step);
  const next = Math.max(0, Math.min(steps - 1, from + MOVES[key]));
  // The first key shows where the cursor is.
  cursor.step = cursor.step < 0 && !selects && key.startsWith("Arrow") ? 0 : next;
  if (!selects) cursor.anchor = -1;
  else if (cursor.anchor < 0) cursor.anchor = from;
  if (selects) selectSpan([Math.min(cursor.anchor, cursor.step), Math.max(cursor.anchor, cursor.step)]);
};
const moveLane = (by) => {
  cursor.lane = Math.max(0, Math.min(strip.canvases.length - 1, cursor.lane + by));
  cursor.step = Math.max(0, cursor.step);
  strip.canvases[cursor.lane].parentElement.scrollIntoView({ block: "nearest" });
};
const stripKey = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in MOVES) moveCursor(event.key, event.shiftKey);
  else if (event.key === "ArrowUp" || event.key === "ArrowDown") moveLane(event.key === "ArrowUp" ? -1 : 1);
  else if (event.key === "Enter" && cursor.step >= 0) selectSpan([cursor.step, cursor.step]);
  else if (event.key === "Escape" && clearSpan()) return event.stopPropagation();
  else return;
  event.preventDefault();
  drawBand();
  sayStep();
};
const listenToStrip = () => {
  const host = at("strip");
  host.addEventListener("pointerdown", dragStart);
  host.addEventListener("pointermove", dragMove);
  for (const end of ["pointerup", "pointercancel"]) host.addEventListener(end, dragEnd);
  host.addEventListener("pointerleave", tip.hide);
  host.addEventListener("keydown", stripKey);
  host.addEventListener("blur", () => { cursor.step = -1; drawBand(); });
  at("time").addEventListener("toggle", paintStrip);
  at("every").addEventListener("click", () => { strip.all = !strip.all; cursor.lane = 0; drawLanes(); });
  at("clear").addEventListener("click", () => { clearSpan(); at("strip").focus(); });
  at("within").addEventListener("click", () => go("view=requests"));
  at("moments").addEventListener("click", () => turnMoments("requests"));
  at("parts").addEventListener("click", () => turnMoments("parts"));
};
