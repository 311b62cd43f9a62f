//! Invariants of the state machine: events in any order, and a simulation of the caller.

use proptest::prelude::*;

use super::*;

/// Possible events, in any order.
#[derive(Debug, Clone)]
enum Op {
    Answer {
        keys: Vec<u8>,
        lease: u64,
        again: u64,
    },
    NoAnswer,
    Stopped,
    /// The run of that index ends.
    Ends(usize),
    Delivered(usize, PutVerdict),
    Passes(u64),
    Signal,
}

fn op() -> impl Strategy<Value = Op> {
    let verdict = prop_oneof![
        3 => Just(PutVerdict::Stored),
        2 => Just(again()),
        1 => Just(PutVerdict::Refused(403, String::new())),
        1 => Just(PutVerdict::CertificateUntrusted("")),
    ];
    let answer = (
        prop::collection::vec(0..40_u8, 0..12),
        1..200_u64,
        1..60_u64,
    );
    prop_oneof![
        20 => answer.prop_map(|(keys, lease, again)| Op::Answer { keys, lease, again }),
        10 => Just(Op::NoAnswer),
        1 => Just(Op::Stopped),
        20 => (0..4_usize).prop_map(Op::Ends),
        20 => (0..8_usize, verdict).prop_map(|(index, verdict)| Op::Delivered(index, verdict)),
        20 => (0..30_u64).prop_map(Op::Passes),
        1 => Just(Op::Signal),
    ]
}

/// What a sampler is doing, as its caller sees it.
struct World {
    state: ResidentState,
    now: Duration,
    lease_until: Duration,
    asked: usize,
    running: Vec<String>,
    delivering: Vec<String>,
    begun: Vec<String>,
    wake_at: Option<Duration>,
    has_ended: bool,
}

impl World {
    fn new() -> Self {
        Self {
            state: ResidentState::new(ask("https://first/"), SECOND * 60, SECOND * 100_000),
            now: Duration::ZERO,
            lease_until: SECOND * 60,
            asked: 0,
            running: Vec::new(),
            delivering: Vec::new(),
            begun: Vec::new(),
            wake_at: None,
            has_ended: false,
        }
    }

    fn take(&mut self, event: ResidentEvent) {
        self.state.take(self.now, event, 99);
    }

    fn happens(&mut self, op: Op) {
        match op {
            Op::Answer { keys, lease, again } if self.asked > 0 => {
                self.asked = 0;
                let runs = keys.iter().map(|key| run(&key.to_string())).collect();
                let lease = SECOND * u32::try_from(lease).unwrap();
                self.lease_until = self.lease_until.max(self.now + lease);
                self.take(ResidentEvent::Heard(PollResult::Answer(Box::new(
                    Instructions {
                        ask_again: SECOND * u32::try_from(again).unwrap(),
                        hold: (again % 2 == 0).then_some(SECOND),
                        lease,
                        ask: ask("https://next/"),
                        runs,
                    },
                ))));
            }
            Op::NoAnswer if self.asked > 0 => {
                self.asked = 0;
                self.take(trouble("HTTP 503"));
            }
            Op::Stopped if self.asked > 0 => {
                self.asked = 0;
                let failure = SamplerFailure::new(Reason::LeaseEnded, "", "");
                self.take(ResidentEvent::Heard(PollResult::End(failure)));
            }
            Op::Ends(index) if index < self.running.len() => {
                let key = self.running.swap_remove(index);
                self.take(ended(&key));
            }
            Op::Delivered(index, verdict) if index < self.delivering.len() => {
                let key = self.delivering.swap_remove(index);
                self.take(delivered(&key, verdict));
            }
            Op::Passes(seconds) => self.now += SECOND * u32::try_from(seconds).unwrap(),
            Op::Signal => self.take(ResidentEvent::Signalled),
            _ => {}
        }
    }

    /// Does its steps until it waits, and checks the invariants.
    fn follow(&mut self) {
        for _ in 0..200 {
            match self.state.next(self.now) {
                ResidentStep::Say(_) => {}
                ResidentStep::Ask { .. } => {
                    self.asked += 1;
                    assert_eq!(self.asked, 1, "two questions at the same time");
                }
                ResidentStep::Begin { key, .. } => {
                    assert!(!self.begun.contains(&key), "{key} is begun twice");
                    self.begun.push(key.clone());
                    self.running.push(key);
                    assert!(self.running.len() <= RUNS_AT_ONCE);
                    assert!(self.now < self.lease_until, "begun after the lease");
                }
                ResidentStep::Deliver { key, .. } => {
                    assert!(!self.delivering.contains(&key), "{key} is delivered twice");
                    self.delivering.push(key);
                    assert!(self.running.len() + self.delivering.len() <= OPEN_AT_MOST);
                }
                ResidentStep::Wait(at) => {
                    assert!(at.is_none_or(|at| at > self.now), "a wait for what is over");
                    self.wake_at = at;
                    return;
                }
                ResidentStep::End(_) => {
                    assert!(self.running.is_empty() && self.delivering.is_empty());
                    self.has_ended = true;
                    return;
                }
            }
        }
        panic!("it never waits");
    }

    /// From now on nothing answers, and runs end.
    fn come_to_an_end(&mut self) {
        for _ in 0..500 {
            if self.has_ended {
                return;
            }
            let (asked, runs) = (self.asked, self.running.len());
            if asked > 0 {
                self.happens(Op::NoAnswer);
            } else if runs > 0 {
                self.happens(Op::Ends(0));
            } else if !self.delivering.is_empty() {
                self.happens(Op::Delivered(0, again()));
            } else {
                self.now = self.wake_at.expect("it waits for nothing");
            }
            self.follow();
        }
        panic!("it does not end");
    }
}

proptest! {
    #[test]
    fn whatever_happens_its_promises_hold_and_it_ends(ops in prop::collection::vec(op(), 0..120)) {
        let mut world = World::new();
        world.follow();
        for op in ops {
            if world.has_ended {
                break;
            }
            world.happens(op);
            world.follow();
        }
        let latest = world.now.max(world.lease_until);
        world.come_to_an_end();
        // Runs end at once here, so nothing but the lease is waited for.
        prop_assert!(world.now <= latest, "{:?} after {latest:?}", world.now);
    }

    #[test]
    fn keys_are_remembered_and_their_number_is_bounded(count in 1..600_usize) {
        let mut world = World::new();
        world.follow();
        for number in 0..count {
            world.take(ResidentEvent::Heard(PollResult::Answer(Box::new(Instructions {
                ask_again: SECOND,
                hold: None,
                lease: SECOND * 100,
                ask: ask("https://next/"),
                runs: vec![run(&number.to_string()), run(&number.saturating_sub(KEYS_REMEMBERED - 1).to_string())],
            }))));
            world.follow();
            while !world.running.is_empty() {
                world.happens(Op::Ends(0));
                world.follow();
            }
            while !world.delivering.is_empty() {
                world.happens(Op::Delivered(0, PutVerdict::Stored));
                world.follow();
            }
        }
        prop_assert_eq!(world.begun.len(), count);
        prop_assert!(world.state.known.len() <= KEYS_REMEMBERED);
    }
}
