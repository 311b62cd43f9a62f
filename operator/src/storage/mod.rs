//! What samplers have stored: held against their receipts, made one profile, and deleted in time.

pub(crate) mod expiry;
mod manifest;
pub mod store;
pub mod verify;
