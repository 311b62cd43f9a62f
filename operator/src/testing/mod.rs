//! Values that the tests of several files use.

pub mod api;
pub mod release;
mod toy_cluster;

use std::collections::BTreeMap;
use std::path::Path;

use phpprof_crds::{TargetState, TargetStatus};
pub use phpprof_decide::testing::{at, pod, request, sampler};
use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};

use crate::lifecycle::observed::{Admission, ObservedCluster, PodView, StoreWrites};
use crate::storage::store::{ProfileStore, StoreConfig};

/// The uid of the requests' namespace.
pub const NAMESPACE_UID: &str = "5a0e7c11-2b3d-4c4e-9f50-6a7b8c9d0e1f";

/// What the operator reads of a request that asks for admission, if nothing is in its way: these
/// pods match, no sampler runs, and nothing is stored.
pub fn admission(matched: Vec<PodView>) -> Admission {
    Admission {
        namespace_uid: NAMESPACE_UID.into(),
        namespace_enabled: true,
        stored_bytes: 0,
        store: StoreWrites::default(),
        samplers: BTreeMap::new(),
        waits_since: at(0),
        matched: Ok(matched),
    }
}

/// The cluster for a request that asks for admission.
pub fn asks(admission: Admission) -> ObservedCluster {
    ObservedCluster {
        admission: Some(admission),
        ..ObservedCluster::default()
    }
}

/// A pod's target in this state, whose container is `fpm`.
pub fn target(pod: &str, state: TargetState) -> TargetStatus {
    TargetStatus {
        pod_name: pod.into(),
        container_name: "fpm".into(),
        state,
        ..TargetStatus::default()
    }
}

/// A store in a folder.
pub fn store_in(folder: &Path) -> ProfileStore {
    let config = StoreConfig {
        url: format!("file://{}", folder.display()),
        ..StoreConfig::default()
    };
    ProfileStore::open(&config).expect("a folder")
}

/// A sampler's file with this many samples and the receipt of the contract. It names another pod.
pub fn profile(samples: i64) -> Vec<u8> {
    profile_with(
        samples,
        include_str!("../../../contract/comment.json").trim(),
    )
}

/// The same, with another receipt.
pub fn profile_with(samples: i64, receipt: &str) -> Vec<u8> {
    let mut builder = Builder::new(Settings {
        time_nanos: 1,
        duration_nanos: i64::MAX,
        ..Settings::default()
    });
    let frame = FrameRef {
        name: "{main}",
        file: "/app/index.php",
        ..FrameRef::default()
    };
    let labels = [
        SampleTag::Str("pod", "forged"),
        SampleTag::Num("pid", 7, ""),
    ];
    builder.add(&[frame], &[samples, 0, samples * 10_000_000], &labels);
    builder.comment(receipt);
    encode_gzip(&builder.finish())
}
