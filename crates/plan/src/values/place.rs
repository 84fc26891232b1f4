//! A part of a variable, in memory or in pieces.

use std::ops::Range;

use profiler_common::values::{Instruction, MAX_BYTES, Operation};

use super::{
    code::Code,
    context::{Location, Source},
    refusal::{Refusal, optimized_out, unsupported},
};

/// A piece of a variable, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Part {
    source: Source,
    size: u64,
    /// Bytes of the source that lie before it.
    skipped: u64,
}

/// Where something is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In one piece of memory: code that leaves its address.
    Memory(Code),
    /// One piece after another.
    Parts(Vec<Part>),
}

impl Place {
    /// The place of a variable of so many bytes.
    pub fn new(location: Location, size: u64) -> Result<Self, Refusal> {
        let pieces = match location {
            Location::Whole(Source::Memory(code)) => return Ok(Self::Memory(code)),
            Location::Whole(Source::Missing) => {
                return optimized_out("the debug information has no place for it");
            }
            Location::Whole(source) => {
                return Ok(Self::Parts(vec![Part {
                    source,
                    size,
                    skipped: 0,
                }]));
            }
            Location::Pieces(pieces) => pieces,
        };
        let mut parts = Vec::new();
        let mut covered = 0_u64;
        for piece in pieces {
            if piece.bits % 8 != 0 || piece.skipped_bits % 8 != 0 {
                return unsupported("a variable in pieces of bits");
            }
            covered = covered.saturating_add(piece.bits / 8);
            parts.push(Part {
                source: piece.source,
                size: piece.bits / 8,
                skipped: piece.skipped_bits / 8,
            });
        }
        // What follows the last piece is not described.
        if let Some(size) = size.checked_sub(covered).filter(|size| *size > 0) {
            parts.push(Part {
                source: Source::Missing,
                size,
                skipped: 0,
            });
        }
        Ok(Self::Parts(parts))
    }

    /// `size` bytes of it, `offset` bytes from its start.
    pub fn part(&self, offset: u64, size: u64) -> Self {
        match self {
            Self::Memory(code) => {
                let mut code = code.clone();
                code.add(offset);
                Self::Memory(code)
            }
            Self::Parts(parts) => {
                let (mut at, end) = (0_u64, offset.saturating_add(size));
                let mut found = Vec::new();
                for part in parts {
                    let (start, stop) = (at.max(offset), at.saturating_add(part.size).min(end));
                    if start < stop {
                        found.push(Part {
                            source: part.source.clone(),
                            size: stop - start,
                            skipped: part.skipped.saturating_add(start - at),
                        });
                    }
                    at = at.saturating_add(part.size);
                }
                Self::Parts(found)
            }
        }
    }

    /// Code that leaves its value of `size` bytes, extended by zeros.
    pub fn value(&self, size: u64) -> Result<Code, Refusal> {
        let Ok(width @ (1 | 2 | 4 | 8)) = u8::try_from(size) else {
            return unsupported(format!("a computation with {size} bytes"));
        };
        match self {
            Self::Memory(code) => {
                let mut code = code.clone();
                code.load(width);
                Ok(code)
            }
            Self::Parts(parts) => match parts.as_slice() {
                [part] if part.size == size => part.value(),
                _ => unsupported("a computation with a number in pieces"),
            },
        }
    }

    /// What the pointer that it is leads to, if the pointer itself does not exist: an entry, and an offset into it.
    pub fn implicit_target(&self) -> Option<(usize, i64)> {
        match self {
            Self::Parts(parts) => match parts.as_slice() {
                [
                    Part {
                        source: Source::Pointer { target, offset },
                        skipped: 0,
                        ..
                    },
                ] => Some((*target, *offset)),
                _ => None,
            },
            Self::Memory(_) => None,
        }
    }

    /// Appends its first `size` bytes to the output; which of them have no value.
    pub fn emit(&self, size: u64, into: &mut Vec<Instruction>) -> Result<Vec<Range<u64>>, Refusal> {
        let mut missing = Vec::new();
        if size == 0 {
            return Ok(missing);
        }
        let parts = match self {
            Self::Memory(code) => {
                into.extend_from_slice(code.instructions());
                into.push(Instruction::new(Operation::Copy).length(length(size)));
                return Ok(missing);
            }
            Self::Parts(parts) => parts,
        };
        let mut at = 0_u64;
        for part in parts {
            if at >= size {
                break;
            }
            let cut = Part {
                size: part.size.min(size - at),
                ..part.clone()
            };
            if !cut.emit(into)? {
                missing.push(at..at + cut.size);
            }
            at += cut.size;
        }
        if at < size {
            missing.push(at..size);
            gap(size - at, into);
        }
        if missing.iter().map(|range| range.end - range.start).sum::<u64>() == size {
            return optimized_out("the debug information has no place for it");
        }
        Ok(missing)
    }
}

