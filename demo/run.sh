#!/usr/bin/env bash
# The demo: installs phpprof on the cluster, profiles the demo application under load through the kubectl plugin, and compares the profile with the
# truth.
#
# Does: install the chart, the application and the load; run a profile; print the request's conditions, the top table and
#       the paths of the profile and its flame graph; compare it with the application's own measurements.
# Does not: make the cluster, the images or the plugin (`make demo` does that first), or remove anything except the
#       application and load of an earlier run.
#
# The cluster is that of KUBECONFIG's current context; `make demo KUBECONFIG_CONTEXT=name` sets it.
#
#   RUNTIME=name             fpm (as if not given), frankenphp, roadrunner, mod_php or musl: what runs the application
#   CASE=upgrade             instead of that: profiles the application before and after an upgrade that makes it slower, and names the cause
#   STORE=name               volume (as if not given): the chart's default, a volume of the cluster; or s3
#   IMAGE_REGISTRY=host/path where the images were pushed, instead of phpprof.dev
#   STORE_FILES=folder       the S3 store: files endpoint, bucket, access-key, secret-key; where needed region, and ca.crt for a private CA
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/cache.sh
. e2e/cluster/names.sh
export PATH=$BIN:$PATH
export KUBECONFIG=${KUBECONFIG:-$KUBECONFIG_FILE}

namespace=phpprof-demo system=phpprof-system operator=deployment/phpprof-operator out=target/demo
registry=${IMAGE_REGISTRY:-phpprof.dev} registry=${registry%/}
runtime=${RUNTIME:-fpm} image=demo address=web:9000 calls=(demo/calls.txt)
case=${CASE:-shares} store=${STORE:-volume} files=${STORE_FILES:-$RUN/store}

of_demo() { kubectl --namespace "$namespace" "$@"; }
step() { doing=$1; printf '\n==> %s\n' "$1"; }
fail() { printf 'demo: %s\n' "$1" >&2; shift; printf '      %s\n' "$@" >&2; exit 1; }

ended() {
  local code=$?
  [ -z "${loading:-}" ] || of_demo delete job/load --ignore-not-found --wait=false >/dev/null 2>&1 || true
  [ "$code" = 0 ] || printf '\ndemo: failed at "%s"\n' "$doing" >&2
}
trap ended EXIT
doing=start

# The differences between the runtimes: the image, the protocol of the load, and the runtime's own calls.
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
  case $store in
    volume) ;;
    s3)
      for file in endpoint bucket access-key secret-key; do
        [ -r "$files/$file" ] || fail "$files/$file is missing; it is needed to store profiles" \
          "make cluster-up writes it; with a cluster of your own, STORE_FILES=folder names another"
      done
      ;;
    *) fail "there is no store $store" "STORE is volume or s3" ;;
  esac
}

# The chart needs no values; these give the registry of the images, and the bucket that replaces a volume.
install_phpprof() {
  local values=()
  [ "$registry" = phpprof.dev ] || values+=(--set "images.operator.repository=$registry/operator" --set "images.sampler.repository=$registry/phpprof")
  kubectl create namespace "$system" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  [ "$store" = volume ] || use_s3
  # The images keep their tag, so an operator that an earlier run installed only runs the new image after a restart.
  kubectl --namespace "$system" rollout restart "$operator" >/dev/null 2>&1 || true
  helm upgrade --install phpprof charts/phpprof --namespace "$system" --wait --timeout 2m "${values[@]}" >/dev/null ||
    fail "phpprof could not be installed; the line above says why" "kubectl -n $system describe pods; kubectl -n $system logs $operator"
}

# Adds the settings of the S3 store to helm's values.
use_s3() {
  kubectl --namespace "$system" create secret generic phpprof-store \
    --from-literal=access-key-id="$(cat "$files/access-key")" --from-literal=secret-access-key="$(cat "$files/secret-key")" \
    --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  values+=(--set "store.url=s3://$(cat "$files/bucket")/demo" --set "store.endpoint=$(cat "$files/endpoint")"
    --set "store.region=$(cat "$files/region" 2>/dev/null || echo us-east-1)" --set store.credentialsSecret=phpprof-store)
  [ ! -e "$files/ca.crt" ] || values+=(--set-file "store.caBundle=$files/ca.crt")
}

deploy() {
  sed "s#image: phpprof.dev/web:#image: $registry/$image:#; s#image: phpprof.dev/#image: $registry/#; s#web:9000#$address#" "demo/k8s/$1.yaml" |
    kubectl apply -f - >/dev/null
}

# Starts the load from its beginning: it ends after two minutes.
start_load() {
  of_demo delete job/load --ignore-not-found --cascade=foreground >/dev/null 2>&1
  loading=yes
  deploy load
  of_demo wait pod --selector app=load --for=condition=Ready --timeout=60s >/dev/null ||
    fail "the load did not start" "kubectl -n $namespace describe job/load"
}

