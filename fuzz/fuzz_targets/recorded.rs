#![no_main]
//! See `profiler_fuzz::run::recorded::run`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run::recorded::run(data));
