//! What must hold: limits on counts, never on time, and that the counts are those that strace sees.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cells::{Cell, Length};
use crate::profiler::{asked, own_command, strace};
use crate::record::Said;
use crate::row::Row;
use crate::target::Target;
use crate::workload::{FRAMEWORK, Kind};

/// Reads of a target's memory for a sample of a worker at work, once most names are known.
const GATHERS_PER_SAMPLE: f64 = 3.0;
const OPENS_PER_SECOND: f64 = 20.0;
const ALLOCATIONS_PER_SAMPLE: f64 = 0.05;

/// The limits that a row of ours breaks, in words. Applications are held to what a sample may cost, constructed programs to
/// having no wrong stack.
#[must_use]
pub fn broken(row: &Row) -> Vec<String> {
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
        .filter(|_| matches!(row.cell.workload.kind, Kind::Fpm(_)))
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
            OPENS_PER_SECOND,
        ),
        (
            "allocations a busy sample",
            counts.allocations_per_sample(),
            ALLOCATIONS_PER_SAMPLE,
        ),
    ] {
        match value {
            Some(value) if value <= limit => {}
            Some(value) => broken.push(format!("{label}: {value:.2} {what}, {limit} allowed")),
            None => broken.push(format!("{label}: {what} were not counted")),
        }
    }
    broken
}

/// Holds the counts against what strace sees of the same process, and prints both; what is wrong.
pub fn against_strace(length: &Length) -> Result<Vec<String>> {
    let cell = Cell {
        workload: FRAMEWORK,
        workers: 1,
        busy: 1,
        rate: 99,
        mem: false,
    };
    let length = Length {
        slice: Duration::from_secs(5),
        ..*length
    };
    let target = Target::start(&cell)?;
    let out = tempfile::NamedTempFile::new()?;
    let command = own_command(&asked(&cell, &target, &length))?;
    let table = strace(&command, Stdio::from(out.reopen()?))?;
    let said: Said = serde_json::from_str(&std::fs::read_to_string(out.path())?)
        .context("the sampler has not said what it counted")?;
    let seen = |names: &[&str]| -> u64 {
        let of = table.iter().filter(|(name, _)| names.contains(&&name[..]));
        of.map(|(_, calls)| calls).sum()
    };
    let all: u64 = table.iter().map(|(_, calls)| calls).sum();
    let (reads, opens, files) = (
        seen(&["process_vm_readv"]),
        seen(&["open", "openat"]),
        seen(&["read", "pread64"]),
    );
    println!(
        "\n{} under strace -c: {all} calls. Counted by the sampler, and seen:",
        cell.label()
    );
    println!(
        "  process_vm_readv      {:>7} {reads:>7}",
        said.process_memory_reads
    );
    println!(
        "  opens (and the program's own) {:>7} {opens:>7}",
        said.process_opens
    );
    println!(
        "  reads of files (and of signals) {:>5} {files:>7}",
        said.process_file_reads
    );
    println!("  all of a run          {:>7} {all:>7}", calls(&said));
    for (name, calls) in &table {
        println!("    {name:<24} {calls:>7}");
    }
    let mut wrong = Vec::new();
    if reads != said.process_memory_reads {
        wrong.push(format!(
            "strace sees {reads} process_vm_readv, {} were counted",
            said.process_memory_reads
        ));
    }
    if opens < said.process_opens || files < said.process_file_reads {
        wrong.push("more opened or read files were counted than strace sees".to_owned());
    }
    Ok(wrong)
}

fn calls(said: &Said) -> u64 {
    let whole = &said.whole;
    whole.memory_reads + whole.opens + whole.file_reads + whole.wake_ups
}
