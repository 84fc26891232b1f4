//! Whether a process may be looked at: each program asks before it reads anything of one.
//!
//! The comparison is with the process itself, and not with what events told of it: those come when a new program's memory
//! and users are in force already, can be missed, and say little of a number that is used again.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_get_current_task_btf, bpf_seq_write},
};
use profiler_common::{
    admission::{Admission, Image, ProcessState, Rights},
    counter::Counter,
    thread::ThreadState,
};

use crate::{
    atomic, emit,
    field::{long, pointer, word},
    maps::{self, ADMISSION_CHANGES, ADMISSIONS, LAST_ADMITTED},
    off_cpu::IterationMeta,
    task,
};

/// A process that was admitted whatever rights its threads take, which holds until the daemon changes an admission.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LastAdmitted {
    /// Address of its first thread's `task_struct`, where another thread may be by now.
    leader: u64,
    /// When that began (`start_boottime`), in nanoseconds since boot.
    start_ns: u64,
    /// [`ADMISSION_CHANGES`] of then, made unlike that of any other process by its beginning: parts that two programs have written never fit
    /// together.
    told: u64,
}

/// Of a thread that is admitted, but has to be asked about each time: what it was admitted with may change.
pub const ONLY_NOW: u64 = u64::MAX;

/// Whether the current thread is of a process that may be looked at, and as it was when that was allowed.
#[inline(always)]
pub fn is_admitted() -> bool {
    admitted_at() != 0
}

/// Whether a thread that was admitted at this is so still, be it what it may: see [`admitted_at`].
#[inline(always)]
pub fn holds(admitted_at: u64) -> bool {
    admitted_at == changes()
}

/// At which of the daemon's changes the current thread is admitted, where that holds until the next; [`ONLY_NOW`] where it does not, and 0
/// where it is not admitted.
#[inline(always)]
pub fn admitted_at() -> u64 {
    // SAFETY: the helper takes nothing, and gives the current task.
    let task: *mut c_void = unsafe { bpf_get_current_task_btf() }.cast();
    // Read before the admission is, as in `admitted_thread`.
    let changes = changes();
    let Some(last) = LAST_ADMITTED.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a live map value of this CPU; the task is the kernel's.
    unsafe {
        if is_last(task, last, changes) {
            return changes;
        }
        let flags = admits(task, task::process());
        if flags == 0 {
            return 0;
        }
        if u64::from(flags) & Admission::ANY_RIGHTS == 0 || changes == 0 {
            return ONLY_NOW;
        }
        let leader = pointer(task, maps::leader_offset());
        let start_ns = long(leader, maps::start_offset());
        (&raw mut (*last).leader).write_volatile(leader as u64);
        (&raw mut (*last).start_ns).write_volatile(start_ns);
        (&raw mut (*last).told).write_volatile(changes ^ start_ns);
        changes
    }
}

/// Whether a thread is of the process that was admitted last on this CPU, and no admission has changed since.
///
/// # Safety
/// The task is the kernel's, and `last` a live map value of this CPU, which a program that interrupts this one may write meanwhile.
#[inline(always)]
unsafe fn is_last(task: *mut c_void, last: *const LastAdmitted, changes: u64) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let leader = pointer(task, maps::leader_offset());
        let start_ns = long(leader, maps::start_offset());
        let told = (&raw const (*last).told).read_volatile();
        let is_it = (*last).leader == leader as u64 && (*last).start_ns == start_ns;
        changes != 0 && is_it && told == changes ^ start_ns
    }
}

/// As [`is_admitted`], for the programs at the target's own code, which run most often.
///
/// What the CPU knows is asked first: it costs less than to look for a state that a thread without open spans has not.
#[inline(always)]
pub fn is_thread_admitted() -> bool {
    // SAFETY: the helper takes nothing, and gives the current task; what is of this CPU is a live map value.
    let is_last = unsafe {
        let task: *mut c_void = bpf_get_current_task_btf().cast();
        let changes = changes();
        LAST_ADMITTED
            .get_ptr(0)
            .is_some_and(|last| is_last(task, last, changes))
    };
    is_last || admitted_thread().is_some()
}

