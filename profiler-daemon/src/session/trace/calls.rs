//! What was read where calls began, kept until they end, and which of those are shown.

use std::sync::Arc;

use profiler_aggregate::ThreadId;
use profiler_common::{probe::ProbeId, record::SpanEnd};

use super::{
    super::{
        records::RecordedLook,
        symbols::{NamedHit, NamedStack},
    },
    Trace,
    hit::{TracedHit, TracedValue, bytes},
    values::{look, read, returned},
};
use crate::kernel::{Hit, ReadValue};

/// Calls that may be open with what was read where they began; those beyond are counted as `too_many_open`.
const MAX_ENTERED: usize = 65_536;

/// What was recorded where a call began.
#[derive(Clone)]
pub struct Entry {
    /// In the order in which they were asked for.
    pub values: Vec<TracedValue>,
    /// Of the thread, where it was asked for.
    pub stack: Option<Arc<NamedStack>>,
    /// Whether it returned what it has to, once it has; `None` where that is not known.
    passes: Option<bool>,
}

impl Entry {
    /// Memory of its values and its stack, in bytes.
    pub fn bytes(&self) -> usize {
        bytes(&self.values, self.stack.as_deref())
    }

    /// What was recorded of a call that has ended.
    pub fn of_ended(end: &SpanEnd, values: Vec<TracedValue>, stack: Option<Arc<NamedStack>>) -> Self {
        Self {
            values,
            stack,
            passes: passes(end),
        }
    }

    /// The same, to be recorded.
    pub fn look(&self) -> RecordedLook {
        look(&self.values, self.stack.clone())
    }
}

/// A call that began and was recorded.
pub(super) struct Entered {
    tgid: u32,
    pub(super) probe: ProbeId,
    ts_ns: u64,
    entry: Entry,
    /// What was read where it returned.
    followed: Option<Vec<ReadValue>>,
}

impl Entered {
    /// Whether it is the beginning of this call, and not that of one whose end was lost: the numbers of a thread that is
    /// gone come again.
    fn is_of(&self, end: &SpanEnd) -> bool {
        (self.tgid, self.probe) == (end.tgid, end.probe) && self.ts_ns >= end.start_ns
    }
}

/// Whether a call returned what it has to; `None` where that is not known.
fn passes(end: &SpanEnd) -> Option<bool> {
    (end.flags & SpanEnd::UNDECIDED == 0).then_some(end.flags & SpanEnd::REFUSED == 0)
}

impl Trace {
    /// Takes what was read where a call began, if it is of one of its functions.
    pub fn take_entry(&mut self, NamedHit { hit, stack }: &NamedHit) {
        let Some(call) = self.calls.get(&hit.probe) else {
            return;
        };
        if self.entered.len() >= MAX_ENTERED {
            self.left_out.too_many_open += 1;
            return;
        }
        let entered = Entered {
            tgid: hit.tgid,
            probe: hit.probe,
            ts_ns: hit.ts_ns,
            entry: Entry {
                values: read(&call.shown.printed, hit),
                stack: stack.clone(),
                passes: None,
            },
            followed: None,
        };
        self.entered.insert((hit.tid, hit.parent), entered);
    }

    /// Takes what was read where a call returns, if it is of one that was recorded when it began.
    pub fn take_followed(&mut self, hit: &Hit) {
        if let Some(entered) = self.entered.get_mut(&(hit.tid, hit.parent))
            && (entered.tgid, entered.probe) == (hit.tgid, hit.probe)
        {
            entered.followed = Some(hit.values.clone());
        }
    }

    /// What was recorded where a call began that ends; `None` where nothing was, or it has no duration.
    pub fn leave(&mut self, end: &SpanEnd) -> Option<Entry> {
        let call = self.calls.get(&end.probe)?;
        let mut entered = self.entered.remove(&(end.tid, end.sequence))?;
        if !entered.is_of(end) {
            self.left_out.end_lost += 1;
            return None;
        }
        if end.flags & SpanEnd::ABANDONED != 0 {
            self.left_out.abandoned += 1;
            return None;
        }
        let followed = entered.followed.as_deref();
        returned(&call.shown.printed, end, followed, &mut entered.entry.values);
        entered.entry.passes = passes(end);
        Some(entered.entry)
    }

    /// Takes a call that ended, if its duration is one that is looked for.
    pub fn take_call(
        &mut self,
        end: &SpanEnd,
        Entry {
            values,
            stack,
            passes,
        }: Entry,
        is_inside: impl FnOnce(u64) -> bool,
    ) {
        let Some(call) = self.calls.get_mut(&end.probe) else {
            return;
        };
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        if !is_inside(duration_ns) {
            self.left_out.outside += 1;
            return;
        }
        match passes {
            Some(true) => {}
            Some(false) => {
                self.left_out.outside += 1;
                return;
            }
            None => {
                self.left_out.return_unknown += 1;
                return;
            }
        }
        if !call.limit.lets(end.end_ns) {
            self.left_out.limited += 1;
            return;
        }
        let place = call.place;
        let is_shown = self.push(TracedHit {
            ts_ns: end.start_ns,
            pid: end.tgid,
            tid: end.tid,
            place,
            duration_ns: Some(duration_ns),
            values,
            stack,
        });
        if let Some(call) = self.calls.get_mut(&end.probe) {
            call.handed_over += u64::from(is_shown);
        }
    }

    /// Forgets calls of threads that have been gone for `after_ns`: their ends were lost.
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(ThreadId) -> bool) {
        let entered = self.entered.iter();
        let old = entered.filter(|(_, entered)| now_ns.saturating_sub(entered.ts_ns) >= after_ns);
        let thread = |tid: u32, tgid: u32| ThreadId { tgid, tid };
        let threads = old.map(|((tid, _), entered)| thread(*tid, entered.tgid));
        let gone = self.gone.look(threads, now_ns, after_ns, is_gone);
        if gone.is_empty() {
            return;
        }
        let before = self.entered.len();
        self.entered
            .retain(|(tid, _), entered| !gone.contains(&thread(*tid, entered.tgid)));
        self.left_out.end_lost += (before - self.entered.len()) as u64;
    }
}
