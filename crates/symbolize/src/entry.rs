//! The calls that a program makes before anything else does, found from the entry point in its ELF header: no symbol is needed.
//!
//! Nothing called the code at the entry point. What that code calls, and what is reached from there by jumps alone, lies right above
//! it on the stack, so that what is called there in turn has nothing behind it but the entry's own frame. Calls that lie deeper are not
//! followed, nor is what a program may compute.

use std::collections::{HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::Object as _;
use profiler_debug_files::Elf;

use super::root;

/// Instructions that are followed. The first functions of a libc are shorter.
const MAX_INSTRUCTIONS: usize = 4096;

/// Bits of addresses and registers.
const BITNESS: u32 = 64;

/// The calls by the addresses of their last bytes, in the file's numbering; none of a file without an entry point.
pub(super) fn first_calls(elf: &Elf) -> HashSet<u64> {
    let entry = elf.parse().map_or(0, |parsed| parsed.entry());
    let mut walk = Walk::default();
    if entry != 0 {
        walk.begin_at(elf, entry);
    }
    walk.calls
}

/// What was followed.
#[derive(Default)]
struct Walk {
    calls: HashSet<u64>,
    seen: HashSet<u64>,
    /// Where to go on.
    ahead: Vec<u64>,
}

impl Walk {
    /// Follows the entry's own code to what that calls, which never returns, and from there on jumps.
    fn begin_at(&mut self, elf: &Elf, entry: u64) {
        let called = decoded(elf, entry)
            .take_while(|instruction| !is_end(instruction))
            .take(MAX_INSTRUCTIONS)
            .find(Instruction::is_call_near);
        self.ahead.extend(called.map(|call| call.near_branch_target()));
        while let Some(from) = self.ahead.pop() {
            self.follow(elf, from);
        }
    }

    /// Follows code up to where it goes elsewhere, and notes its calls.
    fn follow(&mut self, elf: &Elf, from: u64) {
        // Addresses in registers, as far as the code says them.
        let mut known: HashMap<Register, u64> = HashMap::new();
        // The call before, by its last byte.
        let mut before = None;
        for instruction in decoded(elf, from) {
            if self.seen.len() >= MAX_INSTRUCTIONS || !self.seen.insert(instruction.ip()) {
                return;
            }
            match instruction.flow_control() {
                FlowControl::Next if instruction.mnemonic() == Mnemonic::Lea => {
                    if instruction.is_ip_rel_memory_operand() && instruction.op0_register().is_gpr64() {
                        known.insert(instruction.op0_register(), instruction.ip_rel_memory_address());
                    } else {
                        known.remove(&instruction.op0_register().full_register());
                    }
                }
                FlowControl::Next => {
                    if instruction.op0_kind() == OpKind::Register {
                        known.remove(&instruction.op0_register().full_register());
                    }
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let call = instruction.next_ip().wrapping_sub(1);
                    self.calls.insert(call);
                    // `exit(main())` does not return, and what lies behind it is other code.
                    let takes_result =
                        |before| root::result_goes_to(elf, before) == direct_target(&instruction);
                    if instruction.is_call_near() && before.is_some_and(takes_result) {
                        return;
                    }
                    before = Some(call);
                    // It may have changed any of them.
                    known.clear();
                }
                FlowControl::ConditionalBranch => self.ahead.push(instruction.near_branch_target()),
                FlowControl::UnconditionalBranch => return self.ahead.push(instruction.near_branch_target()),
                FlowControl::IndirectBranch if instruction.op0_kind() == OpKind::Register => {
                    return self.ahead.extend(known.get(&instruction.op0_register()));
                }
                _ => return,
            }
        }
    }
}

/// Where a direct call goes.
fn direct_target(instruction: &Instruction) -> Option<u64> {
    instruction
        .is_call_near()
        .then(|| instruction.near_branch_target())
}

/// Instructions from an address on.
fn decoded(elf: &Elf, from: u64) -> impl Iterator<Item = Instruction> {
    let code = elf.code_from(from);
    Decoder::with_ip(BITNESS, code, from, DecoderOptions::NONE).into_iter()
}

/// Whether code does not go on behind an instruction, or nobody knows where: but for calls.
fn is_end(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Call)
}
