//! A row of the results: the sums of one profiler's runs on one cell. Pure.

use std::fmt::Write as _;

use crate::cells::BenchCell;
use crate::edges::Wrong;
use crate::profiler::Slice;
use crate::record::PartCounts;

/// The columns of `results.csv`.
pub const COLUMNS: &str = "workload,opcache,depth,workers,busy,rate_hz,mode,profiler,due,taken,unstable,wrong_edges,truncated,\
lateness_p50_us,lateness_p99_us,user_s,sys_s,gathers_per_sample,syscalls_per_sample,vectors_per_sample,bytes_per_sample,\
opens_per_second,allocations_per_sample,cpu_us_per_sample,rss_kib,anon_kib,target_slowdown_pct,target_slowdown_half_width_pct";

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchRow {
    pub cell: BenchCell,
    pub profiler: &'static str,
    pub due: u64,
    pub taken: u64,
    pub busy: u64,
    pub unstable: Option<u64>,
    pub wrong: Option<Wrong>,
    /// The means of p50 and p99 over the runs, in microseconds.
    pub lateness: Option<[f64; 2]>,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub seconds: f64,
    /// phpprof's counts: those of the steady part, if the runs have one.
    pub counts: Option<PartCounts>,
    pub traced_calls_per_sample: Option<f64>,
    pub resident_kib: u64,
    pub anonymous_kib: u64,
    /// The lowest final rate of a run.
    pub effective_rate: Option<f64>,
}

impl BenchRow {
    /// Sums up the runs of a profiler, each of this many seconds.
    #[must_use]
    pub fn of(cell: &BenchCell, profiler: &'static str, slices: &[Slice], seconds: f64) -> Self {
        let all = |value: fn(&Slice) -> u64| slices.iter().map(value).sum();
        let said = || slices.iter().filter_map(|slice| slice.said.as_ref());
        let mean = |value: fn(&Slice) -> Option<f64>| {
            let values: Vec<f64> = slices.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let late = |value: fn(&Slice) -> Option<f64>| mean(value);
        let p50 = late(|slice| Some(slice.said.as_ref()?.lateness_p50_us));
        let p99 = late(|slice| Some(slice.said.as_ref()?.lateness_p99_us));
        let mut wrong: Option<Wrong> = None;
        for more in slices.iter().filter_map(|slice| slice.wrong) {
            *wrong.get_or_insert_default() += more;
        }
        let mut counts: Option<PartCounts> = None;
        for said in said() {
            *counts.get_or_insert_default() += said.steady.unwrap_or(said.whole);
        }
        Self {
            cell: *cell,
            profiler,
            due: all(|slice| slice.due),
            taken: all(|slice| slice.taken),
            busy: all(|slice| slice.busy),
            unstable: slices.iter().map(|slice| slice.unstable).sum(),
            wrong,
            lateness: p50.zip(p99).map(|(p50, p99)| [p50, p99]),
            user_seconds: slices.iter().map(|slice| slice.usage.user_seconds).sum(),
            system_seconds: slices.iter().map(|slice| slice.usage.system_seconds).sum(),
            seconds: seconds * slices.len() as f64,
            counts,
            traced_calls_per_sample: mean(|slice| slice.traced_calls_per_sample),
            resident_kib: slices
                .iter()
                .map(|slice| slice.usage.resident_kib)
                .max()
                .unwrap_or(0),
            anonymous_kib: slices
                .iter()
                .map(|slice| slice.usage.anonymous_kib)
                .max()
                .unwrap_or(0),
            effective_rate: said().map(|said| said.effective_rate).reduce(f64::min),
        }
    }

    /// CPU time of the whole process, with its start and end, for each sample of a busy worker.
    #[must_use]
    pub fn cpu_us_per_sample(&self) -> Option<f64> {
        per((self.user_seconds + self.system_seconds) * 1e6, self.busy)
    }

    /// System calls for each sample of a busy worker.
    #[must_use]
    pub fn calls_per_sample(&self) -> Option<f64> {
        let counts = self.counts.as_ref();
        counts.map_or(self.traced_calls_per_sample, |counts| {
            counts.calls_per_sample(self.cell.mem)
        })
    }

    /// The share of one core that the process used, in percent.
    #[must_use]
    pub fn core_percent(&self) -> f64 {
        100.0 * (self.user_seconds + self.system_seconds) / self.seconds.max(0.001)
    }

    /// The line of `results.csv`; a field without a value is empty.
    #[must_use]
    pub fn csv(&self) -> String {
        let BenchCell {
            workload,
            workers,
            busy,
            rate,
            mem,
        } = self.cell;
        let mode = if mem { "mem" } else { "vm_readv" };
        let count = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
        let number =
            |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.3}"));
        let counts = self.counts.as_ref();
        let of = |value: fn(&PartCounts) -> Option<f64>| number(counts.and_then(value));
        let mut line = format!(
            "{},on,{},{workers},{busy},{rate},{mode},{},{},{},{},{},{},",
            workload.name,
            count(workload.depth.map(u64::from)),
            self.profiler,
            self.due,
            self.taken,
            count(self.unstable),
            count(self.wrong.map(|wrong| wrong.edges)),
            count(self.wrong.map(|wrong| wrong.truncated)),
        );
        let calls = self.calls_per_sample();
        let _ = write!(
            line,
            "{},{},{:.3},{:.3},{},{},{},{},{},{},{},{},{},,",
            number(self.lateness.map(|[p50, _]| p50)),
            number(self.lateness.map(|[_, p99]| p99)),
            self.user_seconds,
            self.system_seconds,
            of(PartCounts::gathers_per_sample),
            number(calls),
            of(PartCounts::vectors_per_sample),
            of(PartCounts::bytes_per_sample),
            of(PartCounts::opens_per_second),
            of(PartCounts::allocations_per_sample),
            number(self.cpu_us_per_sample()),
            self.resident_kib,
            self.anonymous_kib,
        );
        line
    }
}

