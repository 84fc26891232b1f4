//! Distributes records in a session: hits, ends of calls, samples, and records that wait for the spans around
//! them.

use profiler_aggregate::ThreadId;
use profiler_common::{layout::bucket_of, record::SpanEnd};
use profiler_symbolize::Grouping;

use super::{
    super::{
        picture::SlowCall,
        spans,
        symbols::{DroppedHits, Named, NamedBatch, NamedHit},
        trace::Entry,
    },
    Session,
};
use crate::kernel::{Activity, Event, ReturnedCall};

/// What waits for the spans around it.
pub(super) enum Inside {
    /// A call that ended.
    Call {
        end: SpanEnd,
        /// What was recorded where it began, if anything was.
        entry: Option<Entry>,
        /// It is one of those that are looked at.
        counts: bool,
        /// What was gathered of it, where the slowest are watched.
        before: Option<spans::Before>,
    },
    /// A line that was reached.
    Hit(NamedHit),
}

impl Inside {
    /// What is looked at are the spans or hits of the last step.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Call { counts, .. } => u64::from(*counts),
            Self::Hit(_) => 1,
        }
    }
}

impl Session {
    /// Takes records whose addresses have names.
    pub fn take(&mut self, batch: &NamedBatch) {
        self.take_records(batch, false);
    }

    /// The same at its end, with what goes on then.
    pub fn take_last(&mut self, batch: &NamedBatch) {
        self.take_records(batch, true);
    }

    fn system_call(&mut self, call: &ReturnedCall) {
        if self.looks_at(call.tgid)
            && let Some(spans) = &mut self.spans
        {
            spans.system_call(call);
        }
    }

    fn take_records(&mut self, batch: &NamedBatch, is_last: bool) {
        for record in &batch.records {
            match record {
                Named::Sample { goes_on: true, .. } if !is_last => {}
                Named::Wait(wait) if wait.goes_on && !is_last => {}
                Named::Sample { until_ns, .. } if *until_ns > self.samples_until_ns => {}
                // What went on then is told by itself.
                Named::Wait(wait) if wait.wait.times[2] > self.samples_until_ns => {}
                Named::SpanEnd(end) => {
                    if let Some(records) = &mut self.records
                        && self.steps.iter().any(|step| step.functions.has(end.probe))
                    {
                        records.take(record);
                    }
                    self.span_end(end);
                }
                Named::SystemCall(call) => self.system_call(call),
                Named::Hit(hit) => self.hit(hit),
                Named::Wait(wait) => {
                    if self.looks_at(wait.wait.thread.tgid)
                        && let Some(records) = &mut self.records
                    {
                        records.take_wait(wait);
                    }
                    if let Some(waits) = &mut self.waits {
                        waits.take(wait);
                    }
                    if let Some(chains) = &mut self.chains {
                        chains.take(wait);
                    }
                    if let Some(explain) = &mut self.explain {
                        explain.take_wait(wait);
                    }
                    if let Some(spans) = &mut self.spans {
                        spans.wait(&wait.wait);
                    }
                }
                Named::Caller {
                    id,
                    stacks,
                    unanswered_ns,
                } => {
                    if let Some(calls) = &mut self.calls {
                        calls.name(*id, stacks, *unanswered_ns);
                    }
                }
                Named::Sample {
                    event: 0,
                    tgid,
                    tid,
                    ts_ns,
                    activity,
                    spans,
                    stacks,
                    complete,
                    ..
                } => {
                    if self.looks_at(*tgid) {
                        // Samples off the CPU are recorded only inside calls unless all are asked for, even where waits need them
                        // everywhere.
                        let is_recorded = *activity == Activity::OnCpu || self.divides();
                        if let Some(records) = &mut self.records
                            && (is_recorded || records.has_off_cpu())
                        {
                            records.take(record);
                        }
                        if let Some(explain) = &mut self.explain
                            && *activity == Activity::OnCpu
                            && let Some(stack) = stacks.of(Grouping::Function)
                        {
                            explain.take_sample(*tid, *ts_ns, spans, (stack, *complete));
                        }
                        let chains = self.chains.as_ref();
                        let chains = chains.map_or(&[][..], |chains| {
                            chains.of_sample(
                                ThreadId {
                                    tgid: *tgid,
                                    tid: *tid,
                                },
                                *ts_ns,
                                *activity,
                            )
                        });
                        self.flames
                            .values_mut()
                            .for_each(|flame| flame.sample(record, None, chains));
                        if let Some(spans) = &mut self.spans {
                            spans.sample(record);
                        }
                    }
                }
                Named::Weight(weight) => self.take_at_event(record, weight.event, weight.tgid),
                Named::Sample { event: id, tgid, .. } => self.take_at_event(record, *id, *tgid),
            }
        }
    }

