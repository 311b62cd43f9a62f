//! Determines a sample's labels from the request that its worker serves, and applies filters: pure.

pub mod asked;
pub mod route;
pub mod values;
