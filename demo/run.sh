#!/usr/bin/env bash
# The demo: installs phpprof on the cluster, profiles the demo application under load, and holds the profile against the truth.
#
# Does: install the chart, the application and the load; apply a ProfileRequest; print its conditions, the top table and
#       where the profile lies; compare it with what the application measured itself.
# Does not: make the cluster or the images (`make demo` does that first), or take anything away but the
#       application and load of an earlier run.
#
# The cluster is that of KUBECONFIG's current context; `make demo KUBECONFIG_CONTEXT=name` sets it.
#
#   RUNTIME=name             fpm (as if not given), frankenphp, roadrunner, mod_php or musl: what runs the application
#   IMAGE_REGISTRY=host/path where the images were pushed, instead of phpprof.dev
#   STORE_FILES=folder       an S3 store: files endpoint, bucket, access-key, secret-key; where needed region, and ca.crt for a private CA
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/tools/cache.sh
. e2e/cluster/names.sh
export PATH=$BIN:$PATH
export KUBECONFIG=${KUBECONFIG:-$KUBECONFIG_FILE}

namespace=phpprof-demo system=phpprof-system operator=deployment/phpprof-operator out=target/demo
store=${STORE_FILES:-$RUN/store}
registry=${IMAGE_REGISTRY:-phpprof.dev} registry=${registry%/}
region=$(cat "$store/region" 2>/dev/null || echo us-east-1)
runtime=${RUNTIME:-fpm} image=demo address=web:9000 calls=(demo/calls.txt)
helm_ca=() curl_ca=()
[ ! -e "$store/ca.crt" ] || helm_ca=(--set-file "store.caBundle=$store/ca.crt") curl_ca=(--cacert "$store/ca.crt")

of_demo() { kubectl --namespace "$namespace" "$@"; }
step() { doing=$1; printf '\n==> %s\n' "$1"; }
fail() { printf 'demo: %s\n' "$1" >&2; shift; printf '      %s\n' "$@" >&2; exit 1; }

ended() {
  local code=$?
  [ -z "${forward:-}" ] || kill "$forward" 2>/dev/null || true
  [ -z "${loading:-}" ] || of_demo delete job/load --ignore-not-found --wait=false >/dev/null 2>&1 || true
  [ "$code" = 0 ] || printf '\ndemo: failed at "%s"\n' "$doing" >&2
}
trap ended EXIT
doing=start

# What differs between the runtimes: the image, the protocol of the load, and the calls of their own.
choose_runtime() {
  case $runtime in
    fpm) return ;;
    musl) ;;
    frankenphp | roadrunner | mod_php) address=http://web:9000 ;;
    *) fail "there is no runtime $runtime" "RUNTIME is one of fpm frankenphp roadrunner mod_php musl" ;;
  esac
  image=demo-$runtime
  [ ! -e "demo/runtimes/$runtime/calls.txt" ] || calls+=("demo/runtimes/$runtime/calls.txt")
}

check_givens() {
  local file
  kubectl version >/dev/null 2>&1 || fail "no cluster answers" \
    "make cluster-up starts one; KUBECONFIG_CONTEXT=name uses one of your own"
  for file in endpoint bucket access-key secret-key; do
    [ -r "$store/$file" ] || fail "$store/$file is missing: it says where profiles are stored" \
      "make cluster-up writes it; with a cluster of your own, STORE_FILES=folder names another"
  done
}

install_phpprof() {
  kubectl create namespace "$system" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  kubectl --namespace "$system" create secret generic phpprof-store \
    --from-literal=access-key-id="$(cat "$store/access-key")" --from-literal=secret-access-key="$(cat "$store/secret-key")" \
    --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  # The images keep their tag: an operator that an earlier run installed is the one just built only after a restart.
  kubectl --namespace "$system" rollout restart "$operator" >/dev/null 2>&1 || true
  helm upgrade --install phpprof charts/phpprof \
    --namespace "$system" --wait --timeout 2m \
    --set "store.url=s3://$(cat "$store/bucket")/demo" --set "store.endpoint=$(cat "$store/endpoint")" --set "store.region=$region" \
    --set store.credentialsSecret=phpprof-store "${helm_ca[@]}" \
    --set "images.operator=$registry/operator:dev" --set "images.sampler=$registry/phpprof:dev" >/dev/null ||
    fail "phpprof could not be installed; the line above says why" "kubectl -n $system describe pods; kubectl -n $system logs $operator"
}

deploy() {
  sed "s#image: phpprof.dev/web:#image: $registry/$image:#; s#image: phpprof.dev/#image: $registry/#; s#web:9000#$address#" "demo/k8s/$1.yaml" |
    kubectl apply -f - >/dev/null
}

