//! Parses the command line, and runs its command.
//!
//! In a pod the command line comes from the operator (`contract/args.json`), on a host from a user.
//! The last action is always the receipt with its exit code.

#![warn(clippy::match_bool)]

mod command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use command::call;
use command::record::{self, RecordArguments};
use command::resident::{self, ResidentArguments};

/// Sampling profiler for PHP: reads the stacks of running PHP processes from their memory.
#[derive(Parser)]
#[command(name = "phpprof", version, arg_required_else_help = true)]
struct SamplerCli {
    #[command(subcommand)]
    command: SamplerCommand,
}

#[derive(Subcommand)]
enum SamplerCommand {
    /// Record a profile.
    Record(Box<RecordArguments>),
    /// Show where each worker is now, and what it waits for.
    #[cfg(feature = "host")]
    Dump(command::host::dump::DumpArguments),
    /// Show what is in the workers' heaps, who holds it, and what has grown.
    #[cfg(feature = "host")]
    Heap(command::host::heap::HeapArguments),
    /// Show what PHP does now, as a table that is updated each second.
    #[cfg(feature = "host")]
    Top(Box<command::host::top::TopArguments>),
    /// Stay next to one container, and do the runs that the operator's relay assigns
    /// (contract/README.md).
    ///
    /// The variable PHPPROF_ASK has the relay's address and the grant. The sampler ends when its
    /// lease from the relay ends.
    Resident(ResidentArguments),
    /// One call of the relay, for a resident sampler.
    #[command(hide = true)]
    Call,
}

fn main() -> ExitCode {
    let command = match short_cut() {
        Some(command) => command,
        None => SamplerCli::parse().command,
    };
    match command {
        SamplerCommand::Record(arguments) => record::main(&arguments),
        #[cfg(feature = "host")]
        SamplerCommand::Dump(arguments) => command::end(command::host::dump::run(&arguments), None),
        #[cfg(feature = "host")]
        SamplerCommand::Heap(arguments) => command::end(command::host::heap::run(&arguments), None),
        #[cfg(feature = "host")]
        SamplerCommand::Top(arguments) => command::end(command::host::top::run(&arguments), None),
        SamplerCommand::Resident(arguments) => {
            command::end(resident::run(&arguments), arguments.receipt.as_deref())
        }
        SamplerCommand::Call => command::end(call::run(), None),
    }
}

/// Parses the commands of a resident sampler in the exact form that the operator and the sampler
/// itself use. clap, which parses everything else, would add a hundred kilobytes to a process that
/// stays.
fn short_cut() -> Option<SamplerCommand> {
    let words = std::env::args_os()
        .skip(1)
        .map(|word| word.into_string().ok());
    let words: Vec<String> = words.collect::<Option<_>>()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["call"] => Some(SamplerCommand::Call),
        ["resident", id, first_answer, idle, receipt] => {
            ResidentArguments::of_contract([id, first_answer, idle, receipt])
                .map(SamplerCommand::Resident)
        }
        _ => None,
    }
}
