//! Where thread-local variables are.
//!
//! Of an executable, the dynamic linker places them first, right beneath the thread pointer ("ELF Handling For
//! Thread-Local Storage", variant II): their distance is fixed when it is linked. Those of libraries are found by
//! tables of the C library, see `thread_tables.rs`.

use object::{
    LittleEndian,
    elf::{DF_1_PIE, DT_FLAGS_1, ET_EXEC, PT_TLS},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
};
use profiler_common::values::{Instruction, NO_STORAGE, Operation};
use profiler_elf::Parsed;

use super::{code::Code, thread_tables::ThreadModule};

/// Bytes of a pointer.
const WORD: u8 = 8;

/// The thread-local storage of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ThreadStorage {
    /// Bytes from its start up to the thread pointer, in an executable.
    distance: Option<u64>,
}

impl ThreadStorage {
    pub fn of(file: &Parsed<'_>) -> Option<Self> {
        let headers = file.elf_program_headers();
        let header = headers
            .iter()
            .find(|header| header.p_type(LittleEndian) == PT_TLS)?;
        let align = header.p_align(LittleEndian).max(1);
        let size = header.p_memsz(LittleEndian);
        // The first byte keeps its place within an alignment unit.
        let first = header.p_vaddr(LittleEndian).wrapping_neg() & align.wrapping_sub(1);
        let distance = align
            .is_power_of_two()
            .then(|| size.saturating_sub(first).checked_next_multiple_of(align))
            .flatten()
            .and_then(|distance| distance.checked_add(first));
        Some(Self {
            distance: distance.filter(|_| is_executable(file)),
        })
    }

    /// What is added to the thread pointer for the byte at `offset` of the storage.
    pub fn thread_pointer_offset(self, offset: u64) -> Option<u64> {
        Some(offset.wrapping_sub(self.distance?))
    }
}

impl ThreadModule {
    /// Code that leaves the address of the byte at `offset` of the storage. It stops where the thread has none yet: a
    /// thread's table is made current, and storage allocated, when the thread first asks for it.
    pub(super) fn address(&self, offset: u64) -> Code {
        let mut code = Code::default();
        if let Some(distance) = self.distance {
            let before = offset.wrapping_sub(distance);
            code.push(Instruction::new(Operation::ThreadPointer).immediate(before));
            return code;
        }
        code.push(Instruction::new(Operation::ThreadPointer).immediate(self.table));
        code.load(WORD);
        code.operation(Operation::Pick);
        code.add(self.counter);
        code.load(WORD);
        code.push(Instruction::new(Operation::Constant).immediate(self.generation));
        code.operation(Operation::Less);
        code.push(Instruction::new(Operation::JumpIfZero).length(1));
        code.push(Instruction::new(Operation::Absent).immediate(NO_STORAGE));
        code.push(Instruction::new(Operation::AddConstant).immediate(self.pointer));
        code.load(WORD);
        code.operation(Operation::Pick);
        code.push(Instruction::new(Operation::Constant).immediate(u64::MAX));
        code.operation(Operation::Equal);
        code.push(Instruction::new(Operation::JumpIfZero).length(1));
        code.push(Instruction::new(Operation::Absent).immediate(NO_STORAGE));
        code.join();
        code.add(offset);
        code
    }
}

fn is_executable(file: &Parsed<'_>) -> bool {
    if file.elf_header().e_type(LittleEndian) == ET_EXEC {
        return true;
    }
    file.elf_program_headers().iter().any(|header| {
        let Ok(Some(dynamic)) = header.dynamic(LittleEndian, file.data()) else {
            return false;
        };
        dynamic.iter().any(|entry| {
            entry.d_tag(LittleEndian) == DT_FLAGS_1 && entry.d_val(LittleEndian) & DF_1_PIE.0 != 0
        })
    })
}
