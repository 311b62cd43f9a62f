# Sourced by the scripts here: a registry on this machine's loopback, as long as the script runs.
#
# Does not: use TLS, or listen on another address.
# shellcheck shell=bash

# serve_registry FOLDER PORT [COMMAND...]: starts a registry of the folder's content, inside COMMAND if one is given, and waits until it answers.
# Sets $registry_pid, which the caller ends.
serve_registry() {
  local folder=$1 port=$2
  shift 2
  mkdir -p "$folder"
  cat >"$folder/configuration.yml" <<CONFIGURATION
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $folder}}
http: {addr: "127.0.0.1:$port"}
CONFIGURATION
  "$@" registry serve "$folder/configuration.yml" >"$folder/log" 2>&1 &
  registry_pid=$!
  for _ in $(seq 50); do "$@" curl -sf -o /dev/null "http://127.0.0.1:$port/v2/" && return || sleep 0.1; done
  cat "$folder/log" >&2
  echo "the registry on 127.0.0.1:$port does not answer" >&2 && return 1
}

# chart_digest CHART: the digest of the chart's manifest, which is the same in each registry to which it is pushed.
chart_digest() {
  local folder port digest registry_pid
  folder=$(mktemp -d) port=$(shuf -i 20000-30000 -n 1)
  serve_registry "$folder" "$port"
  digest=$(helm push "$1" "oci://127.0.0.1:$port/charts" --plain-http 2>&1 | sed -n 's/^Digest: //p')
  kill "$registry_pid"
  rm -rf "$folder"
  [[ $digest == sha256:* ]] && echo "$digest"
}
