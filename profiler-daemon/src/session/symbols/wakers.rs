//! Waits by name: where a thread waited, and who made it runnable, by the stack that was taken when that happened.

use std::{collections::HashMap, sync::Arc};

use profiler_aggregate::{
    ThreadId,
    waits::{Lock, Place, Wait, Waiting, Waker},
};
use profiler_common::{limits::MAX_SHARED_STACKS, record::SpanRef};
use profiler_symbolize::{FrameId, FrameTable, Generation, Groupings, Symbolizer};

use super::{
    lock,
    stacks::{Walked, call_site, name_stack},
};
use crate::kernel::{Activity, Interval, SharedStack};

/// An interval off the CPU whose waker was asked for.
pub struct NamedWait {
    /// Its waker is one of the target's, as far as is known here.
    pub wait: Wait,
    /// Spans that were open, outermost first.
    pub spans: Vec<SpanRef>,
    /// The function that waited, and its caller.
    pub functions: [Option<FrameId>; 2],
    /// The same of the thread that ended it.
    pub waker_functions: [Option<FrameId>; 2],
    /// It is known to the session alone that ends while it goes on.
    pub goes_on: bool,
}

/// Stacks of wakers that are remembered; then all are named anew.
const MAX_REMEMBERED: usize = MAX_SHARED_STACKS as usize;

/// Who made threads runnable, by what their stack is named by: the same stacks come again and again.
#[derive(Default)]
pub(super) struct RememberedWakers(HashMap<u64, NamedStack>);

/// A waker's stack by name.
#[derive(Clone)]
enum NamedStack {
    /// An interrupt, in this function.
    Interrupt(FrameId),
    /// A thread's, as long as its process has the same mapped.
    Thread(Generation, Arc<[FrameId]>),
}

impl RememberedWakers {
    /// A stack by name; `whose` is its thread's process, if it is one's.
    fn name(
        &mut self,
        symbolizer: &mut Symbolizer,
        whose: Option<u32>,
        stack: &SharedStack,
        now_ns: u64,
    ) -> NamedStack {
        let generation = whose.map(|tgid| symbolizer.generation(tgid, now_ns));
        match self.0.get(&stack.id) {
            Some(known @ NamedStack::Interrupt(_)) => return known.clone(),
            Some(known @ NamedStack::Thread(of, _)) if Some(*of) == generation => return known.clone(),
            _ => {}
        }
        let fleeting = symbolizer.fleeting();
        let named = name_stack_of_waker(symbolizer, whose.zip(generation), stack, now_ns);
        if fleeting == symbolizer.fleeting() {
            if self.0.len() >= MAX_REMEMBERED {
                self.0.clear();
            }
            self.0.insert(stack.id, named.clone());
        }
        named
    }
}

/// Names who ended a wait at a stack, for a lock.
pub(super) fn name_wait(
    symbolizer: &mut Symbolizer,
    remembered: &mut RememberedWakers,
    interval: &Interval,
    stack: &[FrameId],
    lock: Option<Lock>,
    now_ns: u64,
) -> NamedWait {
    let place = Place {
        thread: symbolizer.threads_like(interval.tgid, interval.tid, now_ns),
        stack: stack.into(),
    };
    let ends_later = interval.goes_on && interval.woken_ns == interval.end_ns;
    let waker = match &interval.waker_stack {
        _ if ends_later => Waker::GoesOn(lock::holder(symbolizer, interval, stack, now_ns)),
        Some(stack) => name_waker(symbolizer, remembered, interval.waker, stack, now_ns),
        // It may have been an interrupt, which the thread beneath has nothing to do with.
        None => Waker::Unseen,
    };
    let wait = Wait {
        thread: ThreadId {
            tgid: interval.tgid,
            tid: interval.tid,
        },
        place,
        waiting: waiting(interval.waited),
        lock,
        times: [interval.start_ns, interval.woken_ns, interval.end_ns],
        waker,
        still_ns: interval.still_ns,
    };
    NamedWait {
        goes_on: interval.goes_on,
        ..NamedWait::of(wait, interval.spans.clone(), symbolizer.frames())
    }
}

impl NamedWait {
    /// One that has ended, in these spans, with the functions that say something.
    pub fn of(wait: Wait, spans: Vec<SpanRef>, frames: &FrameTable) -> Self {
        let two = |place: &Place| {
            let mut functions = innermost(frames, &place.stack);
            [functions.next(), functions.next()]
        };
        let waker_functions = match &wait.waker {
            Waker::Thread { place, .. } => two(place),
            Waker::Interrupt(_) | Waker::Unseen | Waker::GoesOn(_) => [None; 2],
        };
        Self {
            functions: two(&wait.place),
            waker_functions,
            wait,
            spans,
            goes_on: false,
        }
    }
}

/// The functions of a stack that say something, innermost first: the program's own, and what it called. The stack is given root
/// first.
fn innermost<'a>(frames: &'a FrameTable, stack: &'a [FrameId]) -> impl Iterator<Item = FrameId> + 'a {
    let of = move |frame: &FrameId| frames.get(frame.0 as usize);
    let is_kernel = move |frame: &&FrameId| of(frame).is_some_and(|frame| frame.kernel);
    let is_library = move |frame: &&FrameId| of(frame).is_some_and(|frame| is_c_library(&frame.module));
    let kernel = stack.iter().rev().take_while(is_kernel).count();
    let library = stack.iter().rev().skip(kernel).take_while(is_library).count();
    // The kernel's way to the wait, where there is no other; else what was called of the C library.
    let skipped = if kernel == stack.len() {
        0
    } else if kernel + library == stack.len() {
        kernel
    } else {
        kernel + library.saturating_sub(1)
    };
    stack.iter().rev().skip(skipped).copied()
}

