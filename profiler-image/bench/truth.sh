#!/usr/bin/env bash
# Builds the truth harness and runs it against this machine's PHP. It does not install PHP: e2e/tools/packages does.
# FULL=1: all rows, a million samples each. Results: target/truth/results.csv.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --release --locked -p phpprof-bench
target=$(cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
exec "$target/release/truth" "${PHP:-php8.2}" target/truth/results.csv "$@"
