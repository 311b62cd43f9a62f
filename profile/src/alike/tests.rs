//! What is unlike, what is not, and what is said about profiles that do not say enough.

use super::*;
use crate::{Builder, DecodeLimits, Format, FrameRef, SampleTag, Settings, decode};

const RECEIPT: &str = include_str!("../../../contract/comment.json");

fn settings() -> Settings {
    Settings {
        period: 10_101_010,
        ..Settings::default()
    }
}

fn built(settings: Settings, receipts: &[&str]) -> Profile {
    let values = vec![1; settings.sample_types.len()];
    let mut builder = Builder::new(settings);
    let frame = FrameRef {
        name: "f",
        ..FrameRef::default()
    };
    builder.add(&[frame], &values, &[SampleTag::Str("route", "/shop")]);
    for receipt in receipts {
        builder.comment(*receipt);
    }
    builder.finish()
}

fn asked(asked: &str) -> Profile {
    let receipt = format!(r#"{{"phpprof":"0.1.0","asked":{asked}}}"#);
    built(settings(), &[&receipt])
}

#[track_caller]
fn check(before: &Profile, after: &Profile, unlike: &[Aspect]) -> Likeness {
    for (one, other) in [(before, after), (after, before)] {
        let found = alike(one, other, &View::default()).unlike;
        let aspects: Vec<_> = found.iter().map(|it| it.aspect).collect();
        assert_eq!(aspects, unlike, "{found:?}");
        assert!(found.iter().all(|it| !it.instead.is_empty()));
    }
    alike(before, after, &View::default())
}

#[test]
fn a_profile_is_like_itself() {
    let ours = built(settings(), &[RECEIPT.trim()]);
    assert_eq!(check(&ours, &ours, &[]), Likeness::default());
    let bare = built(Settings::default(), &[]);
    let likeness = check(&bare, &bare, &[]);
    assert_eq!(likeness.note(), None);
    assert_eq!(
        likeness.unchecked,
        [Aspect::Rate, Aspect::Labels, Aspect::Filter]
    );
}

#[test]
fn rates_may_differ_by_a_factor_of_four() {
    let rate = |period| {
        let settings = Settings {
            period,
            ..Settings::default()
        };
        built(settings, &[RECEIPT.trim()])
    };
    check(&rate(10_000_000), &rate(40_000_000), &[]);
    let found = check(&rate(10_000_000), &rate(40_100_000), &[Aspect::Rate]);
    assert_eq!(
        found.unlike[0].what,
        "a worker was sampled 100.0 times a second before, and 24.9 times a second after"
    );
    assert_eq!(found.note().as_deref(), Some("unlike rates"));
}

#[test]
fn a_missing_sample_type_names_another() {
    let both = settings();
    let one = Settings {
        sample_types: vec![("samples", "count"), ("cpu", "nanoseconds")],
        default_sample_type: "cpu",
        ..settings()
    };
    let (both, one) = (built(both, &[]), built(one, &[]));
    let found = alike(&one, &both, &View::default()).unlike;
    assert_eq!(found[0].aspect, Aspect::Type);
    assert!(
        found[0].instead.contains("--sample-type samples"),
        "{found:?}"
    );
    // A type that both have is compared by its name.
    assert_eq!(alike(&both, &one, &View::default()).unlike, []);
}

#[test]
fn one_name_in_two_units_is_unlike() {
    let micro = Settings {
        sample_types: vec![("samples", "count"), ("wall", "microseconds")],
        ..settings()
    };
    check(&built(settings(), &[]), &built(micro, &[]), &[Aspect::Type]);
}

#[test]
fn cpu_ticks_are_not_compared_with_wall_time() {
    let ticks = Settings {
        period_type: ("cpu", "nanoseconds"),
        period: 1_000,
        ..Settings::default()
    };
    let (ours, ticks) = (built(settings(), &[]), built(ticks, &[]));
    let found = check(&ticks, &ours, &[Aspect::Type]);
    let what = "before was sampled by cpu/nanoseconds, after by wall/nanoseconds";
    assert_eq!(found.unlike[0].what, what);
}

#[test]
fn other_labels_and_filters_are_unlike() {
    let plain = asked("{}");
    let routes = asked(r#"{"labels":["route"]}"#);
    check(&plain, &routes, &[Aspect::Labels]);
    check(&routes, &routes, &[]);
    let shop = asked(r#"{"filter":{"pathPrefix":"/shop"}}"#);
    let blog = asked(r#"{"filter":{"pathPrefix":"/blog"}}"#);
    let found = check(&shop, &blog, &[Aspect::Filter]);
    let what = r#"filters: requests with {"pathPrefix":"/shop"} before, requests with {"pathPrefix":"/blog"} after"#;
    assert_eq!(found.unlike[0].what, what);
    for other in [r#"{"includeIdle":true}"#, r#"{"onlyRunning":true}"#] {
        check(&plain, &asked(other), &[Aspect::Filter]);
    }
}

/// Its receipts are those of all samples.
#[test]
fn a_labels_samples_differ_from_all() {
    let all = asked("{}");
    let view = View {
        labels: vec![("route".to_owned(), "/shop".to_owned())],
        ..View::default()
    };
    let bytes = Format::Pprof.write(&all, &view, "web", None).unwrap();
    let shop = decode(&bytes, &DecodeLimits::default()).unwrap();
    let found = check(&all, &shop, &[Aspect::Labels]);
    assert!(found.unlike[0].what.contains("route=/shop"), "{found:?}");
    check(&shop, &shop, &[]);
}

#[test]
fn older_profiles_are_compared_as_before() {
    let older = built(settings(), &[r#"{"phpprof":"0.1.0"}"#]);
    let newer = asked(r#"{"labels":["route"],"includeIdle":true}"#);
    let found = check(&older, &newer, &[]);
    assert_eq!(found.unchecked_words().as_deref(), Some("labels, filters"));
    // One pod of an older sampler is enough.
    let mixed = r#"{"phpprof":"0.1.0","asked":{}}"#;
    let mixed = built(settings(), &[mixed, r#"{"phpprof":"0.1.0"}"#]);
    assert_eq!(check(&mixed, &newer, &[]).unchecked.len(), 2);
}
