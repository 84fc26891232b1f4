//! The entry point, whose code has no caller and, often, no unwind information.

use super::elf::Text;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use std::ops::Range;

/// How far its code is followed. glibc's in the dynamic linker is 61 bytes long.
const MAX_BYTES: u64 = 128;

/// The addresses of the code that a process begins with, to its first jump away.
pub(super) fn extent(text: &Text<'_>, entry: u64) -> Option<Range<u64>> {
    let limit = entry.checked_add(MAX_BYTES)?.min(text.end);
    let mut decoder = Decoder::with_ip(64, text.bytes(entry, limit)?, entry, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let ends = match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => true,
            FlowControl::Exception => return Some(entry..instruction.ip()),
            _ => instruction.mnemonic() == Mnemonic::Hlt,
        };
        if ends {
            return Some(entry..instruction.next_ip());
        }
    }
    None
}
