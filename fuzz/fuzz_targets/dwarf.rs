#![no_main]
//! See `profiler_fuzz::run::dwarf`.

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| profiler_fuzz::run::dwarf::run(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    profiler_fuzz::run::dwarf::mutate(data, size, max_size, seed, fuzzer_mutate)
});
