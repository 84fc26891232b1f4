//! Whether threads of a process are on CPUs: what a wait holds up is known by the time in which none is.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use profiler_common::{record::OffCpuHeader, thread::Presence};

use crate::{
    atomic,
    maps::{PRESENCES, PRESENT},
};

/// This CPU goes over to a thread of this process. Whose it was counted for is remembered, so that a switch that was not seen
/// is made up for by the next one.
#[inline(always)]
pub fn hand_over(process: u32, may_be_kept: bool) {
    let Some(present) = PRESENT.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a live map value, and this CPU's own: interrupts are off.
    let before = unsafe { present.read_volatile() };
    if before == process || before == 0 && !may_be_kept {
        return;
    }
    change(before, if may_be_kept { process } else { 0 });
}

#[inline(never)]
fn change(before: u32, process: u32) -> u32 {
    // SAFETY: the helper takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if let Some(presence) = PRESENCES.get_ptr_mut(before) {
        leave(presence, now_ns);
    }
    let mut after = 0;
    if process != 0
        && let Some(presence) = PRESENCES.get_ptr_mut(process)
    {
        come(presence, now_ns);
        after = process;
    }
    if let Some(present) = PRESENT.get_ptr_mut(0) {
        // SAFETY: as in `hand_over`.
        unsafe { present.write_volatile(after) };
    }
    0
}

#[inline(always)]
fn leave(presence: *mut Presence, now_ns: u64) {
    // SAFETY: a live map value.
    unsafe {
        let cpus = &raw mut (*presence).cpus;
        if cpus.read_volatile() > 0 && atomic::fetch_add(cpus, 1_u64.wrapping_neg()) == 1 {
            (&raw mut (*presence).still_since_ns).write_volatile(now_ns);
        }
    }
}

#[inline(always)]
fn come(presence: *mut Presence, now_ns: u64) {
    // SAFETY: a live map value.
    unsafe {
        if atomic::fetch_add(&raw mut (*presence).cpus, 1) == 0 {
            let since = &raw mut (*presence).still_since_ns;
            let since_ns = since.read_volatile();
            // One that another CPU is about to write is not there yet; one that was added is not added again.
            if since_ns != 0 {
                atomic::add(&raw mut (*presence).still_ns, now_ns.wrapping_sub(since_ns));
                since.write_volatile(0);
            }
        }
    }
}

/// How long no thread of a process was on a CPU so far; [`OffCpuHeader::NOT_KEPT`] where that is not kept.
#[inline(always)]
pub fn still_ns(process: u32, now_ns: u64) -> u64 {
    let Some(presence) = PRESENCES.get_ptr_mut(process) else {
        return OffCpuHeader::NOT_KEPT;
    };
    // SAFETY: a live map value; what changes meanwhile is as long as this takes.
    unsafe {
        let still_ns = (&raw const (*presence).still_ns).read_volatile();
        let since_ns = (&raw const (*presence).still_since_ns).read_volatile();
        if (&raw const (*presence).cpus).read_volatile() == 0 && since_ns != 0 && now_ns > since_ns {
            still_ns.wrapping_add(now_ns.wrapping_sub(since_ns))
        } else {
            still_ns
        }
    }
}

/// By how much that has grown.
#[inline(always)]
pub fn grown(process: u32, before_ns: u64, now_ns: u64) -> u64 {
    let still_ns = still_ns(process, now_ns);
    if before_ns == OffCpuHeader::NOT_KEPT || still_ns == OffCpuHeader::NOT_KEPT {
        OffCpuHeader::NOT_KEPT
    } else {
        still_ns.saturating_sub(before_ns)
    }
}
