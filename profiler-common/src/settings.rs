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
    /// Offset of `utask` in `task_struct`: what the kernel keeps for probes of the thread.
    pub utask_offset: u32,
    /// Offset of `mm` in `task_struct`.
    pub mm_offset: u32,
    /// Offset of `uprobes_state.xol_area` in `mm_struct`: where the process's probed instructions are executed.
    pub xol_area_offset: u32,
    /// Offset of `vaddr` in `xol_area`: that place's address, where the trampoline of return probes is too.
    pub xol_area_vaddr_offset: u32,
    /// Offset of `return_instances` in `uprobe_task`: the pending return probes, innermost first.
    pub return_instances_offset: u32,
    /// Offset of `vaddr` in `uprobe_task`: the probed instruction that is being executed elsewhere.
    pub vaddr_offset: u32,
    /// Offset of `xol_vaddr` in `uprobe_task`: where that is.
    pub xol_vaddr_offset: u32,
    /// Offset of `stack` in `return_instance`: the address of the return address that was replaced.
    pub instance_stack_offset: u32,
    /// Offset of `orig_ret_vaddr` in `return_instance`: the return address.
    pub instance_return_offset: u32,
    /// Offset of `next` in `return_instance`.
    pub instance_next_offset: u32,
    /// Offset of `thread.fsbase` in `task_struct`: where a thread's own variables are.
    pub fs_base_offset: u32,
    /// Offset of `pid` in `task_struct`: a thread's id in the initial PID namespace.
    pub pid_offset: u32,
    /// Any number, another one at each start: nobody can make stacks whose [`crate::record::SharedStackHeader::id`] is
    /// the same.
    pub seed: u32,
    /// Offset of `thread_info.status` in `task_struct`: what kind of system call the thread is in.
    pub status_offset: u32,
    /// Offset of `tgid` in `task_struct`: a thread's process in the initial PID namespace.
    pub tgid_offset: u32,
    /// Offset of `bi_iter.bi_size` in `bio`: the bytes that it is about. 0 where the kernel has no block devices.
    pub bio_size_offset: u32,
    /// Offset of `bi_opf` in `bio`: what is done with them.
    pub bio_operation_offset: u32,
    /// Offset of `brk` in `mm_struct`: the end of the heap.
    pub brk_offset: u32,
    /// Offset of `stack` in `task_struct`: the end of a thread's kernel stack.
    pub stack_offset: u32,
    /// Offset of `bi_iter.bi_sector` in `bio`: where on its device it begins. 0 where the kernel has no block devices.
    pub bio_sector_offset: u32,
    /// Offset of `bi_bdev` in `bio`: its device.
    pub bio_device_offset: u32,
    /// Offset of `bd_dev` in `block_device`: its number.
    pub device_number_offset: u32,
    /// Offset of `bi_next` in `bio`: the one that its request holds behind it.
    pub bio_next_offset: u32,
    /// Offset of `bio` in `request`: the first that it holds.
    pub request_bio_offset: u32,
    /// Offset of `nvcsw` in `task_struct`: how often a thread left the CPU to wait.
    pub waits_offset: u32,
    /// Offset of `nivcsw` in `task_struct`: how often it had to make way.
    pub preemptions_offset: u32,
    /// Offset of `rethooks.first` in `task_struct`: the kernel's functions whose return is awaited, innermost first. 0 where
    /// the kernel does not keep them there.
    pub rethooks_offset: u32,
    /// Offset of `vm_file` in `vm_area_struct`: the file that an area of memory is of.
    pub area_file_offset: u32,
    /// Offset of `vm_userfaultfd_ctx.ctx` in `vm_area_struct`: the program that brings in the area's pages. 0 where the kernel has
    /// none such, `u32::MAX` where that is not known.
    pub area_userfaultfd_offset: u32,
    /// Offset of `f_inode` in `file`.
    pub file_inode_offset: u32,
    /// Offset of `i_mode` in `inode`: what kind of file it is.
    pub inode_mode_offset: u32,
    /// Offset of `i_sb` in `inode`: its file system.
    pub inode_file_system_offset: u32,
    /// Offset of `s_magic` in `super_block`: what kind of file system it is.
    pub file_system_magic_offset: u32,
    /// Offset of `group_leader` in `task_struct`: a process's first thread.
    pub leader_offset: u32,
    /// Offset of `start_boottime` in `task_struct`: when a thread began.
    pub start_offset: u32,
    /// Offset of `self_exec_id` in `task_struct`: how often it has exec'd.
    pub execs_offset: u32,
    /// Offset of `real_cred` in `task_struct`: whose a thread is to others, and in which namespace. What the kernel puts in its place for a while is in `cred`.
    pub credentials_offset: u32,
    /// Offset of `uid` in `cred`.
    pub user_offset: u32,
    /// Offset of `euid` in `cred`.
    pub effective_user_offset: u32,
    /// Offset of `suid` in `cred`.
    pub saved_user_offset: u32,
    /// Offset of `gid` in `cred`.
    pub group_offset: u32,
    /// Offset of `egid` in `cred`.
    pub effective_group_offset: u32,
    /// Offset of `sgid` in `cred`.
    pub saved_group_offset: u32,
    /// Offset of `cap_permitted` in `cred`: capabilities.
    pub permitted_offset: u32,
    /// Offset of `user_ns` in `cred`.
    pub user_namespace_offset: u32,
    /// Offset of `owner` in `user_namespace`.
    pub namespace_owner_offset: u32,
    /// Offset of `level` in `user_namespace`: 0 of the initial one.
    pub namespace_level_offset: u32,
    /// Offset of the pointer in `task_struct` to what says whether others may read the memory: `mm`, or `exec_state` where the
    /// kernel has that.
    pub dumpable_in_offset: u32,
    /// Offset of the word in there of which the lowest bits say it: `flags`, or `dumpable`.
    pub dumpable_offset: u32,
    /// Offset of `exit_code` in `task_struct`: what a thread ends with. The lowest bits are a signal.
    pub exit_offset: u32,
    /// Offset of `signal` in `task_struct`: what the threads of a process have in common.
    pub shared_offset: u32,
    /// Offset of `group_exit_code` in `signal_struct`: what the process ends with, as of `exit_offset`.
    pub process_exit_offset: u32,
}

