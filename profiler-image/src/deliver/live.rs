//! Sends each second's samples to the relay while somebody reads them there.
//!
//! Readers miss a second that does not arrive, but the run keeps it for its own profile. Invariant:
//! each second is retried for a few seconds at most, and the worst effect of any answer is that the
//! run ends early.

use std::time::{Duration, Instant};

use super::grants::WriteGrant;
use super::relay_client::{CallError, Pinned, RelayCall, RelayResponse, SHORT_ANSWER};
use crate::run::stop::StopSwitch;

/// The longest time for one call, and for all calls for a second.
const CALL: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(2);
/// Each call opens its own connection, which may reach another replica of the operator.
const REPLICAS: u32 = 12;

/// What happened to a second's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveDelivery {
    /// The relay holds it.
    Taken,
    /// This replica does not lead; another has to be tried.
    Elsewhere,
    /// Nobody reads any more, or the grant has expired: the run ends.
    Over,
    /// They could not be sent; the next second may succeed.
    Lost,
}

/// What an answer means.
#[must_use]
pub fn meaning(answer: &Result<RelayResponse, CallError>) -> LiveDelivery {
    match answer.as_ref().map(|answer| answer.status) {
        Ok(200) => LiveDelivery::Taken,
        Ok(421) => LiveDelivery::Elsewhere,
        // Nobody reads; or the grant has expired; or the request is gone.
        Ok(410 | 403) => LiveDelivery::Over,
        Ok(_) | Err(_) => LiveDelivery::Lost,
    }
}

/// The route to the readers.
pub struct LiveRoute {
    relay: Pinned,
    grant: WriteGrant,
    stop: StopSwitch,
    lost: u64,
}

impl LiveRoute {
    /// The route of the first grant that has one.
    #[must_use]
    pub fn of(grants: &[WriteGrant], stop: &StopSwitch) -> Option<Self> {
        let grant = grants.iter().find(|grant| !grant.live.is_empty())?;
        Some(Self {
            relay: Pinned::of(grant),
            grant: grant.clone(),
            stop: stop.clone(),
            lost: 0,
        })
    }

    /// Sends a second's samples, and ends the run if nobody wants them.
    pub fn bring(&mut self, profile: &[u8]) {
        let call = RelayCall {
            method: "PUT",
            url: &self.grant.live,
            headers: &self.grant.headers,
            body: profile,
            takes: CALL,
            longest_answer: SHORT_ANSWER,
        };
        let until = Instant::now() + SECOND;
        let mut tries = (0..REPLICAS).take_while(|_| Instant::now() < until);
        let became = tries.find_map(|_| match meaning(&self.relay.call(&call)) {
            LiveDelivery::Elsewhere => None,
            became => Some(became),
        });
        match became.unwrap_or(LiveDelivery::Lost) {
            LiveDelivery::Taken => {}
            LiveDelivery::Over => self.stop.request("keep"),
            LiveDelivery::Lost | LiveDelivery::Elsewhere => {
                self.lost += 1;
                // It logs only at powers of two, because a line each second would fill the log.
                if self.lost.is_power_of_two() {
                    eprintln!("phpprof: sending {} live seconds failed", self.lost);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, expected: LiveDelivery) {
        let (date, body) = (None, String::new());
        let answer = RelayResponse { status, date, body };
        assert_eq!(meaning(&Ok(answer)), expected, "{status}");
    }

    #[test]
    fn answer_ends_the_run_without_readers() {
        check(200, LiveDelivery::Taken);
        check(421, LiveDelivery::Elsewhere);
        check(410, LiveDelivery::Over);
        check(403, LiveDelivery::Over);
        for status in [413, 422, 429, 503, 507] {
            check(status, LiveDelivery::Lost);
        }
        let away = Err(CallError::Unreachable("x".to_owned()));
        assert_eq!(meaning(&away), LiveDelivery::Lost);
    }
}
