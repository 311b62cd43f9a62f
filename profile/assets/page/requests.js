// The list of requests: sorted by any column, filtered by text and by the selected time; the recorded ones open.

const MORE_REQUESTS = 100;
const shown = { rows: MORE_REQUESTS, sort: "duration", descending: true, text: "", opened: -1 };
const requests = (timeline ? timeline.requests : []).map((request, number) => ({
  ...request, number,
  duration: Math.max(0, request.end - request.begin),
  waits: Math.max(0, request.wallNanoseconds - request.cpuNanoseconds),
}));
const longestRequest = requests.reduce((most, { duration }) => Math.max(most, duration), 0);
const hasHeap = requests.some((request) => request.peakHeapBytes > 0);
const hasTrace = requests.some((request) => request.traceId);

// ── columns: name, title, what it is sorted by, how a cell is filled ────────
const isPartial = (request) => request.begin < 0 || request.isUnfinished;
const fillDuration = (request, cell) => {
  cell.append((isPartial(request) ? "≥ " : "") + inUnit(request.duration, "nanoseconds"));
  if (request.isUnfinished) small(cell, "not ended");
  bar(cell, share(request.duration, longestRequest));
};
const fillBegin = (request, cell) => {
  cell.append(clock(request.begin, true));
  if (request.begin < 0) small(cell, "before the run");
};
const fillName = (request, cell) => {
  const host = document.createElement(isRecorded(request) ? "a" : "span");
  if (isRecorded(request)) host.href = "#request=" + request.number;
  host.textContent = requestName(request);
  cell.append(host);
  if (request.route && request.script) small(cell, request.script);
  cell.title = requestName(request) + (request.script ? "\n" + request.script : "");
};
const fillWorker = (request, cell) => {
  cell.append(request.pod || workerName(request));
  if (request.pod) small(cell, workerName({ pid: request.pid, thread: request.thread }));
  cell.title = workerName(request);
};
const fillHeap = (request, cell) => {
  if (request.peakHeapBytes > 0) cell.append(inUnit(request.peakHeapBytes, "bytes"));
};
const fillTrace = (request, cell) => {
  if (!request.traceId) return;
  const button = document.createElement("button");
  button.type = "button";
  button.title = "Copy " + request.traceId;
  button.textContent = request.traceId.length > 12 ? request.traceId.slice(0, 10) + "…" : request.traceId;
  button.setAttribute("aria-label", "Copy trace id " + button.textContent);
  button.addEventListener("click", () => copy(request.traceId));
  cell.append(button);
};
const timeCell = (of) => (request, cell) => cell.append(inUnit(of(request), "nanoseconds"));
const REQUEST_COLUMNS = [
  ["duration", "Duration", (request) => request.duration, fillDuration],
  ["name", "Request", requestName, fillName],
  ["begin", "Began, UTC", (request) => request.begin, fillBegin],
  ["worker", "Worker", workerName, fillWorker],
  ["cpu", "CPU", (request) => request.cpuNanoseconds, timeCell((request) => request.cpuNanoseconds)],
  ["waiting", "Waiting", (request) => request.waits, timeCell((request) => request.waits)],
  ...(hasHeap ? [["heap", "Peak heap", (request) => request.peakHeapBytes || 0, fillHeap]] : []),
  ["samples", "Samples", (request) => request.samples, (request, cell) => cell.append(request.samples.toLocaleString("en"))],
  ...(hasTrace ? [["trace", "Trace id", (request) => request.traceId || "", fillTrace]] : []),
];
const isWords = (id) => ["name", "worker", "trace"].includes(id);

// ── which of them, in which order ───────────────────────────────────────────
const words = (request) => [requestName(request), request.script, workerName(request), request.traceId].filter(Boolean).join("\n").toLowerCase();
const listed = () => {
  const text = shown.text.toLowerCase();
  const [, , of] = REQUEST_COLUMNS.find(([id]) => id === shown.sort);
  const sign = shown.descending ? -1 : 1;
  const order = (one, other) => {
    const [a, b] = [of(one), of(other)];
    return (a < b ? -sign : a > b ? sign : 0) || one.number - other.number;
  };
  return requests.filter((request) => ranIn(request, state.span) && words(request).includes(text)).sort(order);
};

