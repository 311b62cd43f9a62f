//! The loop around each request: what the cluster has is observed, and what was decided is done.

pub mod controller;
mod deletion;
pub(crate) mod events;
mod execute;
mod expectations;
mod observe;
pub mod requests;
mod resolve;
pub(crate) mod view;
mod watches;
