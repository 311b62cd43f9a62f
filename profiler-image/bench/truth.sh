#!/usr/bin/env bash
# truth.sh [LABEL...]: builds the truth harness, and runs it for this machine's PHP 8.2: its stacks, shares of time in generated programs, and CPU
# time, also of FrankenPHP's threads if that was built; then the stacks that only 8.4 has. All rows, or those whose labels contain one of the
# arguments. With the command PHP set, it runs the stacks of that PHP.
# FULL=1: all rows, a million stacks each, DokuWiki and MediaWiki compared with Xdebug's traces, then the stacks and opcache's scripts of 7.4,
# 8.4 and 8.5, 8.2 with Xdebug, which replaces `zend_execute_ex`, and 8.4 with it, where it observes calls.
# VERDICT=1: only comparisons of DokuWiki and MediaWiki with themselves, of 24 runs each (VERDICT_RUNS), 50 minutes.
# BALANCE=1: only shares of time, also of 8.2 with threads, 8.4, and where it is there 8.6. PEERS="phpspy=/path pfp=/path" adds other
# profilers, SEEDS="51 52" replaces the programs.
# Results: target/truth/results.csv, balance.csv, cpu.csv, wikis.csv, and results-NAME.csv for the others. With FULL=1 their rows are appended
# to docs/measurements/truth-*.csv.
#
# Does not: install PHP; tools/packages and profiler-image/runtimes/build do.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --release --locked -p phpprof-bench
target=$(cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
runtimes=${PHPPROF_CACHE:-/var/cache/phpprof}/runtimes
failed=0

truth() { # PART PHP RESULTS WORDS...
  rm -f "target/truth/$3.csv" # what an earlier run found is not of this commit
  "$target/release/truth" "$1" "$2" "target/truth/$3.csv" "${@:4}" || failed=1
  if [ "${FULL:-}" = 1 ] || [ "$1" = verdict ]; then tools/record "truth-$1" "target/truth/$3.csv" || failed=1; fi
}

in_root() { echo "$PWD/profiler-image/bench/in-root $runtimes/debian-$1"; }

shares() { # WORDS...
  truth balance php8.2 balance "$@"
  [ "${BALANCE:-}" = 1 ] || [ "${FULL:-}" = 1 ] || return 0
  profiler-image/runtimes/build php-8.2-zts debian-trixie
  local zts=$runtimes/php-8.2-zts/usr/local
  truth balance "$zts/bin/php -d zend_extension=$(find "$zts/lib/php/extensions" -name opcache.so)" balance-8.2-zts "$@"
  truth balance "$(in_root trixie) php8.4" balance-8.4 "$@"
  if [ -d "$runtimes/debian-experimental" ]; then truth balance "$(in_root experimental) php8.6" balance-8.6 "$@"; fi
  if [ "${FULL:-}" = 1 ]; then cp target/truth/balance-functions.svg docs/measurements/shares.svg; fi
}

if [ "${FULL:-}" = 1 ]; then profiler-image/bench/workloads/applications; fi
if [ "${VERDICT:-}" = 1 ]; then
  profiler-image/bench/workloads/applications
  truth verdict php8.2 verdict "$@"
  exit "$failed"
fi
if [ "${BALANCE:-}" = 1 ]; then
  shares "$@"
  exit "$failed"
fi

truth stacks "${PHP:-php8.2}" results "$@"
[ -z "${PHP:-}" ] || exit "$failed"
shares "$@"

if [ "${FULL:-}" != 1 ] && [ $# = 0 ]; then
  profiler-image/runtimes/build debian-trixie
  truth stacks "$(in_root trixie) php8.4" results-8.4 hooks frameless
fi
if [ "${FULL:-}" = 1 ]; then
  truth verdict php8.2 verdict "$@"
  profiler-image/runtimes/build frankenphp-8.2 ffi-8.2-zts debian-bullseye debian-trixie debian-experimental xdebug-8.2
fi
frankenphp=$runtimes/frankenphp-8.2/usr/local/bin/frankenphp ffi=$runtimes/ffi-8.2-zts/ffi.so
if [ -x "$frankenphp" ] && [ -f "$ffi" ]; then
  export FRANKENPHP=$frankenphp FFI=$ffi
fi
truth cpu php8.2 cpu "$@"

if [ "${FULL:-}" = 1 ]; then
  XDEBUG=$runtimes/xdebug-8.2/xdebug.so truth wikis php8.2 wikis "$@"

  others() { # NAME PHP WORDS...
    echo "$1"
    PHP=$2 cargo test --quiet --locked --release -p phpprof --test php opcache || failed=1
    truth stacks "$2" "results-$1" "${@:3}"
  }
  others 7.4 "$(in_root bullseye) php7.4" "$@"
  others 8.4 "$(in_root trixie) php8.4" "$@"
  others 8.5 "$(in_root experimental) php8.5" "$@"
  others 8.2-xdebug "php8.2 -d zend_extension=$runtimes/xdebug-8.2/xdebug.so" "$@"
  others 8.4-observer "$(in_root trixie) php8.4 -d zend_extension=xdebug" "$@"
fi
exit "$failed"
