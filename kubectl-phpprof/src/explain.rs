//! `explain`: what a reason means, and what to do about it.
//!
//! Meanings are the API's own documentation; what to do is here, and a test holds that no reason lacks it.
//!
//! Invariant: every reason of the API is explained.

use phpprof_crds::{Reason, TargetReason};
use schemars::{JsonSchema, schema_for};

use crate::failure::{Exit, Failure};

/// What to do about a reason that is no success.
pub fn remedy(reason: &str) -> Option<&'static str> {
    REMEDIES
        .iter()
        .find(|(known, _)| *known == reason)
        .map(|(_, remedy)| *remedy)
}

const REMEDIES: &[(&str, &str)] = &[
    (
        "WaitingForStore",
        "Look at the store and at the operator's credentials; kubectl logs of the operator has its errors.",
    ),
    (
        "Queued",
        "It starts by itself. More may run at a time with limits.requestsPerNamespace, limits.requests and limits.samplersPerNode in the chart.",
    ),
    (
        "ProfilingDisabled",
        "Ask the administrator why (killSwitch in the chart), or whoever has labelled the namespace: kubectl label namespace NAME phpprof.dev/profiling=enabled --overwrite",
    ),
    (
        "StorageQuotaExceeded",
        "Wait until profiles go, keep them for less long (profileRetentionSeconds), or let the administrator raise limits.storageBytesPerNamespace in the chart.",
    ),
    (
        "QueueTimeout",
        "Ask again, or for fewer profiles at a time; the administrator may raise limits.requestsPerNamespace, limits.requests or queueTimeoutSeconds in the chart.",
    ),
    (
        "NoSamples",
        "Ask for a profile under load or for longer, or with --include-idle, which shows where PHP waits.",
    ),
    (
        "ObserveFailed",
        "kubectl logs of the operator has the API server's words. Ask again when it answers.",
    ),
    (
        "SomeTargetsFailed",
        "The profile holds the other pods. Look at the reasons of the pods that failed.",
    ),
    (
        "NamespaceNotEnabled",
        "kubectl label namespace NAME phpprof.dev/profiling=enabled",
    ),
    (
        "DurationOverLimit",
        "Ask for less with --duration, or raise limits.durationSeconds in the chart.",
    ),
    (
        "RateOverLimit",
        "Ask for less with --samples-per-second, or raise limits.samplesPerSecond in the chart.",
    ),
    (
        "WorkloadNotFound",
        "Look for its name and namespace: kubectl get deploy,sts,ds,job",
    ),
    (
        "WorkloadNotSupported",
        "Name pods by --selector, or let the operator read that kind: rbac.workloads in the chart.",
    ),
    (
        "NoPodsMatched",
        "Compare with kubectl get pods --show-labels",
    ),
    (
        "NoPodsReady",
        "Wait until a pod is ready; kubectl describe pod says why none is.",
    ),
    (
        "ContainerNotFound",
        "Name the container that runs PHP with --container; kubectl phpprof doctor lists them.",
    ),
    (
        "EphemeralContainerBudgetSpent",
        "Replace the pods (kubectl rollout restart), or raise limits.ephemeralContainers in the chart.",
    ),
    (
        "Suspended",
        "Set spec.suspend to false: kubectl patch pprof NAME --type=merge -p '{\"spec\":{\"suspend\":false}}'",
    ),
    ("CancelledBeforeStart", "Ask again; nothing was started."),
    (
        "DirectNotSupported",
        "Leave uploadMode out, or set it to Auto or Relay.",
    ),
    ("AllTargetsFailed", "Look at the reasons of the pods."),
    (
        "MergeFailed",
        "Read each pod's own profile: kubectl phpprof download NAME --pod POD",
    ),
    (
        "StoreUnavailable",
        "Look at the store and at the operator's credentials, then ask again.",
    ),
    (
        "PodSecurityDenied",
        "PHP runs as root where Pod Security forbids what that needs: run PHP as an ordinary user, or profile it in another namespace.",
    ),
    (
        "UserUnknown",
        "Say which user PHP runs as: --run-as-user UID (kubectl exec POD -- id shows it), or runAsUser in the pod's security context.",
    ),
    (
        "InjectionRefused",
        "The message has the answer of the API server or webhook: let it accept ephemeral containers named phpprof-…",
    ),
    (
        "ImagePullFailed",
        "Let the nodes pull the sampler's image: images.sampler and imagePullSecrets in the chart.",
    ),
    (
        "ContainerCreateFailed",
        "kubectl describe pod has the node's error.",
    ),
    (
        "StartDeadlineExceeded",
        "Look at the node: kubectl describe pod. A slow pull needs a larger startSlackSeconds in the chart.",
    ),
    ("PodDeleted", "Ask again; the pod was replaced."),
    (
        "TargetRestarted",
        "Ask again; kubectl describe pod says why the container was restarted.",
    ),
    (
        "TargetExited",
        "Ask again, or for a shorter time; kubectl describe pod says why the container ended.",
    ),
    (
        "Cancelled",
        "Ask again; the request was cancelled before this pod's first sample.",
    ),
    (
        "SamplerKilled",
        "kubectl describe pod has the exit; the pod's memory limit may be used up.",
    ),
    (
        "Internal",
        "Please report it, with kubectl phpprof logs NAME.",
    ),
    (
        "Usage",
        "Use the sampler's image of the operator's version: images.sampler in the chart.",
    ),
    (
        "NoPhpFound",
        "Name the container that runs PHP with --container.",
    ),
    (
        "UnsupportedVersion",
        "Use a newer phpprof; the message has the version.",
    ),
    (
        "NoEngineSymbols",
        "Use a PHP with its symbols in .dynsym, as all packaged ones are.",
    ),
    (
        "LayoutMismatch",
        "The engine seems to be patched. Please report it with php -i.",
    ),
    (
        "PermissionDenied",
        "Name PHP's user with --run-as-user and --run-as-group, or leave both out where SYS_PTRACE is allowed.",
    ),
    (
        "FileCapabilities",
        "Take the capabilities off PHP's file (setcap -r), or profile where SYS_PTRACE is allowed.",
    ),
    (
        "NotDumpable",
        "Set process.dumpable = yes in php-fpm's pool, or start PHP as its user, or profile where SYS_PTRACE is allowed.",
    ),
    (
        "YamaRestricted",
        "Profile where SYS_PTRACE is allowed, or set kernel.yama.ptrace_scope=0 on the node.",
    ),
    (
        "SeccompRestricted",
        "Let the node's default seccomp profile allow process_vm_readv or pread64.",
    ),
    (
        "OtherUserNamespace",
        "Profile a pod whose container makes no user namespace of its own.",
    ),
    (
        "GVisor",
        "Profile the workload where runtimeClassName is another one.",
    ),
    (
        "UploadDeadlineExceeded",
        "Let the pods reach the store: network policies, DNS, store.caBundle in the chart.",
    ),
    (
        "UploadRefused",
        "Look at the operator's credentials and the node's clock; the message has the HTTP status.",
    ),
    (
        "SourceNotPod",
        "Where masquerading or a mesh changes addresses, set relay.verifySource to Warn in the chart; else somebody else has used the pod's grant.",
    ),
    (
        "CertificateUntrusted",
        "Set store.caBundle in the chart to the CA that signed the store's certificate.",
    ),
    ("ProfileTooLarge", "Sample for a shorter time."),
    (
        "ProfileMissing",
        "Ask again; somebody removed the object, or the store lost it.",
    ),
    (
        "SizeMismatch",
        "Ask again; another profile lies under its name.",
    ),
    (
        "ChecksumMismatch",
        "Ask again; another profile lies under its name.",
    ),
    (
        "InvalidProfile",
        "Use the sampler's image of the operator's version; a hostile pod can do this too.",
    ),
];

