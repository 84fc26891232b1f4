#![no_main]
//! See `profiler_fuzz::run::unwind::run`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run::unwind::run(data));
