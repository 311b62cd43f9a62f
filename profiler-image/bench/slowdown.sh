#!/usr/bin/env bash
# slowdown.sh [WORDS]: builds the sampler and measures how much it slows the target down, compared with Excimer, Xdebug's profiler and
# tideways_xhprof: target/slowdown/results.csv, whose rows are appended to docs/measurements/slowdown.csv. SLOWDOWN_SECONDS bounds each row; 15 minutes by default.
#
# Does not: install these profilers, which would load them into every PHP of this machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
runtimes=${PHPPROF_CACHE:-/var/cache/phpprof}/runtimes
profiler-image/bench/workloads/applications
profiler-image/runtimes/build excimer-8.2 xdebug-8.2 tideways-8.2
export EXCIMER=$runtimes/excimer-8.2/excimer.so XDEBUG=$runtimes/xdebug-8.2/xdebug.so TIDEWAYS=$runtimes/tideways-8.2/tideways_xhprof.so
cargo build --quiet --release --locked -p phpprof -p phpprof-bench --bins
target=$(cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
code=0
rm -f target/slowdown/results.csv # what an earlier run found is not of this commit
"$target/release/slowdown" "${PHP:-php8.2}" "$target/release/phpprof" target/slowdown/results.csv "$@" || code=$?
tools/record slowdown target/slowdown/results.csv
exit "$code"
