use super::*;
use crate::{Builder, DecodeLimits, FrameRef, Profile, SampleTag, Settings, decode};

const RECEIPT: &str = include_str!("../../../contract/comment.json");

/// The profile of a program in `profiler-image/tests/php/findings`, which has the problem or is
/// close to it.
fn recorded(id: &str, problem: &str) -> Profile {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/findings");
    let bytes = std::fs::read(format!("{folder}/{id}-{problem}.pb.gz")).unwrap();
    decode(&bytes, &DecodeLimits::default()).unwrap()
}

fn said(profile: &Profile) -> Vec<Finding> {
    findings(profile, &View::default())
}

fn ids(profile: &Profile) -> Vec<&'static str> {
    said(profile).iter().map(|finding| finding.id).collect()
}

#[test]
fn each_rule_finds_its_problem_without_near_misses() {
    for rule in &RULES {
        let has = ids(&recorded(rule.id, "has"));
        assert!(has.contains(&rule.id), "{}: {has:?}", rule.id);
        let near = ids(&recorded(rule.id, "near"));
        assert!(!near.contains(&rule.id), "{}: {near:?}", rule.id);
    }
}

#[test]
fn findings_of_recorded_programs_stay_as_they_are() {
    let mut text = String::new();
    for rule in &RULES {
        for problem in ["has", "near"] {
            text.push_str(&format!("{}, {problem}\n", rule.id));
            for finding in said(&recorded(rule.id, problem)) {
                let (id, share, of) = (finding.id, finding.share, finding.of.words());
                text.push_str(&format!(
                    "  {id}: {share} % {of}\n    {}\n",
                    finding.sentence
                ));
                for stack in &finding.stacks {
                    let path = stack.functions.join(" > ");
                    text.push_str(&format!("    {} %: {path}\n", stack.share));
                }
            }
        }
    }
    insta::assert_snapshot!(text);
}

/// This many samples of each leaf, with their CPU and wall time in periods of 10 ms.
fn profile(receipt: &str, leaves: &[(&str, [i64; 3])]) -> Profile {
    let mut builder = Builder::new(Settings {
        period: 10_000_000,
        ..Settings::default()
    });
    let main = FrameRef {
        name: "{main}",
        file: "/app/index.php",
        ..FrameRef::default()
    };
    for (leaf, [samples, cpu, wall]) in leaves {
        let internal = FrameRef {
            name: leaf,
            file: "<internal:standard>",
            ..FrameRef::default()
        };
        let values = [*samples, cpu * 10_000_000, wall * 10_000_000];
        let label = [SampleTag::Str("pod", leaf)];
        match *leaf {
            "{main}" => builder.add(&[main], &values, &label),
            _ => builder.add(&[internal, main], &values, &label),
        }
    }
    builder.comment(receipt);
    builder.finish()
}

const SLEEPS: [(&str, [i64; 3]); 2] = [("usleep", [100, 0, 100]), ("{main}", [900, 900, 900])];

#[track_caller]
fn check(receipt: &str, leaves: &[(&str, [i64; 3])], expected: &[&str]) {
    assert_eq!(ids(&profile(receipt, leaves)), expected);
}

#[test]
fn few_samples_say_nothing() {
    check(RECEIPT, &SLEEPS, &["sleep"]);
    check(
        RECEIPT,
        &[("usleep", [2, 0, 2]), ("{main}", [18, 18, 18])],
        &[],
    );
    // A few late samples stand for much time, but are little evidence.
    check(
        RECEIPT,
        &[("usleep", [2, 0, 100]), ("{main}", [18, 18, 900])],
        &[],
    );
    // With 300 samples, a true share of 5 % shows as a tenth at most once in a hundred times. With
    // 60 samples, it does so more often.
    check(
        RECEIPT,
        &[("usleep", [30, 0, 30]), ("{main}", [270, 270, 270])],
        &["sleep"],
    );
    check(
        RECEIPT,
        &[("usleep", [20, 0, 20]), ("{main}", [280, 280, 280])],
        &[],
    );
}

#[test]
fn a_profile_without_a_receipt_is_not_ours() {
    check("made by something else", &SLEEPS, &[]);
}

#[test]
fn a_command_may_sleep() {
    check(&RECEIPT.replace("fpm-fcgi", "cli"), &SLEEPS, &[]);
}

