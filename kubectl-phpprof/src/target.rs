//! Parses TYPE/NAME, and builds the request of a `run`.
//!
//! It does not check whether the target exists: the operator does, and reports it in the status.
//!
//! Invariant: a request that the CRD's rules would refuse is refused here, with the same message.

use phpprof_crds::{
    Filter, ProfileMode, ProfileRequest, ProfileRequestSpec, ProfileTarget, RequestLabel,
    SamplerMode, UploadMode, WorkloadRef,
};

use crate::cli::{Dump, HeapFlags, LookArguments, RequestArguments, TopFlags};
use crate::failure::{Exit, Failure};
use crate::selector;

/// For each kind: its names on the command line, its group and version, its name in the API, its
/// plural.
const KINDS: [(&[&str], &str, &str, &str); 7] = [
    (
        &["deploy", "deployment", "deployments"],
        "apps/v1",
        "Deployment",
        "deployments",
    ),
    (
        &["sts", "statefulset", "statefulsets"],
        "apps/v1",
        "StatefulSet",
        "statefulsets",
    ),
    (
        &["ds", "daemonset", "daemonsets"],
        "apps/v1",
        "DaemonSet",
        "daemonsets",
    ),
    (
        &["rs", "replicaset", "replicasets"],
        "apps/v1",
        "ReplicaSet",
        "replicasets",
    ),
    (&["job", "jobs"], "batch/v1", "Job", "jobs"),
    (
        &["rc", "replicationcontroller", "replicationcontrollers"],
        "v1",
        "ReplicationController",
        "replicationcontrollers",
    ),
    (
        &["rollout", "rollouts"],
        "argoproj.io/v1alpha1",
        "Rollout",
        "rollouts",
    ),
];

/// Parses TYPE/NAME. A name alone is a pod, as in kubectl.
pub fn parse(text: &str) -> Result<ProfileTarget, Failure> {
    let wrong = |message: String| {
        Failure::new(
            Exit::Usage,
            message,
            "use TYPE/NAME: deploy/web, sts/db, ds/agent, job/import, pod/web-1, or Kind.version.group/NAME for others",
        )
    };
    let (kind, name) = text.split_once('/').unwrap_or(("pod", text));
    if name.is_empty() || name.contains('/') {
        return Err(wrong(format!("{text:?} names nothing")));
    }
    let kind_in_small = kind.to_ascii_lowercase();
    if ["pod", "pods", "po"].contains(&kind_in_small.as_str()) {
        return Ok(ProfileTarget {
            pod_name: Some(name.to_owned()),
            ..ProfileTarget::default()
        });
    }
    let workload = |api_version: &str, kind: &str| ProfileTarget {
        workload_ref: Some(WorkloadRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }),
        ..ProfileTarget::default()
    };
    if let Some((api_version, kind)) = known(&kind_in_small) {
        return Ok(workload(api_version, kind));
    }
    // Kind.version.group, which kubectl uses for kinds without a short name.
    let mut parts = kind.splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(kind), Some(version), Some(group))
            if kind.starts_with(|first: char| first.is_ascii_uppercase()) =>
        {
            Ok(workload(&format!("{group}/{version}"), kind))
        }
        _ => Err(wrong(format!("{kind:?} is not a known kind of workload"))),
    }
}

/// API version and kind for a type on the command line, alone or with its group: `deploy`,
/// `rollouts.argoproj.io`.
fn known(of_type: &str) -> Option<(&'static str, &'static str)> {
    let (short, group) = match of_type.split_once('.') {
        Some((short, group)) => (short, Some(group)),
        None => (of_type, None),
    };
    let is_it = |(names, api_version, ..): &&(&[&str], &str, &str, &str)| {
        let own = api_version.split_once('/').map(|(group, _)| group);
        names.contains(&short) && (group.is_none() || group == own)
    };
    let (_, api_version, kind, _) = KINDS.iter().find(is_it)?;
    Some((api_version, kind))
}

/// The API's plural of a workload's kind, for completion and `doctor`.
pub fn plural(workload: &WorkloadRef) -> Option<&'static str> {
    KINDS
        .iter()
        .find(|(_, _, kind, _)| *kind == workload.kind)
        .map(|(_, _, _, plural)| *plural)
}

/// The kinds for completion.
pub fn short_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS
        .iter()
        .filter_map(|(names, _, kind, _)| Some((*names.first()?, *kind)))
        .chain([("pod", "Pod")])
}

