//! The demo's upgrade (`make demo CASE=upgrade`), as samplers would have recorded it: after it,
//! each call of a library raises a deprecation, which the application's error handler drops.
//!
//! The generator has fixed seeds, so its files are always the same. `tests/agents/upgrade` has them
//! for the protocol's official client; PHPPROF_KEEP names a folder for new ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use phpprof_profile::timeline::{
    CellLimits, CellOwner, CellSums, Timeline, TreeFunction, VERSION_WITH_CELLS, decode, encode,
};
use phpprof_profile::{Builder, DecodeLimits, FrameRef, SampleTag, Settings, encode_gzip};
use serde_json::{Value, json};

const RECEIPT: &str = include_str!("../../../../contract/comment.json");
pub(super) const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agents/upgrade");
const ROUTE: &str = "/orders";
const NAMES: [&str; 2] = ["before", "after"];
/// Requests of a cluster, and the samples of one.
const REQUESTS: u64 = 12;
const SAMPLES: u64 = 6;
const PERIOD: i64 = 10_101_010;

const MAIN: FrameRef<'static> = at("{main}", "/srv/app/index.php", 1, 36);
const RUN: FrameRef<'static> = at(
    "Demo\\Upgrade\\Import::run",
    "/srv/app/src/Upgrade/Import.php",
    14,
    17,
);
const COLUMN: FrameRef<'static> = at(
    "Demo\\Upgrade\\Import::column",
    "/srv/app/src/Upgrade/Import.php",
    21,
    27,
);
/// The planted line.
const RAISES: FrameRef<'static> = at(COLUMN.name, COLUMN.file, COLUMN.start_line, 24);
const TRIGGER: FrameRef<'static> = at("trigger_error", "<internal:Core>", 0, 0);
const HANDLE: FrameRef<'static> = at(
    "Demo\\Upgrade\\Errors::handle",
    "/srv/app/src/Upgrade/Errors.php",
    15,
    17,
);
const CLEANS: FrameRef<'static> = at(HANDLE.name, HANDLE.file, HANDLE.start_line, 18);
const CLEAN: FrameRef<'static> = at(
    "Demo\\Upgrade\\Errors::clean",
    "/srv/app/src/Upgrade/Errors.php",
    24,
    26,
);
const CONSTRUCT: FrameRef<'static> = at("ErrorException::__construct", "<internal:Core>", 0, 0);
const MD5: FrameRef<'static> = at("md5", "<internal:standard>", 0, 0);
const CART: FrameRef<'static> = at(
    "Demo\\Checkout\\Cart::checkout",
    "/srv/app/src/Checkout/Cart.php",
    12,
    19,
);
const SEARCH: FrameRef<'static> = at(
    "Demo\\Search\\Catalogue::search",
    "/srv/app/src/Search/Catalogue.php",
    11,
    23,
);

const fn at(
    name: &'static str,
    file: &'static str,
    start_line: i64,
    line: i64,
) -> FrameRef<'static> {
    FrameRef {
        name,
        file,
        start_line,
        line,
    }
}