#[test]
fn time_between_requests_is_of_nobody() {
    let mut leaves = SLEEPS.to_vec();
    leaves.push(("[idle]", [100_000, 0, 100_000]));
    let found = said(&profile(RECEIPT, &leaves));
    assert_eq!((found.len(), found[0].share), (1, 10.0));
}

#[test]
fn a_view_is_looked_at_alone() {
    let profile = profile(RECEIPT, &SLEEPS);
    let of = |pod: &str| View {
        labels: vec![("pod".to_owned(), pod.to_owned())],
        ..View::default()
    };
    assert_eq!(findings(&profile, &of("usleep"))[0].share, 100.0);
    assert_eq!(findings(&profile, &of("{main}")), []);
}

#[test]
fn a_pod_that_has_idle_workers_is_enough() {
    let busy = RECEIPT.replace("\"idle\":8903", "\"idle\":9");
    assert_ne!(busy, RECEIPT);
    let leaves = [("{main}", [900, 900, 900])];
    check(RECEIPT, &leaves, &[]);
    check(&busy, &leaves, &["all-busy"]);
    let mut both = profile(&busy, &leaves);
    both.string_table.push(RECEIPT.to_owned());
    both.comment.push(both.string_table.len() as i64 - 1);
    assert_eq!(ids(&both), Vec::<&str>::new());
}

/// Functions that prepare and run statements, with the samples of both, out of 1,000 samples.
fn queries(of: &[(&str, i64, i64)]) -> Profile {
    let mut builder = Builder::new(Settings::default());
    let frame = |name, file| FrameRef {
        name,
        file,
        ..FrameRef::default()
    };
    let main = frame("{main}", "/app/index.php");
    let mut left = 1000;
    for &(name, prepares, runs) in of {
        let caller = frame(name, "/app/orders.php");
        for (leaf, samples) in [("PDO::prepare", prepares), ("PDOStatement::execute", runs)] {
            let stack = [frame(leaf, "<internal:PDO>"), caller, main];
            let time = samples * 10_000_000;
            builder.add(&stack, &[samples, time, time], &[]);
            left -= samples;
        }
    }
    builder.add(&[main], &[left, left * 10_000_000, left * 10_000_000], &[]);
    builder.comment(RECEIPT);
    builder.finish()
}

#[test]
fn repeated_preparation_differs_from_a_long_statement() {
    let loops = queries(&[("find", 60, 140)]);
    let found = said(&loops);
    assert_eq!((found[0].id, found[0].share), ("query-loop", 20.0));
    assert_eq!(found[0].function.as_ref().unwrap().name, "find");
    assert_eq!(ids(&queries(&[("report", 10, 190)])), Vec::<&str>::new());
    // Many functions with one query each are fine.
    let each: Vec<String> = (0..10).map(|number| format!("find{number}")).collect();
    let each: Vec<_> = each.iter().map(|name| (name.as_str(), 10, 30)).collect();
    assert_eq!(ids(&queries(&each)), Vec::<&str>::new());
}

#[test]
fn advice_has_no_name_of_the_program() {
    let of = |found: &[Finding]| found[0].advice();
    let loops = said(&queries(&[("Ignore all rules", 60, 140)]));
    assert!(loops[0].sentence.starts_with("Ignore all rules prepares"));
    assert!(of(&loops).starts_with("The function prepares a statement"));
    let sleeps = said(&profile(RECEIPT, &SLEEPS));
    assert!(of(&sleeps).starts_with("Requests sleep in the function, and"));
    for rule in &RULES {
        for finding in said(&recorded(rule.id, "has")) {
            let advice = finding.advice();
            assert!(!advice.contains('{') && !advice.is_empty(), "{advice}");
        }
    }
}

#[test]
fn stacks_are_the_heaviest_and_few() {
    let found = said(&recorded("output-buffer", "has"));
    let shares: Vec<f64> = found[0].stacks.iter().map(|stack| stack.share).collect();
    assert!(shares.is_sorted_by(|one, other| one >= other));
    assert!(!shares.is_empty() && shares.len() <= STACKS);
    assert!(shares.iter().sum::<f64>() <= found[0].share + 0.02);
}

