# Sourced by what builds images for this machine, after tools/cache.sh.
#
# Does: write an image as an OCI archive in the cache, without a container engine. With IMAGE_REGISTRY set, name it with that prefix, and push it.
# Does not: load it into a cluster; e2e/images/load does.
# shellcheck shell=bash

PREFIX=${IMAGE_REGISTRY:-phpprof.dev}
PREFIX=${PREFIX%/}
case $(uname -m) in aarch64) ARCH=arm64 ;; *) ARCH=amd64 ;; esac

# image NAME TAG FLAG...: writes the image; its key is the writer, the flags, and the files they name.
image() {
  local name=$1 full=$PREFIX/$1:$2 flag files=()
  shift 2
  for flag in "$@"; do
    flag=${flag%%=/*}
    [[ $flag != /* ]] || files+=("$flag")
  done
  set -- -platform "linux/$ARCH" "$@"
  [ -z "${IMAGE_REGISTRY:-}" ] || "$BIN/image-writer" -name "$full" -push "$@"
  cached "$IMAGES/$name.tar" "$(hash_of "$full" "$@" "$STATE/image-writer.key" "${files[@]}")" \
    "$BIN/image-writer" -name "$full" "$@" -out
}
