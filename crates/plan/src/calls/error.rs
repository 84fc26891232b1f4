//! Errors of the search for a call at a line.

use std::fmt::Write as _;

use super::{
    super::{held::listed, lines::LineError},
    Reason,
};

/// Why there is no call to probe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// There is no such line.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The line calls nothing, or others.
    #[error("{}", not_called(.file, *.line, .callee, .others, *.indirect, .nearest))]
    NotCalled {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// What was asked for.
        callee: String,
        /// Some of those that it calls.
        others: Vec<String>,
        /// Calls whose callee is not known before they run.
        indirect: usize,
        /// Lines of the same file nearby, in the same functions, that do call it.
        nearest: Vec<u64>,
    },
    /// It is called only where there is no call instruction any more.
    #[error(
        "{callee} has no call at line {line} of {file}: it is inlined there, in {function}; probe one of its lines instead{}",
        .declared.as_ref().map_or_else(String::new, |(file, line)| format!(" (it begins at {file}:{line})"))
    )]
    Inlined {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// Its name, as it is shown.
        callee: String,
        /// A function that it is inlined into.
        function: String,
        /// The file and the line that it is declared at, where they are known.
        declared: Option<(String, u64)>,
    },
    /// None of the calls can be probed.
    #[error("the call at line {line} of {file}, in {function}, cannot be probed: {reason}")]
    Unusable {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// The function that makes one of them.
        function: String,
        /// What is in the way there.
        reason: Reason,
    },
    /// Nothing was found, but not everything could be read.
    #[error("the calls at line {line} of {file} could not be determined: {reason}")]
    Unread {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// What could not be read.
        reason: String,
    },
}

fn not_called(
    file: &str,
    line: u64,
    callee: &str,
    others: &[String],
    indirect: usize,
    nearest: &[u64],
) -> String {
    let mut text = match others {
        [] if indirect == 0 => format!("line {line} of {file} makes no calls"),
        [] => format!("line {line} of {file} makes no call that is known to reach {callee}"),
        others => format!(
            "line {line} of {file} does not call {callee}, but {}",
            others.join(", ")
        ),
    };
    // Writing to a string cannot fail.
    if indirect > 0 {
        let _ = write!(
            text,
            "; the callees of {indirect} of its calls are known only at run time: \"*\" matches all of its calls"
        );
    }
    if !nearest.is_empty() {
        let _ = write!(text, "; the nearest lines that call it: {}", listed(nearest));
    }
    text
}
