use phpprof_profile::alike::{Aspect, Likeness, Unlikeness};
use phpprof_profile::change::{
    ChangeBasis, ChangeEstimate, ChangeReason, ChangedFunction, MovedTime, OneSidedRoute,
    RouteChange, SideFacts,
};
use phpprof_profile::{Builder, FrameRef, Settings};
use serde_json::Value;

use super::*;

fn time(before: f64, after: f64) -> ChangeEstimate {
    ChangeEstimate {
        before: before * 1e6,
        after: after * 1e6,
        error: 2e6,
        freedom: 90.0,
    }
}

fn function(name: &str, before: f64, after: f64) -> ChangedFunction {
    ChangedFunction {
        name: name.to_owned(),
        file: "/srv/app/src/ErrorHandler.php".to_owned(),
        time: time(before, after),
        part_percent: 46.5,
        is_new: before == 0.0,
        is_gone: after == 0.0,
    }
}

/// A comparison that has something of everything.
pub(crate) fn report() -> ChangeReport {
    let route = |route: &str, share_percent| RouteChange {
        route: route.to_owned(),
        share_percent,
        requests: [900, 950],
        time: time(180.0, 420.0),
        is_significant: true,
        verdict: None,
    };
    let name = |name: &str| (name.to_owned(), "/srv/app/src/a.php".to_owned());
    ChangeReport {
        settings: ChangeSettings::default(),
        verdict: ChangeVerdict::Worse,
        reasons: vec![ChangeReason::TimeChanged],
        basis: ChangeBasis::Cells,
        sides: [
            SideFacts {
                requests: 1200,
                clusters: 96,
                pods: 2,
            },
            SideFacts {
                requests: 1100,
                clusters: 94,
                pods: 2,
            },
        ],
        time: time(202.0, 458.0),
        changed_time: time(10.0, 230.0),
        routes: vec![route("/", 75.0), route("/users/{id}", 25.0)],
        one_sided: vec![OneSidedRoute {
            route: "/new".to_owned(),
            share_percent: [0.0, 3.5],
            requests: [0, 40],
        }],
        functions: vec![
            function("ErrorHandler::cleanTrace", 6.0, 96.0),
            function("ErrorHandler::handleError", 0.0, 74.0),
        ],
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

const TITLES: [&str; 2] = ["shop/before", "shop/after"];

#[test]
fn verdict_as_text_has_all_that_it_knows() {
    insta::assert_snapshot!(words::text(
        &report(),
        TITLES,
        &Likeness::default(),
        Some(100)
    ));
}

#[test]
fn verdict_as_markdown_fits_a_comment() {
    insta::assert_snapshot!(markdown::text(&report(), TITLES, &Likeness::default()));
}

#[test]
fn verdict_as_json_has_milliseconds() {
    let data: Value =
        serde_json::from_str(&data::json(&report(), TITLES, &Likeness::default())).unwrap();
    assert_eq!(data["verdict"], "Worse");
    assert_eq!(data["time"]["before"], 202.0);
    assert_eq!(data["functions"][1]["isNew"], true);
    assert_eq!(data["reasons"][0]["reason"], "TimeChanged");
    assert_eq!(data["oneSidedRoutes"][0]["sharePercent"][1], 3.5);
    let yaml: Value =
        serde_yaml::from_str(&data::yaml(&report(), TITLES, &Likeness::default())).unwrap();
    assert_eq!(yaml, data);
}

#[test]
fn names_are_no_markup() {
    let mut report = report();
    report.functions[0].name = "a`|[x](http://e.example) <img>\u{1b}[2J\n# head".repeat(50);
    report.one_sided[0].route = "`| \n# head".to_owned();
    report.common_caller = Some(("[x](y) `".to_owned(), String::new()));
    let text = markdown::text(&report, ["<b>`", "after"], &Likeness::default());
    assert!(
        !text.contains('\u{1b}') && !text.contains("\n# head"),
        "{text}"
    );
    let row = text
        .lines()
        .find(|line| line.contains("e.example"))
        .unwrap();
    assert_eq!(row.matches('|').count(), 7, "{row}");
    assert_eq!(row.matches('`').count(), 2, "{row}");
    assert!(
        text.contains("`[x](y) '`") && text.contains(r"\<b\>"),
        "{text}"
    );
}

#[test]
fn limits_of_routes_are_in_each_form() {
    let routes = vec!["/users/{id}".to_owned()];
    let mut report = ChangeReport {
        reasons: vec![ChangeReason::RouteSlower { routes }],
        ..report()
    };
    report.routes[1].verdict = Some(ChangeVerdict::Worse);
    let text = words::text(&report, TITLES, &Likeness::default(), None);
    assert!(
        text.contains("- requests of /users/{id} take more time than"),
        "{text}"
    );
    assert!(text.contains("/users/{id} (Worse)\n"), "{text}");
    let text = markdown::text(&report, TITLES, &Likeness::default());
    assert!(text.contains("| `/users/{id}` (Worse) |"), "{text}");
    let data = data::json(&report, TITLES, &Likeness::default());
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["routes"][1]["verdict"], "Worse");
    assert_eq!(data["routes"][0]["verdict"], Value::Null);
    assert_eq!(failure(&report).unwrap().exit, Exit::Grew);
}

#[test]
fn a_route_has_one_limit() {
    let limit = |text| crate::route_limits::parse(text).unwrap();
    check_limits(&[limit("/a=5%"), limit("/b=5%")]).unwrap();
    let twice = check_limits(&[limit("/a=5%"), limit("/a=2ms")]).unwrap_err();
    assert_eq!(twice.exit, Exit::Usage);
}

#[test]
fn exit_code_says_what_the_verdict_says() {
    let with = |verdict, reason| {
        let report = ChangeReport {
            verdict,
            reasons: vec![reason],
            ..report()
        };
        failure(&report).map(|failure| (failure.exit, failure.hint))
    };
    let within = ChangeReason::WithinChance;
    assert_eq!(with(ChangeVerdict::NoChange, within.clone()), None);
    assert_eq!(with(ChangeVerdict::Better, ChangeReason::TimeChanged), None);
    let worse = with(ChangeVerdict::Worse, ChangeReason::TimeChanged).unwrap();
    assert_eq!(worse.0, Exit::Grew);
    let could_not = ChangeReason::CouldNotSee {
        smallest_percent: 14.2,
        times_as_long: 2.1,
    };
    let (exit, hint) = with(ChangeVerdict::Inconclusive, could_not).unwrap();
    assert_eq!(exit, Exit::Undecided);
    assert!(hint.contains("3 times as long"), "{hint}");
}

#[test]
fn each_inconclusive_reason_has_a_remedy() {
    for reason in [
        ChangeReason::WarmingUp { nanoseconds: 1e6 },
        ChangeReason::PodsDiffer { side: "after" },
        ChangeReason::TooFewRequests { requests: [3, 0] },
        ChangeReason::RequestsTooShort {
            samples_per_request: 1.1,
        },
        ChangeReason::NoCells { side: "both" },
    ] {
        assert!(!words::reason(&reason).is_empty());
        assert!(words::remedy(&reason).starts_with("record"), "{reason:?}");
    }
}

#[test]
fn time_without_names_is_in_the_text() {
    let report = ChangeReport {
        reasons: vec![ChangeReason::WithoutNames {
            percent: [12.34, 8.0],
        }],
        ..report()
    };
    let text = words::text(&report, TITLES, &Likeness::default(), None);
    let said = "- 12.3 % of the time before and 8.0 % after is `(other)`";
    assert!(text.contains(said), "{text}");
    let data: Value =
        serde_json::from_str(&data::json(&report, TITLES, &Likeness::default())).unwrap();
    assert_eq!(data["reasons"][0]["percent"][0], 12.34, "{data}");
}

#[test]
fn forced_verdicts_say_so_in_each_form() {
    let likeness = Likeness {
        unlike: vec![Unlikeness {
            aspect: Aspect::Rate,
            what: "99 before".to_owned(),
            instead: String::new(),
        }],
        unchecked: Vec::new(),
    };
    for text in [
        words::text(&report(), TITLES, &likeness, None),
        markdown::text(&report(), TITLES, &likeness),
    ] {
        assert!(text.contains("- the profiles have unlike rates"), "{text}");
    }
    let data: Value = serde_json::from_str(&data::json(&report(), TITLES, &likeness)).unwrap();
    assert_eq!(data["unlike"][0]["aspect"], "rate");
}

#[test]
fn worse_without_a_function_says_so() {
    let report = ChangeReport {
        functions: Vec::new(),
        ..report()
    };
    let text = words::text(&report, TITLES, &Likeness::default(), None);
    assert!(text.contains("- no single function has changed"), "{text}");
    assert!(failure(&report).unwrap().hint.contains("longer"));
}

#[test]
fn pods_that_differ_need_more_pods() {
    let could_not = ChangeReason::CouldNotSee {
        smallest_percent: 14.2,
        times_as_long: 2.1,
    };
    let report = ChangeReport {
        verdict: ChangeVerdict::Inconclusive,
        reasons: vec![could_not, ChangeReason::PodsDiffer { side: "after" }],
        ..report()
    };
    assert_eq!(failure(&report).unwrap().hint, "record more pods of both");
}

fn profiled(milliseconds: i64) -> ComparedSide {
    let mut builder = Builder::new(Settings::default());
    let frame = FrameRef {
        name: "ErrorHandler::cleanTrace",
        file: "/srv/app/src/ErrorHandler.php",
        start_line: 1,
        line: 2,
    };
    let time = milliseconds * 1_000_000;
    builder.add(&[frame], &[milliseconds, time, time], &[]);
    builder.comment(r#"{"requests":{"read":40}}"#);
    ComparedSide {
        profile: builder.finish(),
        cells: None,
    }
}

#[test]
fn page_has_verdict_functions_and_requests() {
    let sides = ComparedSides {
        before: profiled(200),
        after: profiled(400),
        likeness: Likeness::default(),
    };
    let page = page::html(&report(), TITLES, &sides).unwrap();
    for part in [
        r#""verdict":"Worse: a request takes 458 ms of wall time instead of 202 ms"#,
        r#""requests":[40,40]"#,
        r#"{"amount":"+90.0 ms","sentence":"of a request (± 3.97 ms) in ErrorHandler::cleanTrace: 6.00 ms before, 96.0 ms after","function":0,"type":2}"#,
        // No stack has it, so the graph cannot show it.
        r#"in ErrorHandler::handleError (new): 0.000 ms before, 74.0 ms after","function":null"#,
        "moved: 5.00 ms of a request from Cart::total to Cart::sum",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn output_is_a_form_or_a_page() {
    let parse = VerdictOutput::parse;
    assert_eq!(parse("md"), Ok(VerdictOutput::Form(VerdictForm::Md)));
    assert_eq!(
        parse("a.html"),
        Ok(VerdictOutput::Page("a.html".to_owned()))
    );
    assert!(parse("a.svg").unwrap_err().contains(".html"));
}
