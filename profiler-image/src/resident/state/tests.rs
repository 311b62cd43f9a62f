use std::collections::BTreeMap;

use super::*;
use crate::deliver::grants::DeliveryRoute;

mod world;

const SECOND: Duration = Duration::from_secs(1);

fn ask(url: &str) -> PollAccess {
    PollAccess {
        url: url.to_owned(),
        headers: BTreeMap::new(),
        pins: Vec::new(),
    }
}

fn run(key: &str) -> AssignedRun {
    let work = Work {
        arguments: vec![key.to_owned()],
        environment: BTreeMap::new(),
    };
    let receipt = WriteGrant {
        route: DeliveryRoute::Relay,
        method: "PUT".to_owned(),
        url: "https://first/".to_owned(),
        headers: BTreeMap::new(),
        stop: String::new(),
        live: String::new(),
        pins: Vec::new(),
        addresses: Default::default(),
        sends_md5: false,
    };
    AssignedRun {
        key: key.to_owned(),
        receipt,
        work: Ok(work),
    }
}

/// An answer that asks for the next poll after 10 s, with a lease of 100.
fn answer(runs: Vec<AssignedRun>) -> ResidentEvent {
    ResidentEvent::Heard(PollResult::Answer(Box::new(Instructions {
        ask_again: SECOND * 10,
        hold: None,
        lease: SECOND * 100,
        ask: ask("https://next/"),
        runs,
    })))
}

/// The same answer, with the next poll kept open for 25 s.
fn held(runs: Vec<AssignedRun>) -> ResidentEvent {
    let ResidentEvent::Heard(PollResult::Answer(mut answer)) = answer(runs) else {
        unreachable!()
    };
    answer.hold = Some(SECOND * 25);
    ResidentEvent::Heard(PollResult::Answer(answer))
}

fn trouble(why: &str) -> ResidentEvent {
    ResidentEvent::Heard(PollResult::Nothing(PollError {
        why: why.to_owned(),
        is_untrusted: false,
    }))
}

fn ended(key: &str) -> ResidentEvent {
    let key = key.to_owned();
    let receipt = format!("receipt of {key}");
    ResidentEvent::Ended { key, receipt }
}

fn delivered(key: &str, verdict: PutVerdict) -> ResidentEvent {
    let key = key.to_owned();
    ResidentEvent::Delivered { key, verdict }
}

fn again() -> PutVerdict {
    PutVerdict::Again("HTTP 503".to_owned())
}

const IDLE: Duration = Duration::from_secs(1000);

/// A sampler in the middle of its life, at second 0.
struct Scene {
    state: ResidentState,
    now: Duration,
}

impl Scene {
    /// A sampler that has polled and waits 60 s for its first answer.
    fn new() -> Self {
        let state = ResidentState::new(ask("https://first/"), SECOND * 60, IDLE);
        let mut scene = Self {
            state,
            now: Duration::ZERO,
        };
        scene.check("ask https://first/, wait 60");
        scene
    }

    /// A sampler that has an answer.
    fn answered(keys: &[&str]) -> Self {
        let mut scene = Self::new();
        scene.take(answer(keys.iter().map(|key| run(key)).collect()));
        scene
    }

    /// With a chance of 128 a pause is as long as requested, within 2 ‰.
    fn take(&mut self, event: ResidentEvent) {
        self.state.take(self.now, event, 128);
    }

    /// Its steps until it waits or ends.
    fn steps(&mut self) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..100 {
            let (step, is_last) = match self.state.next(self.now) {
                ResidentStep::Say(_) => continue,
                ResidentStep::Ask { ask, hold } => {
                    let held = hold.map(|hold| format!(" and wait {}", hold.as_secs()));
                    (
                        format!("ask {}{}", ask.url, held.unwrap_or_default()),
                        false,
                    )
                }
                ResidentStep::Begin { key, work } => {
                    assert_eq!(work.arguments, [&*key]);
                    (format!("begin {key}"), false)
                }
                ResidentStep::Deliver { key, line, .. } => {
                    (format!("deliver {key}: {line}"), false)
                }
                ResidentStep::Wait(None) => ("wait".to_owned(), true),
                ResidentStep::Wait(Some(at)) => (format!("wait {}", at.as_secs()), true),
                ResidentStep::End(failure) => {
                    (format!("end {:?} {}", failure.reason, failure.detail), true)
                }
            };
            steps.push(step);
            if is_last {
                return steps;
            }
        }
        panic!("it does not wait: {steps:?}");
    }

    #[track_caller]
    fn check(&mut self, expected: &str) {
        assert_eq!(self.steps().join(", "), expected);
    }

    #[track_caller]
    fn check_at(&mut self, seconds: u64, expected: &str) {
        self.now = SECOND * u32::try_from(seconds).unwrap();
        self.check(expected);
    }
}