/// The current thread, if [`is_thread_admitted`]: its state where that is in its own storage, else null.
///
/// A thread keeps what it was admitted as until the daemon changes an admission. It is of one process all its life, so that what can
/// change without the daemon is which program it runs, and with what rights: these it is asked for each time, unless they may be any.
#[inline(always)]
pub fn admitted_thread() -> Option<*mut ThreadState> {
    // SAFETY: the helper takes nothing, and gives the current task.
    let task = unsafe { bpf_get_current_task_btf() };
    let Some(state) = task::stored_state_of(task) else {
        return is_admitted().then_some(ptr::null_mut());
    };
    // Read before the admission is: the daemon raises it behind its change, so what is kept is never newer than what was read.
    let changes = changes();
    // SAFETY: a live map value that only this thread writes.
    let is_as_kept = unsafe {
        let admitted_at = (&raw const (*state).admitted_at).read_volatile();
        admitted_at != 0
            && admitted_at == changes
            && ((&raw const (*state).any_rights).read_volatile() != 0 || is_as_kept(task.cast(), state))
    };
    (is_as_kept || is_admitted_now(state, changes) != 0).then_some(state)
}

/// Whether a thread runs the program, and has the rights, that its own state says it was admitted with. No function of its own, as
/// calls are what costs most of this.
#[inline(always)]
unsafe fn is_as_kept(task: *mut c_void, state: *const ThreadState) -> bool {
    // SAFETY: the caller's task and live map value.
    unsafe {
        let credentials = credentials_of(task);
        let rights = &raw const (*state).rights;
        // One jump, as in `has_rights`: what is in common would take the stack of `admits` beyond its limit.
        let users = word(credentials, maps::user_offset()) ^ (*rights).user
            | word(credentials, maps::effective_user_offset()) ^ (*rights).effective_user
            | word(credentials, maps::saved_user_offset()) ^ (*rights).saved_user
            | word(credentials, maps::group_offset()) ^ (*rights).group
            | word(credentials, maps::effective_group_offset()) ^ (*rights).effective_group
            | word(credentials, maps::saved_group_offset()) ^ (*rights).saved_group
            | dumpable_of(task) ^ (*rights).dumpable;
        let others = u64::from(users)
            | permitted_of(credentials) ^ (*rights).permitted
            | execs_of(task) ^ (*state).image.execs;
        // The verifier has pointers compared, and nothing else.
        others == 0
            && memory_of(task) == (*state).image.memory
            && long(credentials, maps::user_namespace_offset()) == (*rights).user_namespace
    }
}

/// Asks, and keeps the answer. A function of its own for its share of the stack.
#[inline(never)]
fn is_admitted_now(state: *mut ThreadState, changes: u64) -> u32 {
    // SAFETY: the helper takes nothing, and gives the current task.
    let task: *mut c_void = unsafe { bpf_get_current_task_btf() }.cast();
    let tgid = task::process();
    let flags = admits(task, tgid);
    if flags != 0
        && let Some(admission) = ADMISSIONS.get_ptr_mut(tgid)
    {
        // SAFETY: live map values.
        unsafe {
            let any_rights = u64::from(flags) & Admission::ANY_RIGHTS != 0;
            (&raw mut (*state).admitted_at).write_volatile(0);
            (*state).any_rights = any_rights.into();
            (*state).image = (*admission).image;
            (*state).rights = (*admission).rights;
            // The daemon may have written others by now, which nobody has been admitted with yet: what is kept is what the thread is.
            if any_rights || is_as_kept(task, state) {
                (&raw mut (*state).admitted_at).write_volatile(changes);
            }
        }
    }
    flags
}

#[inline(always)]
fn changes() -> u64 {
    let Some(changes) = ADMISSION_CHANGES.get_ptr(0) else {
        return 0;
    };
    // SAFETY: a live map value.
    unsafe { changes.read_volatile() }
}

/// The same of a thread by its `task_struct`, which is of a process of this number: the flags of its admission, 0 where it has none. A
/// function of its own for its share of the stack.
#[inline(never)]
pub fn admits(task: *mut c_void, tgid: u32) -> u32 {
    let Some(admission) = ADMISSIONS.get_ptr_mut(tgid) else {
        return 0;
    };
    // SAFETY: a live map value; the task is the kernel's.
    unsafe {
        let flags = (&raw const (*admission).flags).read_volatile();
        let is_as_it_was = flags & Admission::OPEN != 0
            && start_of(task) == (*admission).image.start_ns
            && (flags & Admission::ANY_RIGHTS != 0
                || is_image(task, &raw const (*admission).image)
                    && has_rights(task, &raw const (*admission).rights));
        if is_as_it_was {
            return flags as u32;
        }
        // The daemon looks at what it is now.
        atomic::add(&raw mut (*admission).refused, 1);
        emit::count(Counter::AdmissionRefused);
    }
    0
}

