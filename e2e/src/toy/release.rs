//! What a toy's sampler stores of a pod whose release has a known speed: a profile and the list of
//! its HTTP requests, with cells that differ a little from each other.
//!
//! Invariant: two pods of one release have the same files, so that a verdict on them does not
//! depend on chance.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use phpprof_profile::timeline::{
    CellLimits, CellOwner, CellSums, FIRST_SLICE, FIRST_STEP, Timeline, TreeFunction, VERSION,
    WORKER_GROUPS, encode,
};
use phpprof_profile::{Builder, FrameRef, SampleTag};

/// The annotation of a pod whose requests take 150 ms, and this many in `Cart::total`.
pub const ANNOTATION: &str = "toy.phpprof.dev/cart-milliseconds";

const MILLISECOND: f64 = 1e6;
const FILE: &str = "/srv/shop.php";
/// About that of 99 samples per second.
const PERIOD: i64 = 10_000_000;
/// HTTP requests in each cell.
const REQUESTS: u64 = 10;
const PATHS: [&[&str]; 3] = [
    &["{main}", "render"],
    &["{main}", "query"],
    &["{main}", "Cart", "Cart::total"],
];

/// The speed of a release.
#[derive(Clone, Copy, Debug)]
pub struct ToyRelease {
    milliseconds: [f64; 3],
}

impl ToyRelease {
    /// The release that a pod runs, if it says one.
    pub fn of(pod: &Pod) -> Option<Self> {
        let cart = pod.annotations().get(ANNOTATION)?.parse().ok()?;
        Some(Self {
            milliseconds: [50.0, 100.0, cart],
        })
    }

    /// Adds the samples of a run of this many seconds. Returns their number and the list.
    pub(super) fn run(self, seconds: u64, builder: &mut Builder) -> Result<ToyRun> {
        let duration = i64::try_from(seconds.saturating_mul(1_000_000_000))?;
        let slices = (duration / FIRST_SLICE).max(1);
        let mut sums = CellSums::new(CellLimits::RUN);
        let (mut state, mut totals) = (17_u64, [0_i64; 3]);
        let mut unit = || {
            // The constants of Knuth's MMIX.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        for group in 0..WORKER_GROUPS {
            for slice in 0..slices {
                let at = sums.place(CellOwner { pod: 0, group }, slice * FIRST_SLICE, 0);
                sums.add_requests(at, REQUESTS, 15 * REQUESTS);
                for (index, milliseconds) in (0..).zip(self.milliseconds) {
                    let wanted = REQUESTS as f64 * milliseconds * MILLISECOND;
                    let time = (wanted * (1.0 + (unit() - 0.5) / 5.0)) as i64;
                    sums.add_time(at, Some(index), time, time);
                    totals[index as usize] += time;
                }
            }
        }
        let mut samples = 0;
        for (path, total) in PATHS.iter().zip(totals) {
            let frame = |name: &&'static str| FrameRef {
                name,
                file: FILE,
                ..FrameRef::default()
            };
            let frames: Vec<_> = path.iter().rev().map(frame).collect();
            let tags = [SampleTag::Str("route", "/")];
            let count = total / PERIOD;
            builder.add(&frames, &[count, total, total], &tags);
            samples += count;
        }
        let function = |key: u32| {
            let path = PATHS.get(key as usize).and_then(|path| path.last());
            TreeFunction {
                name: path.copied().unwrap_or_default().to_owned(),
                file: FILE.to_owned(),
            }
        };
        let list = Timeline {
            version: VERSION,
            duration_nanoseconds: duration,
            step_nanoseconds: FIRST_STEP,
            cells: Some(sums.finish(&[String::new()], |_| "/", function)),
            ..Timeline::default()
        };
        let list = encode(&list)?;
        Ok(ToyRun { samples, list })
    }
}

/// A run of a release.
pub(super) struct ToyRun {
    /// The number of its samples.
    pub samples: i64,
    /// The list of its HTTP requests.
    pub list: Vec<u8>,
}
