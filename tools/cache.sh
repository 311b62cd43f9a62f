# Sourced by the scripts: the folder of built things, and how each is built once.
#
# Does: name the cache, hash inputs, build a thing only when its inputs changed.
# Does not: know what is built.
# Invariant: a name in the cache is always a complete thing: it is built under another name and renamed,
# under a lock, so that several callers at once build it once and a killed build leaves nothing incomplete.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ "$(id -u)" = 0 ]; then CACHE=/var/cache/phpprof; else CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/phpprof; fi
CACHE=${PHPPROF_CACHE:-$CACHE}
BIN=$CACHE/bin IMAGES=$CACHE/images RUNTIMES=$CACHE/runtimes STATE=$CACHE/state
export ROOT CACHE BIN IMAGES RUNTIMES STATE
# The version of Kubernetes to build, start and test, one of tools/kubernetes: what the caller says, else that of a cluster that is up, else
# the newest.
mapfile -t KUBERNETES_VERSIONS < <(cd "$ROOT/tools/kubernetes" && printf '%s\n' */ | tr -d / | sort -V)
has_kubernetes() { [[ $1 =~ ^1\.[0-9]+$ && -d $ROOT/tools/kubernetes/$1 ]]; }
if [ -z "${KUBERNETES:-}" ]; then
  KUBERNETES=$(cat /run/phpprof-e2e/kubernetes 2>/dev/null || true)
  has_kubernetes "$KUBERNETES" || KUBERNETES=${KUBERNETES_VERSIONS[-1]}
elif ! has_kubernetes "$KUBERNETES"; then
  echo "KUBERNETES=$KUBERNETES is not a version that can be built here; try one of: ${KUBERNETES_VERSIONS[*]}" >&2
  exit 2
fi
export KUBERNETES
PATH=$BIN/kubernetes-$KUBERNETES:$BIN:$PATH
export PATH
mkdir -p "$BIN" "$IMAGES" "$STATE"

say() { printf '    %s\n' "$*"; }

# One hash of the given words and of the content of the files and folders among them, except Markdown pages.
# For a file that `cached` made, its key is hashed; for other files in the cache (cargo's target), their content.
hash_of() {
  local input key
  for input in "$@"; do
    key=${input##*/} key=$STATE/${key%.key}.key
    [[ $input != "$CACHE"/* || ! -e $key ]] || input=$key
    printf '%s\n' "${input#"$ROOT"/}"
    [ ! -e "$input" ] || find -L "$input" -type f ! -name '*.md' -print0 | LC_ALL=C sort -z | xargs -0r sha256sum | sed "s#$ROOT/##"
  done | sha256sum | cut -c1-24
}

# cached FILE KEY COMMAND...: runs COMMAND with the path to write appended, unless FILE was made with KEY.
cached() (
  file=$1 key=$2
  shift 2
  record=$STATE/$(basename "$file").key
  exec 9>"$STATE/$(basename "$file").lock"
  flock 9
  [ ! -e "$file" ] || [ "$(cat "$record" 2>/dev/null)" != "$key" ] || exit 0
  begin=$SECONDS
  say "building $(basename "$file")"
  rm -rf "$file.part" "$record"
  "$@" "$file.part" 9>&-
  rm -rf "$file"
  mv "$file.part" "$file"
  echo "$key" >"$record"
  say "built $(basename "$file") in $((SECONDS - begin)) s"
)