/// Name and meaning of each reason, those of requests first.
pub fn reasons() -> Vec<(String, String)> {
    let mut all = documented::<Reason>();
    for reason in documented::<TargetReason>() {
        match all.iter_mut().find(|(name, _)| *name == reason.0) {
            Some((_, meaning)) => *meaning = format!("{meaning} Of a pod: {}", reason.1),
            None => all.push(reason),
        }
    }
    all
}

fn documented<T: JsonSchema>() -> Vec<(String, String)> {
    let schema = serde_json::to_value(schema_for!(T)).unwrap_or_default();
    let variants = schema["oneOf"].as_array().cloned().unwrap_or_default();
    let words = |value: &serde_json::Value| value.as_str().unwrap_or_default().replace('\n', " ");
    variants
        .iter()
        .map(|variant| (words(&variant["const"]), words(&variant["description"])))
        .collect()
}

pub fn text(asked: Option<&str>) -> Result<String, Failure> {
    let all = reasons();
    let Some(asked) = asked else {
        return Ok(all
            .iter()
            .map(|(name, meaning)| format!("{name}\n    {meaning}\n"))
            .collect());
    };
    let known = all
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(asked));
    let Some((name, meaning)) = known else {
        let near: Vec<_> = all
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| {
                name.to_ascii_lowercase()
                    .contains(&asked.to_ascii_lowercase())
            })
            .collect();
        let hint = if near.is_empty() {
            "list them all: kubectl phpprof explain".to_owned()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no reason {asked:?}"),
            hint,
        ));
    };
    let advice =
        remedy(name).map_or_else(String::new, |remedy| format!("\nWhat to do: {remedy}\n"));
    Ok(format!("{name}\n\n{meaning}\n{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What needs no remedy: the request goes on, or is complete.
    const FINE: [&str; 4] = ["Starting", "Sampling", "Collecting", "Complete"];

    #[test]
    fn every_reason_has_a_meaning_and_what_to_do() {
        for (name, meaning) in reasons() {
            assert!(!meaning.is_empty(), "{name}");
            assert!(
                FINE.contains(&name.as_str()) || remedy(&name).is_some(),
                "{name} has no remedy"
            );
        }
    }

    #[test]
    fn no_remedy_is_of_a_reason_that_does_not_exist() {
        let all = reasons();
        for (name, _) in REMEDIES {
            assert!(all.iter().any(|(known, _)| known == name), "{name}");
        }
    }

    #[test]
    fn a_reason_is_explained_and_an_unknown_one_gets_a_hint() {
        insta::assert_snapshot!("explain", text(Some("usERunknown")).unwrap());
        let failure = text(Some("upload")).unwrap_err();
        assert_eq!(
            failure.hint,
            "did you mean UploadDeadlineExceeded, UploadRefused?"
        );
        assert_eq!(text(Some("Nothing")).unwrap_err().exit, Exit::NotFound);
    }
}
