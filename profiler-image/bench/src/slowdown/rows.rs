//! The rows of the table: each a profiler, and the program that it slows down.

use phpprof_bench::workload::{DOKUWIKI, MEDIAWIKI, Workload};

/// The profiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profiler {
    /// Samples this program at this rate.
    Phpprof {
        rate_hz: u32,
        program: Program,
    },
    Excimer {
        rate_hz: u32,
    },
    Xdebug,
    Tideways,
}

/// What phpprof samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A program that only makes small calls.
    SmallCalls,
    /// The same, on the CPU that the sampler uses as well.
    SmallCallsOnOneCpu,
    /// The pages of an application, by one worker of php-fpm.
    Application(Workload),
}

const fn phpprof(program: Program, rate_hz: u32) -> Profiler {
    Profiler::Phpprof { rate_hz, program }
}

pub const ROWS: [Profiler; 12] = [
    phpprof(Program::SmallCalls, 99),
    phpprof(Program::SmallCalls, 999),
    phpprof(Program::SmallCallsOnOneCpu, 99),
    phpprof(Program::SmallCallsOnOneCpu, 999),
    phpprof(Program::Application(DOKUWIKI), 99),
    phpprof(Program::Application(DOKUWIKI), 999),
    phpprof(Program::Application(MEDIAWIKI), 99),
    phpprof(Program::Application(MEDIAWIKI), 999),
    Profiler::Excimer { rate_hz: 99 },
    Profiler::Excimer { rate_hz: 999 },
    Profiler::Xdebug,
    Profiler::Tideways,
];

pub const XDEBUG: [&str; 4] = [
    "xdebug.mode=profile",
    "xdebug.start_with_request=trigger",
    "xdebug.profiler_output_name=profile",
    "xdebug.use_compression=0",
];

impl Profiler {
    pub fn name(self) -> &'static str {
        match self {
            Self::Phpprof { .. } => "phpprof",
            Self::Excimer { .. } => "excimer",
            Self::Xdebug => "xdebug",
            Self::Tideways => "tideways_xhprof",
        }
    }

    pub fn rate_hz(self) -> Option<u32> {
        match self {
            Self::Phpprof { rate_hz, .. } | Self::Excimer { rate_hz } => Some(rate_hz),
            Self::Xdebug | Self::Tideways => None,
        }
    }

    /// The program that is slowed down.
    pub fn target(self) -> &'static str {
        match self {
            Self::Phpprof {
                program: Program::Application(workload),
                ..
            } => workload.name,
            _ => "small calls",
        }
    }

    /// The CPUs that the target and the sampler may use.
    pub fn cpus(self) -> &'static str {
        match self {
            Self::Phpprof {
                program: Program::SmallCallsOnOneCpu,
                ..
            } => "one",
            _ => "all",
        }
    }

    pub fn label(self) -> String {
        let how = self
            .rate_hz()
            .map_or("each call".to_owned(), |rate| format!("{rate} Hz"));
        let target = match self {
            Self::Phpprof {
                program: Program::Application(workload),
                ..
            } => format!(", {}", workload.name),
            Self::Phpprof {
                program: Program::SmallCallsOnOneCpu,
                ..
            } => ", on one CPU".to_owned(),
            _ => String::new(),
        };
        format!("{}, {how}{target}", self.name())
    }

    /// The PHP setting that loads its extension; `None` if the extension does not exist.
    pub fn setting(self) -> Option<String> {
        let (variable, setting) = match self {
            // This setting has no effect: it is the default of the command line.
            Self::Phpprof { .. } => return Some("max_execution_time=0".to_owned()),
            Self::Excimer { .. } => ("EXCIMER", "extension"),
            Self::Xdebug => ("XDEBUG", "zend_extension"),
            Self::Tideways => ("TIDEWAYS", "extension"),
        };
        let path = std::env::var(variable).ok()?;
        Some(format!("{setting}={path}"))
    }
}
