//! `mcp`: answers agents about profiles: a server of the Model Context Protocol on standard input
//! and output.
//!
//! Its tools are the plugin's verbs (`tools`); each has a module for its answer. `serve` hears
//! calls, `store` has the profiles.
//!
//! Invariant: standard output has the protocol's messages and nothing else. Nothing is changed in
//! the cluster without `--allow-run`.

mod answer;
mod ask;
mod calls;
mod compare;
mod describe;
mod diff;
mod dump;
mod files;
mod findings;
mod head;
mod lines;
mod list;
mod part;
mod quote;
mod requests;
mod run;
mod serve;
mod store;
#[cfg(test)]
mod tests;
mod tools;
mod top;
mod verdict;

use std::io::IsTerminal as _;

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;

use crate::cli::McpFlags;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use files::FileList;
use run::AgentRuns;
use serve::AgentServer;
use store::AgentStore;

/// The most bytes of a message. Longer ones are dropped.
const LONGEST_MESSAGE: usize = 1 << 20;

/// Serves until standard input ends.
pub async fn run(global: &Global, flags: &McpFlags) -> Result<String, Failure> {
    let store = match flags.files.as_slice() {
        [] => AgentStore::of_cluster(global),
        files => AgentStore::of_files(FileList::of(files)?),
    };
    if std::io::stdin().is_terminal() {
        eprintln!(
            "This is for a client of the Model Context Protocol, which starts it itself: {{\"command\": \"kubectl\", \"args\": [\"phpprof\", \"mcp\"]}}. Press Ctrl-C to stop."
        );
    }
    let runs = flags.allow_run.then(|| AgentRuns::of(flags));
    let (read, write) = stdio_pipes();
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(LONGEST_MESSAGE);
    let served = match AgentServer::new(store, runs).serve(transport).await {
        Ok(running) => running.waiting().await.map_err(|error| error.to_string()),
        // The client has left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(String::new()),
        Err(error) => Err(error.to_string()),
    };
    match served {
        Ok(_) => Ok(String::new()),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            format!("the conversation with the client ended: {error}"),
            "start it from a client of the Model Context Protocol",
        )),
    }
}
