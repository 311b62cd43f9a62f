// The time strip: a row for each route or worker, busy time with waiting time on it, and a line for the heap.

const FIRST_LANES = 5;
const PLOT_HEIGHT = 29;
const strip = { kind: "", lanes: [], all: false, canvases: [] };

const kinds = () => [["routes", "By route"], ["workers", "By worker"]].filter(([kind]) => timeline[kind].length > 0);
const drawStrip = () => {
  at("timeless").hidden = timeline !== null;
  const known = timeline ? kinds() : [];
  at("time").hidden = known.length === 0;
  if (known.length === 0) return;
  if (strip.kind === "") turnStrip(known[0][0]);
  segments(at("kinds"), known, strip.kind, (kind) => { turnStrip(kind); drawStrip(); });
  drawLanes();
};
const turnStrip = (kind) => {
  Object.assign(strip, { kind, lanes: lanes(kind), all: false });
  cursor.lane = 0;
};
const shownLanes = () => (strip.all ? strip.lanes : strip.lanes.slice(0, FIRST_LANES));
const drawLanes = () => {
  const rows = document.createDocumentFragment();
  strip.canvases = shownLanes().map((lane) => {
    const [row, canvas] = laneRow(lane);
    rows.append(row);
    return canvas;
  });
  at("lanes").textContent = "";
  at("lanes").append(rows);
  at("strip").classList.toggle("all", strip.all);
  at("every").hidden = strip.lanes.length <= FIRST_LANES;
  at("every").textContent = strip.all ? "Show the largest " + FIRST_LANES : "Show all (" + strip.lanes.length + ")";
  at("every").setAttribute("aria-expanded", String(strip.all));
  at("heaps").hidden = !strip.lanes.some((lane) => lane.heapMost > 0);
  paintStrip();
};
const laneRow = (lane) => {
  const row = document.createElement("div");
  row.className = "lane";
  const label = document.createElement("div");
  label.className = "label";
  label.title = lane.name;
  const name = document.createElement("b");
  name.textContent = lane.name;
  label.append(name);
  small(label, laneFacts(lane));
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", laneWords(lane));
  row.append(label, canvas);
  return [row, canvas];
};
const laneFacts = (lane) => {
  const sum = lane.busyAll + lane.waitingAll;
  const most = strip.kind === "workers" ? percent(share(sum, steps * step)) : "up to " + (lane.most / step).toFixed(1) + " workers";
  return inUnit(sum, "nanoseconds") + " · " + most;
};
const laneWords = (lane) => {
  const heap = lane.heapMost > 0 ? ", heap up to " + inUnit(lane.heapMost, "bytes") : "";
  return lane.name + ": busy " + inUnit(lane.busyAll, "nanoseconds") + ", waiting " + inUnit(lane.waitingAll, "nanoseconds") + heap;
};
// Where the steps are, in the strip's own coordinates.
const plot = () => {
  const box = strip.canvases[0].parentElement.lastChild;
  return { left: box.offsetLeft, width: Math.max(60, box.parentElement.clientWidth - box.offsetLeft - 1) };
};
const paintStrip = () => {
  if (strip.canvases.length === 0 || !at("time").open) return;
  const { width } = plot();
  const ink = inks();
  shownLanes().forEach((lane, index) => paintLane(sharp(strip.canvases[index], width, PLOT_HEIGHT), lane, width, PLOT_HEIGHT, ink));
  paintAxis(width, ink);
  drawBand();
};
// A worker's row is as high as a step is long; that of a route, where many may work at once, as its own largest step.
const paintLane = (pen, lane, width, height, ink) => {
  const top = strip.kind === "workers" ? Math.max(step, lane.most) : Math.max(1, lane.most);
  const x = (number) => (number * width) / steps;
  const y = (value) => height - 1 - (value / top) * (height - 2);
  const area = (values, fill) => {
    pen.beginPath();
    pen.moveTo(0, height - 1);
    for (let i = 0; i < steps; i++) {
      pen.lineTo(x(i), y(values(i)));
      pen.lineTo(x(i + 1), y(values(i)));
    }
    pen.lineTo(width, height - 1);
    pen.fillStyle = fill;
    pen.fill();
  };
  if (lane.waitingAll > 0) area((i) => lane.busy[i] + lane.waiting[i], hatch(pen, ink.waiting, ink["waiting-line"]));
  area((i) => lane.busy[i], ink.busy);
  pen.fillStyle = ink.line;
  pen.fillRect(0, height - 1, width, 1);
  if (lane.heapMost > 0) paintHeap(pen, lane, x, (value) => height - 2 - (value / lane.heapMost) * (height - 4), ink);
};
// The line is broken where nothing is known of the heap.
const paintHeap = (pen, lane, x, y, ink) => {
  const line = new Path2D();
  for (let i = 0; i < steps; i++) {
    if (lane.heap[i] <= 0) continue;
    if (i > 0 && lane.heap[i - 1] > 0) line.lineTo(x(i), y(lane.heap[i]));
    else line.moveTo(x(i), y(lane.heap[i]));
    line.lineTo(x(i + 1), y(lane.heap[i]));
  }
  for (const [stroke, breadth] of [[ink.ground, 3.5], [ink.heap, 1.5]]) {
    pen.strokeStyle = stroke;
    pen.lineWidth = breadth;
    pen.stroke(line);
  }
};
const paintAxis = (width, ink) => {
  const pen = sharp(at("axis"), width, 20);
  const all = steps * step;
  const { marks, every } = ticks(0, all, Math.max(2, width / 110), timeline.beganUnixNanoseconds);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  for (const mark of marks) {
    const x = (mark * width) / all;
    const words = clock(mark, every < 1e9);
    pen.fillStyle = ink.soft;
    pen.fillRect(Math.min(width - 1, x), 0, 1, 4);
    pen.textAlign = x < 30 ? "left" : x > width - 30 ? "right" : "center";
    pen.fillText(words, Math.min(width, x), 6);
  }
};
