//! The relay's answers to a resident sampler. The sampler trusts the operator by its key, but
//! bounds its answers nevertheless.

use phpprof::resident::answer::{Instructions, parse};

/// Parses an answer, as the sampler of the contract's container does.
///
/// # Errors
/// Why the answer is refused.
pub fn read(input: &[u8]) -> Result<Instructions, &'static str> {
    let id = "4f9c7a1d2b3e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c";
    parse(&String::from_utf8_lossy(input), id)
}

/// One run of the fuzzer.
pub fn run(input: &[u8]) {
    let Ok(answer) = read(input) else { return };
    assert!(answer.lease.as_secs() <= 86_400 && answer.runs.len() <= 64);
    for work in answer.runs.iter().filter_map(|run| run.work.as_ref().ok()) {
        assert_eq!(work.arguments[0], "record");
    }
}