/// The request of a command line without a file.
pub fn request(run: &RequestArguments, name: Option<String>) -> Result<ProfileRequest, Failure> {
    let target = ProfileTarget {
        container_name: run.container.clone(),
        max_pods: run.max_pods,
        run_as_user: run.run_as_user,
        run_as_group: run.run_as_group,
        ..named(run.target.as_deref(), run.selector.as_deref())?
    };
    let spec = ProfileRequestSpec {
        duration_seconds: i32::try_from(run.duration).unwrap_or(i32::MAX),
        samples_per_second: run.samples_per_second,
        include_idle: run.include_idle,
        heap: run.heap,
        include_suspended: run.fibers,
        labels: run.labels.iter().filter_map(|it| it.label()).collect(),
        filter: filter(run),
        sampler_mode: run.sampler_mode.into(),
        ..of(target)
    };
    let prefix = prefix(run.target.as_deref());
    whole(spec, name, prefix)
}

/// The pods of a request that looks once.
fn looked_at(pods: &LookArguments) -> Result<ProfileTarget, Failure> {
    Ok(ProfileTarget {
        container_name: pods.container.clone(),
        max_pods: pods.max_pods,
        run_as_user: pods.run_as_user,
        run_as_group: pods.run_as_group,
        ..named(pods.target.as_deref(), pods.selector.as_deref())?
    })
}

/// The request of a dump. It and its stored profile are needed only for a moment.
pub fn snapshot(dump: &Dump) -> Result<ProfileRequest, Failure> {
    let spec = ProfileRequestSpec {
        mode: ProfileMode::Snapshot,
        duration_seconds: 1,
        include_idle: true,
        heap: dump.memory,
        include_suspended: dump.fibers,
        labels: vec![
            RequestLabel::Method,
            RequestLabel::Route,
            RequestLabel::Script,
        ],
        profile_retention_seconds: 3600,
        ttl_seconds_after_finished: 600,
        ..of(looked_at(&dump.pods)?)
    };
    let prefix = prefix(dump.pods.target.as_deref()) + "dump-";
    whole(spec, None, prefix)
}

/// The request for what is in heaps. Its profile is kept as others are: it may be a baseline.
pub fn heaps(flags: &HeapFlags) -> Result<ProfileRequest, Failure> {
    let spec = ProfileRequestSpec {
        mode: ProfileMode::Heap,
        duration_seconds: 1,
        ..of(looked_at(&flags.pods)?)
    };
    let prefix = prefix(flags.pods.target.as_deref()) + "heap-";
    whole(spec, flags.name.clone(), prefix)
}

/// The request of a live table. It and its stored profile are needed only for a while.
pub fn live(top: &TopFlags) -> Result<ProfileRequest, Failure> {
    let target = ProfileTarget {
        container_name: top.container.clone(),
        max_pods: top.max_pods,
        ..named(Some(&top.source), None)?
    };
    let spec = ProfileRequestSpec {
        mode: ProfileMode::Live,
        duration_seconds: i32::try_from(top.duration).unwrap_or(i32::MAX),
        labels: vec![
            RequestLabel::Method,
            RequestLabel::Route,
            RequestLabel::Script,
        ],
        profile_retention_seconds: 3600,
        ttl_seconds_after_finished: 3600,
        ..of(target)
    };
    let prefix = prefix(Some(&top.source)) + "live-";
    whole(spec, None, prefix)
}

fn named(target: Option<&str>, labels: Option<&str>) -> Result<ProfileTarget, Failure> {
    match (target, labels) {
        (Some(target), _) => parse(target),
        (None, Some(labels)) => Ok(ProfileTarget {
            selector: Some(selector::parse(labels)?),
            ..ProfileTarget::default()
        }),
        (None, None) => Ok(ProfileTarget::default()),
    }
}

/// The spec as the API server completes it for a request that names only its target.
fn of(target: ProfileTarget) -> ProfileRequestSpec {
    ProfileRequestSpec {
        target,
        mode: ProfileMode::Profile,
        duration_seconds: 30,
        samples_per_second: 99,
        include_idle: false,
        heap: false,
        include_suspended: false,
        labels: Vec::new(),
        filter: None,
        upload_mode: UploadMode::Auto,
        sampler_mode: SamplerMode::Auto,
        cancel: false,
        suspend: false,
        profile_retention_seconds: 604_800,
        ttl_seconds_after_finished: 604_800,
    }
}

