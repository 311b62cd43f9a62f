//! Routes with limits of their own.

use super::*;

/// A release whose checkout and import take this long.
fn shop(checkout: f64, import: f64) -> Release {
    Release(vec![
        (
            "/",
            40,
            vec![
                (&["{main}", "render"][..], 25.0),
                (&["{main}", "load"], 25.0),
                (&["{main}", "translate"], 25.0),
                (&["{main}", "log"], 25.0),
            ],
        ),
        ("/checkout", 2, vec![(&["{main}", "pay"][..], checkout)]),
        ("/import", 1, vec![(&["{main}", "read"][..], import)]),
    ])
}

fn limits(routes: &[(&str, f64, f64)]) -> ChangeSettings {
    let limits = routes
        .iter()
        .map(|(route, percent, milliseconds)| RouteLimit {
            route: (*route).to_owned(),
            accepted_percent: *percent,
            accepted_nanoseconds: milliseconds * 1e6,
        });
    ChangeSettings {
        // Of all requests, more is accepted than the routes change.
        accepted_percent: 50.0,
        routes: limits.collect(),
        ..ChangeSettings::default()
    }
}

fn verdicts(report: &ChangeReport) -> Vec<(&str, Option<ChangeVerdict>)> {
    let routes = report.routes.iter();
    routes.map(|it| (it.route.as_str(), it.verdict)).collect()
}

#[test]
fn route_beyond_its_limit_is_worse() {
    use ChangeVerdict::{NoChange, Worse};
    let (before, after) = (shop(100.0, 100.0), shop(130.0, 130.0));
    let within = compared_with(&before, &after, &limits(&[]));
    assert_eq!(within.verdict, NoChange, "{within:?}");
    assert!(within.routes.iter().all(|it| it.verdict.is_none()));
    let settings = limits(&[("/checkout", 5.0, 0.0), ("/import", 60.0, 0.0)]);
    let report = compared_with(&before, &after, &settings);
    assert_eq!(report.verdict, Worse, "{report:?}");
    let routes = vec!["/checkout".to_owned()];
    assert_eq!(report.reasons[0], ChangeReason::RouteSlower { routes });
    let expected = [
        ("/", None),
        ("/checkout", Some(Worse)),
        ("/import", Some(NoChange)),
    ];
    assert_eq!(verdicts(&report), expected);
    // Milliseconds accept it as well, and less time is never worse.
    let more = limits(&[("/checkout", 0.0, 60.0)]);
    assert_eq!(compared_with(&before, &after, &more).verdict, NoChange);
    let back = compared_with(&after, &before, &settings);
    assert_eq!(verdicts(&back)[1].1, Some(ChangeVerdict::Better));
    assert_eq!(back.verdict, NoChange, "{back:?}");
}

#[test]
fn route_with_few_requests_leaves_it_open() {
    let (before, mut after) = (shop(100.0, 100.0), shop(100.0, 100.0));
    let settings = limits(&[("/import", 5.0, 0.0), ("/nowhere", 5.0, 0.0)]);
    after.0.pop();
    let report = compared_with(&before, &after, &settings);
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive, "{report:?}");
    let routes = ["/import", "/nowhere"].map(str::to_owned).into();
    assert_eq!(report.reasons[0], ChangeReason::RouteNotCompared { routes });
}

#[test]
fn route_whose_change_cannot_show_leaves_it_open() {
    let release = shop(100.0, 100.0);
    let settings = ChangeSettings {
        visible_percent: 5.0,
        ..limits(&[("/import", 0.5, 0.0)])
    };
    let report = compared_with(&release, &release, &settings);
    assert_eq!(report.verdict, ChangeVerdict::Inconclusive, "{report:?}");
    let ChangeReason::RouteNotSeen { times_as_long, .. } = &report.reasons[0] else {
        panic!("{report:?}");
    };
    assert!(*times_as_long > 1.0);
}
