//! phpprof-operator: parses its flags (`args`), builds its parts (`wiring`), runs its tasks
//! (`serve`), and returns an exit code.

#![warn(clippy::match_bool)]

mod args;
mod serve;
mod wiring;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::args::Args;

/// Why the operator cannot run, in words for its log.
type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_env_filter(filter)
        .init();
    let args = Args::parse();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, "the operator starts");
    match serve::serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string();
            tracing::error!(error, "the operator cannot run");
            ExitCode::FAILURE
        }
    }
}
