//! Every map, in one place. The daemon knows them by these names.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, task_struct},
    btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray, Queue, RingBuf},
    helpers::generated::{bpf_get_current_task_btf, bpf_task_storage_get},
    macros::btf_map,
};
use profiler_common::{
    admission::Admission,
    allocation::{Allocation, AllocationKey, AllocatorCounts},
    counter::COUNTERS as COUNTER_COUNT,
    event::{EVENT_SLOTS, EventSlot, MAX_OPEN_BREAKS, MAX_OPEN_REQUESTS, OpenRequest},
    hit::{HitSlot, MAX_READ_PLANS, MAX_WATCHED, Watched},
    instruction::Action,
    layout::PAGE_BUCKETS,
    limits::{
        MAX_ADMISSIONS, MAX_ALLOCATIONS, MAX_CALL_COUNTS, MAX_HASHED_THREADS, MAX_HISTOGRAM_PAGES,
        MAX_OFF_CPU, MAX_OPEN_CALLS, MAX_PROBES, MAX_SHARED_STACKS, MAX_SITES, MAX_UNWIND_CHUNKS,
        MAX_UNWIND_MAPPINGS, MAX_UNWIND_MODULES, MAX_UNWIND_PAGES, MAX_UNWIND_PROCESSES, RING_BYTES,
        TARGET_WORDS,
    },
    probe::ProbeSlot,
    settings::{CpuState, Sampling, Settings},
    system_call::{CallCount, CallKey, CallWatch, OpenCall},
    thread::{OffCpu, Presence, ThreadState},
    unwind::{CHUNK_ROWS, Mapping, Module, Page, Process, RECENT, Recent, Row, Rule},
    values::ReadPlan,
};

use crate::{
    admission::LastAdmitted, allocation::Allocating, hit::Reading, hit_stack::TakenStack,
    off_cpu::OffCpuScratch, sample::Scratch, system_call::CallScratch,
};

const NO_PREALLOC: usize = BPF_F_NO_PREALLOC as usize;
const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// A probe each.
#[btf_map]
pub static PROBES: Array<ProbeSlot, { MAX_PROBES as usize }, MMAPABLE> = Array::new();

/// Histogram pages, referred to by the probes' directories.
#[btf_map]
pub static PAGES: Array<[u64; PAGE_BUCKETS], { MAX_HISTOGRAM_PAGES as usize }, MMAPABLE> = Array::new();

/// Numbers of pages that were used and given back.
#[btf_map]
pub static FREE_PAGES: Queue<u32, { MAX_HISTOGRAM_PAGES as usize }> = Queue::new();

/// What was attempted and what was dropped; see `profiler_common::counter`.
#[btf_map]
pub static COUNTERS: Array<[u64; COUNTER_COUNT], 1, MMAPABLE> = Array::new();

/// Events that stacks are taken at.
#[btf_map]
pub static EVENTS: Array<EventSlot, { EVENT_SLOTS }, MMAPABLE> = Array::new();

/// Ends of heaps that are being moved, as they were, by the thread that does so.
#[btf_map]
pub static OPEN_BREAKS: HashMap<u32, u64, { MAX_OPEN_BREAKS }> = HashMap::new();

/// Requests to block devices that are on their way, by where their `struct bio` is.
#[btf_map]
pub static OPEN_REQUESTS: HashMap<u64, OpenRequest, { MAX_OPEN_REQUESTS }> = HashMap::new();

/// Meaning of the instructions at sites, by site number.
#[btf_map]
pub static ACTIONS: Array<Action, { MAX_SITES as usize }> = Array::new();

/// What is done where lines are reached, by the probe's index.
#[btf_map]
pub static HITS: Array<HitSlot, { MAX_PROBES as usize }, MMAPABLE> = Array::new();

/// How values are read; a probe's plans are consecutive.
#[btf_map]
pub static READ_PLANS: Array<ReadPlan, { MAX_READ_PLANS as usize }, MMAPABLE> = Array::new();

/// The working memory of a thread at a site where values are read.
#[btf_map]
pub static READINGS: TaskStorage<Reading> = TaskStorage::new();

/// Probes of system calls, by [`Watched::key`].
#[btf_map]
pub static WATCHED_CALLS: HashMap<u64, Watched, { MAX_WATCHED as usize }> = HashMap::new();

