#!/usr/bin/env bash
# Kubernetes 1.34.4: after `kubectl scale --replicas=0` no manager owns .spec.replicas of a Deployment: the zero of the subresource `scale`
# is not tracked. So the next server-side apply (kubectl, Helm 4) sets the old number again without a conflict, while after a scale to 2 it
# is refused. Who has stopped something by a scale to 0 has it running again after the next upgrade.
#
# Seen: after a scale to 2: conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas; after a scale to 0: owned by nobody,
# 1 replica again
# Builds etcd and the API server from the pinned module in tools/kubernetes, runs them on the loopback interface without phpprof, and fails
# if they do anything else.
set -euo pipefail
export KUBERNETES=1.34
. "$(dirname "$0")/../tools/cache.sh"
"$ROOT/tools/build" kubernetes
folder=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"
read -r store peer port < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*[it.getsockname()[1] for it in sockets])')
openssl genrsa -out key 2048 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,1,system:masters" >tokens
etcd --data-dir=etcd --log-level=error --listen-client-urls="http://127.0.0.1:$store" --advertise-client-urls="http://127.0.0.1:$store" \
  --listen-peer-urls="http://127.0.0.1:$peer" >etcd.log 2>&1 &
started+=($!)
kube-apiserver --etcd-servers="http://127.0.0.1:$store" --bind-address=127.0.0.1 --secure-port="$port" --cert-dir=certificates \
  --service-cluster-ip-range=10.96.0.0/24 --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=key \
  --service-account-signing-key-file=key --token-auth-file=tokens --authorization-mode=RBAC \
  --disable-admission-plugins=ServiceAccount >api.log 2>&1 &
started+=($!)
k() { kubectl --kubeconfig=/dev/null --server="https://127.0.0.1:$port" --insecure-skip-tls-verify --token="$token" "$@"; }
for _ in $(seq 120); do ! k get --raw=/readyz >/dev/null 2>&1 || break; sleep 1; done
cat >web.yaml <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
YAML
apply() { k apply --server-side --field-manager=helm -f web.yaml 2>&1; }
owners() { k get deployment web -o json --show-managed-fields | python3 -c '
import json, sys
fields = json.load(sys.stdin)["metadata"]["managedFields"]
print(*[it["manager"] for it in fields if "f:replicas" in it["fieldsV1"].get("f:spec", {})] or ["nobody"])'; }
apply >/dev/null
k scale deployment web --replicas=2 >/dev/null
conflict=$(apply | grep -o 'conflict with.*' | head -n 1 || true)
k scale deployment web --replicas=0 >/dev/null
owner=$(owners)
apply >/dev/null
seen="after a scale to 2: $conflict; after a scale to 0: owned by $owner, $(k get deployment web -o jsonpath='{.spec.replicas}') replica again"
echo "$seen"
[[ $seen = 'after a scale to 2: conflict with "kubectl"'*'; after a scale to 0: owned by nobody, 1 replica again' ]]
