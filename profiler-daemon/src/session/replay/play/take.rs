//! What is done with the records of a part, and at its ticks.

use profiler_aggregate::{
    ThreadId,
    threshold::{Band, Division},
};
use profiler_common::record::SpanEnd;

use super::{
    super::{
        super::{
            division::{self, Bands, CountedStep as _, StepBand},
            population::Calls,
            records::{AtEvent, Recorded},
        },
        named::{named, named_at},
    },
    Played,
    inside::Inside,
};
use crate::recording::{Batch, Summary};

impl Played {
    pub(super) fn take(&mut self, mut batch: Batch) {
        if batch.dropped > 0 {
            // Ends of calls and waits may be among what was lost.
            self.forget_until(batch.to_ns);
            self.lost = self.lost.saturating_add(batch.dropped);
        }
        self.take_records(&mut batch);
        batch.calls.iter().for_each(|calls| self.counts.add(calls));
        if let Some(event) = self.flame.as_ref().and_then(|flame| flame.kind().times.event()) {
            let of_event = batch.event_counts.iter().filter(|reading| reading.event == event);
            for reading in of_event {
                self.event_counts.add(reading.counts);
            }
        }
        if self.hits.is_some() || self.spans.is_some() {
            let places = &self.recorded.places;
            let is_known = |probe| places.iter().any(|place| place.probe == probe);
            for hits in &batch.hit_counts {
                self.counts.add_hits(hits, is_known);
            }
        }
        self.now_ns = batch.to_ns;
        if self.reads_each {
            self.read();
        }
    }

    pub(super) fn take_summary(&mut self, summary: Summary) {
        let Summary {
            mut batch,
            samples,
            moments,
        } = summary;
        // Ends of calls that were open before, which what follows may go on with.
        self.take_records(&mut batch);
        if let Some(flame) = &mut self.flame {
            flame.summed(&samples);
        }
        batch.calls.iter().for_each(|calls| self.counts.add(calls));
        for moment in moments.iter() {
            moment.calls.iter().for_each(|calls| self.counts.add(calls));
            let calls = Calls {
                counted: &self.counts.changed_by(&moment.calls),
                joined: &self.joined,
            };
            // No record is held against a threshold in between: what follows from the counts is read at the end. The last
            // windows are not summed up.
            division::read_behind_window(&mut self.steps, calls, moment.to_ns);
        }
        self.now_ns = batch.to_ns;
        self.summed_until_ns = batch.to_ns;
        if self.reads_each {
            self.read();
        }
    }

    /// Takes records, and what was counted on their way.
    fn take_records(&mut self, batch: &mut Batch) {
        self.take_each(batch);
        self.unknown = self.unknown.saturating_add(batch.unknown);
        self.counters.add(&batch.counters);
        self.cost = batch.cost;
    }

