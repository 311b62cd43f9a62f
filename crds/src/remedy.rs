//! What to do about each reason. Status messages, the plugin's `explain` and the pages in docs take it from this table.
//!
//! Readers are users who created a request, so it names fields of a request; the plugin's flags are in brackets.
//!
//! Invariant: every reason but a success has a remedy, and a reason of both requests and pods has the same remedy for both.

use crate::{Reason, TargetReason};

impl Reason {
    /// None if the request goes on, or ended as the user wanted.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> Option<&'static str> {
        use Reason::*;
        Some(match self {
            Starting | Sampling | Collecting | Complete | Cancelled => return None,
            Suspended => "Set spec.suspend to false: kubectl patch pprof NAME --type=merge -p '{\"spec\":{\"suspend\":false}}'",
            Queued => "It starts by itself. The administrator may raise limits.requestsPerNamespace, limits.requests or limits.samplersPerNode in the chart.",
            ProfilingDisabled => "Ask the administrator why (killSwitch in the chart). If the namespace has the label phpprof.dev/profiling=disabled: kubectl label namespace NAME phpprof.dev/profiling=enabled --overwrite",
            WaitingForStore => "Check the store and the operator's credentials; the operator's log has the errors.",
            SomeTargetsFailed => "The profile holds the other pods. Look at the reasons of the pods that failed.",
            NoSamples => "Profile under load or for longer, or set includeIdle (--include-idle), which shows where PHP waits.",
            CancelledBeforeStart => "Create another request; nothing was started.",
            NamespaceNotEnabled => "Enable it: kubectl label namespace NAME phpprof.dev/profiling=enabled",
            DurationOverLimit => "Set a lower durationSeconds (--duration), or raise limits.durationSeconds in the chart.",
            RateOverLimit => "Set a lower samplesPerSecond (--samples-per-second), or raise limits.samplesPerSecond in the chart.",
            StorageQuotaExceeded => "Wait until profiles expire, keep them for a shorter time (profileRetentionSeconds), or ask the administrator to raise limits.storageBytesPerNamespace in the chart.",
            QueueTimeout => "Create another request, or fewer at the same time; the administrator may raise limits.requestsPerNamespace, limits.requests, limits.samplersPerNode or queueTimeoutSeconds in the chart.",
            WorkloadNotFound => "Check its kind, name and namespace: kubectl api-resources; kubectl get deploy,sts,ds,job",
            WorkloadNotSupported => "Select pods with target.selector (--selector), or let the operator read that kind (rbac.workloads in the chart).",
            NoPodsMatched => "Compare the target with kubectl get pods --show-labels",
            NoPodsReady => "Create another request when a pod is ready; kubectl describe pod says why none is.",
            ContainerNotFound => "Name the container that runs PHP in target.containerName (--container); kubectl phpprof doctor lists them.",
            ContainerAmbiguous => "Name the container that runs PHP in target.containerName (--container), or in the pods' annotation kubectl.kubernetes.io/default-container.",
            StaticPod => "Run PHP in a pod of a workload (Deployment, DaemonSet), or profile it on the node with phpprof record.",
            EphemeralContainerBudgetSpent => "Replace the pods (kubectl rollout restart), target others, or raise limits.ephemeralContainers in the chart.",
            ResidentSamplerBackOff => "Find out why the container restarts (kubectl describe pod), or request a new sampler: samplerMode Once (--sampler-mode).",
            ResidentNotAllowed => "Leave samplerMode out (--sampler-mode), or ask the administrator to add the account to resident.users in the chart.",
            DirectNotSupported => "Leave uploadMode out, or set it to Auto or Relay.",
            StoreOverwrites => "Use a store that supports If-None-Match (docs/guides/install.md), or ask the administrator to set store.allowOverwrite in the chart; docs/security.md says what that weakens.",
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
            PodSecurityDenied => "Run PHP as an ordinary user, or profile it in a namespace that allows SYS_PTRACE. If the message names another container of the pod, replace the pod.",
            UserUnknown => "Set the user that PHP runs as in target.runAsUser (--run-as-user; kubectl exec POD -- id shows it), or in the pod's security context.",
            InjectionRefused => "Let the API server and its webhooks accept ephemeral containers named phpprof-…. If the pod has one of that name that is not the operator's, replace the pod.",
            ImagePullFailed => "Let the nodes pull the sampler's image: check images.sampler in the chart and the pod's imagePullSecrets.",
            ContainerCreateFailed => "Check the node; kubectl describe pod has the error.",
            StartDeadlineExceeded => "Create another request, and check the node (kubectl describe pod); a slow image pull needs a larger startSlackSeconds in the chart.",
            PodDeleted => "Create another request; it chooses among the pods that exist then.",
            TargetRestarted => "Create another request; kubectl describe pod says why the container restarted.",
            TargetExited => "Create another request, maybe for a shorter time; kubectl describe pod says why the container ended.",
            Cancelled => "Create another request.",
            SamplerKilled => "Create another request; kubectl describe pod says how the sampler ended. The pod may have reached its memory limit.",
            Internal => "Please report it with the output of kubectl phpprof logs NAME.",
            Usage => "Use a sampler image of the operator's version: images.sampler in the chart.",
            NoPhpFound => "Name the container that runs PHP in target.containerName (--container), or create another request when PHP runs.",
            UnsupportedVersion => "Use a newer phpprof; the message has the version.",
            NoEngineSymbols => "Use a PHP that has its symbols in .dynsym, as all packaged ones have.",
            LayoutMismatch => "The engine seems to be patched. Please report it with the output of php -i.",
            PermissionDenied => "Set target.runAsUser and target.runAsGroup (--run-as-user, --run-as-group) to the ids of PHP, or leave both out if SYS_PTRACE is allowed. If the message names a security module, look for its denial in the kernel's log on the node (dmesg).",
            FileCapabilities => "Remove the capabilities from PHP's file (setcap -r), or profile where SYS_PTRACE is allowed, without target.runAsUser.",
            NotDumpable => "Set process.dumpable = yes in php-fpm's pool, start PHP as its user, or profile where SYS_PTRACE is allowed, without target.runAsUser.",
            YamaRestricted => "Profile where SYS_PTRACE is allowed, without target.runAsUser, or set kernel.yama.ptrace_scope=0 on the node; only a reboot can lower it from 3.",
            SeccompRestricted => "Let the node's default seccomp profile (kubelet, containerd) allow process_vm_readv or pread64.",
            OtherUserNamespace => "Profile a pod whose container does not create a user namespace.",
            GVisor => "Profile the workload with another runtimeClassName.",
            UploadDeadlineExceeded => "Let the pods reach the store, or the operator as a relay (uploadMode): check network policies, DNS and the store itself.",
            UploadRefused => "Check the operator's credentials and the node's clock; the message has the HTTP status.",
            SourceNotPod => "If masquerading or a mesh changes addresses, set relay.verifySource to Warn in the chart. Otherwise, somebody else has used the pod's grant.",
            RelayUnreachable => "Let the pods reach the operator's relay: check network policies and DNS. If samplerMode is Auto, the next request gets a new sampler.",
            NotHeardFrom => "Let the pods reach the operator's relay, TCP port 8443: kubectl phpprof logs NAME has the sampler's error. If it is the name: set dnsPolicy to ClusterFirstWithHostNet or ClusterFirst.",
            CertificateUntrusted => "Set store.caBundle in the chart to the CA that signed the store's certificate. That certificate must not be a CA's own, and its key has to be RSA, P-256 or P-384.",
            ProfileTooLarge => "Sample for a shorter time.",
            ProfileMissing => "Create another request; somebody removed the object, or the store lost it.",
            SizeMismatch => "Create another request; another object has the profile's key.",
            ChecksumMismatch => "Create another request; another object has the profile's key.",
            InvalidProfile => "Use a sampler image of the operator's version; a hostile pod can cause this too.",
            ObserveFailed => OBSERVE_FAILED,
            StoreUnavailable => STORE_UNAVAILABLE,
        }
    }
}

const OBSERVE_FAILED: &str =
    "Create another request when the API server answers; the operator's log has the errors.";
const STORE_UNAVAILABLE: &str =
    "Check the store and the operator's credentials, then create another request.";

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
