//! Shows the progress of a run on a terminal: one line that is drawn again each second.
//!
//! A thread draws it, so that a stopped terminal (Ctrl-S) does not delay samples. Invariant:
//! nothing is drawn if there is no terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::SigSet;
use phpprof::run::snapshot::{Keep, RunCounts, Snapshot};

const EVERY: Duration = Duration::from_secs(1);
/// A narrower terminal would break the line, and keep its first part.
const COLUMNS: usize = 79;
/// Moves the cursor to the beginning of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The numbers that a run reports about ten times a second.
#[derive(Debug, Default)]
pub struct ProgressNumbers(Mutex<ProgressState>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ProgressState {
    took: Duration,
    samples: u64,
    workers: usize,
}

impl Keep for ProgressNumbers {
    fn keep(&self, _: Duration, _: &mut dyn FnMut() -> Snapshot) {}

    fn have_worked(&self) -> bool {
        false
    }

    fn observe(&self, took: Duration, counted: &RunCounts) {
        let (samples, workers) = (counted.samples, counted.workers);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ProgressState {
            took,
            samples,
            workers,
        };
    }
}

/// The line, which is drawn until this value is dropped.
pub struct ProgressLine {
    pub numbers: Arc<ProgressNumbers>,
    run: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressLine {
    /// Begins to draw; `None` if the standard error is not a terminal.
    pub fn begin(duration: Duration) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let numbers = Arc::new(ProgressNumbers::default());
        let (run, over) = channel();
        let of_thread = Arc::clone(&numbers);
        let thread = Builder::new().name("progress".to_owned()).spawn(move || {
            // Signals are for the sampling thread.
            let _ = SigSet::all().thread_block();
            draw(&of_thread, duration, &over);
        });
        Some(Self {
            numbers,
            run: Some(run),
            thread: thread.ok(),
        })
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.run = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn draw(numbers: &ProgressNumbers, duration: Duration, over: &Receiver<()>) {
    let mut last = ProgressState::default();
    while over.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let state = *numbers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write!(std::io::stderr(), "{CLEAR}{}", line(state, last, duration));
        last = state;
    }
    let _ = write!(std::io::stderr(), "{CLEAR}");
}

fn line(now: ProgressState, last: ProgressState, duration: Duration) -> String {
    let since = now.took.saturating_sub(last.took).as_secs_f64();
    let rate = (now.samples.saturating_sub(last.samples)) as f64 / since.max(0.001);
    let workers = match now.workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    let left = match duration {
        Duration::MAX => "Ctrl-C ends it".to_owned(),
        _ => format!("{} s left", duration.saturating_sub(now.took).as_secs()),
    };
    let (took, samples) = (now.took.as_secs(), now.samples);
    let line = format!("{took} s: {samples} samples, {rate:.0} a second, {workers}; {left}");
    line.chars().take(COLUMNS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(seconds: u64, samples: u64, workers: usize) -> ProgressState {
        let took = Duration::from_secs(seconds);
        ProgressState {
            took,
            samples,
            workers,
        }
    }

    #[test]
    fn line_shows_what_is_left() {
        let (last, now) = (state(11, 1000, 4), state(12, 1380, 4));
        assert_eq!(
            line(now, last, Duration::from_secs(30)),
            "12 s: 1380 samples, 380 a second, 4 workers; 18 s left"
        );
        assert_eq!(
            line(state(1, 99, 1), ProgressState::default(), Duration::MAX),
            "1 s: 99 samples, 99 a second, 1 worker; Ctrl-C ends it"
        );
        let first = line(
            ProgressState::default(),
            ProgressState::default(),
            Duration::MAX,
        );
        assert_eq!(
            first,
            "0 s: 0 samples, 0 a second, 0 workers; Ctrl-C ends it"
        );
        let much = state(u64::MAX / 2, u64::MAX, usize::MAX);
        assert_eq!(line(much, last, Duration::MAX).len(), COLUMNS);
    }
}
