//! What the operator and a sampler tell each other: the container's arguments, the receipt, and
//! whether to stop.

pub mod cancellation;
pub mod container;
pub(crate) mod contract;
pub(crate) mod grant;
pub(crate) mod injection;
pub(crate) mod object_keys;
pub(crate) mod offer;
pub(crate) mod receipt;
pub mod route;
pub(crate) mod store_answer;
