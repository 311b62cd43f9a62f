//! The time of the server that receives the profile: the clock of the operator's deadlines may
//! differ from this node's.
//!
//! Invariant: without an answer, this node's clock applies; only the `Date` header of an answer
//! (RFC 9110, section 6.6.1) is used.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use ureq::Agent;

use super::grants::{DeliveryRoute, WriteGrant};
use super::relay_client::{Pinned, RelayCall, SHORT_ANSWER};

const TAKES: Duration = Duration::from_secs(5);

/// The deadlines of a run, in seconds since 1970 by this node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeDeadlines {
    /// The run does not begin after it.
    pub not_after: Option<u64>,
    /// The upload is retried until then.
    pub upload_until: Option<u64>,
}

impl NodeDeadlines {
    /// The deadlines at the instant `now` of this node's clock; `None` if it is too late. If this
    /// clock says that it is too late, the server is asked for its time, and the deadlines are
    /// moved by the difference of the clocks.
    #[must_use]
    pub fn holding(self, now: u64, server_now: impl FnOnce() -> Option<u64>) -> Option<Self> {
        let is_late = |deadlines: &Self| deadlines.not_after.is_some_and(|limit| now > limit);
        if !is_late(&self) {
            return Some(self);
        }
        let ahead = now.saturating_sub(server_now()?);
        let moved = |instant: u64| instant.saturating_add(ahead);
        let moved = Self {
            not_after: self.not_after.map(moved),
            upload_until: self.upload_until.map(moved),
        };
        (!is_late(&moved)).then_some(moved)
    }
}

/// Seconds since 1970 by the clock of the first of these servers that answers.
#[must_use]
pub fn server_now(grants: &[WriteGrant], agents: &[Agent]) -> Option<u64> {
    let date = |grant: &WriteGrant| match grant.route {
        DeliveryRoute::Direct => date_of_store(grant, agents),
        DeliveryRoute::Relay => date_of_relay(grant),
    };
    grants
        .iter()
        .filter_map(date)
        .find_map(|date| seconds(&date))
}

/// Any answer will do, because every answer has a date.
fn date_of_store(grant: &WriteGrant, agents: &[Agent]) -> Option<String> {
    let ask = |agent: &Agent| {
        let call = agent.get(&grant.stop).config().timeout_global(Some(TAKES));
        let answer = call.build().call().ok()?;
        let date = answer.headers().get("date")?.to_str().ok()?;
        Some(date.to_owned())
    };
    agents.iter().find_map(ask)
}

/// The date of an answer to an unknown path: the relay answers that at once, but delays an answer
/// about stopping.
fn date_of_relay(grant: &WriteGrant) -> Option<String> {
    let host = grant.url.strip_prefix("https://")?.split('/').next()?;
    let call = RelayCall {
        method: "GET",
        url: &format!("https://{host}/"),
        headers: &BTreeMap::new(),
        body: &[],
        takes: TAKES,
        longest_answer: SHORT_ANSWER,
    };
    Pinned::of(grant).call(&call).ok()?.date
}

fn seconds(date: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(date).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: NodeDeadlines = NodeDeadlines {
        not_after: Some(1000),
        upload_until: Some(1600),
    };

    #[test]
    fn a_clock_in_time_asks_nobody() {
        let nobody = || -> Option<u64> { panic!("it was asked") };
        assert_eq!(ASKED.holding(1000, nobody), Some(ASKED));
        let none = NodeDeadlines {
            not_after: None,
            ..ASKED
        };
        assert_eq!(none.holding(u64::MAX, nobody), Some(none));
    }

    #[test]
    fn a_clock_that_is_ahead_moves_the_deadlines() {
        let check = |server_now, expected: Option<[u64; 2]>| {
            let found = ASKED.holding(1300, || server_now);
            let found = found.map(|it| [it.not_after.unwrap(), it.upload_until.unwrap()]);
            assert_eq!(found, expected, "{server_now:?}");
        };
        check(Some(900), Some([1400, 2000]));
        check(Some(1000), Some([1300, 1900]));
        // It is too late by the server's clock too, or no server answers.
        check(Some(1001), None);
        check(Some(1400), None);
        check(None, None);
    }

    #[test]
    fn a_date_header_is_seconds() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("now"), None);
    }
}
