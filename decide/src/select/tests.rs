//! Which of the matching pods are chosen.

use jiff::Timestamp;

use super::*;
use crate::pod::{SamplerKind, SamplerState, SamplerView};
use crate::resident::Stays;
use crate::testing::{pod, sampler};

/// `expected` has the names of the chosen pods, or the reason of the refusal.
#[track_caller]
fn check(target: &ProfileTarget, pods: &[PodView], expected: &str) {
    let actual = match select(
        target,
        pods,
        &BTreeMap::new(),
        &AdminLimits::default(),
        &ONCE,
    ) {
        Ok(selection) => {
            let name = |one: &Chosen| format!("{}/{}", one.pod.name, one.container.name);
            selection
                .chosen
                .iter()
                .map(name)
                .collect::<Vec<_>>()
                .join(" ")
        }
        Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
    };
    assert_eq!(actual, expected);
}

const ONCE: Serving<'_> = Serving {
    now: Timestamp::UNIX_EPOCH,
    request_uid: "u",
    stays: Stays::Never,
};

fn target(max_pods: i32) -> ProfileTarget {
    ProfileTarget {
        max_pods,
        ..ProfileTarget::default()
    }
}

fn on(node: &str, name: &str) -> PodView {
    PodView {
        node: node.into(),
        ..pod(name)
    }
}

#[test]
fn pods_are_spread_over_nodes() {
    let pods = [
        on("a", "a1"),
        on("a", "a2"),
        on("a", "a3"),
        on("b", "b1"),
        on("c", "c1"),
    ];
    check(&target(4), &pods, "a1/fpm b1/fpm c1/fpm a2/fpm");
}

#[test]
fn pods_with_the_fewest_ephemeral_containers_come_first() {
    let mut used = pod("a1");
    used.samplers
        .insert("phpprof-x-0".into(), sampler(SamplerState::Running));
    check(&target(1), &[used, pod("a2")], "a2/fpm");
}

#[test]
fn the_operator_caps_the_number_of_pods() {
    let pods: Vec<_> = (10..30).map(|n| pod(&format!("p{n}"))).collect();
    let selection = select(
        &target(100),
        &pods,
        &BTreeMap::new(),
        &AdminLimits::default(),
        &ONCE,
    )
    .unwrap();
    assert_eq!(selection.chosen.len(), 10);
    assert_eq!(
        selection.note,
        "; the administrator allows at most 10 pods per request"
    );
}

#[test]
fn select_leaves_out_unready_and_ending_pods() {
    let unready = PodView {
        ready: false,
        ..pod("a")
    };
    let leaving = PodView {
        deleting: true,
        ..pod("b")
    };
    check(
        &target(5),
        &[unready, leaving],
        "NoPodsReady: none of the 2 matching pods is ready",
    );
}

#[test]
fn select_prefers_named_then_default_container() {
    let mut two = pod("a");
    two.containers.push(ContainerView {
        name: "nginx".into(),
        id: "containerd://2".into(),
        running: true,
        ..Default::default()
    });
    check(&target(1), &[two.clone()], "a/fpm");
    let annotated = PodView {
        default_container: Some("nginx".into()),
        ..two.clone()
    };
    check(&target(1), std::slice::from_ref(&annotated), "a/nginx");
    let named = ProfileTarget {
        container_name: Some("fpm".into()),
        ..target(1)
    };
    check(&named, &[annotated], "a/fpm");
}

#[test]
fn select_refuses_an_ambiguous_container() {
    let mut unclear = pod("b");
    unclear.containers[0].name = "app".into();
    unclear.containers.push(ContainerView {
        name: "nginx".into(),
        running: true,
        ..Default::default()
    });
    let names = "pod b has the containers app, nginx";
    let words = "and no name or image says which one runs PHP";
    let expected = format!("ContainerAmbiguous: {names}, {words}");
    check(&target(1), &[pod("a"), unclear.clone()], &expected);
    check(&target(1), &[unclear.clone(), pod("a")], &expected);
    let named = ProfileTarget {
        container_name: Some("app".into()),
        ..target(2)
    };
    check(&named, &[unclear.clone(), pod("a")], "b/app");
    unclear.ready = false;
    check(&target(2), &[pod("a"), unclear], "a/fpm");
}

#[test]
fn select_never_replaces_a_container_that_ended() {
    let mut waiting = pod("a");
    waiting.containers[0].running = false;
    waiting.containers.push(ContainerView {
        name: "nginx".into(),
        running: true,
        ..Default::default()
    });
    check(
        &target(1),
        &[waiting],
        "ContainerNotFound: no ready pod has a running container fpm; pod a has fpm, nginx",
    );
}

#[test]
fn select_names_containers_when_none_matches() {
    let named = ProfileTarget {
        container_name: Some("php".into()),
        ..target(1)
    };
    check(
        &named,
        &[pod("a")],
        "ContainerNotFound: no ready pod has a running container php; pod a has fpm",
    );
}

