//! What the calls of one command remember of the way to the operator's pods. Clones share it.
//!
//! Invariant: once a forward has worked where the proxy did not, all later calls are forwarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Clone, Debug, Default)]
pub struct Forwards(Arc<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// A forward has worked where the proxy did not.
    is_chosen: AtomicBool,
    /// The number of forwards so far: each goes to the next pod, because only one replica has live
    /// data.
    turn: AtomicUsize,
}

impl Forwards {
    pub fn is_chosen(&self) -> bool {
        self.0.is_chosen.load(Ordering::Relaxed)
    }

    pub fn choose(&self) {
        self.0.is_chosen.store(true, Ordering::Relaxed);
    }

    /// The number of the next forward.
    pub fn next_turn(&self) -> usize {
        self.0.turn.fetch_add(1, Ordering::Relaxed)
    }
}