/// Call paths from the root, with the milliseconds of their last function in a request.
fn paths(is_upgraded: bool) -> Vec<(Vec<FrameRef<'static>>, f64)> {
    let mut paths = vec![
        (vec![MAIN, CART], 24.0),
        (vec![MAIN, SEARCH], 16.0),
        (vec![MAIN, RUN], 1.5),
        (vec![MAIN, RUN, COLUMN], 1.0),
        (vec![MAIN, RUN, COLUMN, MD5], 4.0),
    ];
    if is_upgraded {
        let raised = [MAIN, RUN, RAISES, TRIGGER];
        let below = |steps: &[FrameRef<'static>]| [&raised, steps].concat();
        paths.extend([
            (raised.to_vec(), 3.0),
            (below(&[HANDLE]), 6.0),
            (below(&[HANDLE, CONSTRUCT]), 12.0),
            (below(&[CLEANS, CLEAN]), 9.0),
        ]);
    }
    paths
}

/// Between 0 and 1 (Knuth's constants).
fn unit(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

/// A run on two pods of four workers: times vary by a third from cluster to cluster.
fn recorded(is_upgraded: bool) -> (Vec<u8>, Vec<u8>) {
    let mut random = 1 + u64::from(is_upgraded);
    let mut sums = CellSums::new(CellLimits::FILE);
    let paths = paths(is_upgraded);
    let mut totals: BTreeMap<usize, i64> = BTreeMap::new();
    for (pod, group, slice) in (0..160_u32).map(|it| (it / 80, it / 20 % 4, it % 20)) {
        let at = sums.place(
            CellOwner { pod, group },
            i64::from(slice) * 1_280_000_000,
            0,
        );
        sums.add_requests(at, REQUESTS, SAMPLES * REQUESTS);
        for (number, (_, milliseconds)) in paths.iter().enumerate() {
            let varied = 1.0 + (unit(&mut random) - 0.5) * 2.0 / 3.0;
            let time = (milliseconds * REQUESTS as f64 * varied * 1e6) as i64;
            sums.add_time(at, Some(number as u32), time, time);
            *totals.entry(number).or_default() += time;
        }
    }
    let mut builder = Builder::new(Settings {
        period: PERIOD,
        duration_nanos: 30_000_000_000,
        ..Settings::default()
    });
    for (number, time) in totals {
        let frames: Vec<_> = paths[number].0.iter().rev().copied().collect();
        let tags = [SampleTag::Str("route", ROUTE), SampleTag::Str("pod", "web")];
        builder.add(&frames, &[time / PERIOD, time, time], &tags);
    }
    builder.comment(receipt());
    let function = |key: u32| {
        let last = paths[key as usize].0.last().unwrap();
        TreeFunction {
            name: last.name.to_owned(),
            file: last.file.to_owned(),
        }
    };
    let pods = ["web-a".to_owned(), "web-b".to_owned()];
    let list = Timeline {
        version: VERSION_WITH_CELLS,
        duration_nanoseconds: 30_000_000_000,
        step_nanoseconds: 160_000_000,
        cells: Some(sums.finish(&pods, |_| ROUTE, function)),
        ..Timeline::default()
    };
    (encode_gzip(&builder.finish()), encode(&list).unwrap())
}

/// Of a good run whose application has this handler.
fn receipt() -> String {
    let mut receipt: Value = serde_json::from_str(RECEIPT).unwrap();
    receipt["php"]["errorHandlers"] = json!([HANDLE.name]);
    receipt["asked"] = json!({"labels": ["route"]});
    receipt.as_object_mut().unwrap().remove("heap");
    receipt.to_string()
}

/// Writes both profiles with their lists, and returns the profiles' paths.
pub(super) fn upgrade(folder: &Path) -> [PathBuf; 2] {
    [(NAMES[0], false), (NAMES[1], true)].map(|(name, is_upgraded)| {
        let (profile, list) = recorded(is_upgraded);
        let path = folder.join(format!("{name}.pb.gz"));
        std::fs::write(&path, profile).unwrap();
        std::fs::write(folder.join(format!("{name}.requests.json.gz")), list).unwrap();
        path
    })
}

/// What the official client reads is what the generator makes.
#[test]
fn stored_files_are_those_of_the_generator() {
    let made = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PHPPROF_KEEP").map(PathBuf::from);
    upgrade(kept.as_deref().unwrap_or(made.path()));
    upgrade(made.path());
    let read = |folder: &Path, name: String| std::fs::read(folder.join(name)).unwrap();
    for name in NAMES {
        let both = [Path::new(STORED), made.path()];
        let limits = DecodeLimits::default();
        let profiles = both.map(|folder| {
            let file = read(folder, format!("{name}.pb.gz"));
            phpprof_profile::decode(&file, &limits).unwrap()
        });
        assert!(profiles[0] == profiles[1], "{name}");
        let lists = both.map(|it| decode(&read(it, format!("{name}.requests.json.gz"))).unwrap());
        assert!(lists[0] == lists[1], "{name}");
    }
}
