//! The target that reads and writes a file past the cache of pages, so far as its file system lets it.

use std::path::PathBuf;

use super::fixture::{Fixture, directory, spec};

/// Why a test of what a disk does is skipped.
pub const NO_DIRECT_IO: &str = "the file system of the fixtures has no direct I/O";

/// The target, before its first call.
pub struct Disk {
    pub fixture: Fixture,
    /// Calls of each of its functions.
    pub rounds: u64,
    file: PathBuf,
}

impl Disk {
    /// Starts it on a file of its own, of this name.
    pub fn start(name: &str) -> Self {
        let file = directory().join(format!("{name}.{}", std::process::id()));
        let mut args = spec("disk").args;
        let rounds = args[0].parse().unwrap();
        args.push(file.to_str().unwrap().to_owned());
        let fixture = Fixture::start("disk", &args);
        // Else what it waits for on a busy machine is a CPU.
        fixture.prefer();
        Self {
            fixture,
            rounds,
            file,
        }
    }

    /// Lets it go on; the way that its file system takes, in its own words: `disk direct`, `disk cached` or `disk none`.
    pub fn go(&mut self) -> String {
        self.fixture.say("go");
        let way = self.fixture.line();
        println!("{}: {way}", self.file.display());
        way
    }
}