/// A thread of the current process that is not its first one execs. The daemon looks at the process, as links that are of it are
/// dead by now.
#[inline(always)]
pub fn note_taken_over() {
    if let Some(admission) = ADMISSIONS.get_ptr_mut(task::process()) {
        // SAFETY: a live map value.
        unsafe { atomic::add(&raw mut (*admission).refused, 1) };
        emit::count(Counter::AdmissionRefused);
    }
}

/// A thread exits. If it does so because a signal ends its process, keeps which one.
///
/// All threads of such a process end with the signal, and the process as well: one thread alone may be ended by a filter of system
/// calls, and a process alone has a signal there while that stops it.
#[inline(always)]
pub fn note_end() {
    const SIGNAL: u32 = 0x7f;
    // SAFETY: the helper takes nothing, and gives the current task.
    let task: *mut c_void = unsafe { bpf_get_current_task_btf() }.cast();
    let Some(admission) = ADMISSIONS.get_ptr_mut(task::process()) else {
        return;
    };
    // SAFETY: a live map value; the task is the kernel's, and so is what it leads to.
    unsafe {
        if start_of(task) != (*admission).image.start_ns {
            return;
        }
        let own = word(task, maps::exit_offset()) & SIGNAL;
        let shared = pointer(task, maps::shared_offset());
        if own != 0 && own == word(shared, maps::process_exit_offset()) & SIGNAL {
            (&raw mut (*admission).ended_by).write_volatile(own.into());
        }
    }
}

/// The current thread has begun another, of this `task_struct`. Counts it if it is of another process with a copy of the memory: that has
/// the breakpoints in the code, and nothing is recorded there. One that shares the memory until it execs is not counted; nor are those
/// that the process begins while it is another program than the one that somebody may look at.
#[inline(always)]
pub fn note_child(child: u64) {
    // SAFETY: the helper takes nothing, and gives the current task.
    let task: *mut c_void = unsafe { bpf_get_current_task_btf() }.cast();
    let own = task::process();
    let Some(admission) = ADMISSIONS.get_ptr_mut(own) else {
        return;
    };
    // SAFETY: a live map value; the task is the kernel's. The helper checks the addresses in the child.
    unsafe {
        let flags = (&raw const (*admission).flags).read_volatile();
        let is_as_it_was = start_of(task) == (*admission).image.start_ns
            && (flags & Admission::ANY_RIGHTS != 0
                || is_image(task, &raw const (*admission).image)
                    && has_rights(task, &raw const (*admission).rights));
        if !is_as_it_was {
            return;
        }
        let process = bpf_probe_read_kernel((child + u64::from(maps::tgid_offset())) as *const u32);
        let memory = bpf_probe_read_kernel((child + u64::from(maps::mm_offset())) as *const u64);
        if let (Ok(process), Ok(memory)) = (process, memory)
            && process != own
            && memory != memory_of(task)
        {
            atomic::add(&raw mut (*admission).children, 1);
        }
    }
}

/// Whether all who look at a process may also look at the current thread's: at every one, or at this one because it is admitted with
/// the same users and groups. One that is admitted with any rights is so for those alone who may look at every one.
#[inline(always)]
pub fn is_shown_with(tgid: u32) -> bool {
    let Some(with) = ADMISSIONS.get_ptr_mut(tgid) else {
        return false;
    };
    if is_of_everybody(with) {
        return true;
    }
    let Some(own) = ADMISSIONS.get_ptr_mut(task::process()) else {
        return false;
    };
    if is_of_everybody(own) {
        return false;
    }
    // SAFETY: live map values.
    let is_same_user = unsafe {
        let (with, own) = (&raw const (*with).rights, &raw const (*own).rights);
        (*with).user == (*own).user && (*with).group == (*own).group
    };
    is_same_user && is_admitted()
}

#[inline(always)]
fn is_of_everybody(admission: *mut Admission) -> bool {
    // SAFETY: the caller's live map value.
    let flags = unsafe { (&raw const (*admission).flags).read_volatile() };
    flags & Admission::ANY_RIGHTS != 0
}

