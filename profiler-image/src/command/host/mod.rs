//! What `record` does for users on a host, in addition to sampling: it chooses processes in other
//! ways, starts a program, writes other formats, shows progress, lists the PHP processes, and has
//! `dump`, `heap` and `top`.
//!
//! It is the Cargo feature `host`, on by default and off in the image, where `pod.rs` provides the
//! same names. A second binary of the same name would need a second package, with a second copy of
//! `record`'s arguments. Formats and the flame graph page come with the crate `profile` in any
//! case, and the linker leaves out unused code.

pub mod dump;
pub mod heap;
mod listing;
mod masters;
mod program;
mod progress;
mod sink;
pub mod top;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::run::stop::StopSwitch;
use phpprof::run::{RecordError, RecordingOptions};
use phpprof::target::Scope;
use phpprof::target::pattern::Pattern;
use phpprof_profile::Format;
use phpprof_profile::timeline::Timeline;

use super::{HOW, OUTPUT, WHAT};
pub use masters::told as of_masters;
use program::StartedProgram;
use progress::ProgressLine;
use sink::Sink;

pub const EXAMPLES: &str = "\
Examples:
  phpprof record --php-fpm www -d 30s -o profile.html   the workers of a pool, as a page for the browser
  phpprof record --pid 4711 -d 0 -o profile.pb.gz       a process and its children, until Ctrl-C
  phpprof record -o profile.html -- php script.php      a program, from its first line to its end";

/// Processes that have something in common.
#[derive(Args)]
pub struct Common {
    /// The workers of php-fpm's pool of this name.
    #[arg(long, value_name = "POOL", group = "what", help_heading = WHAT)]
    php_fpm: Option<String>,
    /// The processes whose command line or name contains this.
    #[arg(long, value_name = "TEXT", group = "what", help_heading = WHAT)]
    name: Option<String>,
    /// The processes in this control group and below, as /proc/PID/cgroup names it.
    #[arg(long, value_name = "PATH", group = "what", help_heading = WHAT)]
    cgroup: Option<String>,
}

impl Common {
    /// The pattern for these processes.
    pub fn pattern(&self) -> Option<Pattern> {
        let pool = self.php_fpm.clone().map(Pattern::Pool);
        let name = || self.name.clone().map(Pattern::Name);
        let cgroup = || self.cgroup.clone().map(Pattern::Cgroup);
        pool.or_else(name).or_else(cgroup)
    }
}

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Start this program, and sample it and its descendants until it ends. phpprof ends with its
    /// exit code.
    #[arg(last = true, value_name = "PROGRAM", group = "what", help_heading = WHAT, conflicts_with = "grants_on_stdin")]
    program: Vec<OsString>,
    /// Keep only samples of workers that run on a CPU or wait for one, not of sleeping workers.
    #[arg(long, conflicts_with = "include_idle", help_heading = HOW)]
    only_running: bool,
    /// Format of the profile: pprof, folded, speedscope, callgrind, firefox, svg or html. Default:
    /// from the file's extension. Without a file, the profile goes to standard output.
    #[arg(short, long, value_parser = format, help_heading = OUTPUT)]
    format: Option<Format>,
}

impl Arguments {
    /// The pattern, if processes are chosen by what they have in common.
    pub fn pattern(&self) -> Option<Pattern> {
        self.common.pattern()
    }

    pub fn has_program(&self) -> bool {
        !self.program.is_empty()
    }
}

fn format(name: &str) -> Result<Format, String> {
    Format::named(name).ok_or_else(|| format!("a format must be one of {}", Format::names()))
}

/// What accompanies a run.
pub struct Host {
    /// Ends the run when its program ends.
    pub stop: StopSwitch,
    sink: Option<Sink>,
    program: Option<StartedProgram>,
    screen: Option<ProgressLine>,
}

/// The failure that no option chooses what to sample.
pub fn nothing_chosen() -> SamplerFailure {
    none_of("--pid, --php-fpm, --name, --cgroup, --all, or a program after --")
}

fn none_of(flags: &str) -> SamplerFailure {
    let message = format!(
        "choose what to sample with one of {flags}\n{}",
        listing::say()
    );
    SamplerFailure::new(Reason::Usage, "no target", message)
}

/// Adds a list of what can be sampled to the failure that nothing was found.
fn with_listing(failure: SamplerFailure) -> SamplerFailure {
    match failure.reason {
        Reason::NoPhpFound => SamplerFailure {
            message: format!("{}\n{}", failure.message, listing::say()),
            ..failure
        },
        _ => failure,
    }
}

impl Host {
    /// Opens the output, and starts the program.
    ///
    /// # Errors
    /// The output cannot be opened, or the program cannot be started; nothing was started then.
    pub fn begin(arguments: &Arguments, output: Option<&Path>) -> Result<Self, SamplerFailure> {
        let has_program = arguments.has_program();
        let sink = Sink::open(output, arguments.format, has_program)?;
        let stop = StopSwitch::default();
        if has_program && sink.is_none() {
            let message = "the profile of a program must go to a file: add -o FILE";
            return Err(SamplerFailure::new(Reason::Usage, "output", message));
        }
        let program = if has_program {
            Some(StartedProgram::start(&arguments.program, &stop)?)
        } else {
            None
        };
        Ok(Self {
            stop,
            sink,
            program,
            screen: None,
        })
    }

    /// Whether the profile is written to a file, and not uploaded.
    pub fn writes(&self) -> bool {
        self.sink.is_some()
    }

    /// The program, if there is one.
    pub fn scope(&self) -> Option<Scope> {
        let program = self.program.as_ref()?;
        Some(Scope::Pids(vec![program.pid()]))
    }

    /// Adds the options of a host to a run's options, and begins to show its progress.
    pub fn prepare(&mut self, arguments: &Arguments, options: &mut RecordingOptions, quiet: bool) {
        options.only_running = arguments.only_running;
        options.of_program = self.program.is_some();
        // The terminal belongs to the program.
        if self.writes() && !quiet && self.program.is_none() {
            self.screen = ProgressLine::begin(options.duration);
        }
        if let Some(screen) = &self.screen {
            options.checkpoints = Some(Arc::clone(&screen.numbers) as _);
        }
    }

    /// How to end a run without a duration, in words.
    pub fn end_of_endless(&self) -> &'static str {
        match self.program {
            Some(_) => "until the program ends",
            None => "until Ctrl-C",
        }
    }

    /// Stops showing progress.
    pub fn be_still(&mut self) {
        self.screen = None;
    }

    /// Adds help for a host to the failure.
    pub fn explain(&self, error: &RecordError, failure: SamplerFailure) -> SamplerFailure {
        match (&self.program, error) {
            (Some(program), RecordError::Stopped) => {
                let message = format!(
                    "{} ended before it ran PHP: there is no profile",
                    program.name()
                );
                SamplerFailure::new(Reason::TargetExited, "", message)
            }
            (None, _) => with_listing(failure),
            _ => failure,
        }
    }

    /// Writes the profile. If it goes to a file, this prints its path.
    pub fn keep(
        &mut self,
        pprof: &[u8],
        requests: Option<&Timeline>,
    ) -> Result<Option<String>, SamplerFailure> {
        match self.sink.take() {
            Some(sink) => sink.keep(pprof, requests),
            None => Ok(None),
        }
    }

    /// Waits for the program, and returns its exit code; if that is 0, the run's.
    pub fn end(self, code: ExitCode) -> ExitCode {
        match self.program.map_or(0, StartedProgram::end) {
            0 => code,
            failed => ExitCode::from(failed),
        }
    }
}
