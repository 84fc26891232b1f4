//! Where a function's entry is probed.
//!
//! The kernel emulates few instructions under a uprobe and single-steps the rest, which costs ten to twenty times as much. So
//! the first emulated instruction of the entry block is taken, as long as nothing is lost by it: neither time, which an access
//! to memory may take, nor values, which the instructions before may have changed.

use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, Register,
    UsedMemory,
};
use profiler_common::instruction::Action;

use super::{
    action::entry_action,
    code::{Code, mnemonic},
    handling::{Handling, handling},
};

/// Most instructions that run before the probe of an entry.
const MAX_PASSED: usize = 8;

/// Bytes above the stack pointer that are in memory for certain, as the caller has just written there.
const JUST_WRITTEN: std::ops::Range<u64> = 0..64;

/// What is taken at an entry, which tells what may run before its probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The time: nothing before may take any, as a fault of a page does.
    Time,
    /// Values, and the time: nothing before may change a register or memory.
    Values,
}

/// Where to probe a function's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryPoint {
    /// Bytes from the function's first to the probed instruction.
    pub delta: u64,
    /// Name of that instruction.
    pub mnemonic: String,
    /// Whether the kernel would single-step it.
    pub single_stepped: bool,
    /// What the instruction does, for programs that can do it themselves.
    pub action: Action,
}

/// Chooses the entry site of a function: the first instruction that is emulated, else
/// the first that may be probed. `jumps_to` says which addresses its own jumps lead to, those of its other
/// parts as well; `long_nops` whether the kernel emulates `nop`s of several bytes;
/// `is_taken` which addresses are probed for another purpose, as two probes on one instruction run in no
/// certain order. `None` where there is no such instruction: of [`Taken::Values`] none before which all is as the caller
/// left it.
#[must_use]
pub fn entry_point(
    code: &Code,
    taken: Taken,
    jumps_to: impl Fn(u64) -> bool,
    long_nops: bool,
    is_taken: impl Fn(u64) -> bool,
) -> Option<EntryPoint> {
    let (timed, untouched) = (before_memory(code), before_changes(code));
    let may_be_late = |address| taken == Taken::Time || address <= untouched;
    let mut fallback = None;
    for (instruction, single_stepped) in probeable(code, jumps_to, long_nops, is_taken) {
        let address = instruction.ip();
        if !single_stepped && address <= timed && may_be_late(address) {
            return Some(point(code, instruction, false));
        }
        // Where what comes first cannot be probed, its time is lost.
        if may_be_late(address) {
            fallback.get_or_insert((instruction, single_stepped));
        }
    }
    fallback.map(|(instruction, single_stepped)| point(code, instruction, single_stepped))
}

/// The last address that is reached from a function's first without an access to memory, which could take its time.
fn before_memory(code: &Code) -> u64 {
    passed(code, |info| info.used_memory().iter().all(is_just_written))
}

/// The last address that is reached from a function's first with all registers and memory as they were.
fn before_changes(code: &Code) -> u64 {
    let is_kept = |access| is_read(access) || access == OpAccess::NoMemAccess;
    passed(code, |info| {
        info.used_registers().iter().all(|used| is_read(used.access()))
            && info.used_memory().iter().all(|used| is_kept(used.access()))
    })
}

/// The address behind the first instructions that are of a kind, of few.
fn passed(code: &Code, is_of_kind: impl Fn(&InstructionInfo) -> bool) -> u64 {
    let mut info = InstructionInfoFactory::new();
    let few = code.instructions().iter().take(MAX_PASSED);
    let last = few
        .take_while(|instruction| is_of_kind(info.info(instruction)))
        .last();
    last.map_or(code.range().start, Instruction::next_ip)
}

fn is_just_written(memory: &UsedMemory) -> bool {
    memory.access() == OpAccess::NoMemAccess
        || is_read(memory.access())
            && memory.base() == Register::RSP
            && memory.index() == Register::None
            && JUST_WRITTEN.contains(&memory.displacement())
}

const fn is_read(access: OpAccess) -> bool {
    matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead)
}

/// The first instruction of a function that may be probed, whatever the kernel does with it. `jumps_to`, `long_nops` and `is_taken`
/// as of [`entry_point`].
#[must_use]
pub fn first_point(
    code: &Code,
    jumps_to: impl Fn(u64) -> bool,
    long_nops: bool,
    is_taken: impl Fn(u64) -> bool,
) -> Option<EntryPoint> {
    let (instruction, single_stepped) = probeable(code, jumps_to, long_nops, is_taken).next()?;
    Some(point(code, instruction, single_stepped))
}

