//! The samples of each second, for readers while the run continues: each profile has the samples
//! that no earlier one has.
//!
//! A thread builds and delivers the profiles. While it is busy, no second is taken: the next
//! profile then has more than one second, and no time is lost. A stack with an edge that is open at
//! that moment is cut there with `[unstable]`, even if a later second proves the edge.
//!
//! Invariant: one snapshot is kept at a time, and whatever happens to it, the run continues.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::run::snapshot::{Keep, Snapshot};

/// The time that a profile covers, if nothing is late.
pub const EVERY: Duration = Duration::from_secs(1);

/// The shortest time that a profile covers, whoever asks for it.
const SOONEST: Duration = Duration::from_millis(100);

/// Passes samples to a thread while there is a receiver.
pub struct Deltas {
    /// The time in the run up to which samples were passed.
    until: Mutex<Duration>,
    is_busy: Arc<AtomicBool>,
    /// Whether the next profile is wanted before its second is over.
    is_wanted: Arc<AtomicBool>,
    to_thread: SyncSender<Snapshot>,
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.until)
    }
}

impl Deltas {
    /// Starts a thread that receives each second's samples. It ends when this value is dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(mut give: impl FnMut(Snapshot) + Send + 'static) -> std::io::Result<Self> {
        let (to_thread, taken): (_, Receiver<Snapshot>) = sync_channel(1);
        let is_busy = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_busy);
        Builder::new().name("deltas".to_owned()).spawn(move || {
            // Signals are for the sampling thread.
            let _ = SigSet::all().thread_block();
            for snapshot in taken {
                give(snapshot);
                of_thread.store(false, Ordering::Release);
            }
        })?;
        Ok(Self {
            until: Mutex::default(),
            is_busy,
            is_wanted: Arc::default(),
            to_thread,
        })
    }

    /// Set, it asks for the next profile at once, which resets it.
    #[must_use]
    pub fn wanted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_wanted)
    }
}

impl Keep for Deltas {
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> Snapshot) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let since = sampled.saturating_sub(*until);
        let is_due = since >= EVERY || since >= SOONEST && self.is_wanted.load(Ordering::Acquire);
        if !is_due || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        self.is_wanted.store(false, Ordering::Release);
        let nanoseconds = i64::try_from(until.as_nanos()).unwrap_or(i64::MAX);
        *until = sampled;
        let mut delta = snapshot();
        delta.facts.began_unix_nanoseconds = delta
            .facts
            .began_unix_nanoseconds
            .saturating_add(nanoseconds);
        delta.facts.took = since;
        // If the thread has ended, the samples are dropped; something else ends the run.
        let _ = self.to_thread.try_send(delta);
    }

    fn have_worked(&self) -> bool {
        false
    }

    fn gives_once(&self) -> bool {
        true
    }
}
