#![no_main]
//! See `profiler_fuzz::run::text::maps`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run::text::maps(data));
