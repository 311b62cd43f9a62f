#!/usr/bin/env bash
# Helm 4.3.1: an upgrade that fails with a conflict (server-side apply, the default) is done for all objects but one. Helm says UPGRADE FAILED,
# and the new version of everything else runs, before and after that object in the order of installation. So does a rollback. Who reads
# "failed" as "nothing happened" has a mixture of two releases.
#
# Seen: Apply failed with 1 conflict, revision 2 is failed; before: 2, the object in conflict: by hand, after: 2
# Builds Helm from the pinned module in tools/helm4, and etcd and the API server from the one in tools/kubernetes, runs them on the loopback
# interface without phpprof, and fails if they do anything else.
set -euo pipefail
export KUBERNETES=1.34
. "$(dirname "$0")/../tools/cache.sh"
"$ROOT/tools/build" kubernetes helm4
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
h() { helm4 --kube-apiserver="https://127.0.0.1:$port" --kube-insecure-skip-tls-verify --kube-token="$token" --namespace default "$@"; }
export KUBECONFIG=/dev/null HELM_CACHE_HOME=$folder/cache HELM_CONFIG_HOME=$folder/config HELM_DATA_HOME=$folder/data
mkdir -p chart/templates
printf 'apiVersion: v2\nname: three\nversion: 0.1.0\n' >chart/Chart.yaml
echo 'number: 1' >chart/values.yaml
for name in a b c; do
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {number: "{{ .Values.number }}"}\n' "$name" >"chart/templates/$name.yaml"
done
number() { k get configmap "$1" -o jsonpath='{.data.number}'; }
h install three chart >/dev/null
k patch configmap b --type=merge -p '{"data": {"number": "by hand"}}' >/dev/null
said=$(h upgrade three chart --set number=2 2>&1 >/dev/null || true)
conflict=$(grep -o 'Apply failed with 1 conflict' <<<"$said" | head -n 1)
state=$(h history three -o json | python3 -c 'import json, sys; print(*["revision {revision} is {status}".format(**it) for it in json.load(sys.stdin)[-1:]])')
seen="$conflict, $state; before: $(number a), the object in conflict: $(number b), after: $(number c)"
echo "$seen"
[ "$seen" = 'Apply failed with 1 conflict, revision 2 is failed; before: 2, the object in conflict: by hand, after: 2' ]
