//! The slowest calls of a part of a recording, with what each of them did.
//!
//! Not every call was recorded one by one: those that were slow by the recorded scope, in which a sample was taken or a thread left
//! the CPU, or that were looked at. All were counted, so that it is known how many are missing, and from which duration on none is.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use profiler_aggregate::{
    ThreadId,
    histogram::Histogram,
    slots::WindowConfig,
    waits::{Wait, Waker},
};
use profiler_common::{probe::ProbeId, record::SpanEnd};

use super::{
    super::{
        division::{self, CountedStep as _},
        ending::Ending,
        error::{Reason, SessionError},
        flame::Moment,
        picture::{FlameTimes, Losses},
        records::{
            RecordedExpression, RecordedLook, RecordedReached, RecordedSample, RecordedScope, RecordedWait,
        },
        spans::{Before, Layout, SampledFrom, SlowSpan, Spans, SpansPicture, SpansRequest, program_losses},
        symbols::{Dropped, Named},
        trace::ThreadName,
        waits::{Pids, of_target},
        watchers::{self, Pictures},
    },
    asked::AskedStep,
    hits::values,
    named::named,
    part::{LATE_NS, Part},
    play::Played,
};
use crate::kernel::Activity;

/// The slowest calls of a way through a recording.
pub struct Slowest {
    spans: Spans,
    request: SpansRequest,
    expressions: HashMap<ProbeId, Vec<RecordedExpression>>,
    /// Waits that were told with the records that are taken, by their thread and when it could run again.
    waits: HashMap<(ThreadId, u64), Wait>,
    /// Those of the records before, as a sample may come after its wait.
    waits_before: HashMap<(ThreadId, u64), Wait>,
    /// Waits were recorded.
    has_waits: bool,
    pids: Pids,
    from_ns: u64,
    /// Calls that end later are not of the part.
    to_ns: u64,
}

impl Slowest {
    /// None yet, of these steps from a time on.
    ///
    /// # Errors
    /// Where they have no calls.
    pub fn new(
        recorded: &RecordedScope,
        steps: &[AskedStep],
        request: SpansRequest,
        part: Part,
        from_ns: u64,
    ) -> Result<Self, SessionError> {
        let divider = division::divider(steps);
        let layout = divider.and_then(|step| Layout::of_recorded(steps, step, &recorded.places));
        let layout = layout.ok_or_else(|| {
            SessionError::new(
                Reason::ArgumentInvalid,
                "the scope has no calls: it needs a function or a call, as in f or f@main.cc:1312",
            )
        })?;
        let length_ns = part.end_ns.saturating_sub(from_ns);
        let window = WindowConfig {
            window_ns: length_ns.saturating_add(LATE_NS),
            ..recorded.ages.window
        };
        let places = recorded.places.iter().filter(|place| place.is_call);
        Ok(Self {
            spans: Spans::of_recording(layout, request.number, window, from_ns),
            request,
            expressions: places
                .map(|place| (place.probe, place.expressions.clone()))
                .collect(),
            waits: HashMap::new(),
            waits_before: HashMap::new(),
            has_waits: false,
            pids: recorded.pids.iter().copied().collect(),
            from_ns,
            to_ns: part.end_ns,
        })
    }

    /// The number of the step whose calls are shown.
    pub fn step(&self) -> usize {
        self.spans.layout().step()
    }

    /// Takes the waits that are told with the records that follow.
    pub fn take_waits(&mut self, waits: Vec<RecordedWait>, is_told: bool) {
        self.has_waits |= is_told || !waits.is_empty();
        let waits = waits
            .into_iter()
            .map(|RecordedWait { wait, .. }| ((wait.thread, wait.times[1]), wait));
        let before = std::mem::replace(&mut self.waits, waits.collect());
        self.waits_before = before;
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: RecordedSample) {
        let thread = ThreadId {
            tgid: sample.tgid,
            tid: sample.tid,
        };
        let is_wait = !matches!(sample.activity, Activity::OnCpu | Activity::Runnable);
        let wait = self
            .waits
            .get(&(thread, sample.ts_ns))
            .or_else(|| self.waits_before.get(&(thread, sample.ts_ns)))
            .filter(|_| is_wait)
            .map(|wait| of_target(wait, &self.pids));
        let mut sample = named(sample);
        if let Named::Sample { lock, .. } = &mut sample
            && let Some(wait) = &wait
        {
            *lock = wait.lock;
            if self.request.waits {
                self.spans.wait(wait);
            }
        }
        self.spans.sample(&sample);
    }

    /// Takes a line that was reached.
    pub fn reached(&mut self, hit: &RecordedReached) {
        let thread = ThreadId {
            tgid: hit.tgid,
            tid: hit.tid,
        };
        self.spans.reached(thread, hit.probe, hit.parent, hit.ts_ns);
    }