fn whole(
    spec: ProfileRequestSpec,
    name: Option<String>,
    prefix: String,
) -> Result<ProfileRequest, Failure> {
    let mut request = ProfileRequest::new("", spec);
    request.metadata.generate_name = name.is_none().then_some(prefix);
    request.metadata.name = name;
    check(&request)?;
    Ok(request)
}

/// `None` if none of its flags is given.
fn filter(run: &RequestArguments) -> Option<Filter> {
    let filter = Filter {
        path_prefix: run.path_prefix.clone(),
        methods: run.method.clone(),
        scripts: run.script.clone(),
        min_request_age_milliseconds: run
            .min_request_age
            .map(|age| i32::try_from(age).unwrap_or(i32::MAX)),
        include_young: run.include_young,
    };
    (filter != Filter::default()).then_some(filter)
}

/// Checks the rules by which the API server would refuse the request.
pub fn check(request: &ProfileRequest) -> Result<(), Failure> {
    let Err(errors) = request.validate_cel() else {
        return Ok(());
    };
    let messages: Vec<_> = errors.iter().map(|error| error.message.clone()).collect();
    Err(Failure::new(
        Exit::Usage,
        messages.join("; "),
        "kubectl phpprof run --help describes each flag",
    ))
}

/// The prefix of generated names: the target's name, cut if it is too long.
fn prefix(target: Option<&str>) -> String {
    let name = target.and_then(|target| target.rsplit('/').next());
    let name = name.unwrap_or("profile");
    let cut: String = name.chars().take(50).collect();
    format!("{}-", cut.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_target(text: &str, expected: &str) {
        let target = parse(text).map(|target| match (target.pod_name, target.workload_ref) {
            (Some(pod), _) => format!("pod {pod}"),
            (_, Some(workload)) => format!(
                "{} {} {}",
                workload.api_version, workload.kind, workload.name
            ),
            _ => String::new(),
        });
        assert_eq!(target.unwrap_or_else(|failure| failure.message), expected);
    }

    #[test]
    fn targets_are_named_as_for_kubectl() {
        check_target("deploy/web", "apps/v1 Deployment web");
        check_target("Deployments.apps/web", "apps/v1 Deployment web");
        check_target("job/import", "batch/v1 Job import");
        check_target(
            "rollouts.argoproj.io/web",
            "argoproj.io/v1alpha1 Rollout web",
        );
        check_target("pod/web-1", "pod web-1");
        check_target("web-1", "pod web-1");
        check_target("rollout/web", "argoproj.io/v1alpha1 Rollout web");
        check_target("Shop.v1.example.org/web", "example.org/v1 Shop web");
    }

    #[test]
    fn memory_and_fibers_of_a_dump_are_asked() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            dump: Dump,
        }
        let asks = |line: &str| {
            let line = <Line as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            let spec = snapshot(&line.dump).unwrap().spec;
            assert_eq!(spec.mode, ProfileMode::Snapshot);
            (spec.heap, spec.include_suspended)
        };
        assert_eq!(asks("dump pod/web"), (false, false));
        assert_eq!(asks("dump pod/web --memory"), (true, false));
        assert_eq!(asks("dump pod/web --fibers"), (false, true));
    }

    #[test]
    fn a_look_into_heaps_breaks_no_rule() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            heap: HeapFlags,
        }
        let of = |line: &str| {
            let line = <Line as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            heaps(&line.heap).unwrap()
        };
        let unnamed = of("heap deploy/web -c fpm");
        assert_eq!(unnamed.metadata.generate_name.as_deref(), Some("web-heap-"));
        let spec = unnamed.spec;
        assert_eq!((spec.mode, spec.duration_seconds), (ProfileMode::Heap, 1));
        assert_eq!(spec.target.container_name.as_deref(), Some("fpm"));
        assert!(spec.labels.is_empty() && !spec.heap);
        let named = of("heap -l app=web --name before");
        assert_eq!(named.metadata.name.as_deref(), Some("before"));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        check_target("deploy/", "\"deploy/\" names nothing");
        check_target("deploy/a/b", "\"deploy/a/b\" names nothing");
        check_target("shop/web", "\"shop\" is not a known kind of workload");
        check_target(
            "deploy.batch/web",
            "\"deploy.batch\" is not a known kind of workload",
        );
    }
}
