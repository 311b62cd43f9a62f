//! A process that a test starts, and that ends with it; and the options of a run that most tests
//! have.

use std::process::Child;
use std::time::Duration;

use phpprof::request::asked::RequestSettings;
use phpprof::run::RecordingOptions;
use phpprof::run::stop::StopSwitch;
use phpprof::target::Scope;

/// A process that is killed when its test is done with it, whatever comes of the test.
pub struct Target(pub Child);

impl Target {
    /// Its number.
    pub fn pid(&self) -> i32 {
        // The kernel's numbers are at most 2^22 (`PID_MAX_LIMIT`).
        i32::try_from(self.0.id()).unwrap_or(i32::MAX)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
        of_program: false,
        cpu_budget_percent: None,
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        checkpoints: None,
        requests: RequestSettings::default(),
    }
}
