//! Which samplers have to stop, for those that ask over the relay.
//!
//! Losing this does no harm: the next reconciliation of a cancelled request says it again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

/// What a sampler does with its samples so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The request was cancelled: it stores them.
    Keep,
    /// The request was deleted: it drops them.
    Drop,
}

impl Stop {
    /// The word of the contract: an answer of the relay, or the content of `<key>.stop`.
    pub fn word(self) -> &'static str {
        match self {
            Stop::Keep => "keep",
            Stop::Drop => "drop",
        }
    }
}

/// By the key of the sampler's object.
pub struct Cancellations {
    told: Mutex<HashMap<String, (Stop, Timestamp)>>,
    changed: watch::Sender<()>,
}

impl Default for Cancellations {
    fn default() -> Self {
        Cancellations {
            told: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Cancellations {
    /// Tells the sampler of a key to stop. It does not ask any more after `until`.
    pub fn cancel(&self, key: &str, stop: Stop, now: Timestamp, until: Timestamp) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, (_, until)| *until > now);
        told.insert(key.to_owned(), (stop, until));
        drop(told);
        self.changed.send_replace(());
    }

    /// What the sampler of a key was told.
    pub fn get(&self, key: &str) -> Option<Stop> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(key).map(|(stop, _)| *stop)
    }

    /// Waits until the sampler of a key is told to stop.
    pub async fn wait(&self, key: &str) -> Stop {
        let mut changes = self.changed.subscribe();
        loop {
            if let Some(stop) = self.get(key) {
                return stop;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[tokio::test]
    async fn who_waits_hears_of_its_own_key_only() {
        let cancellations = Cancellations::default();
        let waiting = cancellations.wait("a");
        let cancellation = async {
            cancellations.cancel("b", Stop::Drop, at(0), at(9));
            tokio::task::yield_now().await;
            cancellations.cancel("a", Stop::Keep, at(0), at(9));
        };
        let (heard, ()) = tokio::join!(waiting, cancellation);
        assert_eq!(heard, Stop::Keep);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten() {
        let cancellations = Cancellations::default();
        cancellations.cancel("a", Stop::Keep, at(0), at(9));
        cancellations.cancel("b", Stop::Keep, at(10), at(19));
        assert_eq!(cancellations.get("a"), None);
        assert_eq!(cancellations.get("b"), Some(Stop::Keep));
    }
}
