//! The account of a heap, in memory made of the fuzzer's bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::heap::run(bytes);
});