/// What says whether a CPU is in an interrupt.
#[btf_map]
pub static CPU_STATE: Array<CpuState, 1> = Array::new();

/// The working memory of a CPU at a tracepoint, or a function of the kernel.
#[btf_map]
pub static PLACE_READING: PerCpuArray<Reading, 1> = PerCpuArray::new();

/// The working memory of a thread at a site where its stack is taken.
#[btf_map]
pub static TAKEN_STACKS: TaskStorage<TakenStack> = TaskStorage::new();

/// The working memory of a thread that allocates.
#[btf_map]
pub static ALLOCATING: TaskStorage<Allocating> = TaskStorage::new();

/// Where memory was allocated. Made as it is needed: most never is.
#[btf_map]
pub static ALLOCATIONS: HashMap<AllocationKey, Allocation, { MAX_ALLOCATIONS as usize }, NO_PREALLOC> =
    HashMap::new();

/// How often allocators are called, by the number of the watch.
#[btf_map]
pub static ALLOCATOR_COUNTS: HashMap<u32, AllocatorCounts, { MAX_ADMISSIONS as usize }, NO_PREALLOC> =
    HashMap::new();

/// Processes that may be looked at, and as what.
#[btf_map]
pub static ADMISSIONS: HashMap<u32, Admission, { MAX_ADMISSIONS as usize }> = HashMap::new();

/// How often the daemon has changed [`ADMISSIONS`], raised behind each change.
#[btf_map]
pub static ADMISSION_CHANGES: Array<u64, 1> = Array::new();

/// The thread of each CPU that was admitted last with any rights.
#[btf_map]
pub static LAST_ADMITTED: PerCpuArray<LastAdmitted, 1> = PerCpuArray::new();

/// Processes to sample, and how.
#[btf_map]
pub static TARGETS: HashMap<u32, Sampling, 4096> = HashMap::new();

/// Bits of the processes in [`TARGETS`], see [`profiler_common::limits::target_bit`].
#[btf_map]
pub static TARGET_BITS: Array<u64, { TARGET_WORDS as usize }> = Array::new();

/// Samples and span ends, on their way to the daemon.
#[btf_map]
pub static RING: RingBuf<u8, { RING_BYTES as usize }> = RingBuf::new();

/// Threads that are off the CPU, by their id. Filled before it is used: nothing may be allocated while the scheduler
/// holds its locks.
#[btf_map]
pub static OFF_CPU: HashMap<u32, OffCpu, { MAX_OFF_CPU as usize }> = HashMap::new();

/// Processes of which it is kept whether threads are on CPUs.
#[btf_map]
pub static PRESENCES: HashMap<u32, Presence, 4096> = HashMap::new();

/// Which of them a CPU is counted for; 0 for none.
#[btf_map]
pub static PRESENT: PerCpuArray<u32, 1> = PerCpuArray::new();

/// Stacks that were sent, by the lower bits of their id; each has the place of the one before it.
#[btf_map]
pub static SHARED_STACKS: Array<u64, { MAX_SHARED_STACKS as usize }, MMAPABLE> = Array::new();

/// The working memory of the scheduler's programs, which nothing but the sampler interrupts; and of the iterator over
/// threads, which the scheduler does.
#[btf_map]
pub static OFF_CPU_SCRATCH: PerCpuArray<OffCpuScratch, 2> = PerCpuArray::new();

/// Who has system calls counted.
#[btf_map]
pub static CALL_WATCH: Array<CallWatch, 1, MMAPABLE> = Array::new();

/// System calls that have not returned, by their thread's `task_struct`: an exec gives threads other ids.
#[btf_map]
pub static OPEN_CALLS: HashMap<u64, OpenCall, { MAX_OPEN_CALLS as usize }> = HashMap::new();

/// System calls that have returned, of this turn and of those before that the daemon has not taken yet.
#[btf_map]
pub static CALL_COUNTS: HashMap<CallKey, CallCount, { MAX_CALL_COUNTS as usize }> = HashMap::new();

/// The working memory of the programs of system calls, which may be interrupted by the scheduler's and the sampler, and
/// not by one another.
#[btf_map]
pub static CALL_SCRATCH: PerCpuArray<CallScratch, 1> = PerCpuArray::new();

