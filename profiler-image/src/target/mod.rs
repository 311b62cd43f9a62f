//! The PHP processes and threads of the target, or the reason why there are none.

pub mod diagnosis;
pub mod discovery;
mod families;
pub mod pattern;
pub mod process;
pub mod scanner;
mod seen;
mod threads;

use pattern::Pattern;

/// Which processes are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// These and their descendants: a php-fpm master stands for its workers.
    Pids(Vec<i32>),
    /// All that this user may read.
    All,
    /// Those whose cgroup names this container.
    Container(String),
    /// Those that fit, also those that start later: none of them may be there for a while.
    Fitting(Pattern),
}
