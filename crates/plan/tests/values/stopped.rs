//! The registers and the memory of a process that stands.

use std::{fs::File, os::unix::fs::FileExt as _};

use profiler_common::values::{OUTPUT_BYTES, Thread};

pub struct Stopped<'a> {
    pub registers: [u64; 17],
    pub thread_pointer: u64,
    pub memory: &'a File,
}

impl Thread for Stopped<'_> {
    fn register(&mut self, number: u8) -> u64 {
        self.registers[usize::from(number)]
    }

    fn thread_pointer(&mut self) -> u64 {
        self.thread_pointer
    }

    fn word(&mut self, address: u64, size: u8) -> Option<u64> {
        let mut word = [0; 8];
        self.memory
            .read_exact_at(word.get_mut(..usize::from(size))?, address)
            .ok()?;
        Some(u64::from_le_bytes(word))
    }

    fn copy(&mut self, address: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, length: u32) -> bool {
        let into = &mut output[at as usize..][..length as usize];
        self.memory.read_exact_at(into, address).is_ok()
    }

    fn copy_string(
        &mut self,
        address: u64,
        output: &mut [u8; OUTPUT_BYTES],
        at: u32,
        length: u32,
    ) -> Option<u32> {
        for index in 0..length {
            let mut byte = [0];
            if index + 1 < length {
                self.memory
                    .read_exact_at(&mut byte, address.checked_add(index.into())?)
                    .ok()?;
            }
            output[(at + index) as usize] = byte[0];
            if byte[0] == 0 {
                return Some(index + 1);
            }
        }
        Some(0)
    }
}
