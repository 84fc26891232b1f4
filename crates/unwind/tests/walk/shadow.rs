//! The truth: which calls have not returned, and which signals.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, Register};
use libc::user_regs_struct;
use profiler_unwind::Memory as _;

use crate::tracee::Tracee;

/// The system call that ends a handler.
const RT_SIGRETURN: u64 = 15;

/// What an instruction does to the stack of calls.
#[derive(Clone, Copy)]
pub enum Instruction {
    /// A call; the next instruction's address.
    Call(u64),
    SystemCall,
    /// `jmp *%rcx`, to an address that was popped.
    JumpRcx,
    Other,
}

#[derive(Clone, Copy)]
enum Entry {
    /// The return address, and where it lies.
    Call { slot: u64, ip: u64 },
    /// A handler runs, and what it interrupts goes on here. The stack before it may be another.
    Signal(u64),
}

#[derive(Default)]
pub struct Shadow {
    entries: Vec<Entry>,
    decoded: HashMap<u64, Instruction>,
}

impl Shadow {
    /// The addresses to look names up by, innermost first.
    pub fn stack(&self, ip: u64) -> Vec<u64> {
        let callers = self.entries.iter().rev().map(|entry| match entry {
            Entry::Call { ip, .. } => ip - 1,
            Entry::Signal(ip) => *ip,
        });
        std::iter::once(ip).chain(callers).collect()
    }

    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    pub fn in_signal(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Signal(_)))
    }

    /// The instruction that is next.
    pub fn instruction(&mut self, tracee: &Tracee) -> Instruction {
        let ip = tracee.registers.rip;
        *self.decoded.entry(ip).or_insert_with(|| {
            let bytes = tracee.bytes(ip, 15);
            let decoded = Decoder::with_ip(64, &bytes, ip, DecoderOptions::NONE).decode();
            match decoded.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall if decoded.mnemonic() == Mnemonic::Call => {
                    Instruction::Call(decoded.next_ip())
                }
                FlowControl::IndirectBranch if decoded.op0_register() == Register::RCX => {
                    Instruction::JumpRcx
                }
                _ if decoded.mnemonic() == Mnemonic::Syscall => Instruction::SystemCall,
                _ => Instruction::Other,
            }
        })
    }

    /// An instruction was carried out.
    pub fn stepped(&mut self, before: &user_regs_struct, instruction: Instruction, after: &user_regs_struct) {
        match instruction {
            Instruction::Call(next) if after.rsp == before.rsp - 8 => {
                self.entries.push(Entry::Call {
                    slot: after.rsp,
                    ip: next,
                });
            }
            Instruction::SystemCall if before.rax == RT_SIGRETURN => {
                while !matches!(self.entries.pop(), Some(Entry::Signal(_)) | None) {}
                return;
            }
            _ => {}
        }
        // Returned from, or jumped over.
        while let Some(Entry::Call { slot, .. }) = self.entries.last()
            && *slot < after.rsp
        {
            self.entries.pop();
        }
    }

    /// A handler is about to begin that interrupts what was about to go on at an address.
    pub fn signal(&mut self, interrupted: u64, tracee: &Tracee) {
        let slot = tracee.registers.rsp;
        self.entries.push(Entry::Signal(interrupted));
        self.entries.push(Entry::Call {
            slot,
            ip: tracee.read(slot).unwrap(),
        });
    }
}