    /// Takes records; of a batch that was told after the end of the part, hits and the ends that they wait for.
    pub(super) fn take_each(&mut self, batch: &mut Batch) {
        if let Some(spans) = &mut self.spans {
            spans.take_waits(std::mem::take(&mut batch.waits), batch.off_cpu.is_some());
        } else if let Some(waiting) = &mut self.waiting {
            waiting.take(std::mem::take(&mut batch.waits), batch.off_cpu.take());
        }
        let mut records = std::mem::take(&mut batch.records).into_iter().peekable();
        while let Some(record) = records.next() {
            match record {
                Recorded::Sample(sample) => {
                    if let Some(flame) = &mut self.flame {
                        let thread = ThreadId {
                            tgid: sample.tgid,
                            tid: sample.tid,
                        };
                        let since_ns = if self.draws_outside { self.begun_ns } else { 0 };
                        let (ts_ns, activity, weight_ns) = (sample.ts_ns, sample.activity, sample.weight_ns);
                        let shown = sample.since(since_ns);
                        // Of a wait that the part begins amid of, what it was for is not told from what that was before.
                        let waiting = self.waiting.as_mut().filter(|_| shown.weight_ns == weight_ns);
                        let drawn =
                            waiting.map_or(&[][..], |waiting| waiting.of_sample(thread, ts_ns, activity));
                        flame.sample(&named(shown), None, drawn);
                    } else if let Some(spans) = &mut self.spans {
                        spans.sample(sample);
                    }
                }
                Recorded::SpanEnd(end) => {
                    // What was read where it began is told behind its end.
                    if let Some(spans) = &mut self.spans
                        && let Some(Recorded::Call(of, look)) = records.peek()
                        && (of.tid, of.probe, of.sequence) == (end.tid, end.probe, end.sequence)
                    {
                        spans.values(&end, look);
                    }
                    self.span_end(&end);
                }
                // They are read by themselves.
                Recorded::Wait(_) => {}
                Recorded::AtEvent(at) => {
                    if let Some(flame) = &mut self.flame {
                        let event = at.event;
                        match at.what {
                            AtEvent::Sample(sample, key) => {
                                flame.sample(&named_at(sample, key), Some(event), &[]);
                            }
                            AtEvent::Weight(weight) => flame.weight(&weight, event),
                        }
                    }
                }
                Recorded::Reached(hit, look) => {
                    if let Some(spans) = &mut self.spans {
                        spans.reached(&hit);
                    }
                    if let Some(hits) = &mut self.hits
                        && let Some(waiting) = hits.reached(&hit, &look)
                    {
                        if hit.joined {
                            let inside = Inside::Hit(waiting);
                            self.path.wait(hit.tgid, hit.tid, hit.parent, hit.ts_ns, inside);
                        } else {
                            hits.take(waiting);
                        }
                    }
                }
                Recorded::Call(end, look) => {
                    if let Some(hits) = &mut self.hits
                        && let Some(waiting) = hits.call(&end, &look)
                    {
                        if !self.path.is_joined(end.probe) {
                            hits.take(waiting);
                        } else if is_joined(&end) {
                            let inside = Inside::Hit(waiting);
                            self.path
                                .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, inside);
                        }
                    }
                }
            }
        }
        if let Some(hits) = &mut self.hits {
            hits.keep();
        }
    }

    fn span_end(&mut self, end: &SpanEnd) {
        for inside in self.path.span_end(end) {
            match inside {
                Inside::Call { end, before, .. } if end.flags & SpanEnd::REFUSED == 0 => {
                    self.joined.add(&end);
                    if let Some(spans) = &mut self.spans {
                        spans.call(&end, before);
                    }
                }
                Inside::Call { .. } => {}
                Inside::Hit(waiting) => {
                    if let Some(hits) = &mut self.hits {
                        hits.take(waiting);
                    }
                }
            }
        }
        let before = self.spans.as_mut().and_then(|spans| spans.span_end(end));
        if !self.path.is_joined(end.probe) {
            if let Some(spans) = &mut self.spans {
                spans.call(end, before);
            }
        } else if is_joined(end) {
            let last = self.steps.last();
            let call = Inside::Call {
                end: *end,
                // Where hits are looked at, they count, each by itself.
                counts: self.hits.is_none() && last.is_some_and(|last| last.functions.has(end.probe)),
                before,
            };
            self.path
                .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, call);
        }
        if let Some(flame) = &mut self.flame {
            flame.span_end(end);
        }
    }

    /// Reads what was counted, as a session does at its ticks.
    pub(super) fn read(&mut self) {
        let now_ns = self.now_ns;
        let calls = Calls {
            counted: &self.counts,
            joined: &self.joined,
        };
        division::read(&mut self.steps, calls, now_ns);
        let Bands { of_spans, last } = division::bands(&self.steps);
        for (place, StepBand { band, step }) in of_spans.iter().enumerate() {
            let known = self.around.get(place).copied().flatten();
            let band = known.unwrap_or(*band);
            self.path.set_band(place, band);
            if let Some(flame) = &mut self.flame {
                flame.set_band(place, band);
            }
            if let Some(spans) = &mut self.spans
                && *step == spans.step()
            {
                spans.set_band(band);
            }
        }
        if let (Some(flame), Some(divider)) = (&mut self.flame, division::divider(&self.steps))
            && let Some(step) = self.steps.get(divider)
        {
            let population = division::population(&self.steps, divider, calls);
            // Which threads have ended meanwhile is not recorded.
            flame.read(
                population,
                step.functions.probes(),
                None::<fn(ThreadId) -> bool>,
                now_ns,
            );
        }
        if let Some(hits) = &mut self.hits {
            let last_is_call = self
                .steps
                .last()
                .is_some_and(|last| last.step().place.has_spans());
            let known = of_spans.len().checked_sub(1).filter(|_| last_is_call);
            let known = known.and_then(|place| self.around.get(place).copied().flatten());
            let asked = last.as_ref().map_or(Band::ALL, Division::inside);
            hits.set_band(known.unwrap_or(asked));
        }
        self.dropped += self.path.take_dropped();
    }

    /// Forgets what threads did until a time, as some of it is missing: samples and calls that wait for an end, and waits.
    pub(super) fn forget_until(&mut self, ns: u64) {
        self.forget_open();
        if let Some(waiting) = &mut self.waiting {
            waiting.forget_until(ns);
        }
    }

    /// Forgets samples and calls that wait for an end, which may have been lost.
    fn forget_open(&mut self) {
        if let Some(flame) = &mut self.flame {
            flame.forget_open(self.now_ns);
        }
        if let Some(spans) = &mut self.spans {
            spans.forget_open(self.now_ns);
        }
        self.path.expire(self.now_ns, 0, |_| true);
    }
}

/// Whether a call waits for the calls around it.
fn is_joined(end: &SpanEnd) -> bool {
    end.flags & SpanEnd::JOINED != 0 && end.flags & SpanEnd::ABANDONED == 0
}
