use super::*;
use crate::{Builder, FrameRef, SampleTag, Settings};

/// A profile of call paths, root first, with a route and nanoseconds of wall time.
fn profile(paths: &[(&[&str], &str, i64)]) -> Profile {
    let mut builder = Builder::new(Settings::default());
    for (path, route, wall) in paths {
        let frame = |name| FrameRef {
            name,
            ..FrameRef::default()
        };
        let frames: Vec<_> = path.iter().rev().map(|name| frame(*name)).collect();
        builder.add(&frames, &[1, 0, *wall], &[SampleTag::Str("route", route)]);
    }
    builder.finish()
}

fn name(name: &str) -> NameAndFile {
    (name.to_owned(), String::new())
}

fn callers(before: &Profile, after: &Profile, asked: &[&str]) -> CallersOf {
    let asked: Vec<_> = asked.iter().map(|it| name(it)).collect();
    CallersOf::read([before, after], "wall", asked.iter(), |route| route == "/")
}

#[test]
fn callers_count_samples_of_compared_routes() {
    let one = profile(&[
        (&["main", "shop", "f"], "/", 95),
        (&["main", "f"], "/", 5),
        (&["main", "cron", "f"], "/cron", 10_000),
    ]);
    let callers = callers(&one, &one, &["f"]);
    assert_eq!(callers.direct(&name("f")), [Some(&name("shop")); 2]);
    let common = callers.common([(&name("f"), 7.0)].into_iter());
    assert_eq!(common, Some(name("f")));
    assert_eq!(callers.has(&name("cron")), [true; 2]);
    assert_eq!(callers.has(&name("g")), [false; 2]);
}

#[test]
fn deep_stacks_keep_leaf_and_caller() {
    let mut path = vec!["main"];
    path.extend(["walk", "step"].repeat(MAX_DEPTH));
    path.extend(["last", "leaf", "leaf"]);
    let one = profile(&[(&path, "/", 100)]);
    let callers = callers(&one, &one, &["leaf"]);
    assert_eq!(callers.direct(&name("leaf")), [Some(&name("last")); 2]);
    let common = callers.common([(&name("leaf"), 1.0)].into_iter());
    assert_eq!(common, Some(name("leaf")));
}

#[test]
fn time_at_the_root_is_below_no_caller() {
    let one = profile(&[(&["main", "f"], "/", 50), (&["f"], "/", 50)]);
    assert_eq!(callers(&one, &one, &["f"]).direct(&name("f")), [None; 2]);
}

#[test]
fn common_caller_weighs_changes_not_times() {
    let before = profile(&[
        (&["main", "big"], "/", 10_000),
        (&["main", "log", "old"], "/", 300),
    ]);
    let after = profile(&[
        (&["main", "big"], "/", 10_010),
        (&["main", "log", "new"], "/", 400),
    ]);
    let callers = callers(&before, &after, &["big", "old", "new"]);
    let changes = [
        (&name("big"), 10.0),
        (&name("old"), -300.0),
        (&name("new"), 400.0),
    ];
    assert_eq!(callers.common(changes.into_iter()), Some(name("log")));
    // Without most of the change below one function, the caller of all is it.
    let even = [(&name("big"), 400.0), (&name("new"), 400.0)];
    assert_eq!(callers.common(even.into_iter()), Some(name("main")));
}
