//! Values that the tests of several files start from.

mod toy_cluster;

use jiff::Timestamp;
use phpprof_crds::ProfileRequest;
use phpprof_profile::{Builder, FrameRef, Label, Settings, encode_gzip};
use serde_json::{Value, json};

use crate::decide::observed::{
    ContainerView, PodView, SamplerDeadlines, SamplerState, SamplerView,
};

/// Of the namespace that requests are in.
pub const NAMESPACE_UID: &str = "5a0e7c11-2b3d-4c4e-9f50-6a7b8c9d0e1f";

/// So many seconds after the tests' zero hour.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).expect("a second of this century")
}

/// A ready pod with one running container, fpm, of uid and gid 1000.
pub fn pod(name: &str) -> PodView {
    PodView {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        node: "node".into(),
        ready: true,
        containers: vec![ContainerView {
            name: "fpm".into(),
            id: "containerd://4f9c".into(),
            running: true,
            uid: Some(1000),
            gid: Some(1000),
        }],
        ..PodView::default()
    }
}

/// A sampler of ours, patched in at the zero hour for 30 seconds.
pub fn sampler(state: SamplerState) -> SamplerView {
    SamplerView {
        deadlines: Some(SamplerDeadlines {
            not_after: at(90),
            upload_until: at(690),
        }),
        state,
    }
}

/// A request of the spec, created a moment before the zero hour.
pub fn request(spec: Value) -> ProfileRequest {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {
            "name": "first", "namespace": "shop", "uid": "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d", "generation": 1,
        },
        "spec": spec,
    }))
    .expect("a request that the schema accepts")
}

/// A sampler's file of so many samples, with the receipt of the contract; it names a pod that is not its own.
pub fn profile(samples: i64) -> Vec<u8> {
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
    let labels = [Label::Str("pod", "forged"), Label::Num("pid", 7, "")];
    builder.add(&[frame], &[samples, 0, samples * 10_000_000], &labels);
    builder.comment(include_str!("../../../contract/comment.json").trim());
    encode_gzip(&builder.finish())
}
