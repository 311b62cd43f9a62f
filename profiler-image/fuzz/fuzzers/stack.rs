//! Unwinding and naming a thread's stack, in memory made of the fuzzer's bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::stack::run(bytes);
});
