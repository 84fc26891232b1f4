//! Processes as the first screen has them.

/// A process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// Whose it is, by name where that is known.
    pub user: String,
    /// Its threads.
    pub threads: u32,
    /// CPUs that it used since the last look, or on average since it began; `None` where that is not known.
    pub cpus: Option<f64>,
    /// Its command line, or its executable.
    pub command: String,
}
