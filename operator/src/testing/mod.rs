//! Values that the tests of several files use.

pub mod api;
mod toy_cluster;

pub use phpprof_decide::testing::{at, pod, request, sampler};
use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};

/// The uid of the requests' namespace.
pub const NAMESPACE_UID: &str = "5a0e7c11-2b3d-4c4e-9f50-6a7b8c9d0e1f";

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
