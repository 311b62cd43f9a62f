//! The search for an engine, in ELF images made of the fuzzer's bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::engine::run(bytes);
});
