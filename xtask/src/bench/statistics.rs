//! The kernel's own measure of eBPF programs.

use std::fs;

use crate::error::{Error, Result};

/// The kernel measures programs, which it otherwise does not, until this goes.
pub struct Statistics {
    before: String,
}

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Statistics {
    /// Switches it on.
    pub fn on() -> Result<Self> {
        let before = fs::read_to_string(SWITCH).map_err(Error::file("read", SWITCH))?;
        fs::write(SWITCH, "1").map_err(Error::file("write", SWITCH))?;
        Ok(Self { before })
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        // What cannot be switched back goes on to be measured, which costs little.
        let _ = fs::write(SWITCH, &self.before);
    }
}
