#![no_main]
//! See `profiler_fuzz::run::text::perf_map`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run::text::perf_map(data));
