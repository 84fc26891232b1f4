#![no_main]
//! See `profiler_fuzz::run::recording::run`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run::recording::run(data));
