//! From a line and a callee's name to the calls of it that are made there.
//!
//! A call is the line's where the line table says so of its instruction: in each instance of an inlined function, and in
//! each clone. What a call's callee is, the instruction says, the linkage table by its relocations, or nothing, until it
//! runs. A call is timed between its instruction and the one behind, so that a jump that ends a function with a call has
//! no end to be seen, and is left out.

mod error;
mod search;
mod wanted;

use super::{
    functions::ModuleIndex,
    goroutines,
    instruction::{InstructionSite, Obstacle},
    lines::{self, LineError},
    source::{CallKind, find::with_dwarf},
};
pub use error::CallError;
use profiler_scope::Name;
use search::{Search, inlined_nearby};

/// A call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallSite {
    /// The call's own instruction.
    pub call: InstructionSite,
    /// The one behind, which is reached when the call returns, and perhaps by other ways; `None` where the function ends
    /// with the call, as the compiler knows that it never returns.
    pub behind: Option<InstructionSite>,
    /// The function that makes it, as it is shown; that into which, where what makes it is inlined.
    pub function: String,
    /// The callee's name as it is shown; empty where it is not known before it runs.
    pub callee: String,
    /// The callee's name as the linkage table has it; empty where it does not go through that.
    pub symbol: String,
    /// The callee's address in the same file, where it is there.
    pub callee_address: Option<u64>,
    /// How it finds its callee.
    pub kind: CallKind,
}

/// Why a call is no site.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// It is a jump, with nothing behind it that is reached when the callee returns.
    #[error("it is a tail call: {0} returns to the caller of the function, not to the line")]
    TailCall(String),
    /// There is no call: the callee's code is in its place.
    #[error("{0} is inlined there: there is no call")]
    Inlined(String),
    /// It may go on on another thread.
    #[error("{}", goroutines::NO_SPANS)]
    Goroutine,
    /// One of the two instructions cannot be probed.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
}

/// A call that cannot be probed, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The address of its instruction, or of the first of what is inlined; in the file's address space.
    pub address: u64,
    /// The function that makes it.
    pub function: String,
    /// What is in the way.
    pub reason: Reason,
}

/// The calls of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundCalls {
    /// The file's whole path, as the compiler was given it.
    pub file: String,
    /// By address; there are some.
    pub sites: Vec<CallSite>,
    /// Calls of the same name that are no sites, by address.
    pub left_out: Vec<LeftOut>,
    /// What could not be read of the functions that hold the line.
    pub missing: Vec<String>,
}

/// Finds the calls of what has a name that are made at a line. The file is given by the last components of its path.
///
/// A name means what it does elsewhere in a scope; only `*` means the calls as well of which it is not known before they
/// run whom they reach.
///
/// # Errors
/// See [`CallError`].
pub fn find(module: &ModuleIndex, file: &str, line: u64, callee: &Name) -> Result<FoundCalls, CallError> {
    let code = match lines::code(module, file, line) {
        Ok(code) => code,
        // All of a line's code may be that of what is inlined there.
        Err(LineError::NoCode { file, line, nearest }) => {
            let inlined = with_dwarf(module, |reader| {
                inlined_nearby(module, reader, (&file, line), &nearest, callee)
            });
            return Err(inlined.flatten().unwrap_or(CallError::Line(LineError::NoCode {
                file,
                line,
                nearest,
            })));
        }
        Err(error) => return Err(error.into()),
    };
    let found = with_dwarf(module, |reader| {
        let mut search = Search::new(module, &code, line, callee);
        search.run(reader, &code.rows);
        search.finish(reader)
    });
    // It has been read before.
    found.unwrap_or(Err(CallError::Line(LineError::NoLines)))
}
