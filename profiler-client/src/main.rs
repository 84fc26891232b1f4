//! `profiler`: the command line.

fn main() {}
