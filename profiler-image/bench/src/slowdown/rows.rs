//! The rows of the table: each a profiler, and the program that it slows down.

use phpprof_bench::workload::{BenchWorkload, DOKUWIKI, MEDIAWIKI};

/// A profiler, and the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowdownRow {
    pub profiler: SlowdownProfiler,
    pub program: SlowdownProgram,
}

/// The profiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowdownProfiler {
    Phpprof { rate_hz: u32 },
    Excimer { rate_hz: u32 },
    Xdebug,
    Tideways,
}

/// The program that is profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowdownProgram {
    /// One that only makes small calls.
    SmallCalls,
    /// The same, on the CPU that the sampler uses as well.
    SmallCallsOnOneCpu,
    /// The pages of an application, by one worker of php-fpm.
    Pages(BenchWorkload),
}

const fn row(profiler: SlowdownProfiler, program: SlowdownProgram) -> SlowdownRow {
    SlowdownRow { profiler, program }
}

const PHPPROF: [SlowdownProfiler; 2] = [
    SlowdownProfiler::Phpprof { rate_hz: 99 },
    SlowdownProfiler::Phpprof { rate_hz: 999 },
];
const EXCIMER: [SlowdownProfiler; 2] = [
    SlowdownProfiler::Excimer { rate_hz: 99 },
    SlowdownProfiler::Excimer { rate_hz: 999 },
];

pub const ROWS: [SlowdownRow; 16] = [
    row(PHPPROF[0], SlowdownProgram::SmallCalls),
    row(PHPPROF[1], SlowdownProgram::SmallCalls),
    row(PHPPROF[0], SlowdownProgram::SmallCallsOnOneCpu),
    row(PHPPROF[1], SlowdownProgram::SmallCallsOnOneCpu),
    row(EXCIMER[0], SlowdownProgram::SmallCalls),
    row(EXCIMER[1], SlowdownProgram::SmallCalls),
    row(SlowdownProfiler::Xdebug, SlowdownProgram::SmallCalls),
    row(SlowdownProfiler::Tideways, SlowdownProgram::SmallCalls),
    row(PHPPROF[0], SlowdownProgram::Pages(DOKUWIKI)),
    row(PHPPROF[1], SlowdownProgram::Pages(DOKUWIKI)),
    row(EXCIMER[0], SlowdownProgram::Pages(DOKUWIKI)),
    row(EXCIMER[1], SlowdownProgram::Pages(DOKUWIKI)),
    row(SlowdownProfiler::Xdebug, SlowdownProgram::Pages(DOKUWIKI)),
    row(SlowdownProfiler::Tideways, SlowdownProgram::Pages(DOKUWIKI)),
    row(PHPPROF[0], SlowdownProgram::Pages(MEDIAWIKI)),
    row(PHPPROF[1], SlowdownProgram::Pages(MEDIAWIKI)),
];

/// Its profiler's settings besides the folder of its output.
pub const XDEBUG: [&str; 4] = [
    "xdebug.mode=profile",
    "xdebug.start_with_request=trigger",
    "xdebug.profiler_output_name=profile",
    "xdebug.use_compression=0",
];

impl SlowdownProfiler {
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

    /// The PHP setting that loads its extension, as a line of php.ini; `None` if the extension does not exist.
    pub fn setting(self) -> Option<String> {
        let (variable, setting) = match self {
            // This setting has no effect: it is the default of the command line, and longer than any page takes.
            Self::Phpprof { .. } => return Some("max_execution_time=0".to_owned()),
            Self::Excimer { .. } => ("EXCIMER", "extension"),
            Self::Xdebug => ("XDEBUG", "zend_extension"),
            Self::Tideways => ("TIDEWAYS", "extension"),
        };
        let path = std::env::var(variable).ok()?;
        Some(format!("{setting}={path}"))
    }
}

impl SlowdownRow {
    /// In words.
    pub fn label(self) -> String {
        let profiler = self.profiler.name();
        let how = self
            .profiler
            .rate_hz()
            .map_or("each call".to_owned(), |rate| format!("{rate} Hz"));
        format!("{profiler}, {how}, {}", self.program.name())
    }
}

impl SlowdownProgram {
    pub fn name(self) -> &'static str {
        match self {
            Self::SmallCalls => "small calls",
            Self::SmallCallsOnOneCpu => "small calls on one CPU",
            Self::Pages(workload) => workload.name,
        }
    }
}