impl Part {
    /// Code that leaves its value.
    fn value(&self) -> Result<Code, Refusal> {
        let mut code = match &self.source {
            Source::Memory(code) => {
                let mut code = code.clone();
                code.add(self.skipped);
                match u8::try_from(self.size) {
                    Ok(size @ (1 | 2 | 4 | 8)) => code.load(size),
                    _ => return unsupported("a computation with an odd number of bytes"),
                }
                return Ok(code);
            }
            Source::Register(register) => Code::register(*register, 0),
            Source::Value(code) => code.clone(),
            Source::Bytes(bytes) => {
                let start = usize::try_from(self.skipped).unwrap_or(usize::MAX);
                let size = usize::try_from(self.size).unwrap_or(usize::MAX);
                let bytes = bytes.get(start..).and_then(|bytes| bytes.get(..size));
                let mut word = [0; 8];
                match bytes.and_then(|bytes| Some((word.get_mut(..bytes.len())?, bytes))) {
                    Some((into, bytes)) => into.copy_from_slice(bytes),
                    None => return unsupported("a constant of another size than its type"),
                }
                return Ok(Code::constant(u64::from_le_bytes(word)));
            }
            Source::Pointer { .. } => {
                return unsupported("the pointer itself was optimized out; what it points to may be read");
            }
            Source::Missing => return optimized_out("the debug information has no place for it"),
        };
        if self.skipped.saturating_add(self.size) > 8 {
            return unsupported("a value in a register that is smaller than its type");
        }
        code.shift_right(self.skipped * 8);
        code.extend(self.size * 8, false);
        Ok(code)
    }

    /// Appends it to the output; whether it has a value.
    fn emit(&self, into: &mut Vec<Instruction>) -> Result<bool, Refusal> {
        match &self.source {
            Source::Missing => {
                gap(self.size, into);
                return Ok(false);
            }
            Source::Memory(code) => {
                let mut code = code.clone();
                code.add(self.skipped);
                into.extend_from_slice(code.instructions());
                into.push(Instruction::new(Operation::Copy).length(length(self.size)));
                return Ok(true);
            }
            Source::Bytes(_) if self.size > 8 => {
                let mut at = 0;
                while at < self.size {
                    let size = (self.size - at).min(8);
                    let piece = Self {
                        size,
                        skipped: self.skipped.saturating_add(at),
                        source: self.source.clone(),
                    };
                    piece.emit(into)?;
                    at += size;
                }
                return Ok(true);
            }
            _ => {}
        }
        // Only the low bytes are stored: those above them need not be cleared.
        let mut code = match &self.source {
            Source::Register(register) if self.skipped.saturating_add(self.size) <= 8 => {
                Code::register(*register, 0)
            }
            Source::Value(code) if self.skipped.saturating_add(self.size) <= 8 => code.clone(),
            _ => {
                let code = self.value()?;
                into.extend_from_slice(code.instructions());
                into.push(store(self.size));
                return Ok(true);
            }
        };
        code.shift_right(self.skipped * 8);
        into.extend_from_slice(code.instructions());
        into.push(store(self.size));
        Ok(true)
    }
}

/// Appends bytes of 0, so that what follows is in its place.
fn gap(size: u64, into: &mut Vec<Instruction>) {
    let mut left = size.min(MAX_BYTES as u64);
    while left > 0 {
        let one = left.min(8);
        into.push(Instruction::new(Operation::Constant));
        into.push(store(one));
        left -= one;
    }
}

fn store(size: u64) -> Instruction {
    Instruction::new(Operation::Store).size(u8::try_from(size).unwrap_or(8))
}

/// At most [`MAX_BYTES`] are read of anything.
fn length(size: u64) -> u32 {
    u32::try_from(size.min(MAX_BYTES as u64)).unwrap_or(0)
}
