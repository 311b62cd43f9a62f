//! Decides what a resident sampler does next.
//!
//! Pure: it takes events ([`ResidentEvent`]) and returns steps ([`ResidentStep`]); times are since
//! the sampler's start.
//!
//! Invariant: a key has at most one process, at most four keys have one at the same time, and the
//! sampler ends once the lease is over and the runs have ended, whatever the relay answers.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use super::answer::{AssignedRun, Instructions, PollAccess, PollError, PollResult, Work};
use crate::deliver::grants::WriteGrant;
use crate::deliver::put::PutVerdict;
use crate::deliver::receipt;
use crate::failure::{Reason, SamplerFailure};

/// Runs at the same time.
const RUNS_AT_ONCE: usize = 4;
/// Runs that have begun and whose receipts are not stored yet: at this number, others wait.
const OPEN_AT_MOST: usize = 8;
/// How many runs are remembered. The relay repeats a run until it knows its end, which takes
/// seconds.
const KEYS_REMEMBERED: usize = 256;
/// The time between the beginnings of two polls that the relay keeps open.
const HELD_AGAIN: Duration = Duration::from_secs(1);
/// The time after a failed call.
const AGAIN: Duration = Duration::from_secs(5);

/// What happened.
#[derive(Debug)]
pub enum ResidentEvent {
    /// A poll has ended.
    Heard(PollResult),
    /// A run's process has ended.
    Ended {
        /// The run's key.
        key: String,
        /// The line that its process has left.
        receipt: String,
    },
    /// A try to store a receipt has ended.
    Delivered {
        /// The run's key.
        key: String,
        /// The relay's answer.
        verdict: PutVerdict,
    },
    /// A signal tells the sampler to end. The caller passes it on to the runs.
    Signalled,
}

/// What to do next. After each step except `Wait` and `End` the caller asks for the next one.
#[derive(Debug)]
pub enum ResidentStep {
    /// A line for the log.
    Say(String),
    /// Poll the relay; one event `Heard` follows.
    Ask {
        /// The poll's URL and grant.
        ask: PollAccess,
        /// How long the relay may keep the poll open.
        hold: Option<Duration>,
    },
    /// Start a run; one event `Ended` follows.
    Begin {
        /// The run's key.
        key: String,
        /// The input of its process.
        work: Work,
    },
    /// Store a receipt; one event `Delivered` follows.
    Deliver {
        /// The run's key.
        key: String,
        /// The grant for its receipt.
        grant: WriteGrant,
        /// The receipt.
        line: String,
    },
    /// Wait for an event, or until then.
    Wait(Option<Duration>),
    /// End. The normal end has the reason `LeaseEnded`.
    End(SamplerFailure),
}

/// The state of a resident sampler.
pub struct ResidentState {
    ask: PollAccess,
    /// When to poll; `None` during a poll.
    ask_at: Option<Duration>,
    /// How long the relay keeps the next poll open, and when the last one began.
    hold: Option<Duration>,
    asked_at: Duration,
    /// The end of the lease; before the first answer, the time limit for that.
    lease_until: Duration,
    /// How long it stays without a run, and since when it has had none.
    idle: Duration,
    idle_since: Duration,
    is_answered: bool,
    /// The trouble of the last poll.
    trouble: Option<PollError>,
    /// The runs of the last answer that have not begun.
    waiting: VecDeque<AssignedRun>,
    running: Vec<RunningChild>,
    receipts: Vec<RunReceipt>,
    /// Runs that have begun or were refused, the newest last. These are hashes of keys, which are
    /// kept for hours and take 2 KiB. The chance that another key has the hash of one of them, and
    /// is not begun, is 1 in 2^56.
    known: VecDeque<u64>,
    hasher: RandomState,
    ending: Option<SamplerFailure>,
    to_say: VecDeque<String>,
}

struct RunningChild {
    key: String,
    receipt: WriteGrant,
}

struct RunReceipt {
    key: String,
    grant: WriteGrant,
    line: String,
    /// When to try; `None` during a try.
    at: Option<Duration>,
}

impl ResidentState {
    /// A sampler that polls at once. It ends if there is no answer within the first of these times,
    /// or no run for the second.
    #[must_use]
    pub fn new(ask: PollAccess, first_answer: Duration, idle: Duration) -> Self {
        Self {
            ask,
            ask_at: Some(Duration::ZERO),
            hold: None,
            asked_at: Duration::ZERO,
            lease_until: first_answer,
            idle,
            idle_since: Duration::ZERO,
            is_answered: false,
            trouble: None,
            waiting: VecDeque::new(),
            running: Vec::new(),
            receipts: Vec::new(),
            known: VecDeque::new(),
            hasher: RandomState::new(),
            ending: None,
            to_say: VecDeque::new(),
        }
    }