assert_layout!(Settings, size 220,
    sas_ss_sp_offset at 0, sas_ss_size_offset at 4, ring_bytes at 8, utask_offset at 12, mm_offset at 16,
    xol_area_offset at 20, xol_area_vaddr_offset at 24, return_instances_offset at 28, vaddr_offset at 32,
    xol_vaddr_offset at 36, instance_stack_offset at 40, instance_return_offset at 44, instance_next_offset at 48,
    fs_base_offset at 52, pid_offset at 56, seed at 60, status_offset at 64,
    tgid_offset at 68, bio_size_offset at 72, bio_operation_offset at 76, brk_offset at 80, stack_offset at 84,
    bio_sector_offset at 88, bio_device_offset at 92, device_number_offset at 96,
    bio_next_offset at 100, request_bio_offset at 104, waits_offset at 108, preemptions_offset at 112,
    rethooks_offset at 116, area_file_offset at 120, area_userfaultfd_offset at 124, file_inode_offset at 128,
    inode_mode_offset at 132, inode_file_system_offset at 136, file_system_magic_offset at 140,
    leader_offset at 144, start_offset at 148, execs_offset at 152, credentials_offset at 156,
    user_offset at 160, effective_user_offset at 164, saved_user_offset at 168, group_offset at 172,
    effective_group_offset at 176, saved_group_offset at 180, permitted_offset at 184, user_namespace_offset at 188,
    namespace_owner_offset at 192, namespace_level_offset at 196, dumpable_in_offset at 200, dumpable_offset at 204,
    exit_offset at 208, shared_offset at 212, process_exit_offset at 216);

/// Where the kernel keeps what it is at on each CPU; 0 where that is not known.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuState {
    /// Address of the array of what is to be added to the address of a variable that each CPU has.
    pub offsets: u64,
    /// Address of such a variable: how deep the CPU is in interrupts.
    pub preempt_count: u64,
}

assert_layout!(CpuState, size 16, offsets at 0, preempt_count at 8);

/// How a process is sampled.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// The time that one tick stands for.
    pub weight_ns: u64,
    /// What a tick takes of the thread beside the program's own time: the interrupt itself.
    pub interrupt_ns: u64,
    /// [`Sampling::TICKS`] and others.
    pub flags: u64,
}

impl Sampling {
    /// Samples are taken at ticks.
    pub const TICKS: u64 = 1;
    /// Intervals off the CPU are recorded of threads with open spans.
    pub const OFF_CPU_IN_SPANS: u64 = 2;
    /// Intervals off the CPU are recorded of all threads.
    pub const OFF_CPU: u64 = 4;
    /// With the intervals, the stacks of who made the threads runnable.
    pub const WAKERS: u64 = 8;
    /// System calls are counted: all of those whom [`Sampling::VIEWS_SHIFT`] names, and of others those in open spans.
    pub const SYSCALLS: u64 = 16;
    /// Stacks are taken where threads give bytes to block devices.
    pub const BLOCK_BYTES: u64 = 32;
    /// Stacks are taken where memory grows.
    pub const MEMORY_GROWTH: u64 = 64;
    /// Stacks are taken where threads hand over requests to block devices, and these are timed.
    pub const BLOCK_LATENCY: u64 = 128;
    /// System calls that return in open spans are recorded one by one; with [`Sampling::SYSCALLS`].
    pub const SYSCALL_RECORDS: u64 = 256;
    /// Place of the gates' bits that stand for those who have all system calls counted.
    pub const VIEWS_SHIFT: u32 = 32;
}

assert_layout!(Sampling, size 24, weight_ns at 0, interrupt_ns at 8, flags at 16);
