//! The PHP processes and threads of the target, or the reason why there are none.

mod absence;
mod births;
pub mod diagnosis;
pub mod discovery;
mod families;
mod file_mark;
pub mod files;
pub mod pattern;
pub mod process;
mod reaped;
pub mod scanner;
mod seen;
pub(crate) mod threads;

use pattern::Pattern;

/// Which processes are sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// These and their descendants: a php-fpm master selects its workers.
    Pids(Vec<i32>),
    /// All that this user may read.
    All,
    /// Those whose cgroup names this container.
    Container(String),
    /// Those that fit the pattern, also those that start later: there may be none for a while.
    Fitting(Pattern),
}