/// The instructions of the entry block that may be probed, and whether the kernel single-steps them.
fn probeable(
    code: &Code,
    jumps_to: impl Fn(u64) -> bool,
    long_nops: bool,
    is_taken: impl Fn(u64) -> bool,
) -> impl Iterator<Item = (&Instruction, bool)> {
    let mut is_untouched = true;
    entry_block(code, jumps_to)
        .filter(move |instruction| {
            // Where the kernel writes a call over such a nop, the call writes below the stack pointer: harmless at the
            // function's beginning alone.
            let is_nop = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64);
            let may_be_replaced = long_nops && is_nop && instruction.len() == 5;
            let is_harmless = is_untouched || !may_be_replaced;
            is_untouched &= is_nop;
            is_harmless
        })
        .filter(move |instruction| !is_taken(instruction.ip()))
        .map(|instruction| (instruction, handling(instruction)))
        .filter(|(_, handling)| *handling != Handling::Refused)
        .map(move |(instruction, handling)| (instruction, handling.is_single_stepped(long_nops)))
}

/// The instructions that a function begins with, up to where control can come from elsewhere, or the stack pointer is
/// another.
fn entry_block(code: &Code, jumps_to: impl Fn(u64) -> bool) -> impl Iterator<Item = &Instruction> {
    let start = code.range().start;
    let mut info = InstructionInfoFactory::new();
    let mut goes_on = true;
    code.instructions().iter().take_while(move |instruction| {
        let address = instruction.ip();
        let is_in = goes_on && (address == start || !jumps_to(address));
        goes_on = can_be_passed(instruction, &mut info);
        is_in
    })
}

fn point(code: &Code, instruction: &Instruction, single_stepped: bool) -> EntryPoint {
    let start = code.range().start;
    EntryPoint {
        delta: instruction.ip() - start,
        mnemonic: mnemonic(instruction),
        single_stepped,
        action: entry_action(instruction),
    }
}