    /// The step at that time.
    pub fn next(&mut self, now: Duration) -> ResidentStep {
        if let Some(text) = self.to_say.pop_front() {
            return ResidentStep::Say(text);
        }
        if self.ending.is_none() && now >= self.lease_until {
            self.end(self.end_of_lease());
        }
        if self.ending.is_none() && self.idle_until().is_some_and(|until| now >= until) {
            let message = "there was no run for too long";
            self.end(SamplerFailure::new(Reason::LeaseEnded, "idle", message));
        }
        if let Some(step) = self.deliver(now) {
            return step;
        }
        if let Some(ending) = &self.ending {
            let is_over = self.running.is_empty() && self.receipts.is_empty();
            return if is_over {
                ResidentStep::End(ending.clone())
            } else {
                ResidentStep::Wait(self.wake_at())
            };
        }
        if let Some(step) = self.begin(now) {
            return step;
        }
        if self.ask_at.is_some_and(|at| now >= at) {
            (self.ask_at, self.asked_at) = (None, now);
            // If polls that are kept open fail, every other one asks for an answer at once.
            return ResidentStep::Ask {
                ask: self.ask.clone(),
                hold: self.hold.take(),
            };
        }
        ResidentStep::Wait(self.wake_at())
    }

    /// Takes an event. `chance` is random, from 0 to 255.
    pub fn take(&mut self, now: Duration, event: ResidentEvent, chance: u8) {
        match event {
            ResidentEvent::Heard(heard) => self.hear(now, heard, chance),
            ResidentEvent::Ended { key, receipt } => self.ended(now, &key, receipt),
            ResidentEvent::Delivered { key, verdict } => {
                self.delivered(now, &key, &verdict, chance)
            }
            ResidentEvent::Signalled => {
                self.lease_until = self.lease_until.min(now);
                let message = "a signal ends it";
                self.end(SamplerFailure::new(Reason::LeaseEnded, "signal", message));
            }
        }
    }

    /// Begins to end; the first reason is kept.
    fn end(&mut self, failure: SamplerFailure) {
        self.waiting.clear();
        self.ending.get_or_insert(failure);
    }

    fn end_of_lease(&self) -> SamplerFailure {
        if self.is_answered {
            return SamplerFailure::new(Reason::LeaseEnded, "", "the lease is over");
        }
        let silent = PollError {
            why: "timeout".to_owned(),
            is_untrusted: false,
        };
        let trouble = self.trouble.clone().unwrap_or(silent);
        let message = format!("the relay did not answer in time: {}", trouble.why);
        if trouble.is_untrusted {
            SamplerFailure::new(Reason::CertificateUntrusted, "", message)
        } else {
            SamplerFailure::new(Reason::RelayUnreachable, trouble.why, message)
        }
    }

    fn hear(&mut self, now: Duration, heard: PollResult, chance: u8) {
        self.ask_at = Some(now + spread(AGAIN, chance));
        match heard {
            // An answer after the end has begun does not extend the lease.
            _ if self.ending.is_some() => {}
            PollResult::Answer(answer) => self.follow(now, *answer, chance),
            PollResult::End(failure) => self.end(failure),
            PollResult::Nothing(trouble) => {
                // The same trouble is logged once.
                if self.trouble.as_ref() != Some(&trouble) {
                    let why = &trouble.why;
                    self.to_say
                        .push_back(format!("no answer of the relay: {why}; asking again"));
                }
                self.trouble = Some(trouble);
            }
        }
    }

    fn follow(&mut self, now: Duration, answer: Instructions, chance: u8) {
        if self.trouble.take().is_some() || !self.is_answered {
            self.to_say.push_back("the relay answers".to_owned());
        }
        self.is_answered = true;
        self.lease_until = now + answer.lease;
        self.ask = answer.ask;
        self.hold = answer.hold;
        self.ask_at = Some(match answer.hold {
            Some(_) => now.max(self.asked_at + spread(HELD_AGAIN, chance)),
            None => now + spread(answer.ask_again, chance),
        });
        for run in &answer.runs {
            self.renew(run);
        }
        // Runs that the relay no longer names are no longer wanted.
        self.waiting = answer.runs.into();
    }

    /// Updates the grant for a run's receipt: grants expire, and a newer answer has a newer one.
    fn renew(&mut self, run: &AssignedRun) {
        let running = self.running.iter_mut().find(|it| it.key == run.key);
        let receipt = self.receipts.iter_mut().find(|it| it.key == run.key);
        let running = running.map(|it| &mut it.receipt);
        for grant in running.into_iter().chain(receipt.map(|it| &mut it.grant)) {
            grant.clone_from(&run.receipt);
        }
    }

