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
            NoSamples => "Ask for a profile under load or for longer, or with includeIdle (--include-idle), which shows where PHP waits.",
            CancelledBeforeStart => "Ask again; nothing was started.",
            NamespaceNotEnabled => "Enable it: kubectl label namespace NAME phpprof.dev/profiling=enabled",
            DurationOverLimit => "Ask for less in durationSeconds (--duration), or raise limits.durationSeconds in the chart.",
            RateOverLimit => "Ask for less in samplesPerSecond (--samples-per-second), or raise limits.samplesPerSecond in the chart.",
            StorageQuotaExceeded => "Wait until profiles go, keep them for less long (profileRetentionSeconds), or let the administrator raise limits.storageBytesPerNamespace in the chart.",
            QueueTimeout => "Ask again, or for fewer profiles at a time; the administrator may raise limits.requestsPerNamespace, limits.requests, limits.samplersPerNode or queueTimeoutSeconds in the chart.",
            WorkloadNotFound => "Look for its kind, name and namespace: kubectl api-resources; kubectl get deploy,sts,ds,job",
            WorkloadNotSupported => "Name pods in target.selector (--selector), or let the operator read that kind: rbac.workloads in the chart.",
            NoPodsMatched => "Compare the target with kubectl get pods --show-labels",
            NoPodsReady => "Ask again when a pod is ready; kubectl describe pod says why none is.",
            ContainerNotFound => "Name the container that runs PHP in target.containerName (--container); kubectl phpprof doctor lists them.",
            EphemeralContainerBudgetSpent => "Replace the pods (kubectl rollout restart), target others, or raise limits.ephemeralContainers in the chart.",
            ResidentSamplerBackOff => "Look why the container is restarted (kubectl describe pod), or ask for a sampler of its own: samplerMode Once (--sampler-mode).",
            ResidentNotAllowed => "Leave samplerMode out (--sampler-mode), or let the administrator name the account in resident.users in the chart.",
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
                     /// Every reason has one: whoever reads it has no profile of the pod.
    pub fn remedy(self) -> &'static str {
        use TargetReason::*;
        match self {
            PodSecurityDenied => "Run PHP as an ordinary user, or profile it in a namespace that allows SYS_PTRACE. Where the message names another container of the pod, replace the pod.",
            UserUnknown => "Say which user PHP runs as in target.runAsUser (--run-as-user; kubectl exec POD -- id shows it), or in the pod's security context.",
            InjectionRefused => "Let the API server and its webhooks accept ephemeral containers named phpprof-…; where the pod has one of that name that is not the operator's, replace the pod.",
            ImagePullFailed => "Let the nodes pull the sampler's image: images.sampler and imagePullSecrets in the chart.",
            ContainerCreateFailed => "Look at the node: kubectl describe pod has its error.",
            StartDeadlineExceeded => "Ask again, and look at the node (kubectl describe pod); a slow pull needs a larger startSlackSeconds in the chart.",
            PodDeleted => "Ask again; a new request takes the pods that there are then.",
            TargetRestarted => "Ask again; kubectl describe pod says why the container was restarted.",
            TargetExited => "Ask again, or for a shorter time; kubectl describe pod says why the container ended.",
            Cancelled => "Ask again.",
            SamplerKilled => "Ask again; kubectl describe pod says how the sampler ended, and the pod's memory limit may be used up.",
            Internal => "Please report it, with kubectl phpprof logs NAME.",
            Usage => "Use the sampler's image of the operator's version: images.sampler in the chart.",
            NoPhpFound => "Name the container that runs PHP in target.containerName (--container), or ask again when PHP runs.",
            UnsupportedVersion => "Use a newer phpprof; the message has the version.",
            NoEngineSymbols => "Use a PHP with its symbols in .dynsym, as all packaged ones are.",
            LayoutMismatch => "The engine seems to be patched. Please report it with the output of php -i.",
            PermissionDenied => "Set target.runAsUser and target.runAsGroup (--run-as-user, --run-as-group) to PHP's own, or leave both out where SYS_PTRACE is allowed. Where the message names a security module, look for its denial in the kernel's log on the node (dmesg).",
            FileCapabilities => "Take the capabilities off PHP's file (setcap -r), or profile where SYS_PTRACE is allowed, without target.runAsUser.",
            NotDumpable => "Set process.dumpable = yes in php-fpm's pool, or start PHP as its user, or profile where SYS_PTRACE is allowed, without target.runAsUser.",
            YamaRestricted => "Profile where SYS_PTRACE is allowed, without target.runAsUser, or set kernel.yama.ptrace_scope=0 on the node; from 3 it is lowered by a restart of the machine only.",
            SeccompRestricted => "Let the node's default seccomp profile (kubelet, containerd) allow process_vm_readv or pread64.",
            OtherUserNamespace => "Profile a pod whose container makes no user namespace of its own.",
            GVisor => "Profile the workload where runtimeClassName is another one.",
            UploadDeadlineExceeded => "Let the pods reach the store, or the operator as a relay (uploadMode): look at network policies, DNS and the store itself.",
            UploadRefused => "Look at the operator's credentials and the node's clock; the message has the HTTP status.",
            SourceNotPod => "Where masquerading or a mesh changes addresses, set relay.verifySource to Warn in the chart; else somebody else has used the pod's grant.",
            RelayUnreachable => "Let the pods reach the operator's relay: look at network policies and DNS. The next request gets a sampler of its own, where samplerMode is Auto.",
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
    "Ask again when the API server answers; kubectl logs of the operator has its words.";
const STORE_UNAVAILABLE: &str =
    "Look at the store and at the operator's credentials, then ask again.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::documented;
    use crate::{NAMESPACE_ENABLED, NAMESPACE_LABEL};

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

    #[test]
    fn the_remedy_of_a_namespace_has_its_label() {
        let label = format!("{NAMESPACE_LABEL}={NAMESPACE_ENABLED}");
        for reason in [Reason::NamespaceNotEnabled, Reason::ProfilingDisabled] {
            assert!(reason.remedy().unwrap().contains(&label), "{reason}");
        }
    }
}
