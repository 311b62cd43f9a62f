//! An engine, looked for in ELF images that are made of the fuzzer's bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::engine::run(bytes);
});
