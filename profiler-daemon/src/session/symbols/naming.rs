//! From a record to one that has names, or to several.

use std::sync::Arc;

use profiler_aggregate::ThreadId;
use profiler_symbolize::{Grouping, Groupings, Symbolizer};
use profiler_target::is_running;

use super::{
    super::remembered::Remembered,
    allocated::AllocationSites,
    lock,
    named::{Named, NamedHit, NamedStack, Task, Wanted},
    stacks::{Did, NamedFrames, Taken, name_stack, name_taken, outside_scheduler},
    wakers::{self, RememberedWakers},
};
use crate::kernel::{Activity, Allocations, Hit, Interval, Key, Record, SharedStack, UserStack};

/// Looks what the threads or processes of samples are called, where that is wanted, before their stacks are named: that may take long,
/// and they end meanwhile.
pub(super) fn meet_tasks(symbolizer: &mut Symbolizer, records: &[Record], wanted: Wanted, now_ns: u64) {
    if !wanted.names_tasks() {
        return;
    }
    let mut last = None;
    for record in records {
        let thread = match record {
            Record::Sample { tgid, tid, .. } => ThreadId {
                tgid: *tgid,
                tid: *tid,
            },
            Record::OffCpu(interval) => ThreadId {
                tgid: interval.tgid,
                tid: interval.tid,
            },
            _ => continue,
        };
        if last != Some(thread) {
            meet_process(symbolizer, thread.tgid, wanted, now_ns);
            if wanted.names_threads() {
                symbolizer.thread(thread.tgid, thread.tid, now_ns);
            }
            last = Some(thread);
        }
    }
}

/// Looks what a process is called, and what its threads are, where these are wanted.
pub(super) fn meet_process(symbolizer: &mut Symbolizer, pid: u32, wanted: Wanted, now_ns: u64) {
    if wanted.names_threads() {
        symbolizer.meet_tasks(pid, now_ns);
    } else if wanted.names_tasks() {
        symbolizer.process(pid, now_ns);
    }
}

/// Names a stack that system calls were made from.
pub(super) fn name_caller(
    symbolizer: &mut Symbolizer,
    tgid: u32,
    stack: &SharedStack,
    groupings: Groupings,
    now_ns: u64,
) -> Named {
    let unanswered = symbolizer.unanswered();
    let frames = name_stack(
        symbolizer,
        tgid,
        &stack.kernel,
        stack.user.clone(),
        groupings,
        now_ns,
    );
    let stacks = frames.group(
        symbolizer,
        groupings,
        ThreadId { tgid, tid: tgid },
        Did::ended(Activity::OnCpu),
        now_ns,
    );
    // One that has ended says nothing of what it did not answer before.
    let is_answered = unanswered == symbolizer.unanswered() && is_running(tgid);
    Named::Caller {
        id: stack.id,
        stacks,
        unanswered_ns: (!is_answered).then_some(now_ns),
    }
}

/// What was named before: stacks of samples in the groupings that are looked at, those of hits by lines, and where memory was
/// allocated.
pub(super) struct RememberedStacks {
    of_samples: Remembered,
    of_hits: Remembered,
    wakers: RememberedWakers,
    sites: AllocationSites,
}

impl RememberedStacks {
    /// Nothing yet; where memory was allocated is looked up there.
    pub(super) fn new(allocations: Allocations) -> Self {
        Self {
            of_samples: Remembered::default(),
            of_hits: Remembered::default(),
            wakers: RememberedWakers::default(),
            sites: AllocationSites::new(allocations),
        }
    }
}

/// Names a record: one or more come of it.
pub(super) fn name(
    symbolizer: &mut Symbolizer,
    remembered: &mut RememberedStacks,
    record: Record,
    wanted: Wanted,
    now_ns: u64,
    named: &mut Vec<Named>,
) {
    let groupings = wanted.groupings;
    match record {
        Record::SpanEnd(end) => named.push(Named::SpanEnd(end)),
        Record::SystemCall(call) => named.push(Named::SystemCall(call)),
        Record::Weight(weight) => named.push(Named::Weight(weight)),
        Record::Hit(hit) => named.push(Named::Hit(name_hit(
            symbolizer,
            &mut remembered.of_hits,
            hit,
            now_ns,
        ))),
        Record::Sample {
            event,
            tgid,
            tid,
            ts_ns,
            weight,
            key,
            spans,
            kernel,
            user: addresses,
            flags,
        } => {
            let thread = ThreadId { tgid, tid };
            let stack = Taken {
                thread,
                kernel: &kernel,
                user: &UserStack { addresses, flags },
                activity: Activity::OnCpu,
            };
            let (stacks, complete) =
                name_taken(symbolizer, &mut remembered.of_samples, &stack, groupings, now_ns);
            let task = wanted.tasks.then(|| Task::of(symbolizer, thread, now_ns));
            named.push(Named::Sample {
                event,
                tgid,
                tid,
                ts_ns,
                until_ns: ts_ns,
                weight,
                key,
                activity: Activity::OnCpu,
                count: 1,
                spans,
                stacks,
                complete,
                goes_on: false,
                lock: None,
                system_call: None,
                task,
            });
        }
        Record::OffCpu(interval) => {
            name_interval(symbolizer, remembered, &interval, wanted, now_ns, named);
        }
    }
}

