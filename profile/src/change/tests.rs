//! What the verdict says of changes whose answer is known.

mod cases;
mod limits;

use std::collections::BTreeMap;

use super::samples::next_random;
use super::*;
use crate::timeline::{CellLimits, CellOwner, CellSums, CellTable, TreeFunction};
use crate::{Builder, FrameRef, Profile, SampleTag, Settings};

const MILLISECOND: i64 = 1_000_000;

/// A release: for each route, its requests per cluster, and its call paths with the milliseconds
/// that the last function takes in each request.
struct Release(Vec<(&'static str, u64, Paths)>);

/// A profile, and the cells of its list.
type TestRun = (Profile, CellTable);

type Paths = Vec<(&'static [&'static str], f64)>;

/// Its run on two pods of four workers: each time varies by a third from cluster to cluster.
fn run(release: &Release, seed: u64) -> TestRun {
    run_on(release, seed, |pod, _| pod)
}

/// Its run on pods by these numbers, of a pod and a slice.
fn run_on(release: &Release, seed: u64, pods: fn(u32, u32) -> u32) -> TestRun {
    let mut random = seed;
    let mut sums = CellSums::new(CellLimits::FILE);
    let mut builder = Builder::new(Settings::default());
    let (mut routes, mut functions) = (Vec::new(), Vec::<&str>::new());
    let mut totals: BTreeMap<(&[&str], &str), i64> = BTreeMap::new();
    for (pod, group, slice) in (0..160_u32).map(|it| (it / 80, it / 20 % 4, it % 20)) {
        let pod = pods(pod, slice);
        for (route, requests, paths) in &release.0 {
            let number = routes.iter().position(|it| it == route);
            let number = number.unwrap_or_else(|| {
                routes.push(*route);
                routes.len() - 1
            });
            let owner = CellOwner { pod, group };
            let at = sums.place(owner, i64::from(slice) * 1_280_000_000, number as u32);
            sums.add_requests(at, *requests, 10 * requests);
            for (path, milliseconds) in paths {
                let leaf = *path.last().unwrap();
                let function = functions.iter().position(|it| *it == leaf);
                let function = function.unwrap_or_else(|| {
                    functions.push(leaf);
                    functions.len() - 1
                });
                let unit = next_random(&mut random) as f64 / u64::MAX as f64;
                let time = milliseconds * *requests as f64 * (1.0 + (unit - 0.5) * 2.0 / 3.0);
                let time = (time * MILLISECOND as f64) as i64;
                sums.add_time(at, Some(function as u32), time, cpu(leaf, time));
                *totals.entry((path, route)).or_default() += time;
            }
        }
    }
    for ((path, route), time) in totals {
        let frame = |name| FrameRef {
            name,
            file: "/srv/a.php",
            start_line: 1,
            line: 2,
        };
        let frames: Vec<_> = path.iter().rev().map(|name| frame(*name)).collect();
        let tags = [SampleTag::Str("route", route)];
        let cpu = cpu(path.last().unwrap(), time);
        builder.add(&frames, &[time / (10 * MILLISECOND), cpu, time], &tags);
    }
    let function = |key: u32| TreeFunction {
        name: functions[key as usize].to_owned(),
        file: "/srv/a.php".to_owned(),
    };
    let pods = ["a", "b", "c"].map(str::to_owned);
    let table = sums.finish(&pods, |key| routes[key as usize], function);
    (builder.finish(), table)
}

/// A query waits for its database, and all else runs for a half of its time.
fn cpu(leaf: &str, time: i64) -> i64 {
    if leaf.starts_with("PDO::") {
        time / 5_000
    } else {
        time / 2
    }
}

fn compared(before: &Release, after: &Release) -> ChangeReport {
    compared_with(before, after, &ChangeSettings::default())
}

fn compared_with(before: &Release, after: &Release, settings: &ChangeSettings) -> ChangeReport {
    report(&run(before, 1), &run(after, 2), settings)
}

fn report(before: &TestRun, after: &TestRun, settings: &ChangeSettings) -> ChangeReport {
    let [before, after] = [before, after].map(|(profile, cells)| ChangeSide {
        profile,
        cells: Some(cells),
        requests: None,
    });
    compare(before, after, settings)
}

fn page(paths: Paths) -> Release {
    let mut all: Paths = vec![
        (&["{main}", "render"], 60.0),
        (&["{main}", "load", "PDO::query"], 100.0),
    ];
    all.extend(paths);
    Release(vec![("/", 10, all)])
}

fn names(report: &ChangeReport) -> Vec<&str> {
    let functions = report.functions.iter();
    functions.map(|it| it.name.as_str()).collect()
}

#[test]
fn same_release_is_no_change() {
    let report = compared(&page(vec![]), &page(vec![]));
    assert_eq!(report.verdict, ChangeVerdict::NoChange, "{report:?}");
    assert_eq!(report.reasons, [ChangeReason::WithinChance]);
    assert!(report.smallest_percent() < 10.0);
    assert_eq!((report.sides[0].pods, report.sides[0].requests), (2, 1600));
}

#[test]
fn slower_functions_are_named_with_their_caller() {
    let report = compared(
        &page(vec![
            (&["{main}", "log", "clean"], 6.0),
            (&["{main}", "log", "handle"], 5.0),
        ]),
        &page(vec![
            (&["{main}", "log", "clean"], 30.0),
            (&["{main}", "log", "handle"], 20.0),
            (&["{main}", "log", "notice"], 2.0),
        ]),
    );
    assert_eq!(report.verdict, ChangeVerdict::Worse);
    assert_eq!(report.reasons, [ChangeReason::TimeChanged]);
    assert_eq!(names(&report), ["clean", "handle"]);
    assert_eq!(report.more_functions, 1);
    assert_eq!(report.common_caller.unwrap().0, "log");
    assert!((report.time.percent() - 24.0).abs() < 4.0);
    assert!(report.functions[0].part_percent > 50.0);
}

#[test]
fn small_function_alone_is_found() {
    let before = page(vec![(&["{main}", "log"], 3.0)]);
    let report = compared(&before, &page(vec![(&["{main}", "log"], 4.5)]));
    assert_eq!(report.verdict, ChangeVerdict::Worse);
    assert_eq!(names(&report), ["log"]);
    let back = compared(&page(vec![(&["{main}", "log"], 4.5)]), &before);
    assert_eq!(back.verdict, ChangeVerdict::Better);
}

#[test]
fn new_and_gone_functions_are_marked() {
    let report = compared(
        &page(vec![(&["{main}", "plain"], 10.0)]),
        &page(vec![(&["{main}", "cache", "Redis::get"], 30.0)]),
    );
    let marks: Vec<_> = report
        .functions
        .iter()
        .map(|it| (it.name.as_str(), it.is_new, it.is_gone))
        .collect();
    assert_eq!(marks, [("Redis::get", true, false), ("plain", false, true)]);
}

#[test]
fn rename_is_a_move() {
    let report = compared(
        &page(vec![(&["{main}", "load", "oldName"], 20.0)]),
        &page(vec![(&["{main}", "load", "newName"], 20.0)]),
    );
    assert_eq!(report.verdict, ChangeVerdict::NoChange, "{report:?}");
    assert_eq!(report.reasons, [ChangeReason::OnlyMoved]);
    assert_eq!(report.functions, []);
    let moved = &report.moves[0];
    assert_eq!(
        (moved.from[0].0.as_str(), moved.to[0].0.as_str()),
        ("oldName", "newName")
    );
}

#[test]
fn extracted_method_is_a_move() {
    let report = compared(
        &page(vec![(&["{main}", "long"], 40.0)]),
        &page(vec![
            (&["{main}", "long"], 15.0),
            (&["{main}", "long", "step"], 25.0),
        ]),
    );
    assert_eq!(report.reasons, [ChangeReason::OnlyMoved], "{report:?}");
    // One that also got slower is not only a move.
    let slower = compared(
        &page(vec![(&["{main}", "long"], 40.0)]),
        &page(vec![
            (&["{main}", "long"], 15.0),
            (&["{main}", "long", "step"], 60.0),
        ]),
    );
    assert_eq!(slower.verdict, ChangeVerdict::Worse);
    assert_eq!(slower.moves, []);
}

#[test]
fn changed_mix_of_routes_is_no_change() {
    let mix = |fast, slow| {
        Release(vec![
            ("/fast", fast, vec![(&["{main}", "fast"][..], 20.0)]),
            ("/slow", slow, vec![(&["{main}", "slow"][..], 300.0)]),
        ])
    };
    let report = compared(&mix(20, 2), &mix(10, 8));
    assert_eq!(report.verdict, ChangeVerdict::NoChange, "{report:?}");
    assert_eq!(report.routes[0].route, "/fast");
    assert!((report.routes[0].share_percent - 90.9).abs() < 0.1);
}

#[test]
fn one_sided_route_is_named_with_its_share() {
    let mut after = page(vec![]);
    after
        .0
        .push(("/new", 5, vec![(&["{main}", "fresh"][..], 300.0)]));
    let report = compared(&page(vec![]), &after);
    assert_eq!(report.verdict, ChangeVerdict::NoChange);
    assert_eq!(report.one_sided.len(), 1);
    let one = &report.one_sided[0];
    assert_eq!((one.route.as_str(), one.requests), ("/new", [0, 800]));
    assert!(one.share_percent[1] > 40.0);
}

#[test]
fn warm_up_is_no_verdict() {
    let report = compared(
        &page(vec![]),
        &page(vec![(&["{main}", "[compiling]"], 50.0)]),
    );
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive);
    assert!(matches!(report.reasons[0], ChangeReason::WarmingUp { .. }));
}

