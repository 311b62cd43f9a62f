//! The status of a comparison in each of its states.

use jiff::Timestamp;
use phpprof_crds::{ComparisonReason, ComparisonVerdict, ProfileComparisonStatus};
use phpprof_decide::testing::at;
use phpprof_profile::alike::{Aspect, Likeness, Unlikeness};
use phpprof_profile::change::{
    ChangeBasis, ChangeEstimate, ChangeReason, ChangeReport, ChangeSettings, ChangeVerdict,
    ChangedFunction, MovedTime, OneSidedRoute, RouteChange, SideFacts,
};

use super::super::decision::ComparisonWords;
use super::super::status::{self, ComparedProfiles};
use super::of_targets;

fn time(before: f64, after: f64) -> ChangeEstimate {
    ChangeEstimate {
        before: before * 1e6,
        after: after * 1e6,
        error: 2e6,
        freedom: 90.0,
    }
}

/// A report that has something of everything.
fn report(verdict: ChangeVerdict, reasons: Vec<ChangeReason>) -> ChangeReport {
    let name = |name: &str| (name.to_owned(), "/srv/app/a.php".to_owned());
    let function = |name: &str| ChangedFunction {
        name: name.to_owned(),
        file: "/srv/app/a.php".to_owned(),
        time: time(6.0, 96.0),
        part_percent: 46.5,
        is_new: true,
        is_gone: false,
    };
    let facts = SideFacts {
        requests: 1200,
        clusters: 96,
        pods: 2,
    };
    ChangeReport {
        settings: ChangeSettings::default(),
        verdict,
        reasons,
        basis: ChangeBasis::Cells,
        sides: [facts, facts],
        time: time(202.0, 458.0),
        changed_time: time(10.0, 230.0),
        routes: vec![RouteChange {
            route: "/users/{id}".to_owned(),
            share_percent: 100.0,
            requests: [1200, 1200],
            time: time(202.0, 458.0),
            is_significant: true,
            verdict: None,
        }],
        one_sided: vec![OneSidedRoute {
            route: "/new".to_owned(),
            share_percent: [0.0, 3.5],
            requests: [0, 40],
        }],
        functions: vec![function("ErrorHandler::cleanTrace")],
        more_functions: 4,
        common_caller: Some(name("ErrorHandler::handleError")),
        moves: vec![MovedTime {
            from: vec![name("Cart::total")],
            to: vec![name("Cart::sum")],
            net: time(5.0, 5.0),
            moved: 5e6,
        }],
    }
}

fn decided(
    report: ChangeReport,
    likeness: Likeness,
    notes: &[ComparisonWords],
) -> ProfileComparisonStatus {
    let mut status = of_targets().status.unwrap();
    let compared = ComparedProfiles { report, likeness };
    status::decide(&mut status, &compared, notes, Some(1), at(100));
    status
}

fn conditions(status: &ProfileComparisonStatus) -> Vec<(String, String, String)> {
    let all = status.conditions.iter();
    all.map(|it| (it.type_.clone(), it.status.clone(), it.reason.clone()))
        .collect()
}

#[track_caller]
fn check_conditions(
    status: &ProfileComparisonStatus,
    complete: &str,
    regressed: &str,
    reason: &str,
) {
    let row = |kind: &str, holds: &str| (kind.to_owned(), holds.to_owned(), reason.to_owned());
    let expected = [row("Complete", complete), row("Regressed", regressed)];
    assert_eq!(conditions(status), expected);
    assert_eq!(status.completion_time.is_some(), complete == "True");
}

#[test]
fn the_status_of_a_worse_release_reads_well() {
    let worse = report(ChangeVerdict::Worse, vec![ChangeReason::TimeChanged]);
    let status = decided(worse, Likeness::default(), &[]);
    check_conditions(&status, "True", "True", "TimeChanged");
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
}

