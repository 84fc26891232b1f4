//! Describes the lock that a thread waits for: the data at its address, and its holder.

use std::{fs, io};

use profiler_aggregate::waits::Lock;
use profiler_symbolize::{FrameId, Symbolizer};
use profiler_target::{Memory, has_thread, read_of_process};

use super::allocated::AllocationSites;
use crate::kernel::Interval;

/// Functions from the innermost on among which the one is that locks.
const MAX_IN_LOCKING: usize = 6;

/// Functions of the C library that wait for a mutex, without underscores before them.
const LOCKING: [&str; 5] = [
    "pthread_mutex_lock",
    "pthread_mutex_lock_full",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_mutex_cond_lock",
];

/// Of a futex's word: who holds it, where that is in it.
const HOLDER: u32 = 0x3fff_ffff;

/// The word of a mutex that is held, and waited for.
const CONTENDED: u32 = 2;

/// What was waited for in memory.
pub(super) fn of(
    symbolizer: &mut Symbolizer,
    sites: &mut AllocationSites,
    interval: &Interval,
    now_ns: u64,
) -> Option<Lock> {
    let address = interval.lock?.get();
    let name = symbolizer.variable(interval.tgid, address, now_ns);
    let memory = match name {
        Some(_) => None,
        None => symbolizer.memory(interval.tgid, address, now_ns),
    };
    let may_be_allocated = name.is_none() && !memory.is_some_and(|memory| memory.is_stack);
    let allocated = if may_be_allocated {
        sites.of(symbolizer, interval.tgid, address, now_ns)
    } else {
        None
    };
    Some(Lock {
        process: interval.tgid,
        address,
        name,
        allocated,
        memory: memory.map(|memory| memory.name),
    })
}

/// The thread that holds the mutex that another waits for at a stack, by what the target's C library keeps of it; `None`
/// where that is not certain.
pub(super) fn holder(
    symbolizer: &mut Symbolizer,
    interval: &Interval,
    stack: &[FrameId],
    now_ns: u64,
) -> Option<FrameId> {
    let address = interval.lock?.get();
    let locks = |frame: &FrameId| {
        let frame = symbolizer.frames().get(frame.0 as usize);
        frame.is_some_and(|frame| !frame.kernel && LOCKING.contains(&frame.function.trim_start_matches('_')))
    };
    let user = stack.iter().rev().skip_while(|frame| {
        let frame = symbolizer.frames().get(frame.0 as usize);
        frame.is_some_and(|frame| frame.kernel)
    });
    if !user.take(MAX_IN_LOCKING).any(locks) {
        return None;
    }
    let process = interval.tgid;
    let holder = read_of_process(process, move || read_holder(process, address)).ok()??;
    (has_thread(interval.tgid, holder) && holder != interval.tid && sees_numbers_of(interval.tgid))
        .then(|| symbolizer.thread(interval.tgid, holder, now_ns))
}

/// The holder of a `pthread_mutex_t` of glibc, as it is kept behind the word that is waited for.
fn read_holder(process: u32, address: u64) -> io::Result<Option<u32>> {
    let mut bytes = [0; 12];
    Memory::open(process)?.read_exact_at(&mut bytes, address)?;
    let [word, _, holder] = [0, 4, 8].map(|at| {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        u32::from_ne_bytes(bytes)
    });
    Ok((word == CONTENDED || word & HOLDER == holder).then_some(holder))
}

/// Whether a process's threads have the numbers for themselves that they have here.
fn sees_numbers_of(process: u32) -> bool {
    let own = fs::read_link("/proc/self/ns/pid");
    let of_process = read_of_process(process, move || fs::read_link(format!("/proc/{process}/ns/pid")));
    matches!((own, of_process), (Ok(own), Ok(of_process)) if own == of_process)
}
