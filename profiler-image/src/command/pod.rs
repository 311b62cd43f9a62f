//! What a run does in addition to sampling in the image, which is built without the feature `host`:
//! it can write a pprof.
//!
//! It provides the same names as `host/mod.rs`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use phpprof::deliver::output_file::OutputFile;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::run::stop::StopSwitch;
use phpprof::run::{RecordError, RecordingOptions};
use phpprof::target::Scope;
use phpprof::target::pattern::Pattern;
use phpprof_profile::timeline::Timeline;

pub const EXAMPLES: &str = "";

#[derive(Args)]
pub struct Arguments {}

impl Arguments {
    pub fn pattern(&self) -> Option<Pattern> {
        None
    }

    pub fn has_program(&self) -> bool {
        false
    }
}

pub struct Host {
    pub stop: StopSwitch,
    file: Option<OutputFile>,
}

pub fn nothing_chosen() -> SamplerFailure {
    let message = "choose what to sample with --pid, --all or --container-id";
    SamplerFailure::new(Reason::Usage, "no target", message)
}

pub fn of_masters(_: &Scope, _: impl Iterator<Item = i32>) -> Option<String> {
    None
}

impl Host {
    pub fn begin(_: &Arguments, output: Option<&Path>) -> Result<Self, SamplerFailure> {
        let path = output.map(|path| {
            if path.as_os_str() == "-" {
                Path::new("/dev/stdout")
            } else {
                path
            }
        });
        Ok(Self {
            stop: StopSwitch::default(),
            file: path.map(OutputFile::open).transpose()?,
        })
    }

    pub fn writes(&self) -> bool {
        self.file.is_some()
    }

    pub fn scope(&self) -> Option<Scope> {
        None
    }

    pub fn prepare(&mut self, _: &Arguments, _: &mut RecordingOptions, _: bool) {}

    pub fn end_of_endless(&self) -> &'static str {
        "until a signal"
    }

    pub fn be_still(&mut self) {}

    pub fn explain(&self, _: &RecordError, failure: SamplerFailure) -> SamplerFailure {
        failure
    }

    pub fn keep(
        &mut self,
        bytes: &[u8],
        _: Option<&Timeline>,
    ) -> Result<Option<String>, SamplerFailure> {
        let kept = self.file.take().map(|file| file.keep(bytes)).transpose();
        kept.map(|kept| kept.map(|()| "written".to_owned()))
    }

    pub fn end(self, code: ExitCode) -> ExitCode {
        code
    }
}