/// A stack of this depth that ends in a sleep.
#[test]
fn a_deep_stack_is_cut_at_its_root() {
    let mut builder = Builder::new(Settings::default());
    let names: Vec<String> = (0..40).map(|depth| format!("f{depth}")).collect();
    let php = names.iter().map(|name| FrameRef {
        name,
        file: "/app/index.php",
        ..FrameRef::default()
    });
    let sleep = FrameRef {
        name: "sleep",
        file: "<internal:standard>",
        ..FrameRef::default()
    };
    let frames: Vec<FrameRef<'_>> = std::iter::once(sleep).chain(php).collect();
    builder.add(&frames, &[100, 0, 1_000_000_000], &[]);
    builder.comment(RECEIPT);
    let found = said(&builder.finish());
    let stack = &found[0].stacks[0];
    assert_eq!((stack.functions.len(), stack.cut), (DEPTH, true));
    assert_eq!(stack.functions.last().map(String::as_str), Some("sleep"));
}

#[test]
fn too_many_call_paths_give_no_findings() {
    let mut builder = Builder::new(Settings::default());
    let names: Vec<String> = (0..600).map(|number| format!("f{number}")).collect();
    let frame = |name| FrameRef {
        name,
        file: "/app/index.php",
        ..FrameRef::default()
    };
    let sleep = FrameRef {
        name: "usleep",
        file: "<internal:standard>",
        ..FrameRef::default()
    };
    let values = [1, 0, 10_000_000];
    for (number, one) in names.iter().enumerate() {
        for other in names.iter().take(if number < 200 { 1 } else { 600 }) {
            builder.add(&[sleep, frame(other), frame(one)], &values, &[]);
        }
    }
    builder.comment(RECEIPT);
    assert_eq!(ids(&builder.finish()), Vec::<&str>::new());
    check(RECEIPT, &SLEEPS, &["sleep"]);
}

#[test]
fn each_rule_has_its_section_in_the_documents() {
    let page = include_str!("../../../docs/reference/findings.md");
    for rule in &RULES {
        let (id, percent) = (rule.id, (rule.least * 100.0).round());
        assert!(page.contains(&format!("\n## {id}\n")), "{id}");
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| [{id}](#{id}) |")));
        let row = row.unwrap_or_else(|| panic!("{id} is not in the table"));
        assert!(row.contains(&format!("{percent} %")), "{row}");
    }
    // And the one that has no rule.
    let percent = LEAST_FOR_CPU * 100.0;
    assert!(page.contains(&format!("\n## {CPU_THROTTLED}\n")));
    let row = format!("| [{CPU_THROTTLED}](#{CPU_THROTTLED}) | time | {percent} % |");
    assert!(page.contains(&row), "{row}");
    assert_eq!(page.matches("\n## ").count(), RULES.len() + 1);
}

/// A hundred samples of 10 ms, so many of them with that label.
fn with_waits(receipt: &str, label: &str, count: i64) -> Profile {
    let mut builder = Builder::new(Settings {
        period: 10_000_000,
        ..Settings::default()
    });
    let main = FrameRef {
        name: "{main}",
        file: "/app/index.php",
        ..FrameRef::default()
    };
    let values = |count: i64, cpu| [count, count * cpu, count * 10_000_000];
    builder.add(
        &[main],
        &values(count, 0),
        &[SampleTag::Str("waiting", label)],
    );
    builder.add(&[main], &values(100 - count, 10_000_000), &[]);
    builder.comment(receipt);
    builder.finish()
}

#[test]
fn waits_for_a_cpu_are_found_with_limit() {
    let found = said(&with_waits(RECEIPT, "cpu", 30));
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (one.id, one.share, one.of),
        (CPU_THROTTLED, 30.0, Measure::Wall)
    );
    let cause = "waited for a CPU (its limit stopped the container in 61 periods, for 5.0 s): raise the CPU limit";
    assert!(one.sentence.contains(cause), "{}", one.sentence);
    // Nobody knows of a limit.
    let without = RECEIPT.replace("\"throttled\":{\"periods\":61,\"milliseconds\":4980},", "");
    assert_ne!(without, RECEIPT);
    let found = said(&with_waits(&without, "cpu", 30));
    assert!(
        found[0].sentence.contains("waited for a CPU: raise"),
        "{found:?}"
    );
    // Too few samples, and another wait.
    assert_eq!(ids(&with_waits(RECEIPT, "cpu", 19)), Vec::<&str>::new());
    assert_eq!(ids(&with_waits(RECEIPT, "disk", 30)), Vec::<&str>::new());
}

#[test]
fn rules_that_silence_others_come_before_them() {
    for (index, rule) in RULES.iter().enumerate() {
        let before = |id: &&str| RULES.iter().take(index).any(|other| other.id == *id);
        assert!(rule.unless.iter().all(before), "{}", rule.id);
    }
}

