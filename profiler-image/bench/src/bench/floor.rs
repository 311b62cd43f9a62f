//! The kernel's cost of the minimum that a sampler has to do: to wake up, and to read a target's
//! memory once.
//!
//! It measures each by itself, on the given target: on schedule, as a sampler works, and without a
//! pause.

use std::io::IoSliceMut;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::Pid;
use phpprof::run::own_cpu;

use crate::cells::BenchCell;
use crate::peers::executor_globals;
use crate::target::BenchTarget;
use crate::workload::deep;

const TURNS: u32 = 2000;
const PERIOD: Duration = Duration::from_nanos(1_001_001);
/// Reads in one turn: the number of vectors, and the bytes of each.
const READS: [(usize, usize); 5] = [(0, 0), (1, 64), (4, 64), (16, 64), (4, 1024)];

/// Measures, and prints.
pub fn print() -> Result<()> {
    let cell = BenchCell {
        workload: deep(30),
        workers: 1,
        busy: 1,
        rate: 999,
        mem: false,
    };
    let target = BenchTarget::start(&cell)?;
    let pid = target.pids().first().copied().context("no target")?;
    let address = usize::try_from(executor_globals(&target)?)?;
    nix::sys::prctl::set_timerslack(1)?;
    println!("\nThe floor, in µs of CPU a turn: at 999 Hz, and one after the other");
    for (vectors, bytes) in READS {
        let read = || read(pid, address, vectors, bytes);
        let (paced, unpaced) = (turns(&read, Some(PERIOD))?, turns(&read, None)?);
        let what = match vectors {
            0 => "to wake up".to_owned(),
            _ => format!("and to read {vectors} x {bytes} bytes"),
        };
        println!("  {what:<28} {paced:>6.1} {unpaced:>6.2}");
    }
    Ok(())
}

/// CPU of one turn, in microseconds.
fn turns(read: &impl Fn() -> Result<()>, period: Option<Duration>) -> Result<f64> {
    let begin = Duration::from(ClockId::CLOCK_MONOTONIC.now()?);
    let before = own_cpu();
    for turn in 1..=TURNS {
        if let Some(period) = period {
            let due = TimeSpec::nanoseconds(i64::try_from((begin + period * turn).as_nanos())?);
            clock_nanosleep(
                ClockId::CLOCK_MONOTONIC,
                ClockNanosleepFlags::TIMER_ABSTIME,
                &due,
            )?;
        }
        read()?;
    }
    Ok((own_cpu() - before) as f64 / 1000.0 / f64::from(TURNS))
}

fn read(pid: i32, address: usize, vectors: usize, bytes: usize) -> Result<()> {
    if vectors == 0 {
        return Ok(());
    }
    let mut buffers = vec![vec![0; bytes]; vectors];
    let mut local: Vec<IoSliceMut<'_>> = buffers
        .iter_mut()
        .map(|buffer| IoSliceMut::new(buffer))
        .collect();
    let remote = vec![
        RemoteIoVec {
            base: address,
            len: bytes
        };
        vectors
    ];
    process_vm_readv(Pid::from_raw(pid), &mut local, &remote).context("reading the target")?;
    Ok(())
}