impl PartCounts {
    /// Samples of busy workers.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.taken - self.idle
    }

    #[must_use]
    pub fn gathers_per_sample(&self) -> Option<f64> {
        per((self.gathers - self.idle_gathers) as f64, self.busy())
    }

    /// Reads of memory, files and CPU clocks, opened files, and sleeps. Of peers strace counts all
    /// calls; those that are left out here are rare (`bench floor` prints them). A clock that the
    /// vDSO reads is not a call here and none for strace.
    #[must_use]
    pub fn calls_per_sample(&self, mem: bool) -> Option<f64> {
        // A `pread` of `/proc/PID/mem` is one of the reads.
        let of_memory = if mem { 0 } else { self.memory_reads };
        let calls = of_memory + self.reads + self.clock_reads + self.opens + self.wake_ups;
        per(calls.saturating_sub(self.idle_calls) as f64, self.busy())
    }

    #[must_use]
    pub fn vectors_per_sample(&self) -> Option<f64> {
        per((self.vectors - self.idle_vectors) as f64, self.busy())
    }

    #[must_use]
    pub fn bytes_per_sample(&self) -> Option<f64> {
        per((self.bytes - self.idle_bytes) as f64, self.busy())
    }

    #[must_use]
    pub fn opens_per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.opens as f64 / self.seconds)
    }

    /// Processes and threads of the whole machine.
    #[must_use]
    pub fn started_per_second(&self) -> f64 {
        self.started as f64 / self.seconds.max(1.0)
    }

    #[must_use]
    pub fn allocations_per_sample(&self) -> Option<f64> {
        per(self.allocations as f64, self.busy())
    }

    #[must_use]
    pub fn cpu_us_per_sample(&self) -> Option<f64> {
        per(self.cpu_nanoseconds as f64 / 1000.0, self.busy())
    }

    /// Gathers of a turn that finds a worker between two requests.
    #[must_use]
    pub fn gathers_per_idle_turn(&self) -> Option<f64> {
        per(self.idle_gathers as f64, self.idle)
    }
}

