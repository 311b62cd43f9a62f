//! The text of `/proc/PID/maps`, whose paths the target chooses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    phpprof_fuzz::maps::run(bytes);
});
