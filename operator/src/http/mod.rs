//! What the operator serves: the relay, results and health; and the keys of the first two.

pub mod addresses;
pub mod alerts;
mod answers;
pub(crate) mod connections;
pub(crate) mod grants;
pub mod health;
pub mod heard;
pub mod keyring;
mod keys;
mod listen;
pub mod live;
pub mod relay;
pub(crate) mod results;
pub mod runs;
mod shares;
pub mod source;
pub mod tls;
pub mod tokens;
pub mod verdict;
