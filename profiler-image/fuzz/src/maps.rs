//! The reader of `/proc/PID/maps`, whose paths the target chooses.

use phpprof::target::process::maps::{Maps, parse};

/// Parses a text whose first line is the main executable's path.
#[must_use]
pub fn read(input: &[u8]) -> Maps {
    let text = String::from_utf8_lossy(input);
    let (executable, maps) = text.split_once('\n').unwrap_or_default();
    parse(maps, executable)
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    let maps = read(input);
    let is_there = |path: &str| String::from_utf8_lossy(input).contains(path);
    assert!(maps.modules.iter().all(|module| is_there(&module.path)));
}
