//! From an address in a file to the instruction there, where one begins.
//!
//! The kernel takes a probe at any byte of the code, and one in the middle of an instruction ruins it. Where instructions
//! begin is known only from where their function does, so an address without one is refused.

use std::ops::Range;

use super::{
    code::{Code, CodeError},
    functions::ModuleIndex,
    instruction::{InstructionSite, Obstacle, instruction_at},
    values::DebugFile,
};

/// Why an address cannot be probed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not in the file's code.
    #[error("{0:#x} is not in its code")]
    NotCode(u64),
    /// Neither symbols nor unwind information tell of code there.
    #[error("neither symbols nor unwind information say where the function around {0:#x} begins")]
    NoFunction(u64),
    /// An instruction begins before it and ends behind it.
    #[error("{}", inside(*.address, *.nearest))]
    Inside {
        /// What was asked for.
        address: u64,
        /// Where the instructions begin that are before it and behind it.
        nearest: [u64; 2],
    },
    /// The code around it cannot be decoded.
    #[error("the code around {address:#x} cannot be used: {error}")]
    Code {
        /// What was asked for.
        address: u64,
        /// What is wrong with it.
        error: CodeError,
    },
    /// The instruction cannot be probed.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
}

fn inside(address: u64, [before, behind]: [u64; 2]) -> String {
    format!("{address:#x} is inside an instruction: the nearest ones begin at {before:#x} and {behind:#x}")
}

/// Finds the instruction that begins at an address of the file.
///
/// # Errors
/// See [`AddressError`].
pub fn find(
    module: &ModuleIndex,
    debug: &DebugFile<'_>,
    address: u64,
) -> Result<InstructionSite, AddressError> {
    let mut segments = module.segments().iter();
    if !segments.any(|segment| segment.has_code_at(address)) {
        return Err(AddressError::NotCode(address));
    }
    let range = code_around(module, debug, address).ok_or(AddressError::NoFunction(address))?;
    let of_code = |error| AddressError::Code { address, error };
    let bytes = module
        .code(range.clone())
        .ok_or_else(|| of_code(CodeError::NotInFile))?;
    let code = Code::decode(bytes, range.start).map_err(of_code)?;
    if code.position(address).is_none() {
        let starts = code.instructions().iter().map(iced_x86::Instruction::ip);
        let before = starts.take_while(|start| *start < address).last();
        let behind = code.instructions().iter().find(|next| next.ip() > address);
        return Err(AddressError::Inside {
            address,
            nearest: [
                before.unwrap_or(range.start),
                behind.map_or(range.end, iced_x86::Instruction::ip),
            ],
        });
    }
    let (_, site) = instruction_at(module, address, range.end)?;
    Ok(site)
}

/// The code of the function, or of the piece of one, that an address is in.
fn code_around(module: &ModuleIndex, debug: &DebugFile<'_>, address: u64) -> Option<Range<u64>> {
    let by_symbol = module
        .function_at(address)
        .map(|function| function.address()..function.address().saturating_add(function.size()));
    by_symbol.or_else(|| debug.unwound_code(address))
}