/// Whether a thread of a process runs the same program. One that ends has given up its memory already, and has nothing left to be read.
#[inline(always)]
unsafe fn is_image(task: *mut c_void, image: *const Image) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let memory = memory_of(task);
        execs_of(task) == (*image).execs && (memory == (*image).memory || memory == 0)
    }
}

/// Whether a thread has these rights and no others.
#[inline(always)]
unsafe fn has_rights(task: *mut c_void, rights: *const Rights) -> bool {
    // SAFETY: the caller's; the credentials are the kernel's.
    unsafe {
        let credentials = credentials_of(task);
        // One jump rather than six, whose ways the verifier would all follow.
        let others = word(credentials, maps::user_offset()) ^ (*rights).user
            | word(credentials, maps::effective_user_offset()) ^ (*rights).effective_user
            | word(credentials, maps::saved_user_offset()) ^ (*rights).saved_user
            | word(credentials, maps::group_offset()) ^ (*rights).group
            | word(credentials, maps::effective_group_offset()) ^ (*rights).effective_group
            | word(credentials, maps::saved_group_offset()) ^ (*rights).saved_group;
        let permitted = permitted_of(credentials) ^ (*rights).permitted;
        let is_dumpable = memory_of(task) == 0 || dumpable_of(task) == (*rights).dumpable;
        u64::from(others) | permitted == 0
            && is_dumpable
            && long(credentials, maps::user_namespace_offset()) == (*rights).user_namespace
    }
}

/// Writes what a process is that is asked about, once for its first thread.
#[inline(always)]
pub fn look(meta: *mut IterationMeta, task: *mut c_void) {
    let tgid = task::process_of(task);
    if task::id_of(task) != tgid || ADMISSIONS.get_ptr_mut(tgid).is_none() {
        return;
    }
    // SAFETY: the kernel's task and what it leads to; the row is initialised, and as long as is said.
    unsafe {
        let credentials = credentials_of(task);
        let namespace = pointer(credentials, maps::user_namespace_offset());
        let row = ProcessState {
            tgid,
            namespace_owner: word(namespace, maps::namespace_owner_offset()),
            namespace_level: word(namespace, maps::namespace_level_offset()),
            zero: 0,
            first_thread: task as u64,
            image: Image {
                start_ns: start_of(task),
                execs: execs_of(task),
                memory: memory_of(task),
            },
            rights: Rights {
                user_namespace: namespace as u64,
                permitted: permitted_of(credentials),
                user: word(credentials, maps::user_offset()),
                effective_user: word(credentials, maps::effective_user_offset()),
                saved_user: word(credentials, maps::saved_user_offset()),
                group: word(credentials, maps::group_offset()),
                effective_group: word(credentials, maps::effective_group_offset()),
                saved_group: word(credentials, maps::saved_group_offset()),
                dumpable: dumpable_of(task),
                zero: 0,
            },
        };
        // Where there is no room, the kernel has the program run once more for this thread.
        bpf_seq_write(
            (*meta).output.cast(),
            (&raw const row).cast(),
            size_of::<ProcessState>() as u32,
        );
    }
}

#[inline(always)]
unsafe fn start_of(task: *mut c_void) -> u64 {
    // SAFETY: the caller's task, here and below.
    unsafe { long(pointer(task, maps::leader_offset()), maps::start_offset()) }
}

#[inline(always)]
unsafe fn execs_of(task: *mut c_void) -> u64 {
    // SAFETY: as above.
    unsafe { long(task, maps::execs_offset()) }
}

#[inline(always)]
unsafe fn memory_of(task: *mut c_void) -> u64 {
    // SAFETY: as above.
    unsafe { long(task, maps::mm_offset()) }
}

#[inline(always)]
unsafe fn dumpable_of(task: *mut c_void) -> u32 {
    // SAFETY: as above.
    let flags = unsafe { word(pointer(task, maps::dumpable_in_offset()), maps::dumpable_offset()) };
    flags & Rights::DUMPABLE_MASK
}

#[inline(always)]
unsafe fn credentials_of(task: *mut c_void) -> *mut c_void {
    // SAFETY: as above.
    unsafe { pointer(task, maps::credentials_offset()) }
}

/// In halves: up to Linux 6.2 it is an array of them.
#[inline(always)]
unsafe fn permitted_of(credentials: *mut c_void) -> u64 {
    let offset = maps::permitted_offset();
    // SAFETY: as above.
    unsafe { u64::from(word(credentials, offset + 4)) << 32 | u64::from(word(credentials, offset)) }
}