deploy_application() {
  # New pods each time, for the same reason. The old ones must be gone first, or the load would reach them too.
  of_demo delete deployment/web job/load --ignore-not-found --cascade=foreground >/dev/null 2>&1
  deploy web
  of_demo rollout status deployment/web --timeout=120s >/dev/null ||
    fail "the application did not become ready" "kubectl -n $namespace describe pods"
  start_load
  of_demo get pods --selector app=web -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName,READY:.status.containerStatuses[0].ready
}

# Profiles the application for 20 seconds as users do, and shows the request's conditions.
profile() {
  kubectl phpprof run deploy/web --namespace "$namespace" --container php --duration 20s --name "$request" ||
    fail "there is no profile" "kubectl phpprof describe $request -n $namespace; kubectl -n $system logs $operator"
  of_demo get pprof "$request" -o json >"$out/request.json"
  printf '\n'
  jq -r '["CONDITION","STATUS","REASON","MESSAGE"], (.status.conditions[] | [.type, .status, .reason, .message]) | @tsv' \
    "$out/request.json" | column -t -s $'\t'
}

# The load's measurements so far: its last complete line.
truth() {
  of_demo logs job/load --tail=2 | grep '}}$' | tail -n 1 >"$out/truth.json" || true
  jq -e '.requests > 0' "$out/truth.json" >/dev/null ||
    fail "the load got no answer to its requests" "kubectl -n $namespace logs job/load; kubectl -n $namespace logs deploy/web"
  jq -r '"\(.requests) requests, \(.errors) errors"' "$out/truth.json"
}

# Profiles the application before and after the upgrade, which a variable plants, as a team would that only sees that requests take longer.
upgrade() {
  local side code=0
  for side in before after; do
    step "the application $side the upgrade, under load"
    of_demo set env deployment/web "UPGRADE=$side" >/dev/null
    of_demo rollout status deployment/web --timeout=120s >/dev/null ||
      fail "the application did not become ready" "kubectl -n $namespace describe pods"
    start_load
    request=upgrade-$side-$started
    kubectl phpprof run deploy/web --namespace "$namespace" --container php --duration 20s --labels route --name "$request" ||
      fail "there is no profile" "kubectl phpprof describe $request -n $namespace; kubectl -n $system logs $operator"
  done
  step "which functions take more of a request's time: kubectl phpprof diff"
  kubectl phpprof diff "upgrade-before-$started" "upgrade-after-$started" -n "$namespace" --per request --count 8
  step "the verdict: kubectl phpprof verdict"
  # Exit code 9 means that it is worse, which is right here.
  kubectl phpprof verdict "upgrade-before-$started" "upgrade-after-$started" -n "$namespace" || code=$?
  [ "$code" = 9 ] || fail "the verdict is not Worse (exit code $code)" "kubectl phpprof describe $request -n $namespace"
  step "the named cause: kubectl phpprof findings"
  kubectl phpprof findings "$request" -n "$namespace"
  kubectl phpprof findings "$request" -n "$namespace" -o name | grep -qx error-handler ||
    fail "the finding error-handler is missing" "kubectl phpprof top $request -n $namespace"
  exit 0
}

case $case in
  shares | upgrade) ;;
  *) fail "there is no case $case" "CASE is upgrade, or is left out" ;;
esac
choose_runtime
check_givens
mkdir -p "$out"
cat "${calls[@]}" >"$out/calls.txt"
started=$(date +%s)
request=demo-$started
step "install phpprof with Helm; profiles go to: $store"
install_phpprof
step "start the demo application: $runtime in two pods, under load"
deploy_application
[ "$case" != upgrade ] || upgrade
step "profile it for 20 seconds: kubectl phpprof run deploy/web"
profile
step "fetch the profile and its flame graph"
truth
kubectl phpprof download "$request" -n "$namespace" -o "$out/merged.pb.gz"
kubectl phpprof flame "$request" -n "$namespace" -o "$out/flame.html"
step "compare it with what the application measured itself"
cargo run --quiet -p phpprof-profile --example shares -- \
  "$out/merged.pb.gz" "$out/truth.json" "$out/calls.txt" "$(jq .status.profile.samples "$out/request.json")"
step "the top functions: kubectl phpprof top $request"
kubectl phpprof top "$request" -n "$namespace" --count 15

cat <<TEXT

The flame graph: $PWD/$out/flame.html (one page: open it in a browser)
The profile:     $PWD/$out/merged.pb.gz ($(wc -c <"$out/merged.pb.gz") bytes), in the store as $(jq -r .status.profile.url "$out/request.json")

Try next:
  eval "\$(tools/env)" # kubectl, and the plugin, for this cluster
  kubectl phpprof doctor deploy/web -n $namespace
  kubectl phpprof describe $request -n $namespace
  go tool pprof -http=:8080 $out/merged.pb.gz
TEXT