#[test]
fn next_poll_is_as_the_answer_says() {
    let mut scene = Scene::answered(&[]);
    scene.check("wait 10");
    scene.check_at(9, "wait 10");
    scene.check_at(11, "ask https://next/, wait 100");
}

#[test]
fn kept_open_question_is_repeated_at_once() {
    let mut scene = Scene::new();
    scene.take(held(vec![]));
    scene.check_at(1, "wait 1");
    scene.check_at(2, "ask https://next/ and wait 25, wait 100");
    scene.now = SECOND * 20;
    scene.take(held(vec![run("a")]));
    scene.check("begin a, ask https://next/ and wait 25, wait 120");
}

#[test]
fn question_that_cannot_stay_open_does_not() {
    let mut scene = Scene::new();
    scene.take(held(vec![]));
    scene.check_at(2, "ask https://next/ and wait 25, wait 100");
    scene.now = SECOND * 37;
    scene.take(trouble("timeout"));
    scene.check_at(43, "ask https://next/, wait 100");
    scene.take(answer(vec![]));
    scene.check("wait 53");
}

#[test]
fn pauses_are_a_fifth_longer_or_shorter() {
    assert_eq!(spread(SECOND * 10, 0), SECOND * 8);
    assert_eq!(spread(SECOND * 10, 255), SECOND * 12);
}

#[test]
fn missing_answer_is_retried_until_the_lease_ends() {
    let mut scene = Scene::answered(&[]);
    scene.check_at(11, "ask https://next/, wait 100");
    scene.take(trouble("connection refused"));
    scene.check("wait 16");
    scene.check_at(17, "ask https://next/, wait 100");
    scene.take(trouble("connection refused"));
    scene.check_at(100, "end LeaseEnded ");
}

#[test]
fn without_a_run_for_long_it_ends() {
    let mut scene = Scene::answered(&[]);
    for second in (0..1000).step_by(90) {
        scene.now = SECOND * second;
        scene.take(answer(vec![]));
    }
    scene.check_at(999, "wait 1000");
    scene.check_at(1000, "end LeaseEnded idle");
}

#[test]
fn long_run_is_not_a_missing_one() {
    let mut scene = Scene::answered(&["a"]);
    scene.check("begin a, wait 10");
    for second in (0..=1080).step_by(90) {
        scene.now = SECOND * second;
        scene.take(answer(vec![run("a")]));
    }
    scene.check_at(1085, "wait 1090");
    scene.take(ended("a"));
    scene.check("deliver a: receipt of a, wait 1090");
    scene.take(delivered("a", PutVerdict::Stored));
    scene.check("wait 1090");
}

#[test]
fn without_a_first_answer_it_says_why() {
    let mut scene = Scene::new();
    scene.check_at(60, "end RelayUnreachable timeout");
    let mut scene = Scene::new();
    scene.take(trouble("connection refused"));
    scene.check("wait 5");
    scene.check_at(60, "end RelayUnreachable connection refused");
    let mut scene = Scene::new();
    scene.take(ResidentEvent::Heard(PollResult::Nothing(PollError {
        why: "another key".to_owned(),
        is_untrusted: true,
    })));
    scene.check_at(60, "end CertificateUntrusted ");
}

#[test]
fn run_begins_once() {
    let mut scene = Scene::answered(&["a", "a"]);
    scene.check("begin a, wait 10");
    let name_again = |scene: &mut Scene| scene.take(answer(vec![run("a")]));
    name_again(&mut scene);
    scene.check("wait 10");
    scene.take(ended("a"));
    name_again(&mut scene);
    scene.check("deliver a: receipt of a, wait 10");
    scene.take(delivered("a", PutVerdict::Stored));
    name_again(&mut scene);
    scene.check("wait 10");
}

#[test]
fn four_runs_go_and_wanted_others_wait() {
    let mut scene = Scene::answered(&["a", "b", "c", "d", "e", "f"]);
    scene.check("begin a, begin b, begin c, begin d, wait 10");
    scene.take(ended("b"));
    scene.check("deliver b: receipt of b, begin e, wait 10");
    scene.take(answer(["a", "b", "c", "d", "e"].map(run).to_vec()));
    scene.take(ended("a"));
    scene.check("deliver a: receipt of a, wait 10");
}

