//! Makes a call of the relay in another process, so that the resident one keeps no memory of TLS
//! and never waits for the network.
//!
//! The order goes to its standard input as JSON. Its standard output has the result: a line of
//! JSON, then the body of the answer.
//!
//! Invariant: only the two ends of that pipe see the order, which contains a grant.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::answer::{LONGEST, PollAccess};
use super::shed::shed;
use crate::contract;
use crate::deliver::addresses::ResolvedRelay;
use crate::deliver::grants::WriteGrant;
use crate::deliver::relay_client::{CallError, Pinned, RelayCall, RelayResponse, SHORT_ANSWER};
use crate::failure::{Reason, SamplerFailure};

/// The longest order, in bytes: grants, and a receipt.
const LONGEST_ORDER: u64 = LONGEST as u64 * 2;

/// This header asks the relay to keep a poll open: RFC 7240.
const PREFER: &str = "prefer";
/// After this time a poll that is kept open has been sent.
const ASKED: Duration = Duration::from_millis(500);

/// A call to be made.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    pins: Vec<String>,
    /// Addresses of the relay.
    addresses: Vec<IpAddr>,
    body: String,
    milliseconds: u64,
    longest_answer: usize,
}

/// The first line of a call's result.
#[derive(Serialize, Deserialize)]
enum CallOutcome {
    Status(u16),
    Untrusted,
    Unreachable(String),
    Broken(String),
}

impl Order {
    /// Polls for runs. The relay may keep the poll open for `hold`; the rest of the call has the
    /// time limit `takes`.
    #[must_use]
    pub fn to_ask(ask: PollAccess, hold: Option<Duration>, takes: Duration) -> Self {
        let number = (contract::HEADER.to_owned(), contract::NUMBER.to_string());
        let mut headers = ask.headers;
        headers.extend([number]);
        if let Some(hold) = hold {
            headers.insert(PREFER.to_owned(), format!("wait={}", hold.as_secs()));
        }
        Self {
            method: "GET".to_owned(),
            url: ask.url,
            headers,
            pins: ask.pins,
            addresses: Vec::new(),
            body: String::new(),
            milliseconds: milliseconds(takes + hold.unwrap_or_default()),
            longest_answer: LONGEST + SHORT_ANSWER,
        }
    }

    /// Stores a receipt.
    #[must_use]
    pub fn to_put(grant: WriteGrant, body: String, takes: Duration) -> Self {
        Self {
            method: grant.method,
            url: grant.url,
            headers: grant.headers,
            pins: grant.pins,
            addresses: Vec::new(),
            body,
            milliseconds: milliseconds(takes),
            longest_answer: SHORT_ANSWER,
        }
    }

    /// The same call, of a relay that has these addresses in addition to its name.
    #[must_use]
    pub fn at(self, addresses: &ResolvedRelay) -> Self {
        let addresses = addresses.given().to_vec();
        Self { addresses, ..self }
    }

    /// The order as text for the process.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the order in that process.
    ///
    /// # Errors
    /// A [`SamplerFailure`] that quotes nothing of it.
    pub fn read(input: impl Read) -> Result<Self, SamplerFailure> {
        let order = serde_json::from_reader(input.take(LONGEST_ORDER));
        let message = "standard input is not a call; a resident sampler starts this command itself";
        order.map_err(|_| SamplerFailure::new(Reason::Usage, "call", message))
    }

    /// Makes the call, and returns its result as text.
    #[must_use]
    pub fn make(&self) -> String {
        if self.headers.contains_key(PREFER) {
            // The call waits from now on. If there is no thread, the process only takes more memory
            // meanwhile.
            let wait = || {
                std::thread::sleep(ASKED);
                shed();
            };
            let _ = std::thread::Builder::new().spawn(wait);
        }
        let call = RelayCall {
            method: &self.method,
            url: &self.url,
            headers: &self.headers,
            body: self.body.as_bytes(),
            takes: Duration::from_millis(self.milliseconds),
            longest_answer: self.longest_answer,
        };
        let addresses = ResolvedRelay::of(self.addresses.clone());
        text_of(Pinned::new(&self.pins, &addresses).call(&call))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn text_of(called: Result<RelayResponse, CallError>) -> String {
    let (outcome, body) = match called {
        Ok(answer) => (CallOutcome::Status(answer.status), answer.body),
        Err(CallError::Untrusted) => (CallOutcome::Untrusted, String::new()),
        Err(CallError::Unreachable(why)) => (CallOutcome::Unreachable(why), String::new()),
        Err(CallError::Broken(why)) => (CallOutcome::Broken(why), String::new()),
    };
    format!(
        "{}\n{body}",
        serde_json::to_string(&outcome).unwrap_or_default()
    )
}

/// Parses the output of the process.
///
/// # Errors
/// The error of the call itself; or the output is not valid.
pub fn parse(said: &[u8]) -> Result<RelayResponse, CallError> {
    let broken = || CallError::Broken("the call ended without an answer".to_owned());
    let text = std::str::from_utf8(said).map_err(|_| broken())?;
    let (line, body) = text.split_once('\n').ok_or_else(broken)?;
    match serde_json::from_str(line).map_err(|_| broken())? {
        CallOutcome::Status(status) => Ok(RelayResponse {
            status,
            date: None,
            body: body.to_owned(),
        }),
        CallOutcome::Untrusted => Err(CallError::Untrusted),
        CallOutcome::Unreachable(why) => Err(CallError::Unreachable(why)),
        CallOutcome::Broken(why) => Err(CallError::Broken(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let ask = PollAccess {
            url: "https://a/x".to_owned(),
            headers: [("authorization".to_owned(), "Bearer t".to_owned())].into(),
            pins: vec!["pin".to_owned()],
        };
        let order = Order::to_ask(ask.clone(), None, Duration::from_secs(10));
        assert_eq!(Order::read(order.text().as_bytes()).unwrap(), order);
        assert_eq!((order.headers.len(), order.milliseconds), (2, 10_000));
        let addresses = ResolvedRelay::parse(Some("10.96.0.5,fd00::5"));
        let order = order.at(&addresses);
        let read = Order::read(order.text().as_bytes()).unwrap();
        assert_eq!(read.addresses, addresses.given());
        let hold = Some(Duration::from_secs(25));
        let order = Order::to_ask(ask, hold, Duration::from_secs(10));
        assert_eq!(order.headers["prefer"], "wait=25");
        assert_eq!(order.milliseconds, 35_000);
        assert!(Order::read(&b"{}"[..]).is_err());
    }

    #[test]
    fn result_of_a_call_is_word_for_word() {
        let told = |called| parse(text_of(called).as_bytes());
        let answer = || RelayResponse {
            status: 200,
            date: None,
            body: "{\n\"runs\": []}".to_owned(),
        };
        assert_eq!(told(Ok(answer())).unwrap(), answer());
        let check = |error: CallError| {
            let words = error.to_string();
            assert_eq!(told(Err(error)).unwrap_err().to_string(), words);
        };
        check(CallError::Untrusted);
        check(CallError::Unreachable("host not found".into()));
        check(CallError::Broken("timeout".into()));
    }

    #[test]
    fn silent_process_is_a_failed_call() {
        for said in [&b""[..], b"200", b"what\n", b"\xff\n"] {
            assert!(matches!(parse(said), Err(CallError::Broken(_))));
        }
    }
}
