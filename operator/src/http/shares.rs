//! Limits how many requests one key may have at the same time, so that the holder of one key leaves
//! connections and turns to others.
//!
//! Invariant: dropping a share gives it back. Memory is held only for requests that are being
//! answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of requests being answered, by key.
pub(crate) struct Shares {
    most: usize,
    busy: Mutex<HashMap<String, usize>>,
}

/// One request of a key, while it is answered.
pub(crate) struct KeyShare {
    pub key: String,
    shares: Arc<Shares>,
}

impl Shares {
    /// Allows each key this many requests at the same time.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Shares {
            most,
            busy: Mutex::default(),
        })
    }

    /// Counts one more request of a key, unless the key has all of its share.
    pub fn take(self: &Arc<Self>, key: String) -> Option<KeyShare> {
        let has_room = self.with_busy(|busy| {
            let count = busy.get(&key).copied().unwrap_or_default();
            let has_room = count < self.most;
            if has_room {
                busy.insert(key.clone(), count + 1);
            }
            has_room
        });
        // A refused share must not be given back, so it is not made.
        has_room.then(|| KeyShare {
            key,
            shares: self.clone(),
        })
    }

    fn with_busy<T>(&self, act: impl FnOnce(&mut HashMap<String, usize>) -> T) -> T {
        act(&mut self.busy.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for KeyShare {
    fn drop(&mut self) {
        self.shares.with_busy(|busy| {
            let count = busy.remove(&self.key).unwrap_or_default();
            if count > 1 {
                busy.insert(self.key.clone(), count - 1);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_and_returns_only_its_share() {
        let shares = Shares::new(2);
        let take = |key: &str| shares.take(key.to_owned());
        let first = take("a");
        let second = take("a");
        assert!(first.is_some() && second.is_some());
        assert!(take("a").is_none() && take("a").is_none());
        assert!(take("b").is_some());
        drop(first);
        assert!(take("a").is_some());
        drop(second);
        assert!(shares.with_busy(|busy| busy.is_empty()));
    }
}
