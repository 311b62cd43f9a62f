//! Cases that a team would otherwise take for a regression, or not see. The verdict that each must
//! have was written down before the code ran. A rename, an extracted method and a changed mix of
//! routes are next door.

use super::*;

fn measured(before: &Release, after: &Release, measure: ChangeMeasure) -> ChangeReport {
    let settings = ChangeSettings {
        measure,
        ..ChangeSettings::default()
    };
    compared_with(before, after, &settings)
}

/// No change, with the new frames named.
#[test]
fn autoload_of_a_new_dependency_is_named() {
    let loads: &[&str] = &["{main}", "[autoload]", "ClassLoader::loadClass"];
    let report = compared(&page(vec![]), &page(vec![(loads, 0.5)]));
    assert_eq!(report.verdict, ChangeVerdict::NoChange, "{report:?}");
    assert_eq!(report.reasons[0], ChangeReason::Accepted);
    assert_eq!(names(&report), ["ClassLoader::loadClass"]);
    assert!(report.functions[0].is_new);
    // The same of a dependency that costs much.
    let report = compared(&page(vec![]), &page(vec![(loads, 20.0)]));
    assert_eq!(report.verdict, ChangeVerdict::Worse, "{report:?}");
    assert_eq!(names(&report), ["ClassLoader::loadClass"]);
}

fn with_database(milliseconds: f64) -> Release {
    let query: &[&str] = &["{main}", "find", "PDO::query"];
    Release(vec![(
        "/",
        10,
        vec![(&["{main}", "render"][..], 60.0), (query, milliseconds)],
    )])
}

/// Worse, and it is the database; of CPU time no change.
#[test]
fn slower_database_is_worse_in_wall_time_only() {
    let (before, after) = (with_database(40.0), with_database(80.0));
    let wall = measured(&before, &after, ChangeMeasure::Wall);
    assert_eq!(wall.verdict, ChangeVerdict::Worse, "{wall:?}");
    assert_eq!(names(&wall), ["PDO::query"]);
    let cpu = measured(&before, &after, ChangeMeasure::Cpu);
    assert_eq!(cpu.verdict, ChangeVerdict::NoChange, "{cpu:?}");
}

/// As without the restart: the second pod is another one from the middle on.
#[test]
fn restarted_pod_changes_no_verdict() {
    let restarted = |pod, slice| match (pod, slice) {
        (1, 10..) => 2,
        (pod, _) => pod,
    };
    let settings = ChangeSettings::default();
    let slow: &[&str] = &["{main}", "log"];
    for (milliseconds, verdict) in [(0.0, ChangeVerdict::NoChange), (30.0, ChangeVerdict::Worse)] {
        let before = run(&page(vec![(slow, 10.0)]), 1);
        let release = page(vec![(slow, 10.0 + milliseconds)]);
        let without = report(&before, &run(&release, 2), &settings);
        let with = report(&before, &run_on(&release, 2, restarted), &settings);
        assert_eq!((without.sides[1].pods, with.sides[1].pods), (2, 3));
        assert_eq!(with.verdict, verdict, "{with:?}");
        assert_eq!(
            (with.verdict, names(&with)),
            (without.verdict, names(&without))
        );
    }
}

/// Inconclusive, with what is missing.
#[test]
fn side_without_requests_is_inconclusive() {
    let (before, after) = (run(&page(vec![]), 1), run(&page(vec![]), 2));
    let empty = (after.0, CellTable::default());
    let settings = ChangeSettings::default();
    for (sides, requests) in [
        ([&before, &empty], [1600, 0]),
        ([&empty, &before], [0, 1600]),
    ] {
        let report = report(sides[0], sides[1], &settings);
        assert_eq!(report.verdict, ChangeVerdict::Inconclusive, "{report:?}");
        assert_eq!(report.reasons, [ChangeReason::TooFewRequests { requests }]);
        let words = words::reason(&report.reasons[0]);
        assert!(
            words.contains("no route has enough requests on both sides"),
            "{words}"
        );
    }
}

/// No change: the function is now in another file.
#[test]
fn moved_file_is_a_move() {
    let of = |file: &'static str| {
        let (profile, mut cells) = run(&page(vec![(&["{main}", "load", "total"], 20.0)]), 4);
        for function in &mut cells.functions {
            if function.name == "total" {
                function.file = file.to_owned();
            }
        }
        let at = profile.string_table.iter().position(|it| it == "total");
        let mut profile = profile;
        let name = at.unwrap() as i64;
        profile.string_table.push(file.to_owned());
        let text = profile.string_table.len() as i64 - 1;
        for function in profile.function.iter_mut().filter(|it| it.name == name) {
            function.filename = text;
        }
        (profile, cells)
    };
    let settings = ChangeSettings::default();
    let report = report(&of("/srv/Cart.php"), &of("/srv/Shop/Cart.php"), &settings);
    assert_eq!(report.verdict, ChangeVerdict::NoChange, "{report:?}");
    assert_eq!(report.reasons, [ChangeReason::OnlyMoved]);
}
