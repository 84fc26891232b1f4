//! Counters of the programs as a whole: what was attempted, and what was dropped for which reason.
//! Those of a single probe are in [`crate::probe::ProbeSlot`].

/// Index into the counter array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Counter {
    /// Samples of a target's thread that should have become a record.
    SampleAttempted = 0,
    /// Samples dropped because the ring buffer was full.
    SampleRingFull = 1,
    /// Samples dropped to leave the ring buffer's last quarter to span ends.
    SampleYielded = 2,
    /// Span ends that should have become a record.
    SpanEndAttempted = 3,
    /// Span ends dropped because the ring buffer was full.
    SpanEndRingFull = 4,
    /// Ends of slow spans that no sample hit, dropped to leave room for the others.
    SlowEndYielded = 5,
    /// Histogram pages handed out from the never-used part of the pool.
    PagesUsed = 6,
    /// Intervals off the CPU that should have become a record.
    OffCpuAttempted = 7,
    /// Such intervals dropped because the ring buffer was full.
    OffCpuRingFull = 8,
    /// Such intervals dropped to leave the ring buffer's last quarter to span ends.
    OffCpuYielded = 9,
    /// Such intervals dropped because too many threads were off the CPU at once.
    OffCpuLimit = 10,
    /// Intervals whose stack was not taken, because stacks took too much of the CPU already.
    OffCpuStackSkipped = 11,
    /// Intervals whose stack was lost to a full ring buffer.
    OffCpuStackRingFull = 12,
    /// System calls that were not counted, because too many that differ returned in a while.
    SyscallLimit = 13,
    /// System calls that were not followed, because too many were open at once.
    SyscallOpenLimit = 14,
    /// Such intervals whose end was not seen: the thread has left the CPU anew since.
    OffCpuUnseen = 15,
    /// Intervals without the kernel's part of their stack, which could not be walked, or found no room.
    OffCpuStackNoKernel = 16,
    /// Pieces of memory whose allocation is not known, because too many are.
    AllocationLimit = 17,
    /// The same, because what a call of the allocator asks for could not be kept while it is open, or its stack not be taken.
    AllocationMissed = 18,
    /// The same, because stacks took too much of the thread already.
    AllocationSkipped = 19,
    /// Times that a program was at a thread of a process that is not, or not yet again, admitted.
    AdmissionRefused = 20,
    /// System calls in open spans that were not recorded, to leave the ring buffer's last quarter to span ends.
    SyscallYielded = 21,
    /// The same, because the ring buffer was full.
    SyscallRingFull = 22,
}

/// Entries of the counter array: the counters, rounded up to a power of two so that an index can be masked.
pub const COUNTERS: usize = 32;