/// Sampled processes with unwind tables.
#[btf_map]
pub static UNWIND_PROCESSES: HashMap<u32, Process, { MAX_UNWIND_PROCESSES as usize }> = HashMap::new();

/// Where modules are mapped; a process's mappings are consecutive.
#[btf_map]
pub static UNWIND_MAPPINGS: Array<Mapping, { MAX_UNWIND_MAPPINGS as usize }, MMAPABLE> = Array::new();

/// Modules with unwind tables.
#[btf_map]
pub static UNWIND_MODULES: Array<Module, { MAX_UNWIND_MODULES as usize }, MMAPABLE> = Array::new();

/// Their pages.
#[btf_map]
pub static UNWIND_PAGES: Array<Page, { MAX_UNWIND_PAGES as usize }, MMAPABLE> = Array::new();

/// The pages' rows, in chunks of one value each, made where they are needed.
#[btf_map]
pub static UNWIND_ROWS: ArrayOfMaps<
    Array<[Row; CHUNK_ROWS as usize], 1, MMAPABLE>,
    { MAX_UNWIND_CHUNKS as usize },
> = ArrayOfMaps::new();

/// The rules that rows number.
#[btf_map]
pub static UNWIND_RULES: Array<Rule, { Rule::MAX }, MMAPABLE> = Array::new();

/// Rules that were found on a CPU a while ago, by [`Recent::place`]: by the sampler, by the scheduler's programs, which the
/// sampler interrupts, and by those of system calls, which both interrupt.
#[btf_map]
pub static UNWIND_RECENT: PerCpuArray<[Recent; RECENT], 3> = PerCpuArray::new();

/// The sampler's working memory, and that of each kind of tracepoint that costs are told by. Uprobe programs must never use
/// it: the sampler may interrupt them.
#[btf_map]
pub static SCRATCH: PerCpuArray<Scratch, 4> = PerCpuArray::new();

/// Open spans by thread.
#[btf_map]
pub static THREADS: TaskStorage<ThreadState> = TaskStorage::new();

/// Open spans by thread id, where task storage could not be made: before 7.0 the kernel refuses to, while
/// another thread that was preempted on the same CPU is using some.
#[btf_map]
pub static HASHED_THREADS: HashMap<u32, ThreadState, { MAX_HASHED_THREADS as usize }> = HashMap::new();

/// All zero: what a thread's state begins as. It is too large for a program's stack.
#[btf_map]
pub static NEW_THREAD: Array<ThreadState, 1> = Array::new();

/// Written by the loader before the programs are loaded.
#[unsafe(no_mangle)]
pub static SETTINGS: Settings = Settings {
    sas_ss_sp_offset: 0,
    sas_ss_size_offset: 0,
    ring_bytes: RING_BYTES,
    utask_offset: 0,
    mm_offset: 0,
    xol_area_offset: 0,
    xol_area_vaddr_offset: 0,
    return_instances_offset: 0,
    vaddr_offset: 0,
    xol_vaddr_offset: 0,
    instance_stack_offset: 0,
    instance_return_offset: 0,
    instance_next_offset: 0,
    fs_base_offset: 0,
    pid_offset: 0,
    seed: 0,
    status_offset: 0,
    tgid_offset: 0,
    bio_size_offset: 0,
    bio_operation_offset: 0,
    brk_offset: 0,
    stack_offset: 0,
    bio_sector_offset: 0,
    bio_device_offset: 0,
    device_number_offset: 0,
    bio_next_offset: 0,
    request_bio_offset: 0,
    waits_offset: 0,
    preemptions_offset: 0,
    rethooks_offset: 0,
    area_file_offset: 0,
    area_userfaultfd_offset: 0,
    file_inode_offset: 0,
    inode_mode_offset: 0,
    inode_file_system_offset: 0,
    file_system_magic_offset: 0,
    leader_offset: 0,
    start_offset: 0,
    execs_offset: 0,
    credentials_offset: 0,
    user_offset: 0,
    effective_user_offset: 0,
    saved_user_offset: 0,
    group_offset: 0,
    effective_group_offset: 0,
    saved_group_offset: 0,
    permitted_offset: 0,
    user_namespace_offset: 0,
    namespace_owner_offset: 0,
    namespace_level_offset: 0,
    dumpable_in_offset: 0,
    dumpable_offset: 0,
    exit_offset: 0,
    shared_offset: 0,
    process_exit_offset: 0,
};

