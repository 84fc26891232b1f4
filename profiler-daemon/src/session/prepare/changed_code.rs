//! Code that a process runs in another form than its file has: hooked, patched, or open to that.
//!
//! The kernel takes the instruction under a probe from the file. Where a process has other bytes there, such as a jump of a hook, a
//! breakpoint in its place would have the thread go on amid that. Code that is mapped to be written to has no probes at all: the kernel
//! leaves it out without a word. And code that a process has copied to other memory, to run it there, has no probes either.

use std::io;

use profiler_target::{Mapping, Memory, read_for_request};

use super::super::{
    files::TargetFile,
    functions::Key,
    probed_code::{MappedFile, ProbedCode},
};

/// The kernel's breakpoint.
const BREAKPOINT: u8 = 0xcc;

/// A `nop` of five bytes, over which the kernel writes a call instead of a breakpoint (`arch/x86/kernel/uprobes.c`, since Linux 6.18).
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// The operation of that call.
const CALL: u8 = 0xe8;

/// Code of one function that is compared, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Code of a function that is watched while it is probed, in bytes: where hooks are put.
const WATCHED_BYTES: u64 = 32;

/// Why nothing is probed whose code is not mapped from its file.
const COPIED: &str = "the process has not mapped its code from the file (it may run a copy in other memory, as node makes for \
                      --use-largepages), so that no probe is reached; `profiler flame` without a scope shows it";

/// Code of a file.
#[derive(Clone, Copy)]
pub struct CodeRange {
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl CodeRange {
    /// One byte.
    pub fn byte_at(offset: u64) -> Self {
        Self { offset, bytes: 1 }
    }
}

/// The code of a process, as it is by now.
pub enum Code {
    /// In its memory.
    In(Memory),
    /// Of a process that is gone nothing is known.
    Gone,
    /// The process did not let it be looked at.
    Silent,
}

impl Code {
    /// That of a process.
    pub fn of(pid: u32) -> Self {
        match read_for_request(pid, move || Memory::open(pid)) {
            Ok(memory) => Self::In(memory),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Self::Silent,
            Err(_) => Self::Gone,
        }
    }

    /// Why no probe may be put into a part of a file: it has been changed since it was mapped, or may be, or none would be reached. Pages
    /// that are not in memory are the file's.
    pub fn refusal(&self, file: &TargetFile, range: CodeRange) -> Option<&'static str> {
        let CodeRange { offset, bytes } = range;
        if !file.runs(offset) {
            return Some(COPIED);
        }
        if matches!(self, Self::Silent) {
            return Some(
                "its process does not let its code be looked at, which may have been changed: try again",
            );
        }
        let mut mappings = file.module.mappings.iter();
        let bytes = bytes.clamp(1, MAX_BYTES);
        mappings.find_map(|mapping| {
            let address = mapping.address_of(offset)?;
            if mapping.writable {
                return Some("its code is mapped writable, where the kernel sets no probes");
            }
            let bytes = bytes.min(mapping.end - address);
            self.is_changed(file, mapping, CodeRange { offset, bytes }, address)
                .then_some("its code was changed after it was loaded: it is hooked or patched, and a probe would break it")
        })
    }

    fn is_changed(
        &self,
        file: &TargetFile,
        mapping: &Mapping,
        CodeRange { offset, bytes }: CodeRange,
        address: u64,
    ) -> bool {
        let Self::In(memory) = self else { return false };
        // Of the file's own pages nobody can have changed anything.
        let is_private = memory.is_private(address..address + bytes);
        if mapping.inode == 0 || !is_private.unwrap_or(false) {
            return false;
        }
        let Some(code) = bytes_of(file, offset, bytes) else {
            return false;
        };
        let mut now = vec![0; code.len()];
        memory.read_exact_at(&mut now, address).is_ok() && differs(code, &now, code.len())
    }
}

/// What a file has at an offset.
fn bytes_of(file: &TargetFile, offset: u64, bytes: u64) -> Option<&[u8]> {
    let program = file.known.index.files().program();
    let from = usize::try_from(offset).ok()?;
    let to = from.checked_add(usize::try_from(bytes).ok()?)?;
    program.get(from..to)
}

/// The code of a process that a probe is put into: the first bytes of the function at `offset`, up to the probe's, where that is among
/// them; else the probe's byte alone.
pub fn under_probe(
    file: &TargetFile,
    pid: u32,
    function: Option<Key>,
    CodeRange { offset, bytes }: CodeRange,
    probe_offset: u64,
) -> Option<ProbedCode> {
    let is_near = |probe: &u64| *probe < WATCHED_BYTES;
    let (offset, probe, compared) = match probe_offset.checked_sub(offset).filter(is_near) {
        Some(probe) => (offset, probe, WATCHED_BYTES.min(bytes.max(probe + 1))),
        None => (probe_offset, 0, 1),
    };
    // Of a file that is mapped twice, the first place stands for both.
    let mut mappings = file.module.mappings.iter();
    let (address, mapping) = mappings.find_map(|mapping| Some((mapping.address_of(offset)?, mapping)))?;
    // Of a `nop` that begins in them all is wanted.
    let was = (0..NOP.len() as u64)
        .rev()
        .find_map(|more| bytes_of(file, offset, compared + more))?;
    Some(ProbedCode {
        pid,
        address,
        file: MappedFile {
            device: mapping.device,
            inode: mapping.inode,
            offset,
        },
        path: file.module.path.clone(),
        was: was.into(),
        compared: usize::try_from(compared).ok()?,
        probe: usize::try_from(probe).ok()?,
        function,
    })
}

/// Whether a probe of the kernel is at the first of these bytes.
pub fn is_probe(was: &[u8], now: &[u8]) -> bool {
    let is_call = || now.first() == Some(&CALL) && was.starts_with(&NOP);
    now.first() == Some(&BREAKPOINT) || is_call()
}

/// Whether code differs in its first bytes, so many, by more than the kernel's probes, whoever set these.
pub fn differs(code: &[u8], now: &[u8], bytes: usize) -> bool {
    let mut at = 0;
    while let (true, Some(was), Some(is)) = (at < bytes, code.get(at), now.get(at)) {
        let is_call = *is == CALL && code[at..].starts_with(&NOP);
        if was != is && !is_call && *is != BREAKPOINT {
            return true;
        }
        at += if is_call { NOP.len() } else { 1 };
    }
    false
}

#[cfg(test)]
mod tests {

    fn differs(code: &[u8], now: &[u8]) -> bool {
        super::differs(code, now, code.len())
    }

    #[test]
    fn probes_of_the_kernel_are_no_change_and_a_hook_is_one() {
        let code = [0x55, 0x48, 0x89, 0xe5, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3];
        assert!(!differs(&code, &code));
        let with = |at: usize, bytes: &[u8]| {
            let mut now = code;
            now[at..at + bytes.len()].copy_from_slice(bytes);
            now
        };
        assert!(!differs(&code, &with(0, &[0xcc])));
        assert!(!differs(&code, &with(9, &[0xcc])));
        assert!(
            !differs(&code, &with(4, &[0xe8, 1, 2, 3, 4])),
            "a call over a nop"
        );
        assert!(differs(&code, &with(0, &[0xe9, 1, 2, 3, 4])), "a jump");
        assert!(
            differs(&code, &with(0, &[0xe8, 1, 2, 3, 4])),
            "a call over other code"
        );
        assert!(differs(&code, &with(9, &[0x90])));
    }
}
