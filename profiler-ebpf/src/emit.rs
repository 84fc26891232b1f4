//! What goes to the daemon: counters, and records through the ring buffer.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_ringbuf_query, bpf_ringbuf_reserve, bpf_ringbuf_submit,
};
use profiler_common::{
    counter::{COUNTERS as COUNTER_COUNT, Counter},
    record::{SPAN_END, SpanEnd},
    thread::OpenSpan,
};

use crate::{
    atomic,
    maps::{self, COUNTERS, RING},
    registers::Registers,
};

/// The daemon reads at intervals: nobody waits to be woken.
pub const BPF_RB_NO_WAKEUP: u64 = 1;
const BPF_RB_AVAIL_DATA: u64 = 0;

/// Counts something that belongs to no single probe.
#[inline(always)]
pub fn count(counter: Counter) {
    take_number(counter);
}

/// Counts, and says what the counter was before.
#[inline(always)]
pub fn take_number(counter: Counter) -> u64 {
    match COUNTERS.get_ptr_mut(0) {
        // SAFETY: a live map value; the index is masked to its size.
        Some(counters) => unsafe {
            atomic::fetch_add(
                counters.cast::<u64>().add(counter as usize & (COUNTER_COUNT - 1)),
                1,
            )
        },
        None => u64::MAX,
    }
}

/// Registers that values are returned in, by the machine's numbers.
const RAX: u8 = 0;
const RDX: u8 = 2;

/// How full the ring buffer is.
pub struct Fill {
    bytes: u64,
    ring_bytes: u64,
}

impl Fill {
    /// Asks the kernel.
    #[inline(always)]
    pub fn now() -> Self {
        // SAFETY: the map is a ring buffer.
        let bytes = unsafe { bpf_ringbuf_query(maps::handle(&RING), BPF_RB_AVAIL_DATA) };
        Self {
            bytes,
            ring_bytes: u64::from(maps::ring_bytes()),
        }
    }

    /// Three quarters: the rest is kept for span ends, which are worth more than a sample.
    #[inline(always)]
    pub fn should_yield(&self) -> bool {
        self.bytes > self.ring_bytes / 4 * 3
    }
}

/// Emits the end of a span.
///
/// # Safety
/// `span` points into a live map value; `ctx` is the program's own, or null where its registers do not hold
/// what the span returns.
#[inline(never)]
pub unsafe fn span_end(span: *const OpenSpan, hits: u32, end_ns: u64, flags: u32, ctx: *mut c_void) {
    count(Counter::SpanEndAttempted);
    let fill = Fill::now();
    if hits == 0 && fill.should_yield() {
        count(Counter::SlowEndYielded);
        return;
    }
    // SAFETY: the record is written in full, in place, before it is submitted; `span` is the caller's.
    unsafe {
        let record: *mut SpanEnd =
            bpf_ringbuf_reserve(maps::handle(&RING), size_of::<SpanEnd>() as u64, 0).cast();
        if record.is_null() {
            count(Counter::SpanEndRingFull);
            return;
        }
        let ids = bpf_get_current_pid_tgid();
        (*record).kind = SPAN_END;
        (*record).flags = flags | u32::from((*span).joined) << SpanEnd::INSIDE_SHIFT;
        (*record).tgid = (ids >> 32) as u32;
        (*record).tid = ids as u32;
        (*record).probe = (*span).probe;
        (*record).hits = hits;
        (*record).sequence = u64::from((*span).sequence);
        (*record).start_ns = (*span).start_ns;
        (*record).end_ns = end_ns;
        (*record).parent = (*span).parent;
        (*record).gates = (*span).own_gates;
        (*record).returned = [0; 2];
        if !ctx.is_null() {
            (*record).flags |= SpanEnd::RETURNED;
            let registers = Registers::new(ctx);
            (*record).returned = [registers.get(RAX), registers.get(RDX)];
        }
        bpf_ringbuf_submit(record.cast(), BPF_RB_NO_WAKEUP);
    }
}
