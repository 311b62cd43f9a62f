#!/usr/bin/env bash
# truth.sh [WORDS]: builds the truth harness and runs it against this machine's PHP 8.2, or the command in PHP. With FULL=1 all
# rows, a million samples each, then 7.4, 8.4 and 8.5, 8.2 with Xdebug, which replaces `zend_execute_ex`, and 8.4 with it, where it
# observes calls. Results: target/truth/results.csv, and results-NAME.csv of the others.
#
# Does not: install PHP; e2e/tools/packages and e2e/runtimes/build do.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --release --locked -p phpprof-bench
target=$(cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
failed=0

truth() { # PHP RESULTS WORDS...
  "$target/release/truth" "$1" "target/truth/$2.csv" "${@:3}" || failed=1
}

truth "${PHP:-php8.2}" results "$@"
if [ "${FULL:-}" = 1 ] && [ -z "${PHP:-}" ]; then
  e2e/runtimes/build debian-bullseye debian-trixie debian-experimental xdebug-8.2
  runtimes=${PHPPROF_CACHE:-/var/cache/phpprof}/runtimes

  others() { # NAME PHP WORDS...
    echo "$1"
    truth "$2" "results-$1" "${@:3}"
  }
  in_root() { echo "$PWD/profiler-image/bench/in-root $runtimes/debian-$1"; }
  others 7.4 "$(in_root bullseye) php7.4" "$@"
  others 8.4 "$(in_root trixie) php8.4" "$@"
  others 8.5 "$(in_root experimental) php8.5" "$@"
  others 8.2-xdebug "php8.2 -d zend_extension=$runtimes/xdebug-8.2/xdebug.so" "$@"
  others 8.4-observer "$(in_root trixie) php8.4 -d zend_extension=xdebug" "$@"
fi
exit "$failed"
