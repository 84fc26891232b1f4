//! The context in which an expression is evaluated.

use super::{
    code::Code,
    entry::Entry,
    file::{DebugFile, Slice},
    functions::Function,
    refusal::Refusal,
};
use gimli::Unit;
use std::rc::Rc;

/// Expressions that one is evaluated within: a frame base within a location, a CFA within a frame base.
const MAX_NESTING: u8 = 4;
/// Where an expression is evaluated.
#[derive(Clone)]
pub(super) struct Context<'f, 'a> {
    pub file: &'f DebugFile<'a>,
    pub unit: Rc<Unit<Slice<'a>>>,
    /// The function that the address is in.
    pub function: Option<&'f Function<'a>>,
    /// In the file's own address space.
    pub address: u64,
    /// What is added to the file's addresses in the process.
    pub bias: u64,
    /// Where the call returns to in the caller, if the expression is the caller's: registers are then those at the
    /// call, as far as calls preserve them.
    pub caller: Option<u64>,
    pub nesting: u8,
}

/// What a variable, or a piece of one, comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Code that leaves its address.
    Memory(Code),
    /// A register by its number, which holds it.
    Register(u8),
    /// Code that leaves its value.
    Value(Code),
    /// It is always this.
    Bytes(Vec<u8>),
    /// A pointer that does not exist, to what does: an entry in `.debug_info`, and an offset into it.
    Pointer { target: usize, offset: i64 },
    /// It has none.
    Missing,
}

/// A piece of a variable.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub source: Source,
    pub bits: u64,
    /// Bits of the source that lie before it.
    pub skipped_bits: u64,
}

/// Where a variable is.
#[derive(Clone, Debug)]
pub(super) enum Location {
    Whole(Source),
    Pieces(Vec<Piece>),
}

impl<'a> Context<'_, 'a> {
    /// The context of an expression within one.
    pub fn inner(&self) -> Result<Self, Refusal> {
        if self.nesting == MAX_NESTING {
            return Err(Refusal::Damaged("a location refers to itself".into()));
        }
        Ok(Self {
            nesting: self.nesting + 1,
            ..self.clone()
        })
    }

    /// The context of an expression that another unit has.
    pub fn in_unit(&self, entry: &Entry<'a>) -> Self {
        Self {
            unit: Rc::clone(&entry.unit),
            ..self.clone()
        }
    }
}
