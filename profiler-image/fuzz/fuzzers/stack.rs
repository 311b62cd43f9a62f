//! A thread's stack, unwound and named, in memory that is made of the fuzzer's bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::stack::run(bytes);
});