#[test]
fn too_little_is_inconclusive_and_says_why() {
    let with = |change: fn(&mut CellTable)| {
        let (profile, mut cells) = run(&page(vec![]), 3);
        change(&mut cells);
        let side = ChangeSide {
            profile: &profile,
            cells: Some(&cells),
            requests: None,
        };
        let report = compare(side, side, &ChangeSettings::default());
        assert_eq!(report.verdict, ChangeVerdict::Inconclusive);
        report.reasons[0].clone()
    };
    let few = with(|it| it.cells.iter_mut().for_each(|it| it.requests = 0));
    assert_eq!(few, ChangeReason::TooFewRequests { requests: [0, 0] });
    let short = with(|it| it.cells.iter_mut().for_each(|it| it.samples = it.requests));
    let samples_per_request = 1.0;
    assert_eq!(
        short,
        ChangeReason::RequestsTooShort {
            samples_per_request
        }
    );
}

#[test]
fn time_that_was_not_measured_is_inconclusive() {
    let (profile, mut cells) = run(&page(vec![]), 3);
    cells.times.iter_mut().for_each(|it| it.cpu = 0);
    let side = ChangeSide {
        profile: &profile,
        cells: Some(&cells),
        requests: None,
    };
    let settings = ChangeSettings {
        measure: ChangeMeasure::Cpu,
        ..ChangeSettings::default()
    };
    let report = compare(side, side, &settings);
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive);
    assert_eq!(report.reasons, [ChangeReason::NotMeasured]);
    assert_eq!(report.smallest_percent(), f64::INFINITY);
    let mut report = ChangeReport::empty(&settings);
    (report.time.before, report.time.error) = (1.0, f64::NAN);
    report.decide(false, None);
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive);
}

