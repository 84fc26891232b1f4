//! The named bounds of the kernel side. Each has a loss reason that counts what it turned away.

/// Probes that may exist at once; the index part of a [`crate::probe::ProbeId`] stays below it.
pub const MAX_PROBES: u32 = 4096;

/// Sites whose instruction the programs do themselves ([`crate::instruction::Action`]).
pub const MAX_SITES: u32 = 65_536;

/// Open spans remembered per thread. Deeper calls are counted as `too_deep`.
pub const MAX_DEPTH: usize = 128;

/// Gates between the steps of all scopes together: bits of a word.
pub const MAX_GATES: u32 = 32;

/// Spans and hits inside one span that may wait for its duration. Those beyond are counted as `join_limit`.
pub const MAX_JOINED: u32 = 64;

/// Threads whose open spans are kept in a hash map, because their task storage could not be made.
/// What is beyond it is counted as `no_thread_state`.
pub const MAX_HASHED_THREADS: u32 = 512;

/// A thread's kernel stack has at most so many bytes, and a user's stack pointer is never below: no memory can be mapped
/// there (`vm.mmap_min_addr`).
pub const KERNEL_STACK_BYTES: u64 = 1 << 16;

/// Return probes that the kernel keeps pending per thread (`MAX_URETPROBE_DEPTH` in
/// `include/linux/uprobes.h`). It takes the outermost calls and ignores deeper ones.
pub const MAX_PENDING_RETURNS: u32 = 64;

/// Threads that may be off the CPU at once, of all whose intervals are recorded. Those beyond are counted as
/// `off_cpu_limit`.
pub const MAX_OFF_CPU: u32 = 32_768;

/// Threads that may be in system calls at once, of all whose calls are counted. Those beyond are counted as
/// `syscall_open_limit`.
pub const MAX_OPEN_CALLS: u32 = 32_768;

/// System calls that return within two turns and differ, in their number, stack or result. Those beyond are counted as
/// `syscall_limit`.
pub const MAX_CALL_COUNTS: u32 = 16_384;

/// Processes that may be looked at at once.
pub const MAX_ADMISSIONS: u32 = 16_384;

/// Pieces of memory whose allocation is known at once, of all processes. Those beyond are counted as `allocation_limit`.
pub const MAX_ALLOCATIONS: u32 = 131_072;

/// Processes that are sampled are told from others by so many words of bits first, which is quicker than to look them up;
/// a power of two.
pub const TARGET_WORDS: u32 = 64;

/// The word and bit of [`TARGET_WORDS`] that a process shares with some others.
#[must_use]
pub const fn target_bit(tgid: u32) -> (u32, u64) {
    (tgid / 64 % TARGET_WORDS, 1 << (tgid % 64))
}

/// Stacks that may be named without their being sent again, by intervals off the CPU among others; a power of two.
pub const MAX_SHARED_STACKS: u32 = 16_384;

/// The place of a stack among them, by its id: one that comes later takes it over.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "it is masked")]
pub const fn shared_stack_place(id: u64) -> u32 {
    // The lowest bit is always set.
    (id as u32 >> 1) & (MAX_SHARED_STACKS - 1)
}

/// What such stacks may take of each CPU: one part in so many. Beyond it none are taken; intervals off the CPU without one are
/// counted as `off_cpu_stack_skipped`. Those of who allocates memory may take as much of each thread, and are
/// `allocation_skipped`.
pub const STACK_SHARE: u64 = 16;

/// What they may take at once, when they have taken nothing for long.
pub const STACK_BURST_NS: u64 = 20_000_000;

/// Histogram pages shared by all probes. See [`crate::layout`].
pub const MAX_HISTOGRAM_PAGES: u32 = 32_768;

/// Frames taken of the kernel's stack, and of a user's that is walked by the kernel: the kernel's own default limit
/// (`kernel.perf_event_max_stack`).
pub const MAX_KERNEL_FRAMES: usize = 127;

/// Frames taken of a user's stack. Deeper stacks are cut off, and say so.
pub const MAX_USER_FRAMES: usize = 512;

/// Chunks of [`crate::unwind::CHUNK_ROWS`] rows of unwind tables: 64 MiB.
pub const MAX_UNWIND_CHUNKS: u32 = 256;

/// Pages of 64 KiB of text with unwind tables: 8 GiB of text.
pub const MAX_UNWIND_PAGES: u32 = 1 << 17;

/// Modules with unwind tables.
pub const MAX_UNWIND_MODULES: u32 = 4096;

/// Processes whose stacks are walked by unwind tables.
pub const MAX_UNWIND_PROCESSES: u32 = 4096;

/// Places where modules are mapped, of all sampled processes together.
pub const MAX_UNWIND_MAPPINGS: u32 = 1 << 16;

/// Bytes of the ring buffer between the programs and the daemon, unless configured otherwise.
pub const RING_BYTES: u32 = 4 << 20;
