use super::*;
use crate::{Builder, FrameRef, Settings, total};

fn frame(name: &str) -> FrameRef<'_> {
    FrameRef {
        name,
        file: match name {
            "{main}" => "/app/index.php",
            _ => "<internal:standard>",
        },
        ..FrameRef::default()
    }
}

/// Leaves with their samples, and their CPU and wall time in milliseconds.
fn profile(leaves: &[(&str, [i64; 3])]) -> Profile {
    let mut builder = Builder::new(Settings::default());
    for (leaf, [samples, cpu, wall]) in leaves {
        let values = [*samples, cpu * 1_000_000, wall * 1_000_000];
        match *leaf {
            "{main}" => builder.add(&[frame(leaf)], &values, &[]),
            leaf => builder.add(&[frame(leaf), frame("{main}")], &values, &[]),
        }
    }
    builder.finish()
}

/// The wall time of each kind, in milliseconds.
fn waits(profile: &Profile) -> Vec<(&'static str, i64)> {
    let waiting = WaitingTimes::of(profile).unwrap();
    let wall = profile.value_index("wall").unwrap();
    let waits = profile.sample.iter().filter_map(|it| waiting.split(it));
    waits
        .map(|(kind, values)| (kind, values[wall] / 1_000_000))
        .collect()
}

#[test]
fn what_a_function_does_not_compute_it_waits() {
    let profile = profile(&[
        ("{main}", [100, 1000, 1000]),
        ("PDOStatement::execute", [100, 50, 1000]),
        ("usleep", [10, 0, 100]),
        ("md5", [10, 10, 100]),
    ]);
    assert_eq!(waits(&profile), [("database", 950), ("sleep", 100)]);
}

#[test]
fn a_wait_for_cpu_is_no_database_wait() {
    // Everything takes four times its CPU time, as under a CPU limit. One of the two functions also
    // waits.
    let profile = profile(&[
        ("{main}", [100, 250, 1000]),
        ("PDO::query", [100, 240, 1000]),
        ("Redis::get", [100, 125, 1000]),
    ]);
    assert_eq!(waits(&profile), [("cache", 500)]);
}

#[test]
fn other_functions_tell_cpu_waits_without_php_time() {
    let profile = profile(&[
        ("{main}", [2, 0, 20]),
        ("md5", [100, 100, 1000]),
        ("PDO::query", [100, 95, 1000]),
    ]);
    assert_eq!(waits(&profile), []);
}

#[test]
fn a_programs_function_is_never_the_engines() {
    let mut builder = Builder::new(Settings::default());
    let own = FrameRef {
        name: "Redis::get",
        file: "/app/Redis.php",
        ..FrameRef::default()
    };
    builder.add(&[own], &[10, 0, 100_000_000], &[]);
    assert_eq!(waits(&builder.finish()), []);
}

#[test]
fn parts_add_up_and_waiting_takes_no_cpu() {
    let profile = profile(&[
        ("{main}", [100, 1000, 1000]),
        ("curl_exec", [33, 77, 777]),
        ("sleep", [1, 0, 7]),
    ]);
    let made = labelled(&profile);
    for kind in ["samples", "cpu", "wall"] {
        assert_eq!(total(&made, kind), total(&profile, kind), "{kind}");
    }
    let (labelled_ones, rest): (Vec<_>, Vec<_>) =
        made.sample.iter().partition(|it| !it.label.is_empty());
    assert_eq!((labelled_ones.len(), rest.len()), (2, 2));
    assert!(labelled_ones.iter().all(|sample| sample.value[1] == 0));
    let label = labelled_ones[0].label[0];
    assert_eq!(
        (made.string(label.key), made.string(label.str)),
        (LABEL, "http")
    );
    assert_eq!(labelled(&made), made, "it has the label already");
}

#[test]
fn no_function_has_two_kinds() {
    let all = || {
        let kinds = KINDS.iter();
        kinds.flat_map(|(kind, names)| names.iter().map(move |name| (*kind, *name)))
    };
    for (of, name) in all() {
        let plain = name.trim_end_matches('*');
        assert_eq!(kind(plain), Some(of), "{name}");
        let same = all().filter(|(_, other)| other.eq_ignore_ascii_case(name));
        assert_eq!(same.count(), 1, "{name}");
        // A function with its full name is an exception; a beginning is not.
        for (other, beginning) in all().filter(|(other, _)| *other != of) {
            let begins = beginning
                .strip_suffix('*')
                .is_some_and(|it| plain.starts_with(it));
            assert!(plain == name || !begins, "{name} is of {of} and of {other}");
        }
    }
}

#[test]
fn functions_are_known_as_versions_spell_them() {
    for (name, expected) in [
        ("array_map", None),
        ("PDOStatement::fetchAll", Some("database")),
        ("session_start", Some("lock")),
        ("Redis::get", Some("cache")),
        ("Redis::blpop", Some("queue")),
        ("Redis::brPop", Some("queue")),
        ("redis::GET", Some("cache")),
        ("é", None),
    ] {
        assert_eq!(kind(name), expected, "{name}");
    }
}

/// Half of the time in the same leaves, by a sampler's label.
fn with_labels(kinds: &[&str]) -> Profile {
    let mut builder = Builder::new(Settings::default());
    let mut add = |leaf, values: [i64; 3], labels: &[crate::SampleTag<'_>]| {
        let values = values.map(|value| value * 1_000_000);
        builder.add(&[frame(leaf), frame("{main}")], &values, labels);
    };
    add("PDO::query", [1, 5, 100], &[]);
    add("{main}", [1, 100, 100], &[]);
    for kind in kinds {
        let labels = [crate::SampleTag::Str(LABEL, kind)];
        add("PDO::query", [1, 0, 1000], &labels);
        add("{main}", [1, 0, 1000], &labels);
    }
    builder.finish()
}

#[test]
fn a_samplers_label_stays_and_excludes_its_leaf() {
    let profile = with_labels(&[STOPPED, DISK, CPU]);
    // Without the label, all of the time in `{main}` would be waits for a CPU, and none for the
    // database.
    assert_eq!(waits(&profile), [("database", 95)]);
    let shown = labelled(&profile);
    let by_kind = |kind: &str| {
        let has = |sample: &&Sample| {
            let mut labels = sample.label.iter();
            labels.any(|it| shown.string(it.str) == kind)
        };
        let samples = shown.sample.iter().filter(has);
        samples
            .map(|sample| sample.value[2] / 1_000_000)
            .sum::<i64>()
    };
    assert_eq!(
        ["stopped", "disk", "cpu", "database"].map(by_kind),
        [2000, 2000, 2000, 95]
    );
    assert_eq!(total(&shown, "wall"), total(&profile, "wall"));
    // What was shown and stored is not split again.
    assert!(WaitingTimes::of(&shown).is_none());
}

#[test]
fn told_of_cpu_has_their_share() {
    assert_eq!(told_of_cpu(0.49, 10.0), None);
    assert_eq!(told_of_cpu(0.0, 0.0), None);
    let told = told_of_cpu(2.5, 10.0).unwrap();
    let begin = "workers waited 2.5 s for a CPU, and 10.0 s are sampled (label waiting=cpu";
    assert!(told.starts_with(begin), "{told}");
    // Most of it between requests.
    assert!(told_of_cpu(9.2, 9.0).is_some());
}

#[test]
fn told_of_stopped_has_their_share() {
    assert_eq!(told_of_stopped(0, 100), None);
    let told = told_of_stopped(3, 100).unwrap();
    assert!(told.starts_with("3 samples (3.0 %) are of workers that were stopped"));
}