#[test]
fn time_without_names_is_said() {
    let (profile, mut cells) = run(&page(vec![]), 3);
    let render = cells.functions.iter_mut().find(|it| it.name == "render");
    *render.unwrap() = TreeFunction {
        name: crate::timeline::OTHER.to_owned(),
        file: String::new(),
    };
    let side = ChangeSide {
        profile: &profile,
        cells: Some(&cells),
        requests: None,
    };
    let report = compare(side, side, &ChangeSettings::default());
    let said = report.reasons.iter().find_map(|it| match it {
        ChangeReason::WithoutNames { percent } => Some(*percent),
        _ => None,
    });
    // 60 of 160 ms.
    let [before, after] = said.unwrap();
    assert!((before - 37.5).abs() < 1.0 && before == after, "{before}");
}

#[test]
fn difference_smaller_than_visible_is_inconclusive() {
    let (before, after) = (run(&page(vec![]), 1), run(&page(vec![]), 2));
    let side = |(profile, cells)| ChangeSide {
        profile,
        cells: Some(cells),
        requests: None,
    };
    let settings = ChangeSettings {
        visible_percent: 0.1,
        ..ChangeSettings::default()
    };
    let report = compare(
        side((&before.0, &before.1)),
        side((&after.0, &after.1)),
        &settings,
    );
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive);
    let ChangeReason::CouldNotSee { times_as_long, .. } = report.reasons[0] else {
        panic!("{report:?}");
    };
    assert!(times_as_long > 10.0);
}

