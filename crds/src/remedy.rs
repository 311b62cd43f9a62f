//! What to do about each reason, the one table of it: status messages, the plugin's `explain` and the pages in docs have it from here.
//!
//! It speaks to whoever asked for a profile, of the fields of a request; in brackets are the plugin's flags.
//!
//! Invariant: no reason that is no success lacks a remedy, and one that is both a request's and a pod's has one.

use crate::{Reason, TargetReason};

impl Reason {
    /// Nothing where the request goes on, or ended as it was wanted.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> Option<&'static str> {
        use Reason::*;
        Some(match self {
            Starting | Sampling | Collecting | Complete | Cancelled => return None,
            Suspended => "Set spec.suspend to false: kubectl patch pprof NAME --type=merge -p '{\"spec\":{\"suspend\":false}}'",
            Queued => "It starts by itself. More may run at a time with limits.requestsPerNamespace, limits.requests and limits.samplersPerNode in the chart.",
            ProfilingDisabled => "Ask the administrator why (killSwitch in the chart), or whoever has labelled the namespace: kubectl label namespace NAME phpprof.dev/profiling=enabled --overwrite",
            WaitingForStore => "Look at the store and at the operator's credentials; kubectl logs of the operator has its errors.",
            SomeTargetsFailed => "The profile holds the other pods. Look at the reasons of the pods that failed.",
            NoSamples => "Ask for a profile under load or for longer, or with --include-idle, which shows where PHP waits.",
            CancelledBeforeStart => "Ask again; nothing was started.",
            NamespaceNotEnabled => "kubectl label namespace NAME phpprof.dev/profiling=enabled",
            DurationOverLimit => "Ask for less with --duration, or raise limits.durationSeconds in the chart.",
            RateOverLimit => "Ask for less with --samples-per-second, or raise limits.samplesPerSecond in the chart.",
            StorageQuotaExceeded => "Wait until profiles go, keep them for less long (profileRetentionSeconds), or let the administrator raise limits.storageBytesPerNamespace in the chart.",
            QueueTimeout => "Ask again, or for fewer profiles at a time; the administrator may raise limits.requestsPerNamespace, limits.requests or queueTimeoutSeconds in the chart.",
            WorkloadNotFound => "Look for its name and namespace: kubectl get deploy,sts,ds,job",
            WorkloadNotSupported => "Name pods by --selector, or let the operator read that kind: rbac.workloads in the chart.",
            NoPodsMatched => "Compare with kubectl get pods --show-labels",
            NoPodsReady => "Wait until a pod is ready; kubectl describe pod says why none is.",
            ContainerNotFound => "Name the container that runs PHP with --container; kubectl phpprof doctor lists them.",
            EphemeralContainerBudgetSpent => "Replace the pods (kubectl rollout restart), or raise limits.ephemeralContainers in the chart.",
            DirectNotSupported => "Leave uploadMode out, or set it to Auto or Relay.",
            ObserveFailed => OBSERVE_FAILED,
            AllTargetsFailed => "Look at the reasons of the pods.",
            MergeFailed => "Read each pod's own profile: kubectl phpprof download NAME --pod POD",
            StoreUnavailable => STORE_UNAVAILABLE,
        })
    }
}

impl TargetReason {
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> &'static str {
        use TargetReason::*;
        match self {
            PodSecurityDenied => "PHP runs as root where Pod Security forbids what that needs: run PHP as an ordinary user, or profile it in another namespace.",
            UserUnknown => "Say which user PHP runs as: --run-as-user UID (kubectl exec POD -- id shows it), or runAsUser in the pod's security context.",
            InjectionRefused => "The message has the answer of the API server or webhook: let it accept ephemeral containers named phpprof-…",
            ImagePullFailed => "Let the nodes pull the sampler's image: images.sampler and imagePullSecrets in the chart.",
            ContainerCreateFailed => "kubectl describe pod has the node's error.",
            StartDeadlineExceeded => "Look at the node: kubectl describe pod. A slow pull needs a larger startSlackSeconds in the chart.",
            PodDeleted => "Ask again; the pod was replaced.",
            TargetRestarted => "Ask again; kubectl describe pod says why the container was restarted.",
            TargetExited => "Ask again, or for a shorter time; kubectl describe pod says why the container ended.",
            Cancelled => "Ask again; the request was cancelled before this pod's first sample.",
            SamplerKilled => "kubectl describe pod has the exit; the pod's memory limit may be used up.",
            Internal => "Please report it, with kubectl phpprof logs NAME.",
            Usage => "Use the sampler's image of the operator's version: images.sampler in the chart.",
            NoPhpFound => "Name the container that runs PHP with --container.",
            UnsupportedVersion => "Use a newer phpprof; the message has the version.",
            NoEngineSymbols => "Use a PHP with its symbols in .dynsym, as all packaged ones are.",
            LayoutMismatch => "The engine seems to be patched. Please report it with php -i.",
            PermissionDenied => "Name PHP's user with --run-as-user and --run-as-group, or leave both out where SYS_PTRACE is allowed.",
            FileCapabilities => "Take the capabilities off PHP's file (setcap -r), or profile where SYS_PTRACE is allowed.",
            NotDumpable => "Set process.dumpable = yes in php-fpm's pool, or start PHP as its user, or profile where SYS_PTRACE is allowed.",
            YamaRestricted => "Profile where SYS_PTRACE is allowed, or set kernel.yama.ptrace_scope=0 on the node.",
            SeccompRestricted => "Let the node's default seccomp profile allow process_vm_readv or pread64.",
            OtherUserNamespace => "Profile a pod whose container makes no user namespace of its own.",
            GVisor => "Profile the workload where runtimeClassName is another one.",
            UploadDeadlineExceeded => "Let the pods reach the store: network policies, DNS, store.caBundle in the chart.",
            UploadRefused => "Look at the operator's credentials and the node's clock; the message has the HTTP status.",
            SourceNotPod => "Where masquerading or a mesh changes addresses, set relay.verifySource to Warn in the chart; else somebody else has used the pod's grant.",
            CertificateUntrusted => "Set store.caBundle in the chart to the CA that signed the store's certificate.",
            ProfileTooLarge => "Sample for a shorter time.",
            ProfileMissing => "Ask again; somebody removed the object, or the store lost it.",
            SizeMismatch => "Ask again; another profile lies under its name.",
            ChecksumMismatch => "Ask again; another profile lies under its name.",
            InvalidProfile => "Use the sampler's image of the operator's version; a hostile pod can do this too.",
            ObserveFailed => OBSERVE_FAILED,
            StoreUnavailable => STORE_UNAVAILABLE,
        }
    }
}

const OBSERVE_FAILED: &str =
    "kubectl logs of the operator has the API server's words. Ask again when it answers.";
const STORE_UNAVAILABLE: &str =
    "Look at the store and at the operator's credentials, then ask again.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::documented;

    #[test]
    fn a_reason_of_requests_and_of_pods_has_one_remedy() {
        for (reason, _) in documented::<Reason>() {
            let of_pod = documented::<TargetReason>()
                .into_iter()
                .find(|(of_pod, _)| of_pod.to_string() == reason.to_string());
            if let (Some(remedy), Some((of_pod, _))) = (reason.remedy(), of_pod) {
                assert_eq!(remedy, of_pod.remedy(), "{reason}");
            }
        }
    }
}
