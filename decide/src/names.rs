//! Whether a pod can resolve names of the cluster, as far as its spec says: a sampler finds the
//! operator's relay by such a name.
//!
//! Pure. Invariant: it says what is wrong only where the spec makes it likely; a name server that
//! is down is in no spec.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt as _;

/// The longest list of search domains that the sampler's resolver takes: musl ignores a line of
/// resolv.conf that does not fit into 256 bytes with its end (src/network/resolvconf.c), and the
/// line begins with `search `.
const LONGEST_LIST: usize = 247;
/// What Kubernetes calls the cluster's domain by default; a pod's spec does not name it.
const DOMAIN: &str = "cluster.local";
const HOST_NETWORK: &str = "ClusterFirstWithHostNet";

/// Why names of the cluster may be unknown in the pod, and what would change that.
pub fn trouble(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let in_host_network = spec.host_network == Some(true);
    match policy {
        // kubelet: pkg/kubelet/network/dns/dns.go, getPodDNSType.
        "ClusterFirst" if in_host_network => Some(format!(
            "the pod is in its node's network (hostNetwork) and its dnsPolicy is not {HOST_NETWORK}, so it does not resolve names of the cluster"
        )),
        "Default" => Some(
            "the pod's dnsPolicy is Default, so it resolves the node's names, and none of the cluster's"
                .to_owned(),
        ),
        "None" => Some(of_own_servers(spec)),
        _ => of_long_list(&list(pod, spec)),
    }
}

fn of_own_servers(spec: &PodSpec) -> String {
    let config = spec.dns_config.clone().unwrap_or_default();
    let servers = config.nameservers.unwrap_or_default().join(", ");
    format!(
        "the pod's dnsPolicy is None, so it resolves names of the cluster only if its own name servers ({servers}) know them"
    )
}

/// The search domains that the kubelet writes for the pod. The node's own, which follow the
/// cluster's, are not known.
fn list(pod: &Pod, spec: &PodSpec) -> String {
    let namespace = pod.namespace().unwrap_or_default();
    let of_cluster = [
        format!("{namespace}.svc.{DOMAIN}"),
        format!("svc.{DOMAIN}"),
        DOMAIN.to_owned(),
    ];
    let config = spec.dns_config.clone().unwrap_or_default();
    let own = config.searches.unwrap_or_default();
    let all: Vec<String> = of_cluster.into_iter().chain(own).collect();
    all.join(" ")
}

fn of_long_list(list: &str) -> Option<String> {
    (list.len() > LONGEST_LIST).then(|| {
        format!(
            "the pod's list of search domains has {} bytes, and the sampler's resolver ignores a list of more than {LONGEST_LIST}, so it does \
             not know short names of the cluster",
            list.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, expected: Option<&str>) {
        let mut pod = json!({"metadata": {"name": "web", "namespace": "phpprof-cases"}, "spec": {"containers": []}});
        let fields = spec.as_object().unwrap().clone();
        pod["spec"].as_object_mut().unwrap().extend(fields);
        let found = trouble(&serde_json::from_value(pod).unwrap());
        let is_it = match (&found, expected) {
            (Some(found), Some(part)) => found.contains(part),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_it, "{found:?}");
    }

    #[test]
    fn names_are_unresolved_by_some_specs() {
        check(json!({}), None);
        check(json!({"dnsPolicy": "ClusterFirst"}), None);
        check(
            json!({"hostNetwork": false, "dnsPolicy": "ClusterFirst"}),
            None,
        );
        check(
            json!({"hostNetwork": true}),
            Some("not ClusterFirstWithHostNet"),
        );
        check(
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirst"}),
            Some("hostNetwork"),
        );
        check(
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            None,
        );
        check(
            json!({"hostNetwork": true, "dnsPolicy": "Default"}),
            Some("Default"),
        );
        check(json!({"dnsPolicy": "Default"}), Some("Default"));
        check(
            json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"]}}),
            Some("name servers (192.0.2.53)"),
        );
    }

    #[test]
    fn names_count_musls_limit_of_search_domains() {
        // The cluster's own domains in that namespace, and a space.
        let own = "phpprof-cases.svc.cluster.local svc.cluster.local cluster.local ".len();
        let searches = |length: usize| json!({"dnsConfig": {"searches": ["x".repeat(length)]}});
        check(searches(LONGEST_LIST - own), None);
        check(searches(LONGEST_LIST - own + 1), Some("has 248 bytes"));
        let none = json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true, "dnsConfig": {"searches": ["x".repeat(200)]}});
        check(none, Some("search domains has 264 bytes"));
    }
}