    /// Begins the next waiting run, or refuses it.
    fn begin(&mut self, now: Duration) -> Option<ResidentStep> {
        let is_full = self.running.len() >= RUNS_AT_ONCE
            || self.running.len() + self.receipts.len() >= OPEN_AT_MOST;
        if is_full {
            return None;
        }
        let run = loop {
            let run = self.waiting.pop_front()?;
            if !self.is_known(&run.key) {
                break run;
            }
        };
        let AssignedRun { key, receipt, work } = run;
        self.remember(&key);
        self.idle_since = now;
        match work {
            Ok(work) => {
                let running = RunningChild {
                    key: key.clone(),
                    receipt,
                };
                self.running.push(running);
                Some(ResidentStep::Begin { key, work })
            }
            Err(what) => {
                let text = format!("refused the run {key}: {what}");
                self.receipts.push(RunReceipt {
                    key,
                    grant: receipt,
                    line: receipt::failed(Reason::Usage, what),
                    at: Some(now),
                });
                Some(ResidentStep::Say(text))
            }
        }
    }

    fn is_known(&self, key: &str) -> bool {
        self.known.contains(&self.hasher.hash_one(key))
            || self.running.iter().any(|it| it.key == key)
            || self.receipts.iter().any(|it| it.key == key)
    }

    fn remember(&mut self, key: &str) {
        if self.known.len() == KEYS_REMEMBERED {
            self.known.pop_front();
        }
        self.known.push_back(self.hasher.hash_one(key));
    }

    fn ended(&mut self, now: Duration, key: &str, line: String) {
        let Some(index) = self.running.iter().position(|it| it.key == key) else {
            return;
        };
        let RunningChild { key, receipt } = self.running.swap_remove(index);
        self.idle_since = now;
        self.to_say
            .push_back(format!("the run {key} has ended: {line}"));
        self.receipts.push(RunReceipt {
            key,
            grant: receipt,
            line,
            at: Some(now),
        });
    }

    /// The next receipt to try. Once the lease is over each has one last try, at once.
    fn deliver(&mut self, now: Duration) -> Option<ResidentStep> {
        let is_last = now >= self.lease_until;
        let is_due = |it: &&mut RunReceipt| it.at.is_some_and(|at| is_last || now >= at);
        let receipt = self.receipts.iter_mut().find(is_due)?;
        receipt.at = None;
        Some(ResidentStep::Deliver {
            key: receipt.key.clone(),
            grant: receipt.grant.clone(),
            line: receipt.line.clone(),
        })
    }

    fn delivered(&mut self, now: Duration, key: &str, verdict: &PutVerdict, chance: u8) {
        let Some(index) = self.receipts.iter().position(|it| it.key == key) else {
            return;
        };
        let why = match verdict {
            PutVerdict::Stored => None,
            PutVerdict::SourceNotPod(addresses) => Some(addresses.clone()),
            PutVerdict::Refused(status @ (403 | 409), _) => Some(format!("HTTP {status}")),
            _ if now < self.lease_until => {
                self.receipts[index].at = Some(now + spread(AGAIN, chance));
                return;
            }
            verdict => Some(format!("{verdict:?}")),
        };
        self.receipts.swap_remove(index);
        if let Some(why) = why {
            self.to_say
                .push_back(format!("storing the receipt of {key} failed: {why}"));
        }
    }

    /// When there is something to do without an event.
    fn wake_at(&self) -> Option<Duration> {
        let receipt = self.receipts.iter().filter_map(|it| it.at).min();
        let goes_on = self.ending.is_none();
        let ask = self.ask_at.filter(|_| goes_on);
        let lease = (goes_on || receipt.is_some()).then_some(self.lease_until);
        let idle = self.idle_until().filter(|_| goes_on);
        [receipt, ask, lease, idle].into_iter().flatten().min()
    }

    /// When it ends because it has had no run; `None` while it has one.
    fn idle_until(&self) -> Option<Duration> {
        let has_work = !self.running.is_empty() || !self.receipts.is_empty();
        (!has_work).then(|| self.idle_since.saturating_add(self.idle))
    }
}

/// A fifth more or less, so that samplers that began together do not poll together.
fn spread(time: Duration, chance: u8) -> Duration {
    time.mul_f64(0.8 + 0.4 * f64::from(chance) / 255.0)
}

#[cfg(test)]
mod tests;
