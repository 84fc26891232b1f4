//! `profilerd`: the daemon.

fn main() {}
