#!/usr/bin/env bash
# py-spy 0.4.1 on Linux: a profiler that stops its target from another CPU finds it in system calls nearly always, if it makes one every few
# microseconds. The kernel notes the stop before the target's CPU hears of it, and the target takes it at the end of its next system call.
# With --nonblocking, which reads without a stop, the shares are about right.
#
# Seen (Linux 6.18, Python 3.11, 2 CPUs): of two functions, the one with a system call has 42 to 45 % of the time by the program's own clock,
# 99 to 100 % by stops, and 41 to 43 % without them.
# Installs py-spy in a temporary folder, runs it without phpprof as root, and fails if stops are not far off.
set -euo pipefail
folder=$(mktemp -d)
target=
trap 'if [ -n "$target" ]; then kill "$target"; fi; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet --disable-pip-version-check install py-spy==0.4.1
cat >target.py <<'PYTHON'
import os
import time


def asks():
    os.getppid()


def computes():
    for _ in range(40):
        pass


def nothing():
    pass


def alone(function):
    begin = time.perf_counter_ns()
    for _ in range(300_000):
        function()
    return time.perf_counter_ns() - begin


call, ask, compute = (min(alone(it) for _ in range(5)) for it in (nothing, asks, computes))
print(round(100 * (ask - call) / (ask + compute - 2 * call)), flush=True)
while True:
    asks()
    computes()
PYTHON
python3 target.py >truth &
target=$!
until [ -s truth ]; do sleep 0.2; done
share() { # FLAG...
  venv/bin/py-spy record "$@" --duration 10 --rate 300 --format raw --output raw --pid "$target" >/dev/null 2>&1
  awk '/;asks /{asks += $NF} /;computes /{computes += $NF} END {printf "%.0f", 100 * asks / (asks + computes)}' raw
}
alone=$(cat truth) stopped=$(share) unstopped=$(share --nonblocking)
echo "asks: $alone % by its own clock, $stopped % by stops, $unstopped % without stops"
[ "$stopped" -gt $((alone + 25)) ] && [ "$stopped" -gt $((unstopped + 25)) ] || { echo "this has changed" >&2; exit 1; }
