//! The samples of each second, for readers while the run goes on: each profile has the samples that no earlier one has.
//!
//! A thread builds and delivers the profiles. While it is busy, no second is taken: the next profile then has more than one second, and no time is lost.
//! A stack with an edge that is open at that moment is cut there with `[unstable]`, even if a later second proves the edge.
//!
//! Invariant: one snapshot is kept at a time, and whatever happens to it, the run goes on.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::run::snapshot::{Keep, Snapshot};

/// How much a profile is of, where nothing is late.
pub const EVERY: Duration = Duration::from_secs(1);

/// Takes what was sampled, as long as somebody does.
pub struct Deltas {
    /// Until when the run was given.
    until: Mutex<Duration>,
    is_busy: Arc<AtomicBool>,
    to_thread: SyncSender<Snapshot>,
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.until)
    }
}

impl Deltas {
    /// Begins a thread that is given what was sampled in each second. It ends with what it belongs to.
    ///
    /// # Errors
    /// There is no room for another thread.
    pub fn begin(mut give: impl FnMut(Snapshot) + Send + 'static) -> std::io::Result<Self> {
        let (to_thread, taken): (_, Receiver<Snapshot>) = sync_channel(1);
        let is_busy = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_busy);
        Builder::new().name("deltas".to_owned()).spawn(move || {
            // They are the sampling thread's.
            let _ = SigSet::all().thread_block();
            for snapshot in taken {
                give(snapshot);
                of_thread.store(false, Ordering::Release);
            }
        })?;
        Ok(Self {
            until: Mutex::default(),
            is_busy,
            to_thread,
        })
    }
}

impl Keep for Deltas {
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> Snapshot) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let since = sampled.saturating_sub(*until);
        if since < EVERY || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let nanoseconds = i64::try_from(until.as_nanos()).unwrap_or(i64::MAX);
        *until = sampled;
        let mut delta = snapshot();
        delta.began_unix_nanoseconds = delta.began_unix_nanoseconds.saturating_add(nanoseconds);
        delta.took = since;
        // A thread that is gone takes nothing: the run has an end of its own.
        let _ = self.to_thread.try_send(delta);
    }

    fn have_worked(&self) -> bool {
        false
    }

    fn gives_once(&self) -> bool {
        true
    }
}
