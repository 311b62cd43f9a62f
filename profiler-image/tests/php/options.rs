//! The options of a run that most tests have.

use std::time::Duration;

use phpprof::request::asked::RequestSettings;
use phpprof::run::RecordingOptions;
use phpprof::run::stop::StopSwitch;
use phpprof::target::Scope;

/// A run at this rate that nothing limits: what a test is about, it sets itself.
pub fn options(scope: Scope, samples_per_second: u32, duration: Duration) -> RecordingOptions {
    RecordingOptions {
        scope,
        samples_per_second,
        duration,
        max_samples: None,
        unpaced: false,
        include_idle: false,
        only_running: false,
        heap: false,
        fibers: None,
        of_program: false,
        cpu_budget_percent: None,
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        checkpoints: None,
        requests: RequestSettings::default(),
    }
}
