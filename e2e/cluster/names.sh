# Sourced by the scripts of e2e/: the names and addresses of a test cluster.
#
# Invariant: everything that the cluster has on this machine carries $CLUSTER in its path or name,
# which is how `down` finds it. Two clusters have no name and no address in common.
# shellcheck shell=bash disable=SC2034

# The first one is for people and for most tests, the second one for tests that run alone.
CLUSTERS=(phpprof-e2e phpprof-e2e-2)
CLUSTER=${PHPPROF_CLUSTER:-${CLUSTERS[0]}}
CONTEXT=phpprof
# The second number of the addresses of link, pods and services (e2e/src/test_cluster.rs has them, too).
case $CLUSTER in
  "${CLUSTERS[0]}") LINK=203 PODS=204 SERVICES=205 ;;
  "${CLUSTERS[1]}") LINK=207 PODS=208 SERVICES=209 ;;
  *) echo "PHPPROF_CLUSTER is one of ${CLUSTERS[*]}, not $CLUSTER" >&2 && exit 2 ;;
esac

RUN=/run/$CLUSTER          # sockets, logs, kubeconfig
DATA=/var/lib/$CLUSTER     # etcd, containers, volumes, certificates
CERTIFICATES=$DATA/certificates
KUBECONFIG_FILE=$RUN/kubeconfig
CONTAINERD_SOCKET=$RUN/containerd/containerd.sock

HOST_LINK=${CLUSTER}0       # the host's end of the link into the node; 15 characters at most
S3_HOST=s3.phpprof-store.svc

# The families of the addresses, which `up` is told (FAMILY=ipv6, FAMILY=dual) and a cluster that is up tells. With both, the first of each
# list is the one that the cluster prefers.
FAMILY=${FAMILY:-$(cat "$RUN/family" 2>/dev/null || echo ipv4)}
case $FAMILY in
  ipv4) FAMILIES=(4) ;;
  ipv6) FAMILIES=(6) ;;
  dual) FAMILIES=(4 6) ;;
  *) echo "FAMILY is ipv4, ipv6 or dual, not $FAMILY" >&2 && exit 2 ;;
esac
declare -A HOST_IPS=([4]=10.$LINK.0.1 [6]=fd00:$LINK::1)
declare -A NODE_IPS=([4]=10.$LINK.0.2 [6]=fd00:$LINK::2)
declare -A LINK_BITS=([4]=30 [6]=126)
declare -A POD_CIDRS=([4]=10.$PODS.0.0/16 [6]=fd00:$PODS::/64)
declare -A SERVICE_CIDRS=([4]=10.$SERVICES.0.0/16 [6]=fd00:$SERVICES::/112)
declare -A API_SERVICE_IPS=([4]=10.$SERVICES.0.1 [6]=fd00:$SERVICES::1)  # the first of the range, by Kubernetes' rule
declare -A DNS_IPS=([4]=10.$SERVICES.0.10 [6]=fd00:$SERVICES::a)
declare -A S3_IPS=([4]=10.$SERVICES.0.20 [6]=fd00:$SERVICES::14)
declare -A ANYWHERES=([4]=0.0.0.0/0 [6]=::/0)

# PREFIX and SUFFIX around each of the cluster's values of a list, separated by commas.
of_each() { # LIST [PREFIX SUFFIX]
  local -n list=$1
  local family all=
  for family in "${FAMILIES[@]}"; do all+=,${2:-}${list[$family]}${3:-}; done
  echo "${all#,}"
}
NODE_IP=${NODE_IPS[${FAMILIES[0]}]}
NODE_HOST=$NODE_IP         # as in a URL
[ "${FAMILIES[0]}" = 4 ] || NODE_HOST=[$NODE_IP]
DNS_IP=${DNS_IPS[${FAMILIES[0]}]}
S3_IP=${S3_IPS[${FAMILIES[0]}]}
POD_CIDR=$(of_each POD_CIDRS)
SERVICE_CIDR=$(of_each SERVICE_CIDRS)
S3_LIST=$(of_each S3_IPS '"' '"')
POD_RANGES=$(of_each POD_CIDRS '[{ "subnet": "' '" }]')
POD_ROUTES=$(of_each ANYWHERES '{ "dst": "' '" }')

# A file of configuration/ or manifests/ with these names, paths and addresses.
with_names() { # FILE
  local name script=
  for name in CLUSTER RUN DATA POD_CIDR POD_RANGES POD_ROUTES SERVICE_CIDR DNS_IP S3_IP S3_LIST; do script+="s#{$name}#${!name}#;"; done
  sed "$script" "$1"
}

# Folders that its programs use whatever they are told: the node has its own of each, and this machine's are neither
# used nor made. With the others of OUTSIDE, `down` checks that nothing was left in this machine's.
COVERED=(/run/containerd /var/lib/cni /var/lib/kubelet)
OUTSIDE=("${COVERED[@]}" /etc/cni /opt/containerd /usr/libexec/kubernetes /var/log/containers /var/log/pods)
# Made by `ip netns add` where it is not there yet.
NETNS=/run/netns

# Held by whoever makes or removes the cluster, and by what it starts for that, so that a command
# waits for the orphans of one that was killed. Descriptor 8 stays open in all of them but the node.
lock_cluster() {
  { true >&8; } 2>/dev/null || exec 8>"$STATE/$CLUSTER.lock"
  flock 8
}

# A file that each other cluster has in its run folder.
of_others() { # FILE
  local other
  for other in "${CLUSTERS[@]}"; do
    [ "$other" = "$CLUSTER" ] || [ ! -e "/run/$other/$1" ] || echo "/run/$other/$1"
  done
}

# The control group hierarchies of this machine: one with version 2, one per controller with version 1.
cgroup_hierarchies() {
  awk '$(NF-2) == "cgroup" || $(NF-2) == "cgroup2" {print $5}' /proc/self/mountinfo | sort -u
}
