//! The view of the slowest calls of a session: what is attached while it is watched, and the programs' recording
//! limits.

use std::sync::Arc;

use profiler_aggregate::histogram::Histogram;

use super::{At, FIRST_NS, Live, Renewed, Tick, View};
use crate::{
    kernel::{Engine, KernelError, Times},
    session::{
        command::{Caller, Handle},
        cost::monotonic_ns,
        error::{Reason, SessionError},
        flame::Moment,
        picture::{FlameTimes, Losses},
        replay::Player,
        sampling::Sampling,
        spans::{self, Layout, SpansPicture, SpansRequest},
        state::{Session, read::join_losses},
        symbols::{Dropped, Wanted},
        watchers::{Pictures, Streams},
    },
};

/// A client asks for the slowest calls.
pub struct Spans {
    interval_ns: u64,
    request: SpansRequest,
}

impl View for Spans {
    type Stream = Pictures<SpansPicture>;

    const NAME: &'static str = "slowest calls";
    const IS_SAMPLED: bool = true;

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Self { interval_ns, request } = self;
        let Live {
            session,
            running,
            now_ns,
            ..
        } = live;
        if !session.has_calls() {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "the scope has no calls: it needs a function or a call, as in f or f@main.cc:1312",
            ));
        }
        // The first is due when there is something to show.
        let stream = session.streams.spans.add(request, interval_ns, now_ns + FIRST_NS);
        session.settle_spans(&running.engine, running.symbols.dropped(), now_ns);
        session.read(&running.engine, now_ns);
        Ok(stream)
    }

    fn replay(
        self,
        player: &mut Player,
        session: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        player.spans(session, self.request, is_awaited)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.streams.spans
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.streams.spans
    }

    fn times(session: &Session) -> Times {
        if session.streams.spans.is_empty() {
            return Times::default();
        }
        let wakers = session.streams.spans.variants().any(|request| request.waits);
        Times {
            wakers,
            call_records: session.records_system_calls(),
            ..Times::IN_SPANS
        }
    }

    fn wanted(session: &Session) -> Wanted {
        let groupings = session.spans.iter().flat_map(|_| spans::Spans::GROUPINGS);
        Wanted {
            groupings: groupings.collect(),
            samples: session.spans.is_some(),
            locks: session.spans.is_some(),
            ..Wanted::default()
        }
    }

    fn settle(session: &mut Session, engine: &mut Engine, at: At) -> Result<(), KernelError> {
        session.settle_spans(engine, at.dropped, at.now_ns);
        Ok(())
    }

    fn renew(session: &mut Session, engine: &mut Engine, at: At, _renewed: Renewed) {
        session.renew_spans(engine, at.dropped, at.now_ns);
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        let (scope, own) = (Arc::clone(&session.scope_text), session.own_losses());
        let picture = session.spans_picture(tick.engine, &tick.moment(&scope, &own));
        let streams = &mut session.streams.spans;
        streams.publish(tick.now_ns, tick.is_last(), |request| {
            Some(picture.of_stream(request))
        });
    }
}

impl Handle {
    /// Pictures of a session's slowest calls. The sampler runs while one of these is open.
    ///
    /// # Errors
    /// Where there is no such session, it has no calls, or the kernel refuses the sampler.
    pub async fn watch_spans(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
        request: SpansRequest,
    ) -> Result<Pictures<SpansPicture>, SessionError> {
        self.watch(caller, name, Spans { interval_ns, request }).await
    }
}

impl Session {
    /// Whether there are calls whose slowest can be shown.
    fn has_calls(&self) -> bool {
        self.divider().is_some()
    }

    /// Whether a watcher wants the system calls of each call.
    fn records_system_calls(&self) -> bool {
        self.streams.spans.variants().any(|request| request.system_calls)
    }

    /// How many of the slowest the watchers want, at most; `None` without any.
    fn wanted_spans(&self) -> Option<usize> {
        self.streams.spans.variants().map(|request| request.number).max()
    }

    /// Begins and ends the look at the slowest calls with its watchers.
    fn settle_spans(&mut self, engine: &Engine, dropped: Dropped, now_ns: u64) {
        let wanted = self.wanted_spans();
        let system_calls = self.records_system_calls();
        match (wanted, &mut self.spans) {
            (Some(wanted), Some(spans)) => spans.want(wanted),
            (Some(wanted), None) => {
                self.begin_spans(engine, dropped, wanted, now_ns);
                self.set_bands();
            }
            (None, Some(_)) => {
                self.end_spans(engine);
                self.read(engine, now_ns);
            }
            (None, None) => {}
        }
        if let Some(spans) = &mut self.spans {
            spans.want_system_calls(system_calls);
        }
    }