/// Names the stack of an interval off the CPU: a sample for each thing that the thread did.
fn name_interval(
    symbolizer: &mut Symbolizer,
    remembered: &mut RememberedStacks,
    interval: &Interval,
    wanted: Wanted,
    now_ns: u64,
    named: &mut Vec<Named>,
) {
    let groupings = wanted.groupings;
    let Interval { tgid, tid, .. } = *interval;
    let thread = ThreadId { tgid, tid };
    let mut stacks_of = |activity| {
        if let Some(SharedStack { kernel, user, .. }) = interval.stack.as_deref() {
            let stack = Taken {
                thread,
                kernel,
                user,
                activity,
            };
            if !interval.goes_on {
                let remembered = &mut remembered.of_samples;
                return name_taken(symbolizer, remembered, &stack, groupings, now_ns);
            }
            let kernel = outside_scheduler(symbolizer, kernel);
            let frames = name_stack(symbolizer, tgid, kernel, user.clone(), groupings, now_ns);
            let did = Did {
                activity,
                goes_on: true,
            };
            let stacks = frames.group(symbolizer, groupings, thread, did, now_ns);
            (stacks, frames.complete)
        } else {
            let frames = NamedFrames::not_taken(groupings);
            let did = Did {
                activity,
                goes_on: interval.goes_on,
            };
            let stacks = frames.group(symbolizer, groupings, thread, did, now_ns);
            (stacks, frames.complete)
        }
    };
    // Whoever asks for wakers has functions named; innermost is what the thread did.
    let waited = interval.asks_waker.then(|| stacks_of(interval.waited).0);
    let parts: Vec<_> = interval
        .parts()
        .filter(|_| wanted.samples)
        .map(|(activity, weight_ns)| (activity, weight_ns, stacks_of(activity)))
        .collect();
    if let Some(stacks) = waited {
        let functions = stacks.of(Grouping::Function).unwrap_or_default();
        let words = 1 + usize::from(interval.goes_on);
        let functions = functions
            .get(..functions.len().saturating_sub(words))
            .unwrap_or_default();
        let lock = lock::of(symbolizer, &mut remembered.sites, interval, now_ns);
        let known = &mut remembered.wakers;
        let wait = wakers::name_wait(symbolizer, known, interval, functions, lock, now_ns);
        named.push(Named::Wait(Box::new(wait)));
    }
    let lock = if wanted.locks {
        lock::of(symbolizer, &mut remembered.sites, interval, now_ns)
    } else {
        None
    };
    let task = wanted.tasks.then(|| Task::of(symbolizer, thread, now_ns));
    let mut ts_ns = interval.start_ns;
    for (number, (activity, weight_ns, (stacks, complete))) in parts.into_iter().enumerate() {
        ts_ns += weight_ns;
        named.push(Named::Sample {
            event: 0,
            tgid,
            tid,
            ts_ns,
            until_ns: interval.end_ns,
            weight: weight_ns,
            key: Key::default(),
            activity,
            // The programs have not counted one that goes on.
            count: u64::from(number == 0 && !interval.goes_on),
            spans: interval.spans.clone(),
            stacks,
            complete,
            goes_on: interval.goes_on,
            lock: lock.filter(|_| activity != Activity::Runnable),
            system_call: interval.system_call,
            task,
        });
    }
}

/// Names the stack of a hit, if it has one.
fn name_hit(symbolizer: &mut Symbolizer, remembered: &mut Remembered, mut hit: Hit, now_ns: u64) -> NamedHit {
    let stack = hit.stack.take().map(|user| {
        let stack = Taken {
            thread: ThreadId {
                tgid: hit.tgid,
                tid: hit.tid,
            },
            kernel: &[],
            user: &user,
            activity: Activity::OnCpu,
        };
        let lines = std::iter::once(Grouping::Line).collect();
        let (stacks, complete) = name_taken(symbolizer, remembered, &stack, lines, now_ns);
        let frames = stacks.of(Grouping::Line).unwrap_or_default().to_vec();
        Arc::new(NamedStack { frames, complete })
    });
    NamedHit { hit, stack }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules of the frames that are made as the names of a sample's thread and process are looked at.
    fn made(groupings: impl IntoIterator<Item = Grouping>) -> Vec<String> {
        let own = std::process::id();
        let sample = Record::Sample {
            event: 0,
            tgid: own,
            tid: own,
            ts_ns: 0,
            weight: 1,
            key: Key::default(),
            spans: Vec::new(),
            kernel: Vec::new(),
            user: Vec::new(),
            flags: 0,
        };
        let wanted = Wanted {
            groupings: groupings.into_iter().collect(),
            ..Wanted::default()
        };
        let mut symbolizer = Symbolizer::default();
        let before = symbolizer.frames().len();
        meet_tasks(&mut symbolizer, &[sample], wanted, 0);
        let made = symbolizer.frames().iter().skip(before);
        made.map(|frame| frame.module.to_string()).collect()
    }

    #[test]
    fn names_are_looked_at_of_what_is_shown_alone() {
        assert!(made([Grouping::Function, Grouping::Module]).is_empty());
        assert_eq!(made([Grouping::Process]), ["[process]"], "no thread is shown");
        assert_eq!(made([Grouping::Thread]), ["[process]", "[thread]"]);
    }
}
