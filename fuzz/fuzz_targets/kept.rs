#![no_main]
//! See `profiler_fuzz::run::kept::run`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run::kept::run(data));
