//! What samplers have stored: compared with their receipts, merged into one profile, and deleted in
//! time.

pub mod archive;
pub mod chosen;
pub mod collector;
pub mod comparison;
pub(crate) mod expiry;
pub(crate) mod manifest;
mod merge;
pub(crate) mod ours;
mod record;
mod recovery;
pub(crate) mod requests;
pub mod store;
pub mod usage;
mod verify;
