//! The sampler: finds PHP processes, reads their stacks many times a second without stopping them, and makes one pprof
//! of it.
//!
//! The middle is pure: `zend` (a stack out of memory), `schedule` (a function of time), `aggregate` and `output`. The
//! shell around it is `record` (the loop), `process` (the system calls), `judge` (the second thread), `stop` (who is heard beside it), `checkpoints`
//! (what is stored beside it) and `upload`.
//! Invariant: nothing is written but the output file or the upload, and the receipt.

pub mod aggregate;
pub mod checkpoints;
pub mod codes;
pub mod contexts;
pub mod diagnosis;
pub mod discover;
pub mod edges;
pub mod grants;
pub mod judge;
pub mod names;
pub mod output;
pub mod pinned;
pub mod process;
pub mod receipt;
pub mod record;
pub mod sample;
pub mod schedule;
pub mod snapshot;
pub mod stop;
pub mod upload;
pub mod worker;