    fn begin_spans(&mut self, engine: &Engine, dropped: Dropped, wanted: usize, now_ns: u64) {
        let layout = self.divider().and_then(|step| Layout::of(&self.steps, step));
        let Some(layout) = layout else { return };
        layout.set_records(engine, &self.steps, self.capture.is_some(), true);
        self.read(engine, now_ns);
        let [_, calls] = self.calls_of(layout.step(), now_ns);
        let lost = self.spans_losses(engine, dropped, &layout);
        // Behind the reading: each call that is shown is one of those that are counted.
        let since_ns = monotonic_ns();
        self.spans = Some(spans::Spans::new(
            layout,
            wanted,
            self.ages.window,
            &calls,
            lost,
            since_ns,
        ));
    }

    fn end_spans(&mut self, engine: &Engine) {
        if let Some(spans) = self.spans.take() {
            let layout = spans.layout();
            layout.set_records(engine, &self.steps, self.capture.is_some(), false);
            for probe in layout.probes() {
                engine.set_threshold(probe, u64::MAX);
            }
        }
    }

    /// Goes on with another scope.
    fn renew_spans(&mut self, engine: &Engine, dropped: Dropped, now_ns: u64) {
        let Some(wanted) = self.wanted_spans() else {
            return;
        };
        let layout = self.divider().and_then(|step| Layout::of(&self.steps, step));
        if let (Some(layout), Some(spans)) = (layout, &mut self.spans)
            && spans.goes_on(layout)
        {
            let captures = self.capture.is_some();
            spans.layout().set_records(engine, &self.steps, captures, true);
            return;
        }
        // The probes before are gone, or have been set anew.
        self.spans = None;
        self.begin_spans(engine, dropped, wanted, now_ns);
        self.set_bands();
    }

    /// The slowest calls at one moment.
    fn spans_picture(&self, engine: &Engine, moment: &Moment<'_>) -> SpansPicture {
        let Some(spans) = &self.spans else {
            return SpansPicture::without(self.ages.window.window_ns, self.sampled_from, moment);
        };
        let lost = self.spans_losses(engine, moment.dropped, spans.layout());
        spans.picture(moment, self.sampled_from, lost)
    }

    /// What is lost of the calls that a layout shows, by reason.
    fn spans_losses(&self, engine: &Engine, dropped: Dropped, layout: &Layout) -> Losses {
        let mut lost = Sampling::now(engine, dropped).losses(FlameTimes::Both);
        lost.extend(self.span_losses(engine));
        lost.extend(join_losses(self.dropped));
        lost.extend(spans::program_losses(engine, layout));
        lost.extend(spans::system_call_losses(engine, dropped));
        lost
    }

    /// All calls of the step whose slowest are shown: in the window, and since the start.
    fn calls_of(&self, step: usize, now_ns: u64) -> [Histogram<u64>; 2] {
        let (mut window, mut since_start) = (Histogram::new(), Histogram::new());
        for function in self.steps.get(step).iter().flat_map(|step| step.functions.iter()) {
            window.merge(&function.latency().window(now_ns));
            since_start.merge(function.latency().since_start());
        }
        [window, since_start]
    }

    /// Sets from which duration on the ends of calls are recorded: of the last step for what is slow by its scope, of the
    /// step whose slowest are watched for these; of both, the lower.
    pub(in super::super) fn set_thresholds(
        &mut self,
        engine: &Engine,
        slow_from_ns: Option<u64>,
        now_ns: u64,
    ) {
        let shown = self.spans.as_ref().map(|spans| spans.layout().step());
        let shown_from_ns = shown.map(|step| (step, self.shown_from_ns(step, now_ns)));
        let last_number = self.steps.iter().len().saturating_sub(1);
        let mut thresholds: Vec<(usize, u64)> = shown_from_ns.into_iter().collect();
        match (slow_from_ns, thresholds.first_mut()) {
            (Some(slow_ns), Some((step, ns))) if *step == last_number => *ns = slow_ns.min(*ns),
            (Some(slow_ns), _) => thresholds.push((last_number, slow_ns)),
            (None, _) => {}
        }
        for (number, threshold_ns) in thresholds {
            let step = self.steps.get(number);
            for probe in step.iter().flat_map(|step| step.functions.probes()) {
                engine.set_threshold(probe, threshold_ns);
            }
            if let Some(spans) = self.spans.as_mut().filter(|_| shown == Some(number)) {
                spans.set_limit(threshold_ns);
            }
        }
    }

    /// The duration from which on the ends of a step's calls are needed to show the slowest.
    fn shown_from_ns(&mut self, step: usize, now_ns: u64) -> u64 {
        let [window, since_start] = self.calls_of(step, now_ns);
        let spans = self.spans.as_mut();
        spans.map_or(u64::MAX, |spans| {
            spans.read(&since_start, now_ns);
            spans.threshold_ns(&window, now_ns)
        })
    }
}