#[test]
fn select_refuses_static_pods() {
    let fixed = PodView {
        is_static: true,
        ..pod("php-node")
    };
    check(
        &target(1),
        std::slice::from_ref(&fixed),
        "StaticPod: pod php-node is a static pod of node node, and the API server does not add ephemeral containers to such a pod",
    );
    check(&target(2), &[fixed, pod("b")], "b/fpm");
}

#[test]
fn select_leaves_out_pods_without_budget() {
    let mut spent = pod("a");
    for n in 0..64 {
        spent
            .samplers
            .insert(format!("phpprof-{n}-0"), sampler(SamplerState::Running));
    }
    check(
        &target(1),
        &[spent.clone()],
        "EphemeralContainerBudgetSpent: every matching pod already has 64 ephemeral containers of phpprof",
    );
    check(&target(2), &[spent, pod("b")], "b/fpm");
}

/// `expected` is the number of chosen pods, or what the request waits for. Each node has room for
/// two samplers.
#[track_caller]
fn check_room(pods: &[PodView], samplers: &[(&str, usize)], expected: &str) {
    let limits = AdminLimits {
        samplers_of_node: 2,
        ..AdminLimits::default()
    };
    let samplers = samplers
        .iter()
        .map(|(node, count)| ((*node).to_owned(), *count));
    let actual = match select(&target(3), pods, &samplers.collect(), &limits, &ONCE) {
        Ok(selection) => selection.chosen.len().to_string(),
        Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
    };
    assert_eq!(actual, expected);
}

#[test]
fn select_waits_for_room_on_nodes() {
    let pods = [on("n1", "a"), on("n1", "b"), on("n2", "c"), on("n2", "d")];
    check_room(&pods, &[], "3");
    check_room(&pods, &[("n1", 1)], "3");
    check_room(
        &pods,
        &[("n1", 1), ("n2", 1)],
        "Queued: nodes of the matching pods have room for 2 of 3 samplers; each node may run 2 at the same time",
    );
    // The request does not wait for more pods than a node can ever have.
    check_room(&pods[..2], &[], "2");
    check_room(&[on("n1", "a"), on("n1", "b"), on("n1", "c")], &[], "2");
    check_room(
        &pods[..1],
        &[("n1", 7)],
        "Queued: nodes of the matching pods have room for 0 of 1 samplers; each node may run 2 at the same time",
    );
}

/// A pod with this many ephemeral containers. The last one is a resident sampler in this state.
fn with_resident(ended: usize, state: SamplerState) -> PodView {
    let mut pod = pod("web");
    for number in 0..ended {
        let gone = SamplerState::Ended {
            exit_code: 137,
            message: String::new(),
            at: Some(Timestamp::UNIX_EPOCH),
        };
        let name = format!("phpprof-{number}-0");
        pod.samplers.insert(name, sampler(gone));
    }
    let kind = SamplerKind::Resident {
        container_id: "4f9c".into(),
    };
    pod.samplers
        .insert("phpprof-resident-0".into(), SamplerView { kind, state });
    pod
}

#[track_caller]
fn check_resident(pod: PodView, expected: &str) {
    let serving = Serving {
        now: crate::testing::at(0),
        stays: Stays::WherePossible,
        ..ONCE
    };
    let pods = [pod];
    let selected = select(
        &target(1),
        &pods,
        &BTreeMap::new(),
        &AdminLimits::default(),
        &serving,
    );
    let actual = match selected {
        Ok(selection) => format!("{:?}", selection.chosen[0].sampler),
        Err(refusal) => refusal.reason.to_string(),
    };
    assert_eq!(actual, expected);
}

#[test]
fn select_uses_resident_where_budget_is_spent() {
    let there = r#"Resident { name: "phpprof-resident-0", is_there: true }"#;
    check_resident(with_resident(70, SamplerState::Running), there);
    let ended = |second| SamplerState::Ended {
        exit_code: 0,
        message: r#"{"reason":"LeaseEnded"}"#.into(),
        at: Some(crate::testing::at(second)),
    };
    let budget = "EphemeralContainerBudgetSpent";
    check_resident(with_resident(70, ended(-1)), budget);
}

#[test]
fn select_backs_off_where_residents_end() {
    let killed = |second| SamplerState::Ended {
        exit_code: 137,
        message: String::new(),
        at: Some(crate::testing::at(second)),
    };
    let mut pod = with_resident(0, killed(-30));
    let kind = SamplerKind::Resident {
        container_id: "before".into(),
    };
    let before = SamplerView {
        kind,
        state: killed(-600),
    };
    pod.samplers.insert("phpprof-resident-1".into(), before);
    check_resident(pod, "ResidentSamplerBackOff");
}