    /// Takes what was read of a call, whose end follows.
    pub fn values(&mut self, end: &SpanEnd, look: &RecordedLook) {
        if let Some(expressions) = self.expressions.get(&end.probe) {
            self.spans.values(end, values(expressions, look));
        }
    }

    /// Takes the end of a span; gives what was gathered of it.
    pub fn span_end(&mut self, end: &SpanEnd) -> Option<Before> {
        self.spans.span_end(end)
    }

    /// Takes a call that counts.
    pub fn call(&mut self, end: &SpanEnd, before: Option<Before>) {
        if end.flags & SpanEnd::REFUSED == 0 && end.end_ns <= self.to_ns {
            let mut sampled_from = SampledFrom::default();
            sampled_from.set(true, self.from_ns);
            self.spans.call(end, before, sampled_from);
        }
    }

    /// Takes none that end later.
    pub fn end_at(&mut self, to_ns: u64) {
        self.to_ns = to_ns;
    }

    /// Says what is asked of the durations of the steps with spans.
    pub fn set_band(&mut self, band: profiler_aggregate::threshold::Band) {
        self.spans.set_band(band);
    }

    /// Forgets what was gathered of calls whose ends may have been lost.
    pub fn forget_open(&mut self, now_ns: u64) {
        self.spans.expire(now_ns, 0, |_| true);
    }
}

impl Played {
    /// The slowest calls.
    ///
    /// # Errors
    /// Where they were not asked for.
    pub fn slowest(mut self) -> Result<Pictures<SpansPicture>, SessionError> {
        let mut slowest = self
            .spans
            .take()
            .ok_or_else(|| SessionError::new(Reason::ArgumentInvalid, "no calls were requested"))?;
        let request = slowest.request;
        let now_ns = self.now_ns;
        let mut calls = Histogram::<u64>::new();
        let step = self.steps.get(slowest.step());
        for function in step.iter().flat_map(|step| step.functions().iter()) {
            calls.merge(function.latency().since_start());
        }
        slowest.spans.read(&calls, now_ns);
        let mut picture = {
            let moment = Moment {
                now_ns,
                scope: &self.scope,
                frames: &self.frames,
                cost: self.cost,
                dropped: Dropped::default(),
                also_lost: Losses::new(),
                ended: Some(&self.ended),
            };
            let mut sampled_from = SampledFrom::default();
            sampled_from.set(true, slowest.from_ns);
            let mut lost = self.sampling().losses(FlameTimes::Both);
            lost.extend(self.span_losses());
            lost.extend(self.lost_waits());
            lost.extend(program_losses(&self.counts, slowest.spans.layout()));
            slowest.spans.picture(&moment, sampled_from, lost)
        };
        picture.window_ns = picture.watched_ns;
        picture.threshold_ns = slowest.spans.recorded_from_ns(now_ns);
        picture.ended = Some(Ending::of_recording(self.end_of_slowest(&slowest, &picture)));
        picture.thread_names = Some(self.names_of(&picture.spans));
        Ok(watchers::single(picture.of_stream(request)))
    }

    /// Why nothing more is shown, and what of the calls was not recorded.
    fn end_of_slowest(&self, slowest: &Slowest, picture: &SpansPicture) -> String {
        let mut reason = self.ended.to_string();
        if let Some(missing) = picture.lost.get("below_limit") {
            let step = self.steps.get(slowest.step());
            let step = step.map_or_else(String::new, |step| {
                let place = step.text().place;
                format!("{place}[>= 1ms]")
            });
            let said = format!(
                "; calls that no sample hit were counted and not recorded one by one: {missing} of them belong here; to have each from a duration on, record that, as in '{step}'"
            );
            reason.push_str(&said);
        }
        if slowest.request.waits && !slowest.has_waits {
            reason.push_str("; who ended waits was not recorded: record it with --waits");
        }
        reason
    }

    /// What the threads of calls and those who ended their waits were called.
    fn names_of(&self, spans: &[Arc<SlowSpan>]) -> Vec<ThreadName> {
        let mut names = BTreeMap::new();
        for span in spans {
            let thread = ThreadId {
                tgid: span.pid,
                tid: span.tid,
            };
            names.insert(thread, self.threads.name(thread, &self.frames));
            if let Some(Waker::Thread { thread, place, .. }) = span.waker() {
                // One that was never sampled is known by a name without its number.
                let alike = || Some(self.frames.get(place.thread.0 as usize)?.function.to_string());
                let name = self.threads.name(*thread, &self.frames).or_else(alike);
                names.insert(*thread, name);
            }
        }
        let names = names.into_iter();
        names
            .filter_map(|(thread, name)| {
                name.map(|name| ThreadName {
                    pid: thread.tgid,
                    tid: thread.tid,
                    name,
                })
            })
            .collect()
    }
}