#[test]
fn each_verdict_has_its_condition() {
    let check = |verdict, reason, regressed: &str, name: &str| {
        let status = decided(report(verdict, vec![reason]), Likeness::default(), &[]);
        check_conditions(&status, "True", regressed, name);
    };
    use ChangeVerdict::{Better, Inconclusive, NoChange, Worse};
    check(Better, ChangeReason::TimeChanged, "False", "TimeChanged");
    check(
        Worse,
        ChangeReason::FunctionsChanged,
        "True",
        "FunctionsChanged",
    );
    check(NoChange, ChangeReason::OnlyMoved, "False", "OnlyMoved");
    check(NoChange, ChangeReason::Accepted, "False", "Accepted");
    check(
        NoChange,
        ChangeReason::WithinChance,
        "False",
        "WithinChance",
    );
    let warming = ChangeReason::WarmingUp { nanoseconds: 5e6 };
    check(Inconclusive, warming, "Unknown", "WarmingUp");
    let few = ChangeReason::TooFewRequests { requests: [3, 4] };
    check(Inconclusive, few, "Unknown", "TooFewRequests");
}

#[test]
fn an_open_verdict_says_what_would_decide_it() {
    let unseen = ChangeReason::CouldNotSee {
        smallest_percent: 14.2,
        times_as_long: 2.02,
    };
    let reasons = vec![unseen, ChangeReason::WithinChance];
    let status = decided(
        report(ChangeVerdict::Inconclusive, reasons),
        Likeness::default(),
        &[],
    );
    let message = &status.conditions[1].message;
    for part in [
        "below 14.2 %",
        "3 times as long (durationSeconds)",
        "maxPods",
        "visiblePercent",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let short = ChangeReason::RequestsTooShort {
        samples_per_request: 1.0,
    };
    let status = decided(
        report(ChangeVerdict::Inconclusive, vec![short]),
        Likeness::default(),
        &[],
    );
    assert!(
        status.conditions[0]
            .message
            .contains("4 times as high (samplesPerSecond)")
    );
}

#[test]
fn routes_with_limits_come_first_with_their_verdicts() {
    let routes = vec!["/users/{id}".to_owned()];
    let mut slower = report(
        ChangeVerdict::Worse,
        vec![ChangeReason::RouteSlower { routes }],
    );
    let route = |number: usize| RouteChange {
        route: format!("/{number}"),
        ..slower.routes[0].clone()
    };
    let mut all: Vec<RouteChange> = (0..30).map(route).collect();
    all[27].verdict = Some(ChangeVerdict::Worse);
    all[29].verdict = Some(ChangeVerdict::NoChange);
    slower.routes = all;
    let status = decided(slower, Likeness::default(), &[]);
    check_conditions(&status, "True", "True", "RouteSlower");
    let message = &status.conditions[1].message;
    assert!(
        message.contains("requests of /users/{id} take more time"),
        "{message}"
    );
    let shown = status.routes.iter().take(3);
    let shown: Vec<_> = shown.map(|it| (it.route.as_str(), it.verdict)).collect();
    let expected = [
        ("/27", Some(ComparisonVerdict::Worse)),
        ("/29", Some(ComparisonVerdict::NoChange)),
        ("/0", None),
    ];
    assert_eq!((shown, status.more_routes), (expected.into(), 10));
}

#[test]
fn reasons_of_many_long_routes_fit() {
    let routes: Vec<String> = (0..20)
        .map(|_| format!("/{}\u{1b}", "a".repeat(510)))
        .collect();
    let unseen = ChangeReason::RouteNotSeen {
        routes,
        smallest_percent: 14.2,
        times_as_long: 2.02,
    };
    let status = decided(
        report(ChangeVerdict::Inconclusive, vec![unseen]),
        Likeness::default(),
        &[],
    );
    let message = &status.reasons[0].message;
    assert!(message.len() <= 1024, "{}", message.len());
    assert!(
        message.contains("3 times as long") && !message.contains('\u{1b}'),
        "{message}"
    );
}

#[test]
fn notes_stand_after_the_reasons_of_the_verdict() {
    let unlike = Unlikeness {
        aspect: Aspect::Rate,
        what: "99 before, 10 after".to_owned(),
        instead: String::new(),
    };
    let likeness = Likeness {
        unlike: vec![unlike],
        unchecked: vec![Aspect::Labels],
    };
    let apart = ComparisonWords::new(ComparisonReason::RunsApart, "the runs began 40 s apart");
    let uneven = ChangeReason::PodsDiffer { side: "after" };
    let reasons = vec![ChangeReason::TimeChanged, uneven];
    let status = decided(report(ChangeVerdict::Worse, reasons), likeness, &[apart]);
    let names: Vec<_> = status.reasons.iter().map(|it| it.reason).collect();
    use ComparisonReason::{NotAllChecked, PodsDiffer, RunsApart, TimeChanged, UnlikeByForce};
    assert_eq!(
        names,
        [
            TimeChanged,
            PodsDiffer,
            RunsApart,
            UnlikeByForce,
            NotAllChecked
        ]
    );
    assert!(status.reasons[3].message.contains("99 before, 10 after"));
}

#[test]
fn an_end_without_a_comparison_has_a_hint() {
    let mut status = of_targets().status.unwrap();
    let why = ComparisonWords::new(
        ComparisonReason::RequestFailed,
        "request x is NoPodsMatched",
    );
    status::end(&mut status, &why, Some(1), at(50));
    check_conditions(&status, "True", "Unknown", "RequestFailed");
    assert_eq!(status.verdict, Some(ComparisonVerdict::Inconclusive));
    let message = &status.conditions[0].message;
    assert_eq!(*message, status.reasons[0].message);
    assert!(
        message.contains("NoPodsMatched. Look at the request's reason"),
        "{message}"
    );
}

#[test]
fn a_waiting_status_keeps_its_transition_times() {
    let mut status = of_targets().status.unwrap();
    assert_eq!(
        (&*status.before.request, &*status.after.request),
        ("web-before", "web-after")
    );
    let words = ComparisonWords::new(ComparisonReason::WaitingForRequests, "request x is Queued");
    status::wait(&mut status, &words, Some(1), at(1));
    check_conditions(&status, "False", "Unknown", "WaitingForRequests");
    let again = ComparisonWords::new(ComparisonReason::Comparing, "");
    status::wait(&mut status, &again, Some(1), at(9));
    check_conditions(&status, "False", "Unknown", "Comparing");
    let times: Vec<Timestamp> = status
        .conditions
        .iter()
        .map(|it| it.last_transition_time.0)
        .collect();
    assert_eq!(times, [at(1), at(1)]);
}

#[test]
fn a_status_is_bounded_and_printable() {
    let mut large = report(ChangeVerdict::Worse, vec![ChangeReason::TimeChanged]);
    large.functions = vec![large.functions[0].clone(); 300];
    large.functions[0].name = format!("\u{1b}[2J{}", "x".repeat(9_999));
    large.routes = vec![large.routes[0].clone(); 300];
    large.one_sided = vec![large.one_sided[0].clone(); 300];
    large.moves = vec![large.moves[0].clone(); 300];
    large.moves[0].from = vec![large.moves[0].from[0].clone(); 300];
    let note = ComparisonWords::new(ComparisonReason::RequestIncomplete, "y".repeat(9_999));
    let status = decided(large, Likeness::default(), &vec![note; 20]);
    let lengths = [
        status.functions.len(),
        status.routes.len(),
        status.routes_not_compared.len(),
        status.moves.len(),
        status.moves[0].from.len(),
        status.reasons.len(),
    ];
    assert_eq!(lengths, [20, 20, 20, 8, 8, 8]);
    assert_eq!((status.more_functions, status.more_routes), (284, 280));
    let text = serde_json::to_string(&status).unwrap();
    assert!(
        !text.contains("\\u001b") && text.len() < 64 << 10,
        "{}",
        text.len()
    );
    assert!(status.reasons.iter().all(|it| it.message.len() <= 1024));
}

#[test]
fn numbers_that_are_not_known_are_absent() {
    let mut open = report(
        ChangeVerdict::Inconclusive,
        vec![ChangeReason::TooFewRequests { requests: [0, 0] }],
    );
    open.time.error = f64::INFINITY;
    let status = decided(open, Likeness::default(), &[]);
    assert_eq!((status.time, status.smallest_visible_percent), (None, None));
    assert_eq!(status.change, "");
    serde_json::to_string(&status).unwrap();
}
