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
    /// The same without the folders of its program.
    pub command_by_name: String,
    /// Names of functions in its executable: `full`, `dynamic`, …; empty where that is not known, as of the next two.
    pub symbols: String,
    /// Debug information of its executable: `full`, `lines`, `separate`, `none`.
    pub debug_info: String,
    /// What runs its code: `native`, `go`, `jvm`, …
    pub runtime: String,
    /// Its container or service; empty where it is in neither.
    pub place: String,
}
