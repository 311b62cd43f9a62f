//! The loop for each request: observe the cluster, decide, execute.

pub mod archives;
pub(crate) mod calls;
mod changes;
pub mod comparisons;
pub mod context;
pub mod controller;
mod deletion;
pub(crate) mod events;
mod execute;
pub(crate) mod fleet;
mod follow;
mod granting;
pub mod halts;
pub mod jobs;
pub mod ledger;
mod milestones;
mod observe;
mod reflected;
pub mod requests;
pub mod residents;
mod resolve;
mod scopes;
pub mod store_watch;
pub(crate) mod strip;
pub mod triggers;
pub mod verdicts;
pub mod watches;
