//! The files of a request whose pods ran a release: profile and list, with cells that differ a
//! little from each other.

use phpprof_profile::timeline::{
    CellLimits, CellOwner, CellSums, Timeline, TreeFunction, VERSION, encode,
};
use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};

const MILLISECOND: f64 = 1e6;
const FILE: &str = "/srv/a.php";

/// The merged profile and the list of a run. Its requests take 150 ms in `render` and `query`, and
/// this many in `Cart::total` below `Cart`. `comment` is the receipt.
pub fn release(slow: f64, seed: u64, comment: &str) -> [Vec<u8>; 2] {
    let paths: [(&[&str], f64); 3] = [
        (&["{main}", "render"], 50.0),
        (&["{main}", "query"], 100.0),
        (&["{main}", "Cart", "Cart::total"], slow),
    ];
    let mut sums = CellSums::new(CellLimits::FILE);
    let mut builder = Builder::new(Settings::default());
    let mut state = seed;
    let mut unit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as f64 / f64::from(1_u32 << 31)
    };
    let mut totals = [0.0; 3];
    for (group, slice) in (0..96_u32).map(|it| (it / 24, it % 24)) {
        let owner = CellOwner { pod: 0, group };
        let at = sums.place(owner, i64::from(slice) * 1_280_000_000, 0);
        sums.add_requests(at, 10, 150);
        for (index, (_, milliseconds)) in paths.iter().enumerate() {
            let time = 10.0 * milliseconds * MILLISECOND * (1.0 + (unit() - 0.5) / 5.0);
            sums.add_time(at, Some(index as u32), time as i64, time as i64);
            totals[index] += time;
        }
    }
    for ((path, _), total) in paths.iter().zip(totals) {
        let frame = |name: &&'static str| FrameRef {
            name,
            file: FILE,
            ..FrameRef::default()
        };
        let frames: Vec<_> = path.iter().rev().map(frame).collect();
        let total = total as i64;
        let tags = [SampleTag::Str("pod", "web-1")];
        builder.add(&frames, &[total / 10_000_000, total, total], &tags);
    }
    builder.comment(comment);
    let function = |key: u32| TreeFunction {
        name: paths[key as usize]
            .0
            .last()
            .copied()
            .unwrap_or_default()
            .to_owned(),
        file: FILE.to_owned(),
    };
    let table = sums.finish(&["web-1".to_owned()], |_| "/", function);
    let list = Timeline {
        version: VERSION,
        step_nanoseconds: 80_000_000,
        cells: Some(table),
        ..Timeline::default()
    };
    let list = encode(&list).expect("a list within its bounds");
    [encode_gzip(&builder.finish()), list]
}
