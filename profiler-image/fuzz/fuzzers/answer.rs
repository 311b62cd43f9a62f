//! The relay's answer to a resident sampler.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::answer::run(bytes);
});
