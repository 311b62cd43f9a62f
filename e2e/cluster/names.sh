# Sourced by the scripts of e2e/: the names and addresses of the test cluster.
#
# Invariant: everything that the cluster has on this machine carries $CLUSTER in its path or name,
# which is how `down` finds it.
# shellcheck shell=bash disable=SC2034

CLUSTER=phpprof-e2e
CONTEXT=phpprof

RUN=/run/$CLUSTER          # sockets, logs, kubeconfig
DATA=/var/lib/$CLUSTER     # etcd, containers, volumes, certificates
CERTIFICATES=$DATA/certificates
KUBECONFIG_FILE=$RUN/kubeconfig
CONTAINERD_SOCKET=$RUN/containerd/containerd.sock

HOST_LINK=phpprof-e2e0     # the host's end of the link into the node; 15 characters at most
S3_HOST=s3.phpprof-store.svc

# All addresses are of one family, which `up` is told (FAMILY=ipv6) and a cluster that is up tells.
FAMILY=${FAMILY:-$(cat "$RUN/family" 2>/dev/null || echo ipv4)}
case $FAMILY in
  ipv4)
    HOST_IP=10.203.0.1
    NODE_IP=10.203.0.2
    NODE_HOST=$NODE_IP         # as in a URL
    LINK_BITS=30
    POD_CIDR=10.204.0.0/16
    SERVICE_CIDR=10.205.0.0/16
    API_SERVICE_IP=10.205.0.1  # the first of the range, by Kubernetes' rule
    DNS_IP=10.205.0.10
    S3_IP=10.205.0.20
    ANYWHERE=0.0.0.0/0
    ;;
  ipv6)
    HOST_IP=fd00:203::1
    NODE_IP=fd00:203::2
    NODE_HOST=[$NODE_IP]
    LINK_BITS=126
    POD_CIDR=fd00:204::/64
    SERVICE_CIDR=fd00:205::/112
    API_SERVICE_IP=fd00:205::1
    DNS_IP=fd00:205::a
    S3_IP=fd00:205::14
    ANYWHERE=::/0
    ;;
  *) echo "FAMILY is ipv4 or ipv6, not $FAMILY" >&2 && exit 2 ;;
esac

# A file of configuration/ or manifests/ with these addresses.
with_addresses() { # FILE
  local name script=
  for name in POD_CIDR SERVICE_CIDR DNS_IP S3_IP ANYWHERE; do script+="s#{$name}#${!name}#;"; done
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
  { true >&8; } 2>/dev/null || exec 8>"$STATE/cluster.lock"
  flock 8
}

# The control group hierarchies of this machine: one with version 2, one per controller with version 1.
cgroup_hierarchies() {
  awk '$(NF-2) == "cgroup" || $(NF-2) == "cgroup2" {print $5}' /proc/self/mountinfo | sort -u
}
