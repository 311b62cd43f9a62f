//! How long a run waits for its first worker.
//!
//! A pool of php-fpm with `pm = ondemand` has no worker until somebody asks it something. So while
//! a master of php-fpm lives, the run waits for the pool's first worker for as long as it would
//! sample. Invariant: nobody waits without being told.

use std::fs::read_dir;
use std::time::Duration;

use super::RecordingOptions;
use super::time::SECOND;
use crate::target::Scope;
use crate::target::pattern::{Pattern, title};

/// The wait of a run without an end.
const ENDLESS: Duration = Duration::from_secs(30);
/// The title of a master (`fpm_env.c`).
const MASTER: &str = "php-fpm: master process";

/// How long to wait for the first worker, in nanoseconds, if there was none for a moment; tells the
/// user.
pub(super) fn wait(options: &RecordingOptions) -> u64 {
    let Scope::Fitting(pattern @ Pattern::Pool(_)) = &options.scope else {
        return 0;
    };
    let wait = of_pool(options.duration);
    if wait < SECOND || !has_master() {
        return 0;
    }
    let seconds = wait / SECOND;
    eprintln!("phpprof: {pattern} was not found yet; waiting for up to {seconds} s");
    wait
}

fn of_pool(duration: Duration) -> u64 {
    let wait = if duration == Duration::MAX {
        ENDLESS
    } else {
        duration
    };
    u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
}

fn has_master() -> bool {
    let processes = read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.any(|pid| title(pid).is_some_and(|title| title.starts_with(MASTER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_is_waited_for_as_sampled() {
        assert_eq!(of_pool(Duration::from_secs(7)), 7 * SECOND);
        assert_eq!(of_pool(Duration::MAX), 30 * SECOND);
    }
}
