//! What happens to the toy cluster, and how often.

use proptest::prelude::*;

use super::PODS;

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Happening {
    /// The operator looks: at how old a view of the pods, at an old status or the newest, and how far it gets.
    Look {
        pods_behind: usize,
        status_behind: bool,
        dies_after: Option<usize>,
    },
    /// The kubelet moves a pod's sampler on.
    Kubelet {
        pod: usize,
        fails: bool,
    },
    /// A sampler stores what it has sampled so far.
    Checkpoint {
        pod: usize,
    },
    RestartTarget {
        pod: usize,
    },
    DeletePod {
        pod: usize,
    },
    Pass {
        seconds: i64,
    },
    Store {
        away: bool,
    },
}

pub fn happening() -> impl Strategy<Value = Happening> {
    let look = (0..4usize, any::<bool>(), proptest::option::of(0..4usize)).prop_map(
        |(pods_behind, status_behind, dies_after)| Happening::Look {
            pods_behind,
            status_behind,
            dies_after,
        },
    );
    prop_oneof![
        8 => look,
        4 => (0..PODS, any::<bool>()).prop_map(|(pod, fails)| Happening::Kubelet { pod, fails }),
        2 => (0..PODS).prop_map(|pod| Happening::Checkpoint { pod }),
        1 => (0..PODS).prop_map(|pod| Happening::RestartTarget { pod }),
        1 => (0..PODS).prop_map(|pod| Happening::DeletePod { pod }),
        2 => (1..120i64).prop_map(|seconds| Happening::Pass { seconds }),
        1 => any::<bool>().prop_map(|away| Happening::Store { away }),
    ]
}