    /// Takes a sample that was taken at an event of this number in a process, or the weight of one.
    fn take_at_event(&mut self, record: &Named, id: u32, tgid: u32) {
        let Some(event) = self.event_of(id).filter(|_| self.looks_at(tgid)) else {
            return;
        };
        if let Some(records) = &mut self.records {
            records.take_at_event(event, record);
        }
        for flame in self.flames.values_mut() {
            match record {
                Named::Weight(weight) => flame.weight(weight, event),
                _ => flame.sample(record, Some(event), &[]),
            }
        }
    }

    /// The event that samples name so, where one is watched or recorded.
    fn event_of(&self, id: u32) -> Option<Event> {
        let mut watched = self.flames.keys().filter_map(|kind| kind.times.event());
        let of_tracepoint = watched.find(|event| event.id_of_tracepoint() == Some(id));
        let recorded = || self.records.as_ref()?.event_of_tracepoint(id);
        of_tracepoint.or_else(recorded).or(self.events.of(id))
    }

    /// Counts hits that came faster than they were named.
    pub fn miss(&mut self, hits: &DroppedHits) {
        for (probe, count) in hits {
            self.trace.miss(*probe, *count);
        }
    }

    fn hit(&mut self, named: &NamedHit) {
        let hit = &named.hit;
        if let Some(spans) = &mut self.spans {
            spans.hit(hit);
        }
        if hit.is_entry {
            self.trace.take_entry(named);
        } else if hit.is_end {
            self.trace.take_followed(hit);
        } else if !self.trace.has_line(hit.probe) {
            // Of another session.
        } else {
            if self.records_hits()
                && let (Some(records), Some(look)) = (&mut self.records, self.trace.look(named))
            {
                records.take_reached(hit, look);
            }
            if hit.joined {
                let inside = Inside::Hit(named.clone());
                self.path.wait(hit.tgid, hit.tid, hit.parent, hit.ts_ns, inside);
            } else {
                self.trace.take_hit(named);
            }
        }
    }

    fn span_end(&mut self, end: &SpanEnd) {
        if let Some(explain) = &mut self.explain
            && explain.take_inside(end)
        {
            return;
        }
        for inside in self.path.span_end(end) {
            match inside {
                Inside::Call {
                    end, entry, before, ..
                } => {
                    if end.flags & SpanEnd::REFUSED == 0 {
                        self.joined_calls.add(&end);
                    }
                    self.call(&end, entry, before);
                }
                Inside::Hit(hit) => self.trace.take_hit(&hit),
            }
        }
        let mut entry = self.trace.leave(end);
        if self.records_hits()
            && let (Some(records), Some(entry)) = (&mut self.records, &entry)
        {
            records.take_call(end, entry.look());
        }
        if let Some(explain) = &mut self.explain {
            explain.take_call(end, entry.take().map(|entry| entry.values).as_deref());
        }
        let before = self.spans.as_mut().and_then(|spans| spans.span_end(end));
        if !self.path.is_joined(end.probe) {
            self.call(end, entry, before);
        } else if end.flags & SpanEnd::JOINED != 0 && end.flags & SpanEnd::ABANDONED == 0 {
            let last = self.steps.last();
            let is_last = last.is_some_and(|last| last.functions.has(end.probe));
            let inside = Inside::Call {
                end: *end,
                counts: is_last && (self.capture.is_none() || self.by.is_some() || entry.is_some()),
                entry,
                before,
            };
            self.path
                .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, inside);
        }
        self.flames.values_mut().for_each(|flame| flame.span_end(end));
    }

    /// Takes the end of a call, be it that it ended long ago and was found to count only now.
    fn call(&mut self, end: &SpanEnd, entry: Option<Entry>, before: Option<spans::Before>) {
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        // Where the slowest are watched, ends of faster calls come too.
        let is_slow = end.flags & SpanEnd::SLOW != 0 && duration_ns >= self.slow_from_ns;
        if is_slow && let Some(last) = self.steps.last_mut() {
            let call = SlowCall {
                ts_ns: end.end_ns,
                tid: end.tid,
                duration_ns,
            };
            last.functions
                .note_slow(end.probe, call, self.ages.window.window_ns);
        }
        let is_refused = end.flags & SpanEnd::REFUSED != 0;
        if let Some(spans) = &mut self.spans
            && !is_refused
        {
            spans.call(end, before, self.sampled_from);
        }
        let traced = self.traced;
        // Nobody would fetch what is recorded for the slowest calls alone.
        let is_traced = self.spans.is_none() || self.by.is_some() || self.trace.watchers() > 0;
        let Some(entry) = entry.filter(|_| is_traced) else {
            if let Some(by) = &mut self.by
                && !is_refused
            {
                by.take_unread(end);
            }
            return;
        };
        if let Some(by) = &mut self.by {
            if is_refused {
                return;
            }
            by.take(end.probe, end.end_ns.saturating_sub(end.start_ns), entry.values);
        } else {
            let is_inside = |duration_ns| traced.contains(bucket_of(duration_ns));
            self.trace.take_call(end, entry, is_inside);
        }
    }
}