fn is_c_library(file: &str) -> bool {
    ["libc.", "libc-", "libpthread", "ld-musl"]
        .iter()
        .any(|library| file.starts_with(library))
}

/// How a thread waits that does this; `None` where it does not.
pub fn waiting(activity: Activity) -> Option<Waiting> {
    match activity {
        Activity::Sleeping => Some(Waiting::Sleeping),
        Activity::Uninterruptible => Some(Waiting::Uninterruptible),
        Activity::Stopped => Some(Waiting::Stopped),
        Activity::Runnable | Activity::OnCpu => None,
    }
}

fn name_waker(
    symbolizer: &mut Symbolizer,
    remembered: &mut RememberedWakers,
    thread: Option<ThreadId>,
    stack: &SharedStack,
    now_ns: u64,
) -> Waker {
    let whose = thread.map(|thread| thread.tgid);
    match (remembered.name(symbolizer, whose, stack, now_ns), thread) {
        (NamedStack::Thread(_, stack), Some(thread)) => Waker::Thread {
            thread,
            place: Place {
                thread: symbolizer.threads_like(thread.tgid, thread.tid, now_ns),
                stack,
            },
            is_own: true,
        },
        (NamedStack::Interrupt(function), _) => Waker::Interrupt(function),
        (NamedStack::Thread(..), None) => Waker::Unseen,
    }
}

fn name_stack_of_waker(
    symbolizer: &mut Symbolizer,
    whose: Option<(u32, Generation)>,
    stack: &SharedStack,
    now_ns: u64,
) -> NamedStack {
    let mut kernel = Walked::default();
    for (depth, address) in stack.kernel.iter().enumerate() {
        symbolizer.resolve_kernel(call_site(*address, depth), &mut kernel.functions);
    }
    let names: Vec<&str> = kernel
        .functions
        .iter()
        .filter_map(|frame| symbolizer.frames().get(frame.0 as usize))
        .map(|frame| &*frame.function)
        .collect();
    match (by(&names), whose) {
        (By::Thread { outside_waking }, Some((tgid, generation))) => {
            let kernel = stack.kernel.get(outside_waking..).unwrap_or_default();
            let user = stack.user.clone();
            let named = name_stack(symbolizer, tgid, kernel, user, Groupings::default(), now_ns);
            NamedStack::Thread(generation, named.functions.into())
        }
        // A CPU that is idle runs nothing but interrupts.
        (By::Thread { outside_waking: at } | By::Interrupt { at }, _) => {
            let function = kernel.functions.get(at).or(kernel.functions.last());
            NamedStack::Interrupt(function.copied().unwrap_or(FrameId::OTHER))
        }
    }
}

/// Whose doing it is, by the kernel's functions from the innermost on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// The thread's: outside so many functions that only wake.
    Thread { outside_waking: usize },
    /// An interrupt's, in the function of this number.
    Interrupt { at: usize },
}

fn by(functions: &[&str]) -> By {
    let entry = functions.iter().position(|function| begins_interrupt(function));
    let inside = functions
        .get(..entry.unwrap_or(functions.len()))
        .unwrap_or_default();
    let outside_waking = inside
        .iter()
        .rposition(|function| only_wakes(function))
        .map_or(0, |last| last + 1);
    match entry {
        Some(_) => By::Interrupt { at: outside_waking },
        None => By::Thread { outside_waking },
    }
}

/// Whether what is inside this function is the doing of an interrupt. What a system call has done by a soft interrupt of
/// its own, as in a connection to the same machine, is the thread's doing.
fn begins_interrupt(function: &str) -> bool {
    function.starts_with("asm_sysvec_")
        || [
            "asm_common_interrupt",
            "asm_exc_nmi",
            "irq_exit_rcu",
            "__irq_exit_rcu",
            "run_ksoftirqd",
        ]
        .contains(&function)
}

/// Whether a function of the kernel does nothing but to wake whom it is told to.
fn only_wakes(function: &str) -> bool {
    function.starts_with("__wake_up")
        || function.starts_with("swake_up")
        || function.ends_with("_wake_function")
        || [
            "try_to_wake_up",
            "wake_up_process",
            "wake_up_state",
            "wake_up_q",
            "wake_up_bit",
            "wake_bit_function",
            "wake_page_function",
            "folio_wake_bit",
            "complete",
            "complete_all",
            "complete_with_flags",
        ]
        .contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_not_the_thread_that_it_came_upon() {
        let timer = [
            "bpf_prog_off_cpu_wake",
            "try_to_wake_up",
            "hrtimer_wakeup",
            "__hrtimer_run_queues",
            "asm_sysvec_apic_timer_interrupt",
            "futex_wake",
            "do_syscall_64",
        ];
        assert_eq!(by(&timer), By::Interrupt { at: 2 });
        let disk = [
            "try_to_wake_up",
            "autoremove_wake_function",
            "__wake_up_common",
            "blk_mq_complete_request",
            "handle_softirqs",
            "__irq_exit_rcu",
            "do_idle",
        ];
        assert_eq!(by(&disk), By::Interrupt { at: 3 });
        let lock = [
            "__traceiter_sched_waking",
            "try_to_wake_up",
            "wake_up_q",
            "futex_wake",
            "do_futex",
        ];
        assert_eq!(by(&lock), By::Thread { outside_waking: 3 });
        let loopback = [
            "try_to_wake_up",
            "sock_def_readable",
            "handle_softirqs",
            "do_softirq",
            "tcp_sendmsg",
        ];
        assert_eq!(by(&loopback), By::Thread { outside_waking: 1 });
        assert_eq!(by(&[]), By::Thread { outside_waking: 0 });
    }
}
