//! Settings: those that the loader writes into the object before it is loaded, and those of a target.

use crate::assert_layout;

/// Constants of this kernel and this run, read-only to the programs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Offset of `sas_ss_sp` in this kernel's `task_struct`: the alternate signal stack's address.
    pub sas_ss_sp_offset: u32,
    /// Offset of `sas_ss_size` in this kernel's `task_struct`.
    pub sas_ss_size_offset: u32,
    /// Size of the ring buffer.
    pub ring_bytes: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

assert_layout!(Settings, size 16,
    sas_ss_sp_offset at 0, sas_ss_size_offset at 4, ring_bytes at 8, reserved at 12);

/// How a process is sampled.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// The time that one tick stands for.
    pub weight_ns: u64,
    /// What a tick takes of the thread beside the program's own time: the interrupt itself.
    pub interrupt_ns: u64,
}

assert_layout!(Sampling, size 16, weight_ns at 0, interrupt_ns at 8);