/// Whether control certainly goes on to the next instruction with the same stack pointer.
fn can_be_passed(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    if instruction.flow_control() != FlowControl::Next
        || instruction.is_stack_instruction()
        || instruction.mnemonic() == Mnemonic::Syscall
    {
        return false;
    }
    let mut used = info.info(instruction).used_registers().iter();
    used.all(|used| is_read(used.access()) || used.register().full_register() != Register::RSP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bytes: &[u8], long_nops: bool) -> (u64, &'static str, bool) {
        let code = Code::decode(bytes, 0x1000).unwrap();
        let point = entry_point(
            &code,
            Taken::Time,
            |address| code.is_target(address),
            long_nops,
            |_| false,
        )
        .unwrap();
        (point.delta, point.mnemonic.leak(), point.single_stepped)
    }

    #[test]
    fn the_first_emulated_instruction_is_taken() {
        assert_eq!(entry(&[0x55, 0xc3], false), (0, "push", false));
        // endbr64; push rbp
        assert_eq!(
            entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3], false),
            (4, "push", false)
        );
        // mov eax, edi; call +0
        assert_eq!(
            entry(&[0x89, 0xf8, 0xe8, 0, 0, 0, 0, 0xc3], false),
            (2, "call", false)
        );
        // test edi, edi; je +1; nop; ret
        assert_eq!(entry(&[0x85, 0xff, 0x74, 1, 0x90, 0xc3], false), (2, "je", false));
        // push r12
        assert_eq!(entry(&[0x41, 0x54, 0xc3], false), (0, "push", false));
    }

    #[test]
    fn a_nop_that_the_kernel_would_replace_is_taken_at_the_beginning_alone() {
        let nop = [0x0f, 0x1f, 0x44, 0, 0];
        // endbr64; nop; ret
        let code = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &nop, &[0xc3]].concat();
        assert_eq!(entry(&code, true), (4, "nop", false));
        // mov eax, edi; nop; push rax; ret
        let code = [&[0x89, 0xf8][..], &nop, &[0x50, 0xc3]].concat();
        assert_eq!(entry(&code, true), (7, "push", false));
    }

    fn delta_of_values(bytes: &[u8]) -> Option<u64> {
        let code = Code::decode(bytes, 0x1000).unwrap();
        let point = entry_point(
            &code,
            Taken::Values,
            |address| code.is_target(address),
            false,
            |_| false,
        );
        point.map(|point| point.delta)
    }

    #[test]
    fn no_memory_is_touched_before_the_site() {
        // mov rax, [rdi]; push rbx: a fault of the page would take its time unseen
        assert_eq!(entry(&[0x48, 0x8b, 0x07, 0x53, 0xc3], false), (0, "mov", true));
        // mov rax, [rip+0]; push rbx
        assert_eq!(
            entry(&[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x53, 0xc3], false),
            (0, "mov", true)
        );
        // mov rax, [rsp+8]; push rbx: an argument that the caller has put there
        assert_eq!(
            entry(&[0x48, 0x8b, 0x44, 0x24, 0x08, 0x53, 0xc3], false),
            (5, "push", false)
        );
        // mov [rsp-8], rdi; push rbx: the page below may be new
        assert_eq!(
            entry(&[0x48, 0x89, 0x7c, 0x24, 0xf8, 0x53, 0xc3], false),
            (0, "mov", true)
        );
        // lea rax, [rdi+8]; push rbx
        assert_eq!(
            entry(&[0x48, 0x8d, 0x47, 0x08, 0x53, 0xc3], false),
            (4, "push", false)
        );
    }

    #[test]
    fn few_instructions_run_before_the_site() {
        let moves = |count: usize| [[0x89, 0xf8].repeat(count), vec![0x53, 0xc3]].concat();
        assert_eq!(entry(&moves(MAX_PASSED), false), (16, "push", false));
        assert_eq!(entry(&moves(MAX_PASSED + 1), false), (0, "mov", true));
    }

    #[test]
    fn values_are_taken_before_any_register_changes() {
        // lea edi, [rsi+rdi*2]; push rbx
        let changes = [0x8d, 0x3c, 0x7e, 0x53, 0xc3];
        assert_eq!(entry(&changes, false), (3, "push", false));
        assert_eq!(delta_of_values(&changes), Some(0));
        // endbr64; test edi, edi; je +1; nop; ret
        let reads = [0xf3, 0x0f, 0x1e, 0xfa, 0x85, 0xff, 0x74, 1, 0x90, 0xc3];
        assert_eq!(delta_of_values(&reads), Some(6));
        // lock add dword [rdi], 1; push rbx: nothing can be probed before the change of what the argument points to
        let changed = [0xf0, 0x83, 0x07, 1, 0x53, 0xc3];
        assert_eq!(delta_of_values(&changed), None);
        // lock xadd [rdi], esi; push rbx
        let changed = [0xf0, 0x0f, 0xc1, 0x37, 0x53, 0xc3];
        assert_eq!(delta_of_values(&changed), None);
    }

    #[test]
    fn the_stack_pointer_must_not_have_moved() {
        // sub rsp, 8; push rax: too late
        assert_eq!(entry(&[0x48, 0x83, 0xec, 8, 0x50, 0xc3], false), (0, "sub", true));
        // push [rdi]; push rax
        assert_eq!(entry(&[0xff, 0x37, 0x50, 0xc3], false), (0, "push", true));
        // endbr64; leave; push rax
        assert_eq!(
            entry(&[0xf3, 0x0f, 0x1e, 0xfa, 0xc9, 0x50, 0xc3], false),
            (0, "endbr64", true)
        );
        // mov eax, edi; ret
        assert_eq!(entry(&[0x89, 0xf8, 0xc3], false), (0, "mov", true));
        // xor eax, eax; syscall; push rax
        assert_eq!(
            entry(&[0x31, 0xc0, 0x0f, 0x05, 0x50, 0xc3], false),
            (0, "xor", true)
        );
    }

    #[test]
    fn the_entry_probe_skips_instructions_the_kernel_refuses() {
        // lock add dword [rdi], 1; xor eax, eax; ret
        assert_eq!(
            entry(&[0xf0, 0x83, 0x07, 1, 0x31, 0xc0, 0xc3], false),
            (4, "xor", true)
        );
        // vfmaddss xmm0, xmm0, xmm1, xmm2 of FMA4, which the kernel's decoder does not know; ret
        assert_eq!(
            entry(&[0xc4, 0xe3, 0xf9, 0x6a, 0xc2, 0x10, 0xc3], false),
            (6, "ret", true)
        );
        // lock add dword [rdi], 1; syscall
        let code = Code::decode(&[0xf0, 0x83, 0x07, 1, 0xc3], 0x1000).unwrap();
        assert_eq!(
            entry_point(&code, Taken::Time, |_| false, false, |address| address == 0x1004),
            None
        );
    }

    #[test]
    fn nothing_jumps_to_the_site() {
        // mov eax, edi; L: push rax; jmp L
        assert_eq!(entry(&[0x89, 0xf8, 0x50, 0xeb, 0xfd], false), (0, "mov", true));
        // L: push rax; jmp L
        assert_eq!(entry(&[0x50, 0xeb, 0xfd], false), (0, "push", false));
    }

    #[test]
    fn long_nops_are_for_new_kernels() {
        let code = [0x0f, 0x1f, 0x44, 0, 0, 0x55, 0xc3];
        assert_eq!(entry(&code, true), (0, "nop", false));
        assert_eq!(entry(&code, false), (5, "push", false));
        assert_eq!(entry(&[0x90, 0xc3], false), (0, "nop", false));
        // Also where it is the first that is wanted, whatever the kernel does with it.
        let first = |long_nops| {
            let code = Code::decode(&code, 0x1000).unwrap();
            let point = first_point(&code, |address| code.is_target(address), long_nops, |_| false).unwrap();
            (point.delta, point.single_stepped)
        };
        assert_eq!([first(true), first(false)], [(0, false), (0, true)]);
    }
}
