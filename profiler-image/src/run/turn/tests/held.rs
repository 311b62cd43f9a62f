//! Workers that a signal, a debugger or the freezer has stopped.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// Whether each of this many samples of the worker says that it was stopped.
fn stopped(run: &mut RunLoop<'_>, count: usize) -> Vec<bool> {
    let mut take = || {
        let before = run.sampler.quality.stopped;
        run.take_one(0, &mut None);
        std::thread::sleep(Duration::from_millis(12));
        run.sampler.quality.stopped > before
    };
    (0..count).map(|_| take()).collect()
}

/// A process that runs all the time.
fn busy() -> (Child, i32) {
    let child = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    (child, pid)
}

#[track_caller]
fn check(child: Child, pid: i32) {
    let options = options();
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = run_of(&options, &scene, pid);
    assert_eq!(stopped(&mut run, 20), [false; 20]);
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    // Code that runs is asked for a stop only after the kernel has not counted its time for a
    // while.
    let found = stopped(&mut run, 20);
    assert_eq!(found[10..], [true; 10], "{found:?}");
    let settled = run.aggregate.settle(&run.sampler.tree, &run.sampler.edges);
    let (stacks, _) = settled.sum();
    let held = stacks.iter().filter(|stack| stack.held == Held::Stopped);
    let (mut samples, mut wall) = (0, 0);
    for stack in held {
        samples += stack.sum.samples;
        wall += stack.sum.wall_nanoseconds;
    }
    assert_eq!(u64::try_from(samples), Ok(run.sampler.quality.stopped));
    assert!(wall > 100_000_000, "{wall}");
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stopped(&mut run, 5)[1..], [false; 4]);
    end(child);
}

#[test]
fn worker_stopped_asleep_has_stopped_samples() {
    let (child, pid) = sleeper();
    check(child, pid);
}

#[test]
fn worker_stopped_running_has_stopped_samples() {
    let (child, pid) = busy();
    check(child, pid);
}
