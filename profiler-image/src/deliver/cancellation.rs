//! Notices that the request was cancelled or deleted. A thread for each route asks while the run
//! samples.
//!
//! A store is polled, because it cannot keep a request open; the relay answers when there is news.
//!
//! Invariant: the worst effect of any answer is that sampling ends early.

use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use ureq::Agent;

use super::grants::{DeliveryRoute, WriteGrant, WriteGrants};
use super::relay_client::{Pinned, RelayCall, SHORT_ANSWER};
use crate::run::stop::StopSwitch;

/// A sampler stops within 5 s: this time, a call, and a turn.
const POLL: Duration = Duration::from_secs(2);
/// Longer than the relay waits before it answers that there is no news.
const LONG_POLL: Duration = Duration::from_secs(40);
const AFTER_ERROR: Duration = Duration::from_secs(2);
const STACK: usize = 256 << 10;

/// Asks each route from now on. If a thread cannot be started, the run only goes on to its end, so
/// that is not a failure.
pub fn listen(stop: &StopSwitch, grants: &WriteGrants, agents: &[Agent]) {
    // Signals are for the sampling thread. One that reached another thread would end the process.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    for grant in grants.profile.clone() {
        let (stop, agents) = (stop.clone(), agents.to_vec());
        let thread = std::thread::Builder::new()
            .name(format!("stop {:?}", grant.route))
            .stack_size(STACK);
        let started = match grant.route {
            DeliveryRoute::Direct => thread.spawn(move || poll(&stop, &grant, &agents)),
            DeliveryRoute::Relay => thread.spawn(move || long_poll(&stop, &grant)),
        };
        if let Err(error) = started {
            eprintln!("phpprof: cancelling will not work: {error}");
        }
    }
    if let Ok(mask) = mask {
        let _ = mask.thread_set_mask();
    }
}

fn poll(stop: &StopSwitch, grant: &WriteGrant, agents: &[Agent]) {
    while !stop.is_drop() {
        let answer = agents
            .iter()
            .find_map(|agent| agent.get(&grant.stop).call().ok());
        // A missing object gives 404, or 403 if the operator may not list.
        if let Some(mut answer) = answer.filter(|answer| answer.status() == 200) {
            let word = answer.body_mut().with_config().limit(16).read_to_string();
            stop.request(&word.unwrap_or_default());
        }
        std::thread::sleep(POLL);
    }
}

fn long_poll(stop: &StopSwitch, grant: &WriteGrant) {
    let relay = Pinned::of(grant);
    let call = RelayCall {
        method: "GET",
        url: &grant.stop,
        headers: &grant.headers,
        body: &[],
        takes: LONG_POLL,
        longest_answer: SHORT_ANSWER,
    };
    let mut told = ToldTimes::default();
    while !stop.is_drop() {
        match relay.call(&call) {
            Ok(answer) if answer.status == 204 => continue,
            Ok(answer) if answer.status == 200 => stop.request(&answer.body),
            // The grant has expired.
            Ok(answer) if answer.status == 403 => return,
            Ok(answer) => told.tell(&format!("HTTP {}", answer.status)),
            Err(error) => told.tell(&error.to_string()),
        }
        std::thread::sleep(AFTER_ERROR);
    }
}

/// Logs why the relay does not answer: at powers of two, because a line every two seconds would
/// fill the log.
#[derive(Default)]
struct ToldTimes(u64);

impl ToldTimes {
    fn tell(&mut self, why: &str) {
        self.0 += 1;
        if self.0.is_power_of_two() {
            eprintln!(
                "phpprof: asking the relay whether to stop failed {} times: {why}",
                self.0
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The signals that a thread of this process blocks, from `/proc`.
    fn blocked(thread: &str) -> Option<u64> {
        let tasks = std::fs::read_dir("/proc/self/task").ok()?;
        let statuses =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
        let field = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_owned())
        };
        let status = statuses
            .into_iter()
            .find(|status| field(status, "Name:").as_deref() == Some(thread))?;
        u64::from_str_radix(&field(&status, "SigBlk:")?, 16).ok()
    }

    #[test]
    fn signal_goes_to_the_sampling_thread() {
        let grant = WriteGrant {
            route: DeliveryRoute::Relay,
            method: "PUT".into(),
            url: "https://127.0.0.1:1/".into(),
            headers: BTreeMap::new(),
            stop: "https://127.0.0.1:1/".into(),
            live: String::new(),
            pins: Vec::new(),
            addresses: Default::default(),
            sends_md5: false,
        };
        let profile = vec![grant];
        listen(&StopSwitch::default(), &WriteGrants { profile }, &[]);
        let blocked = phpprof_testing::wait_for("thread", || Ok(blocked("stop Relay")));
        let blocked = blocked.unwrap();
        const SIGTERM: u64 = 1 << 14;
        assert_eq!(blocked & SIGTERM, SIGTERM);
    }
}
