#!/usr/bin/env bash
# The command-line program of the Firefox Profiler (npm @firefox-devtools/profiler-cli 0.10.0): a client that asks while the daemon of its
# session starts can lose this daemon for good. The daemon makes its socket, and then writes the session's metadata. A client that finds no
# metadata "cleans up": it removes the session's files, and among them the socket made a moment ago. So who waits for a daemon must not poll
# `status`, but wait until the metadata file is there. `profiler-cli load` itself removes nothing while it waits.
#
# Seen: `status` between the two steps says "Unknown session", and the socket is gone; the next one says "not reachable", and the metadata is
# gone, too; all others say "Unknown session", while the daemon runs on with the profile loaded. Without the early `status` all of them succeed.
#
# The moment between the steps is short. So a signal stops the daemon as soon as its socket is there, as a busy machine does at times. A start
# where the stop came too late is repeated, up to 30 times.
# Installs the package in a temporary folder, runs it without phpprof on a small profile, and fails if it prints anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts @firefox-devtools/profiler-cli@0.10.0 >/dev/null
cat >seen.mjs <<'JS'
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const none = (...names) => Object.fromEntries([["length", 0], ...names.map((name) => [name, []])]);
const frame = { address: -1, inlineDepth: 0, category: 0, subcategory: 0, func: 0 };
const func = { name: 0, isJS: false, relevantForJS: false, resource: -1 };
const one = (row, ...empty) =>
  Object.fromEntries([["length", 1], ...Object.entries(row).map(([key, it]) => [key, [it]]), ...empty.map((key) => [key, [null]])]);
const profile = {
  meta: {
    preprocessedProfileVersion: 60, version: 32, product: "small", interval: 1, startTime: 0, processType: 0, stackwalk: 0,
    sampleUnits: { time: "ms", eventDelay: "ms", threadCPUDelta: "ns" },
    categories: [{ name: "Other", color: "grey", subcategories: ["Other"] }], markerSchema: [],
  },
  libs: [],
  shared: {
    stringArray: ["main"],
    sources: none("id", "filename", "startLine", "startColumn", "sourceMapURL"),
    resourceTable: none("lib", "name", "host", "type"),
    nativeSymbols: none("libIndex", "address", "name", "functionSize"),
    funcTable: one(func, "source", "lineNumber", "columnNumber"),
    frameTable: one(frame, "nativeSymbol", "innerWindowID", "line", "column"),
    stackTable: one({ frame: 0 }, "prefix"),
  },
  threads: [{
    processType: "default", processStartupTime: 0, processShutdownTime: null, registerTime: 0, unregisterTime: null, pausedRanges: [],
    name: "main", isMainThread: true, pid: "1", tid: "1",
    samples: { ...one({ stack: 0, time: 0, weight: 1 }), weightType: "samples" },
    markers: none("data", "name", "startTime", "endTime", "phase", "category"),
  }],
};
writeFileSync("profile.json", JSON.stringify(profile));

const program = "node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js";
const pause = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
const until = (what, milliseconds, between = () => {}) => {
  for (const end = Date.now() + milliseconds; !what(); between()) if (Date.now() > end) throw new Error(`not seen in time: ${what}`);
};

const daemons = [];
/** Starts a daemon, and stops it between its two steps. Null if the stop came too late. */
function start(isStopped) {
  const session = mkdtempSync(join(process.cwd(), "s-"));
  const env = { ...process.env, PROFILER_CLI_SESSION_DIR: session, PROFILER_CLI_NO_SYMBOLICATE: "1" };
  const daemon = spawn("node", [program, "--daemon", "profile.json", "--session", "one"], { env, stdio: "ignore" });
  const [has, kill] = [(name) => existsSync(join(session, name)), (signal) => process.kill(daemon.pid, signal)];
  const log = () => readFileSync(join(session, "one.log"), "utf8");
  const status = () => {
    const { status, stdout, stderr } = spawnSync("node", [program, "status", "--session", "one"], { env, encoding: "utf8", timeout: 30_000 });
    const said = /Session Status|Unknown session|is not reachable/.exec(stdout + stderr)?.[0] ?? stdout + stderr;
    return `exit code ${status}, ${said}`;
  };
  const left = () => ["one.sock", "one.json"].filter(has).join(" and ") || "nothing";
  const runs = () => /^State:\s+[RSD]/m.test(readFileSync(`/proc/${daemon.pid}/status`, "utf8"));
  daemons.push(daemon);
  const started = { status, left, runs, log, has, kill };
  if (!isStopped) return started;
  until(() => has("one.sock"), 30_000);
  kill("SIGSTOP");
  pause(50);
  if (!has("one.json")) return started;
  return null;
}
const isLoaded = (daemon) => () => daemon.has("one.log") && daemon.log().includes("Profile loaded successfully");

try {
  const alone = start(false);
  until(isLoaded(alone), 30_000, () => pause(20));
  console.log(`no early status: ${alone.status()}; left: ${alone.left()}`);

  let daemon = null;
  for (let starts = 0; !daemon && starts < 30; starts++) daemon = start(true);
  if (!daemon) throw new Error("each stop came too late");
  console.log(`between the steps: left: ${daemon.left()}`);
  console.log(`early status: ${daemon.status()}; left: ${daemon.left()}`);
  daemon.kill("SIGCONT");
  until(isLoaded(daemon), 30_000, () => pause(20));
  console.log(`loaded: left: ${daemon.left()}`);
  for (let time = 0; time < 3; time++) console.log(`later status: ${daemon.status()}; left: ${daemon.left()}`);
  console.log(`the daemon still runs: ${daemon.runs()}`);
} finally {
  for (const one of daemons) one.kill("SIGKILL");
}
JS
seen=$(timeout 300 node seen.mjs)
expected='no early status: exit code 0, Session Status; left: one.sock and one.json
between the steps: left: one.sock
early status: exit code 1, Unknown session; left: nothing
loaded: left: one.json
later status: exit code 1, is not reachable; left: nothing
later status: exit code 1, Unknown session; left: nothing
later status: exit code 1, Unknown session; left: nothing
the daemon still runs: true'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
