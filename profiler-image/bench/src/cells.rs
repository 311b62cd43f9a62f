//! The matrix of cells: the workload, the number of workers, the rate, and the way to read memory.
//! Pure.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::workload::{
    BenchWorkload, CHURN, DOKUWIKI, FRAMEWORK, FRANKENPHP, MEDIAWIKI, SYNTHETIC, WORDPRESS, deep,
    small,
};

/// One cell: all profilers are run on it in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchCell {
    /// The sampled program.
    pub workload: BenchWorkload,
    /// Its processes, or its threads if it is thread-safe.
    pub workers: usize,
    /// How many of them are busy at a time.
    pub busy: usize,
    /// Samples a second of each worker.
    pub rate: u32,
    /// Reads by `/proc/PID/mem`.
    pub mem: bool,
}

impl BenchCell {
    /// Its name in the table.
    #[must_use]
    pub fn label(&self) -> String {
        let depth = self
            .workload
            .depth
            .map_or(String::new(), |depth| format!("/{depth}"));
        let workers = if self.workers == 1 {
            String::new()
        } else {
            format!(" {} of {}", self.busy, self.workers)
        };
        let mode = if self.mem { " mem" } else { "" };
        format!(
            "{}{depth}{workers} {} Hz{mode}",
            self.workload.name, self.rate
        )
    }
}

/// How long and how often each profiler runs on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// The length of one run of one profiler.
    pub slice: Duration,
    /// Runs of each profiler, in turn with the others.
    pub rounds: usize,
    /// The time in a slice after which counts are steady.
    pub steady_after: Duration,
}

impl Length {
    /// One run of this many seconds, if that is requested.
    pub fn of(self, seconds: Option<&str>) -> Result<Self> {
        let Some(seconds) = seconds else {
            return Ok(self);
        };
        let seconds = seconds.parse().context("BENCH_SECONDS is a whole number")?;
        Ok(Self {
            slice: Duration::from_secs(seconds),
            rounds: 1,
            ..self
        })
    }
}

/// All cells; at most 45 minutes with one profiler.
#[must_use]
pub fn full() -> (Vec<BenchCell>, Length) {
    let mut cells = Vec::new();
    for rate in [99, 999] {
        let mut add = |workload: BenchWorkload, busy: usize, workers: usize| {
            cells.push(BenchCell {
                workload,
                workers,
                busy,
                rate,
                mem: false,
            });
        };
        for workload in [SYNTHETIC, FRAMEWORK, WORDPRESS] {
            add(workload, 1, 1);
        }
        add(SYNTHETIC, 4, 4);
        for depth in [10, 30, 100, 200] {
            add(deep(depth), 1, 1);
        }
        for depth in [0, 30, 100] {
            add(small(depth), 1, 1);
        }
        for workload in [DOKUWIKI, MEDIAWIKI] {
            for (busy, workers) in [(1, 4), (4, 4), (4, 64), (64, 64)] {
                add(workload, busy, workers);
            }
        }
        for workers in [4, 64] {
            add(DOKUWIKI, 0, workers);
        }
        add(FRANKENPHP, 8, 8);
        add(CHURN, 4, 4);
    }
    for workload in [FRAMEWORK, deep(30), DOKUWIKI] {
        let workers = if workload == DOKUWIKI { 4 } else { 1 };
        for (rate, mem) in [(9_999, false), (99, true), (999, true)] {
            cells.push(BenchCell {
                workload,
                workers,
                busy: 1,
                rate,
                mem,
            });
        }
    }
    let length = Length {
        slice: Duration::from_secs(15),
        rounds: 2,
        steady_after: Duration::from_secs(10),
    };
    (cells, length)
}

/// The cells that check the cost of a sample, within a minute.
#[must_use]
pub fn smoke() -> (Vec<BenchCell>, Length) {
    let cell = |workload, workers, rate| BenchCell {
        workload,
        workers,
        busy: 1,
        rate,
        mem: false,
    };
    let cells = vec![cell(DOKUWIKI, 4, 999), cell(small(0), 1, 999)];
    let length = Length {
        slice: Duration::from_secs(15),
        rounds: 1,
        steady_after: Duration::from_secs(10),
    };
    (cells, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(cells: &[BenchCell], length: &Length) -> u64 {
        (cells.len() * length.rounds) as u64 * length.slice.as_secs()
    }

    #[test]
    fn full_form_fits_its_45_minutes() {
        let (cells, length) = full();
        let seconds = seconds(&cells, &length);
        assert!(seconds <= 38 * 60, "{seconds}");
    }

    #[test]
    fn smoke_fits_its_minute() {
        let (cells, length) = smoke();
        assert!(seconds(&cells, &length) <= 50);
    }

    #[test]
    fn no_cell_is_there_twice() {
        let (cells, _) = full();
        for (index, cell) in cells.iter().enumerate() {
            assert!(!cells[..index].contains(cell), "{}", cell.label());
        }
    }
}