// ── on the screen ───────────────────────────────────────────────────────────
const drawRequests = () => {
  if (!timeline || state.view !== "requests") return;
  const all = listed();
  const number = (value) => value.toLocaleString("en");
  at("caution").textContent = cautions(number).join(" ");
  const many = all.length === requests.length ? number(all.length) : number(all.length) + " of " + number(requests.length);
  const when = state.span === null ? "" : ", " + clockOfSpan(state.span);
  at("sifted").textContent = many + (requests.length === 1 ? " request" : " requests") + when;
  drawRequestHeads();
  const lines = document.createDocumentFragment();
  for (const request of all.slice(0, shown.rows)) lines.append(requestRow(request));
  at("asked").textContent = "";
  at("asked").append(lines);
  at("further").hidden = all.length <= shown.rows;
  at("further").textContent = "Show more of " + number(all.length) + " requests";
};
const cautions = (number) => {
  const recorded = requests.filter(isRecorded).length;
  const said = ["Sampling sees short requests in proportion to their duration. Do not derive rates from this list."];
  if (timeline.unlistedRequests > 0) said.push(number(timeline.unlistedRequests) + " more requests were seen; this list has the slowest.");
  if (recorded > 0) said.push(recorded === 1 ? "1 request was recorded and opens as a flame chart over time." : number(recorded) + " requests were recorded and open as flame charts over time.");
  if (timeline.cut > 0) said.push(number(timeline.cut) + " more were recorded but left out, because the file would have been too large.");
  return said;
};
const drawRequestHeads = () => {
  const heads = at("columns");
  const focused = heads.contains(document.activeElement) ? document.activeElement.dataset.column : "";
  heads.textContent = "";
  for (const [id, title] of REQUEST_COLUMNS) {
    const head = document.createElement("th");
    head.className = isWords(id) ? "words " + id : "number " + id;
    head.scope = "col";
    if (shown.sort === id) head.setAttribute("aria-sort", shown.descending ? "descending" : "ascending");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = title;
    button.dataset.column = id;
    button.addEventListener("click", () => {
      const descending = shown.sort === id ? !shown.descending : !isWords(id) && id !== "begin";
      Object.assign(shown, { descending, sort: id, rows: MORE_REQUESTS });
      drawRequests();
    });
    head.append(button);
    heads.append(head);
    if (id === focused) button.focus();
  }
};
const requestRow = (request) => {
  const row = document.createElement("tr");
  row.dataset.request = String(request.number);
  row.classList.toggle("recorded", isRecorded(request));
  row.classList.toggle("chosen", request.number === shown.opened);
  for (const [id, , , fill] of REQUEST_COLUMNS) {
    const cell = document.createElement("td");
    cell.className = isWords(id) ? "words " + id : "number " + id;
    fill(request, cell);
    row.append(cell);
  }
  return row;
};
// Where the browser lets no script copy, the text is shown so that its reader can.
const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    at("detail").textContent = "Copied " + text.split("\n", 1)[0] + (text.includes("\n") ? " …" : "");
  } catch {
    at("detail").textContent = text;
    getSelection().selectAllChildren(at("detail"));
  }
};
const sift = (text) => {
  Object.assign(shown, { text: text.trim(), rows: MORE_REQUESTS });
  drawRequests();
};
const listenToRequests = () => {
  at("sift").addEventListener("input", () => sift(at("sift").value));
  at("further").addEventListener("click", () => { shown.rows += MORE_REQUESTS; drawRequests(); });
  at("asked").addEventListener("click", (event) => {
    const row = event.target.closest("tr.recorded");
    if (row && !event.target.closest("a, button") && getSelection().isCollapsed) go("request=" + row.dataset.request);
  });
};
