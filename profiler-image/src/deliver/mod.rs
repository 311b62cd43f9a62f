//! From samples to a stored profile and a receipt, with the operator's grants.

pub mod addresses;
pub mod cancellation;
mod certificate;
pub mod checkpoints;
pub mod deltas;
pub mod environment;
pub mod grants;
pub mod live;
pub mod output_file;
pub mod pprof;
pub mod put;
pub mod receipt;
pub mod relay_client;
pub mod server_time;
pub mod timeline;
pub mod upload;
