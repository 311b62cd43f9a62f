//! Events of the toy cluster, and how often they occur.

use proptest::prelude::*;

use super::PODS;

/// One event.
#[derive(Clone, Debug)]
pub enum Happening {
    /// The operator reconciles: with an old view of the pods, with an old or the newest status, and
    /// up to a certain effect.
    Look {
        pods_behind: usize,
        status_behind: bool,
        dies_after: Option<usize>,
    },
    /// The kubelet advances a pod's sampler.
    Kubelet {
        pod: usize,
        fails: bool,
    },
    /// A sampler stores a checkpoint.
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