#[test]
fn receipt_is_tried_until_stored_or_refused() {
    let mut scene = Scene::answered(&["a"]);
    scene.check("begin a, wait 10");
    scene.take(ended("a"));
    scene.check("deliver a: receipt of a, wait 10");
    let mut newer = run("a");
    newer.receipt.url = "https://newer/".to_owned();
    scene.take(answer(vec![newer]));
    for verdict in [
        again(),
        PutVerdict::Refused(404, String::new()),
        PutVerdict::CertificateUntrusted(""),
    ] {
        scene.take(delivered("a", verdict));
        scene.now += SECOND * 6;
        let step = scene.state.next(scene.now);
        let ResidentStep::Deliver { grant, .. } = step else {
            panic!("{step:?}");
        };
        assert_eq!(grant.url, "https://newer/");
    }
    let before = scene.state.receipts.len();
    scene.take(delivered("a", PutVerdict::Refused(409, String::new())));
    assert_eq!((before, scene.state.receipts.len()), (1, 0));
}

#[test]
fn runs_wait_while_too_many_receipts_are_open() {
    let keys: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    let mut scene = Scene::answered(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    scene.steps();
    for key in &keys[..7] {
        scene.take(ended(key));
        scene.steps();
        scene.take(delivered(key, again()));
    }
    // Seven receipts are not stored, so one more run begins, not two.
    assert_eq!(scene.state.running.len(), 1);
    scene.check("wait 5");
    scene.take(delivered("0", PutVerdict::Stored));
    scene.check("begin 8, wait 5");
}

#[test]
fn refused_run_says_so_in_its_receipt() {
    let mut scene = Scene::new();
    let mut other = run("a");
    other.work = Err("it is for another container");
    scene.take(answer(vec![other.clone()]));
    let line = r#"{"reason":"Usage","detail":"it is for another container"}"#;
    scene.check(&format!("deliver a: {line}, wait 10"));
    scene.take(delivered("a", PutVerdict::Stored));
    scene.take(answer(vec![other]));
    scene.check("wait 10");
}

#[test]
fn ended_lease_ends_runs_and_retries_receipts() {
    let mut scene = Scene::answered(&["a", "b"]);
    scene.check("begin a, begin b, wait 10");
    scene.take(ended("a"));
    scene.check("deliver a: receipt of a, wait 10");
    scene.now = SECOND * 98;
    scene.take(delivered("a", again()));
    scene.check_at(100, "deliver a: receipt of a, wait");
    scene.take(delivered("a", again()));
    scene.check_at(500, "wait");
    scene.take(ended("b"));
    scene.check("deliver b: receipt of b, wait");
    scene.take(delivered("b", again()));
    scene.check("end LeaseEnded ");
}

#[test]
fn stopped_profiling_begins_nothing_more() {
    let mut scene = Scene::answered(&["a", "b", "c", "d", "e"]);
    scene.check("begin a, begin b, begin c, begin d, wait 10");
    scene.check_at(11, "ask https://next/, wait 100");
    let stopped = SamplerFailure::new(Reason::LeaseEnded, "HTTP 410", "stopped");
    scene.take(ResidentEvent::Heard(PollResult::End(stopped)));
    for key in ["a", "b", "c", "d"] {
        scene.take(ended(key));
        scene.check(&format!("deliver {key}: receipt of {key}, wait"));
        scene.take(delivered(key, PutVerdict::Stored));
    }
    scene.check("end LeaseEnded HTTP 410");
}

#[test]
fn signal_ends_it_after_its_runs() {
    let mut scene = Scene::answered(&["a"]);
    scene.check("begin a, wait 10");
    scene.check_at(11, "ask https://next/, wait 100");
    scene.take(ResidentEvent::Signalled);
    scene.check("wait");
    scene.take(answer(vec![run("b")]));
    scene.check("wait");
    scene.take(ended("a"));
    scene.check("deliver a: receipt of a, wait");
    scene.take(delivered("a", again()));
    scene.check("end LeaseEnded signal");
}

#[test]
fn what_lasts_is_said_once() {
    let mut scene = Scene::new();
    let mut said = 0;
    for _ in 0..5 {
        scene.take(trouble("connection refused"));
        scene.now += SECOND * 6;
        while let ResidentStep::Say(_) = scene.state.next(scene.now) {
            said += 1;
        }
    }
    assert_eq!(said, 1);
}