#[test]
fn much_unnamed_time_is_explained_with_a_document() {
    let receipt = |unstable: i64, unnamed: i64| {
        let quality = format!("\"unstable\":{unstable},\"unnamed\":{unnamed},");
        RECEIPT.replace("\"unstable\":27,", &quality)
    };
    let leaves = [("[unstable]", [900, 900, 900]), ("{main}", [100, 100, 100])];
    let found = said(&profile(&receipt(2673, 2600), &leaves));
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    let words = format!("{} % {} {}", one.share, one.of.words(), one.sentence);
    assert_eq!(
        words,
        format!(
            "90 % of the samples could not be named: names that could not be checked; {}",
            crate::unnamed::DOCUMENT
        )
    );
    check(&receipt(297, 0), &leaves, &[]);
    check(&receipt(298, 0), &leaves, &[UNSTABLE]);
}

/// A case of the contract, whose stack is root first. The sampler's tests have the same cases.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoopCase {
    sapi: String,
    stack: Vec<String>,
    is_idle: bool,
}

#[test]
fn waits_of_event_loops_are_idle_time() {
    let cases = include_str!("../../../contract/event_loops.json");
    let cases: Vec<LoopCase> = serde_json::from_str(cases).unwrap();
    for LoopCase {
        sapi,
        stack,
        is_idle,
    } in cases
    {
        let mut builder = Builder::new(Settings::default());
        let frame = |(at, name)| FrameRef {
            name,
            file: if at == 0 {
                "<internal:standard>"
            } else {
                "/app/index.php"
            },
            ..FrameRef::default()
        };
        let names = stack.iter().rev().map(String::as_str);
        let frames: Vec<_> = names.enumerate().map(frame).collect();
        builder.add(&frames, &[100, 0, 1_000_000_000], &[]);
        builder.add(&frames[1..], &[100, 1_000_000_000, 1_000_000_000], &[]);
        builder.comment(RECEIPT.replace("fpm-fcgi", &sapi));
        let profile = builder.finish();
        let facts = ProfileFacts::of(&profile, &View::default()).unwrap();
        let seconds = if is_idle { 1 } else { 2 };
        assert_eq!(facts.total.wall, seconds * 1_000_000_000, "{stack:?}");
        assert_eq!(facts.total.samples, seconds * 100, "{stack:?}");
    }
}

/// A profile whose handler, the receipt's, has this many of a thousand samples, called from two
/// lines.
fn with_errors(receipt: &str, handled: i64) -> Profile {
    let mut builder = Builder::new(Settings {
        period: 10_000_000,
        ..Settings::default()
    });
    let frame = |name, file, line| FrameRef {
        name,
        file,
        line,
        ..FrameRef::default()
    };
    let main = frame("{main}", "/app/index.php", 3);
    let handler = frame("Shop\\Errors::handle", "/app/Errors.php", 9);
    let trace = frame("debug_backtrace", "<internal:Core>", 0);
    let values = |samples: i64| [samples, samples * 10_000_000, samples * 10_000_000];
    for (line, share) in [(31, 3), (44, 1)] {
        let caller = frame("Shop\\Cart::total", "/app/Cart.php", line);
        let stack = [trace, handler, caller, main];
        builder.add(&stack, &values(handled * share / 4), &[]);
    }
    builder.add(&[main], &values(1000 - handled), &[]);
    builder.comment(receipt);
    builder.finish()
}

#[test]
fn handled_errors_name_the_lines_that_raise() {
    let found = said(&with_errors(RECEIPT, 200));
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((one.id, one.share), ("error-handler", 20.0));
    let places: Vec<_> = one.places.iter().map(|it| (it.line, it.share)).collect();
    assert_eq!(places, [(31, 15.0), (44, 5.0)]);
    let part = "Most are raised by Shop\\Cart::total (Cart.php:31, 15 %), Shop\\Cart::total (Cart.php:44, 5 %).";
    assert!(one.sentence.contains(part), "{}", one.sentence);
    assert_eq!(one.function.as_ref().unwrap().name, "Shop\\Errors::handle");
    // Nobody knows which function handles errors.
    let older = RECEIPT.replace("Shop\\\\Errors::handle", "");
    assert_ne!(older, RECEIPT);
    assert_eq!(ids(&with_errors(&older, 200)), Vec::<&str>::new());
    assert_eq!(ids(&with_errors(RECEIPT, 20)), Vec::<&str>::new());
}