deploy_application() {
  # New pods each time, for the same reason; those before them are gone first, or the load would reach them too.
  of_demo delete deployment/web job/load --ignore-not-found --cascade=foreground >/dev/null 2>&1
  deploy web
  of_demo rollout status deployment/web --timeout=120s >/dev/null ||
    fail "the application did not become ready" "kubectl -n $namespace describe pods"
  loading=yes
  deploy load
  of_demo wait pod --selector app=load --for=condition=Ready --timeout=60s >/dev/null ||
    fail "the load did not start" "kubectl -n $namespace describe job/load"
  of_demo get pods --selector app=web -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName,READY:.status.containerStatuses[0].ready
}

# Applies the request and prints a line whenever its state changes, until it is over.
profile() {
  local state last="" until=$((SECONDS + 120))
  request=$(of_demo create -f demo/k8s/request.yaml -o name)
  echo "applied $request"
  begin=$SECONDS
  while :; do
    state=$(of_demo get "$request" -o json | jq -r '(.status // {}) as $s | ($s.conditions // []) as $c
      | ([$c[] | select((.type == "Complete" or .type == "Failed") and .status == "True")][0].type // "") + "\t"
      + ([$c[] | select(.type == "Complete").reason][0] // "Pending") + ", \($s.selected // 0) pods: \($s.active // 0) active, \($s.succeeded // 0) succeeded, \($s.failed // 0) failed"')
    [ "$state" = "$last" ] || printf '%4d s  %s\n' $((SECONDS - begin)) "${state#*$'\t'}"
    last=$state
    [ -z "${state%%$'\t'*}" ] || break
    [ "$SECONDS" -lt "$until" ] || fail "the request is not over after 120 s" \
      "kubectl -n $namespace describe $request; kubectl -n $system logs $operator"
    sleep 0.5
  done
  of_demo get "$request" -o json >"$out/request.json"
  printf '\n'
  jq -r '["CONDITION","STATUS","REASON","MESSAGE"], (.status.conditions[] | [.type, .status, .reason, .message]) | @tsv' \
    "$out/request.json" | column -t -s $'\t'
  [ "${state%%$'\t'*}" = Complete ] || fail "the request failed" "kubectl -n $namespace describe $request"
}

# What the load measured so far: its last whole line.
truth() {
  of_demo logs job/load --tail=2 | grep '}}$' | tail -n 1 >"$out/truth.json" || true
  jq -e '.requests > 0' "$out/truth.json" >/dev/null ||
    fail "the load made no request that was answered" "kubectl -n $namespace logs job/load; kubectl -n $namespace logs deploy/web"
  jq -r '"\(.requests) requests, \(.errors) errors"' "$out/truth.json"
}

# Gets s3://BUCKET/KEY. A store inside the cluster is reached through a port-forward to its Service.
download() {
  local endpoint host service connect=()
  endpoint=$(cat "$store/endpoint") host=${endpoint#*://}
  if [[ $host =~ ^([^.:]+)\.([^.:]+)\.svc ]]; then
    service=${BASH_REMATCH[1]}
    kubectl --namespace "${BASH_REMATCH[2]}" port-forward "service/$service" :443 >"$out/forward.log" 2>&1 &
    forward=$!
    for _ in $(seq 50); do
      grep -q '127.0.0.1:' "$out/forward.log" && break
      sleep 0.1
    done
    connect=(--connect-to "::127.0.0.1:$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\) .*/\1/p' "$out/forward.log" | head -n 1)")
  fi
  printf 'user = "%s:%s"\n' "$(cat "$store/access-key")" "$(cat "$store/secret-key")" |
    curl --silent --show-error --fail --config - --header "x-amz-content-sha256: $(sha256sum </dev/null | cut -d ' ' -f 1)" --aws-sigv4 "aws:amz:$region:s3" --max-time 30 --retry 3 --retry-connrefused \
      "${connect[@]}" "${curl_ca[@]}" \
      --output "$out/merged.pb.gz" "$endpoint/${1#s3://}" ||
    fail "the profile could not be fetched from $endpoint/${1#s3://}" "kubectl -n phpprof-store get pods"
}

choose_runtime
check_givens
mkdir -p "$out"
cat "${calls[@]}" >"$out/calls.txt"
step "install phpprof with Helm"
install_phpprof
step "start the demo application: $runtime in two pods, under load"
deploy_application
step "profile it for 20 seconds"
profile
step "fetch the profile"
truth
url=$(jq -r .status.profile.url "$out/request.json")
download "$url"
go tool pprof -top -sample_index=wall -unit=s -nodecount=15 "$out/merged.pb.gz" 2>/dev/null | grep -v '^{'
step "hold it against what the application measured itself"
cargo run --quiet -p phpprof-profile --example shares -- \
  "$out/merged.pb.gz" "$out/truth.json" "$out/calls.txt" "$(jq .status.profile.samples "$out/request.json")"

cat <<TEXT

The profile: $out/merged.pb.gz ($(wc -c <"$out/merged.pb.gz") bytes), in the store as $url

Next:
  go tool pprof -http=:8080 $PWD/$out/merged.pb.gz
  eval "\$(e2e/tools/env)"                                    # kubectl for the test cluster
  kubectl -n $namespace get pprof
  kubectl -n $namespace describe $request
TEXT
