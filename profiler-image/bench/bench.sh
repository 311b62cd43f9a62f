#!/usr/bin/env bash
# bench.sh [WORDS]: builds the benchmark and its applications, and runs it: a table on the screen, target/bench/results.csv and
# target/bench/cpu.svg. BENCH=smoke is a form of a minute that fails where a count is over its limit; the other appends
# its rows to docs/measurements/bench.csv.
#
# Does: build the benchmark like the sampler in the image; for the smoke form like the tests.
# Does not: build peers; PEERS="phpspy=/path pfp=/path" names them; phpprof-before=/path is the bench of an earlier commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
if [ "${BENCH:-}" = smoke ]; then
  cargo build --quiet --release --locked -p phpprof-bench --bin bench
  program=$target/release/bench
else
  release/program amd64 dist phpprof-bench --bin bench >/dev/null
  program=$target/x86_64-unknown-linux-musl/dist/bench
  # Without it the benchmark measures the rest, reports that, and fails.
  profiler-image/runtimes/build frankenphp-8.2 || true
fi
profiler-image/bench/workloads/applications
code=0
rm -f target/bench/results.csv # what an earlier run found is not of this commit
"$program" target/bench/results.csv target/bench/cpu.svg "$@" || code=$?
if [ "${BENCH:-}" != smoke ]; then tools/record bench target/bench/results.csv; fi
exit "$code"