/// Reads one of the settings as loaded, not as compiled.
macro_rules! setting {
    ($name:ident) => {
        /// The setting of that name.
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: the static is initialised and never written while programs run; volatile keeps the
            // compiler from folding in the value it was compiled with.
            unsafe { (&raw const SETTINGS.$name).read_volatile() }
        }
    };
}

setting!(sas_ss_sp_offset);
setting!(sas_ss_size_offset);
setting!(ring_bytes);
setting!(utask_offset);
setting!(mm_offset);
setting!(xol_area_offset);
setting!(xol_area_vaddr_offset);
setting!(return_instances_offset);
setting!(vaddr_offset);
setting!(xol_vaddr_offset);
setting!(instance_stack_offset);
setting!(instance_return_offset);
setting!(instance_next_offset);
setting!(fs_base_offset);
setting!(pid_offset);
setting!(seed);
setting!(status_offset);
setting!(tgid_offset);
setting!(bio_size_offset);
setting!(bio_operation_offset);
setting!(brk_offset);
setting!(stack_offset);
setting!(bio_sector_offset);
setting!(bio_device_offset);
setting!(device_number_offset);
setting!(bio_next_offset);
setting!(request_bio_offset);
setting!(waits_offset);
setting!(preemptions_offset);
setting!(rethooks_offset);
setting!(area_file_offset);
setting!(area_userfaultfd_offset);
setting!(file_inode_offset);
setting!(inode_mode_offset);
setting!(inode_file_system_offset);
setting!(file_system_magic_offset);
setting!(leader_offset);
setting!(start_offset);
setting!(execs_offset);
setting!(credentials_offset);
setting!(user_offset);
setting!(effective_user_offset);
setting!(saved_user_offset);
setting!(group_offset);
setting!(effective_group_offset);
setting!(saved_group_offset);
setting!(permitted_offset);
setting!(user_namespace_offset);
setting!(namespace_owner_offset);
setting!(namespace_level_offset);
setting!(dumpable_in_offset);
setting!(dumpable_offset);
setting!(exit_offset);
setting!(shared_offset);
setting!(process_exit_offset);

/// A map's address, as helpers take it.
#[inline(always)]
pub fn handle<M>(map: &'static M) -> *mut c_void {
    ptr::from_ref(map).cast_mut().cast()
}

/// Task-local storage as a map definition that the loader reads from BTF. The fields are never
/// dereferenced; their pointee array lengths are the values.
#[repr(C)]
pub struct TaskStorage<T> {
    r#type: *const [i32; 29],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; 1],
}

// SAFETY: the fields are null pointers that nothing reads; the kernel synchronises the map itself.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    const fn new() -> Self {
        Self {
            r#type: ptr::null(),
            key: ptr::null(),
            value: ptr::null(),
            max_entries: ptr::null(),
            map_flags: ptr::null(),
        }
    }

    /// The current thread's value; null where it has none.
    #[inline(always)]
    pub fn current(&'static self) -> *mut T {
        // SAFETY: the helper takes nothing.
        self.of(unsafe { bpf_get_current_task_btf() })
    }

    /// The same, of the current task.
    #[inline(always)]
    pub fn of(&'static self, current: *mut task_struct) -> *mut T {
        self.get(current, 0)
    }

    /// The same, made of zeroes where there is none; null where that cannot be had.
    #[inline(always)]
    pub fn current_or_new(&'static self) -> *mut T {
        const BPF_LOCAL_STORAGE_GET_F_CREATE: u64 = 1;
        // SAFETY: the helper takes nothing.
        self.get(
            unsafe { bpf_get_current_task_btf() },
            BPF_LOCAL_STORAGE_GET_F_CREATE,
        )
    }

    #[inline(always)]
    fn get(&'static self, current: *mut task_struct, flags: u64) -> *mut T {
        // SAFETY: the task is the current one, so it cannot vanish; the map is task storage.
        unsafe { bpf_task_storage_get(handle(self), current, ptr::null_mut(), flags).cast() }
    }
}