#[test]
fn without_cells_samples_decide_and_that_is_said() {
    let of = |release: &Release, seed| run(release, seed).0;
    let (before, after) = (
        of(&page(vec![]), 1),
        of(&page(vec![(&["{main}", "log"], 60.0)]), 2),
    );
    let side = |profile, requests| ChangeSide {
        profile,
        cells: None,
        requests,
    };
    let settings = ChangeSettings::default();
    let report = compare(
        side(&before, Some(1600)),
        side(&after, Some(1600)),
        &settings,
    );
    assert_eq!(report.basis, ChangeBasis::Samples);
    assert_eq!(report.verdict, ChangeVerdict::Worse);
    assert!(
        report
            .reasons
            .contains(&ChangeReason::NoCells { side: "both" })
    );
    let unknown = compare(side(&before, None), side(&after, Some(1600)), &settings);
    assert_eq!(unknown.verdict, ChangeVerdict::Inconclusive);
}

#[test]
fn pods_that_differ_are_the_clusters() {
    let (profile, mut cells) = run(&page(vec![]), 5);
    let mut rest = cells.times.iter_mut();
    for cell in &cells.cells {
        for time in rest.by_ref().take(cell.times as usize) {
            time.wall += time.wall * i64::from(cell.pod);
        }
    }
    drop(rest);
    let side = ChangeSide {
        profile: &profile,
        cells: Some(&cells),
        requests: None,
    };
    let (other, others) = run(&page(vec![]), 6);
    let before = ChangeSide {
        profile: &other,
        cells: Some(&others),
        requests: None,
    };
    let report = compare(before, side, &ChangeSettings::default());
    assert_eq!(report.basis, ChangeBasis::Pods);
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive, "{report:?}");
    assert!(
        report
            .reasons
            .contains(&ChangeReason::PodsDiffer { side: "after" })
    );
}

#[test]
fn bounds_hold_for_all_functions_together() {
    let page = |log| page(vec![(&["{main}", "log"], log)]);
    // How many functions of a comparison are beyond their bounds.
    let beyond = |before: &Release, after: &Release, seed| {
        let (before, after) = (run(before, seed), run(after, seed + 1));
        let changes = crate::diff(&before.0, &after.0, &crate::View::default()).unwrap();
        let bounds = ChangeBounds::of(&before.1, &after.1, ChangeMeasure::Wall, BoundOf::Share);
        let bounds = bounds.unwrap();
        let is_beyond = |it: &&crate::FunctionChange| {
            // Callers without self time have no bound.
            let bound = bounds.points(&it.name, &it.file);
            bound.is_some_and(|bound| changes.flat_points(it).abs() > bound)
        };
        changes.changes.iter().filter(is_beyond).count()
    };
    let alarms = (0..50).filter(|seed| beyond(&page(8.0), &page(8.0), 2 * seed) > 0);
    assert!(alarms.count() <= 2);
    assert!(beyond(&page(8.0), &page(12.0), 7) > 0);
}

#[test]
fn bounds_need_clusters() {
    let (_, cells) = run(&page(vec![]), 1);
    let none = CellTable::default();
    let of = |one, other| ChangeBounds::of(one, other, ChangeMeasure::Cpu, BoundOf::Request);
    assert_eq!(of(&cells, &none), None);
    assert!(of(&cells, &cells).is_some());
}
