//! Limits on counts, never on time; and a check that the counts are those that strace sees.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cells::{BenchCell, Length};
use crate::profiler::{asked, own_command, strace};
use crate::record::RunOutput;
use crate::row::BenchRow;
use crate::target::BenchTarget;
use crate::workload::{FRAMEWORK, WorkloadKind};

/// Reads of a target's memory for a sample of a busy worker, once most names are known.
const GATHERS_PER_SAMPLE: f64 = 3.0;
const OPENS_PER_SECOND: f64 = 20.0;
const ALLOCATIONS_PER_SAMPLE: f64 = 0.05;
/// In addition, for each process that starts on the machine meanwhile: the sampler looks who its
/// parent is. About two and four were seen next to a compiler.
const OPENS_OF_A_START: f64 = 3.0;
const ALLOCATIONS_OF_A_START: f64 = 6.0;
/// System calls of a process that begins and ends, in addition to those of the sampler.
const OWN_CALLS: u64 = 30;

/// Whether a row breaks limits only by its counts: which functions are new in its few seconds is
/// chance. A wrong stack is not.
#[must_use]
pub fn may_be_chance(row: &BenchRow) -> bool {
    let is_wrong = row
        .wrong
        .as_ref()
        .is_some_and(|wrong| wrong.edges + wrong.truncated > 0);
    !is_wrong && !broken(row).is_empty()
}

/// The limits that one of our rows breaks, in words. For applications they limit the cost of a
/// sample, for constructed programs they allow no wrong stack.
#[must_use]
pub fn broken(row: &BenchRow) -> Vec<String> {
    let mut broken = Vec::new();
    let label = row.cell.label();
    if row.profiler != "phpprof" {
        return broken;
    }
    if let Some(wrong) = row.wrong.filter(|wrong| wrong.edges + wrong.truncated > 0) {
        broken.push(format!(
            "{label}: {} samples with a wrong edge, {} truncated",
            wrong.edges, wrong.truncated
        ));
    }
    if row.busy == 0 {
        broken.push(format!("{label}: no sample of a worker at work"));
    }
    let Some(counts) = row
        .counts
        .filter(|_| matches!(row.cell.workload.kind, WorkloadKind::Fpm(_)))
    else {
        return broken;
    };
    for (what, value, limit) in [
        (
            "gathers a busy sample",
            counts.gathers_per_sample(),
            GATHERS_PER_SAMPLE,
        ),
        (
            "opens a second",
            counts.opens_per_second(),
            OPENS_PER_SECOND + OPENS_OF_A_START * counts.started_per_second(),
        ),
        (
            "allocations a busy sample",
            counts.allocations_per_sample(),
            ALLOCATIONS_PER_SAMPLE
                + ALLOCATIONS_OF_A_START * counts.started as f64 / counts.busy().max(1) as f64,
        ),
    ] {
        match value {
            Some(value) if value <= limit => {}
            Some(value) => broken.push(format!(
                "{label}: {value:.2} {what}, {limit:.2} allowed; {:.1} processes and threads a second started",
                counts.started_per_second()
            )),
            None => broken.push(format!("{label}: {what} were not counted")),
        }
    }
    broken
}

/// Compares the counts with those that strace sees of the same process, and prints both; returns
/// the differences.
pub fn against_strace() -> Result<Vec<String>> {
    let cell = BenchCell {
        workload: FRAMEWORK,
        workers: 1,
        busy: 1,
        rate: 99,
        mem: false,
    };
    let (said, table) = traced(&cell)?;
    let seen = |names: &[&str]| -> u64 {
        let of = table.iter().filter(|(name, _)| names.contains(&&name[..]));
        of.map(|(_, calls)| calls).sum()
    };
    println!("\n{} under strace -c: counted, and seen", cell.label());
    let mut wrong = Vec::new();
    for (what, counted, seen, own) in [
        (
            "process_vm_readv",
            said.process_memory_reads,
            seen(&["process_vm_readv"]),
            0,
        ),
        (
            "opens",
            said.process_opens,
            seen(&["open", "openat"]),
            OWN_CALLS,
        ),
        (
            "reads",
            said.process_reads,
            seen(&["read", "pread64"]),
            OWN_CALLS,
        ),
        (
            "reads of CPU clocks",
            said.process_clock_reads,
            seen(&["clock_gettime"]),
            OWN_CALLS,
        ),
    ] {
        println!("  {what:<19} {counted:>8} {seen:>8}");
        if counted.abs_diff(seen) > own {
            wrong.push(format!("{counted} {what} were counted, strace sees {seen}"));
        }
    }
    for (name, calls) in &table {
        println!("    {name:<24} {calls:>7}");
    }
    Ok(wrong)
}

/// What the sampler counts in this cell, and what strace sees of it.
fn traced(cell: &BenchCell) -> Result<(RunOutput, Vec<(String, u64)>)> {
    let length = Length {
        slice: Duration::from_secs(5),
        rounds: 1,
        steady_after: Duration::from_secs(5),
    };
    let target = BenchTarget::start(cell)?;
    let out = tempfile::NamedTempFile::new()?;
    let command = own_command(&asked(cell, &target, &length))?;
    let table = strace(&command, Stdio::from(out.reopen()?))?;
    let said: RunOutput = serde_json::from_str(&std::fs::read_to_string(out.path())?)
        .context("the sampler has not said what it counted")?;
    Ok((said, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::Wrong;
    use crate::record::PartCounts;
    use crate::row::tests::{COUNTS, row};
    use crate::workload::DOKUWIKI;

    #[test]
    fn an_application_is_held_to_each_count() {
        let broken = |counts| broken(&row(DOKUWIKI, counts, None));
        assert_eq!(broken(COUNTS), Vec::<String>::new());
        let gathers = PartCounts {
            gathers: 1300,
            ..COUNTS
        };
        assert_eq!(broken(gathers).len(), 1);
        let opens = PartCounts {
            opens: 300,
            ..COUNTS
        };
        assert_eq!(broken(opens).len(), 1);
        let allocations = PartCounts {
            allocations: 100,
            ..COUNTS
        };
        assert_eq!(broken(allocations).len(), 1);
        assert!(may_be_chance(&row(DOKUWIKI, allocations, None)));
        assert!(!may_be_chance(&row(DOKUWIKI, COUNTS, None)));
    }

    #[test]
    fn wrong_stack_or_none_breaks_a_limit() {
        let wrong = Wrong {
            edges: 1,
            truncated: 0,
        };
        let wrong = row(FRAMEWORK, COUNTS, Some(wrong));
        assert_eq!(broken(&wrong).len(), 1);
        assert!(!may_be_chance(&wrong));
        let idle = PartCounts {
            taken: COUNTS.idle,
            ..COUNTS
        };
        assert!(!broken(&row(FRAMEWORK, idle, None)).is_empty());
    }
}