impl std::ops::AddAssign for PartCounts {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.due += more.due;
        self.taken += more.taken;
        self.idle += more.idle;
        self.gathers += more.gathers;
        self.memory_reads += more.memory_reads;
        self.vectors += more.vectors;
        self.bytes += more.bytes;
        self.opens += more.opens;
        self.file_reads += more.file_reads;
        self.clock_reads += more.clock_reads;
        self.idle_gathers += more.idle_gathers;
        self.idle_calls += more.idle_calls;
        self.idle_vectors += more.idle_vectors;
        self.idle_bytes += more.idle_bytes;
        self.allocations += more.allocations;
        self.reads += more.reads;
        self.wake_ups += more.wake_ups;
        self.started += more.started;
        self.cpu_nanoseconds += more.cpu_nanoseconds;
    }
}

fn per(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::profiler::ProcessUsage;
    use crate::record::RunOutput;
    use crate::workload::{BenchWorkload, DOKUWIKI, FRAMEWORK};

    /// Counts of ten seconds in which a worker was busy in ten turns, and each of these took two
    /// gathers.
    pub const COUNTS: PartCounts = PartCounts {
        seconds: 10.0,
        due: 1000,
        taken: 1000,
        idle: 900,
        gathers: 1100,
        memory_reads: 1100,
        vectors: 1300,
        bytes: 100_000,
        opens: 100,
        file_reads: 50,
        clock_reads: 200,
        idle_gathers: 900,
        idle_calls: 900,
        idle_vectors: 900,
        idle_bytes: 90_000,
        allocations: 3,
        reads: 50,
        wake_ups: 1000,
        started: 0,
        cpu_nanoseconds: 5_000_000,
    };

    /// A row of phpprof with these counts.
    pub fn row(workload: BenchWorkload, counts: PartCounts, wrong: Option<Wrong>) -> BenchRow {
        let cell = BenchCell {
            workload,
            workers: 4,
            busy: 1,
            rate: 99,
            mem: false,
        };
        let slice = Slice {
            due: counts.due,
            taken: counts.taken,
            busy: counts.taken - counts.idle,
            unstable: Some(1),
            wrong,
            usage: ProcessUsage {
                user_seconds: 0.004,
                system_seconds: 0.006,
                resident_kib: 2000,
                anonymous_kib: 300,
            },
            said: Some(RunOutput {
                whole: counts,
                ..RunOutput::default()
            }),
            traced_calls_per_sample: None,
        };
        BenchRow::of(&cell, "phpprof", &[slice.clone(), slice], 10.0)
    }

    #[test]
    fn idle_turns_cost_no_sample() {
        let counts = row(DOKUWIKI, COUNTS, None).counts.unwrap();
        assert_eq!(counts.gathers_per_sample(), Some(2.0));
        assert_eq!(counts.vectors_per_sample(), Some(4.0));
        assert_eq!(counts.gathers_per_idle_turn(), Some(1.0));
        assert_eq!(counts.calls_per_sample(false), Some(15.5));
        assert_eq!(counts.calls_per_sample(true), Some(4.5));
        assert_eq!(counts.opens_per_second(), Some(10.0));
    }

    #[test]
    fn rounds_are_summed_in_one_line() {
        let wrong = Wrong {
            edges: 1,
            truncated: 0,
        };
        let row = row(FRAMEWORK, COUNTS, Some(wrong));
        assert_eq!((row.due, row.busy, row.resident_kib), (2000, 200, 2000));
        assert_eq!(row.cpu_us_per_sample(), Some(100.0));
        let line = row.csv();
        assert_eq!(line.split(',').count(), COLUMNS.split(',').count());
        assert!(line.starts_with("framework,on,,4,1,99,vm_readv,phpprof,2000,2000,2,2,0,"));
    }
}
