//! What the linkage table's slots hold once the program is loaded: by the file's relocations.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};
use profiler_elf::{Elf, Relocation};

use super::super::{demangle::without_version, functions::ModuleIndex};

/// Bytes of an entry of the table.
const ENTRY_BYTES: u64 = 16;

/// What a slot holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    /// The address of what has this name.
    Symbol(String),
    /// An address of the same file.
    Address(u64),
}

/// The slot that the table's entry at an address jumps through: `jmp [rip+…]`, after an `endbr64` where there is one.
pub(in super::super) fn slot_of(module: &ModuleIndex, address: u64) -> Option<u64> {
    let bytes = module.code(address..address.checked_add(ENTRY_BYTES)?)?;
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.mnemonic() == Mnemonic::Endbr64 {
        instruction = decoder.decode();
    }
    let through_slot = instruction.flow_control() == FlowControl::IndirectBranch
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RIP;
    through_slot.then(|| instruction.memory_displacement64())
}

/// What these slots hold; what cannot be told is left out. Relocations are by address.
pub(super) fn slots(
    (elf, relocations): (&Elf<'_>, &[Relocation]),
    module: &ModuleIndex,
    wanted: &BTreeSet<u64>,
) -> HashMap<u64, Slot> {
    let mut found = HashMap::new();
    let mut resolved = BTreeSet::new();
    for &address in wanted {
        let at = relocations.partition_point(|relocation| relocation.address < address);
        let Some(relocation) = relocations.get(at).filter(|found| found.address == address) else {
            continue;
        };
        if relocation.is_resolved {
            resolved.insert(address);
            if let Some(name) = indirect_name(module, relocation.addend) {
                found.insert(address, Slot::Symbol(name));
            }
            continue;
        }
        let name = relocation.symbol.and_then(|symbol| elf.symbol_name(symbol));
        let slot = match name {
            Some(name) => Some(Slot::Symbol(
                without_version(&String::from_utf8_lossy(name)).to_owned(),
            )),
            None => u64::try_from(relocation.addend).ok().map(Slot::Address),
        };
        if let Some(slot) = slot {
            found.insert(address, slot);
        }
    }
    // A slot that no relocation changes, or a packed one, holds an address already.
    for &address in wanted {
        if found.contains_key(&address) || resolved.contains(&address) {
            continue;
        }
        let bytes = address
            .checked_add(8)
            .and_then(|end| module.code(address..end))
            .and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        let held = bytes.map(u64::from_le_bytes);
        if let Some(held) = held.filter(|held| {
            module
                .function_at(*held)
                .is_some_and(|function| function.address() == *held)
        }) {
            found.insert(address, Slot::Address(held));
        }
    }
    found
}

/// The name that stands for what the resolver at an address chooses.
fn indirect_name(module: &ModuleIndex, resolver: i64) -> Option<String> {
    let resolver = u64::try_from(resolver).ok()?;
    let function = module
        .function_at(resolver)
        .filter(|function| function.address() == resolver)?;
    function.indirect_name().map(std::borrow::Cow::into_owned)
}
