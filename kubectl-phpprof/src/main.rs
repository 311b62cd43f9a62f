//! `kubectl phpprof`: asks for profiles of PHP in running pods, waits for them, and shows them.
//!
//! This file dispatches; each verb is a module.
//!
//! Invariant: results go to standard output, everything else to standard error; a failure ends with
//! its own exit code and a hint.

#![deny(clippy::print_stdout)]
#![warn(clippy::match_bool)]

mod cancel;
mod certificate;
mod cli;
mod compare;
mod completion;
mod connect;
mod delete;
mod describe;
mod doctor;
mod dump;
mod duration;
mod exit;
mod explain;
mod failure;
mod findings;
mod forwards;
mod get;
mod global;
#[cfg(test)]
mod golden;
mod heap;
mod jsonpath;
mod labels;
mod list;
mod live;
mod local;
mod logs;
mod mcp;
mod output;
mod progress;
mod reference;
mod request;
mod requests;
mod results;
mod route_limits;
mod run;
mod schedule;
mod screen;
mod selector;
mod show;
mod source;
mod stdout;
mod stored;
mod suggest;
mod table;
mod target;
mod texts;
mod ui;
mod unlike;
mod verdict;
mod version;
mod view;
mod wait;
mod watch;
mod written;

use std::process::ExitCode;

use clap::Parser;
use jiff::Timestamp;

use cli::{Cli, Verb};
use connect::Cluster;
use failure::{Exit, Failure};
use global::Global;
use request::RequestView;
use screen::Screen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let verb = match to_complete(&arguments) {
        Some(words) => Cli {
            global: Global::default(),
            verb: Verb::Complete(cli::Complete {
                words: words.to_vec(),
            }),
        },
        None => Cli::parse(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(perform(verb)),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            error.to_string(),
            "close other programs, or raise `ulimit -n`",
        )),
    };
    match outcome.and_then(|text| stdout::say(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// The words of an incomplete line. They are not parsed by clap, which would take flags at the
/// beginning as its own.
fn to_complete(arguments: &[String]) -> Option<&[String]> {
    let (program, words) = arguments.split_first()?;
    // kubectl runs a program of this name, which can be a link to this one.
    if program.rsplit('/').next() == Some("kubectl_complete-phpprof") {
        return Some(words);
    }
    let (verb, words) = words.split_first()?;
    (verb == "__complete").then_some(words)
}

async fn perform(cli: Cli) -> Result<String, Failure> {
    let screen = Screen::of_stdout();
    let global = &cli.global;
    match &cli.verb {
        Verb::Run(arguments) => run::run(global, arguments, screen)
            .await
            .map(|()| String::new()),
        Verb::Schedule(arguments) => schedule::run(global, arguments, screen).await,
        Verb::List(arguments) => get::list(global, arguments, screen).await,
        Verb::Get(arguments) => get::get(global, arguments, screen).await,
        Verb::Delete(arguments) => delete::run(global, arguments).await,
        Verb::Describe(arguments) => {
            let cluster = Cluster::of(global).await?;
            let name = source::request_name(&arguments.name);
            let object = cluster.request(name).await?;
            let request = RequestView::of(&object);
            let found = findings::of_request(&cluster, &request).await;
            Ok(describe::text(
                &request,
                &found,
                &cluster.suggest,
                screen.width,
                Timestamp::now(),
            ))
        }
        Verb::Cancel(arguments) => cancel::run(global, arguments).await,
        Verb::Logs(arguments) => logs::run(global, arguments).await,
        Verb::Explain(arguments) => explain::text(arguments.reason.as_deref()),
        Verb::Top(arguments) if arguments.live => live::run(global, arguments).await,
        Verb::Top(arguments) => local::top(global, arguments, screen).await,
        Verb::Findings(arguments) => local::findings(global, arguments, screen).await,
        Verb::Requests(arguments) => requests::run(global, arguments, screen).await,
        Verb::Flame(arguments) => local::flame(global, arguments).await,
        Verb::Diff(arguments) => local::compare(global, arguments, screen).await,
        Verb::Verdict(arguments) => verdict::run(global, arguments, screen).await,
        Verb::Download(arguments) => local::download(global, arguments).await,
        Verb::Doctor(arguments) => doctor::run(global, arguments, screen)
            .await
            .map(|()| String::new()),
        Verb::Ui(arguments) => ui::run(global, arguments).await,
        Verb::Dump(arguments) => dump::run(global, arguments).await,
        Verb::Heap(arguments) => heap::run(global, arguments, screen).await,
        Verb::Mcp(flags) => mcp::run(global, flags).await,
        Verb::Version(arguments) => version::run(global, arguments).await,
        Verb::Completion(arguments) => Ok(completion::script(arguments.shell).to_owned()),
        Verb::Reference => Ok(reference::page()),
        Verb::Complete(arguments) => Ok(completion::complete(&arguments.words).await),
    }
}
