//! The records of a session, while somebody keeps them.

use std::{collections::BTreeSet, sync::Arc};

use profiler_scope::Step;
use profiler_symbolize::FrameTable;
use tokio::sync::mpsc;

use super::{Live, Tick, View, syscalls::SYSCALLS, unknown::refuse_unknown};
use crate::{
    kernel::{Engine, Event, Times},
    session::{
        command::{Caller, Handle, Purpose},
        error::{Reason, SessionError},
        picture::FlameTimes,
        records::{EventReading, GROUPINGS, Moment, MoreRecords, RecordBatch, RecordedScope, Recorder},
        refusal::kernel_refusal,
        sampled_events::refuse_missing,
        sampling::Sampling,
        span_losses::SpanLosses,
        state::Session,
        symbols::{Dropped, Wanted},
        watchers::Streams,
    },
};

/// Refuses scopes of which no recorded table of system calls would be shown. They are counted in calls of any duration: that can be left
/// out afterwards.
fn refuse_unrecordable(steps: &[&Step]) -> Result<(), SessionError> {
    let mut steps: Vec<Step> = steps.iter().map(|step| (*step).clone()).collect();
    for step in &mut steps {
        step.predicates.clear();
    }
    refuse_unknown(&steps.iter().collect::<Vec<_>>(), SYSCALLS)
}

/// A client asks for them.
pub struct Records {
    /// What is recorded, too.
    more: MoreRecords,
}

impl View for Records {
    type Stream = mpsc::Receiver<RecordBatch>;

    const NAME: &'static str = "records";
    const IS_SAMPLED: bool = true;
    const IS_OF_COUNTS: bool = false;

    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError> {
        let Live {
            session,
            others,
            running,
            backlogs,
            now_ns,
        } = live;
        if session.is_of_line() && !session.shows_hits() {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "a recording of a line needs a session that records hits: make one with `profiler session new --trace`",
            ));
        }
        for event in &self.more.events {
            refuse_missing(*event)?;
        }
        session.reserve_events(&mut running.engine, self.more.events.iter().copied())?;
        if self.more.syscalls {
            refuse_unrecordable(&session.asked_steps())?;
            if session.watches_calls() {
                // What is counted already is not of this recording.
                running.end_turn(now_ns);
                running.take_calls(others.values_mut().chain([&mut *session]), now_ns);
            }
        }
        let mut recorder = session.records.take().unwrap_or_else(|| {
            let backlog = backlogs.of(session.owner());
            Recorder::new(session.recorded_scope(), backlog, now_ns)
        });
        let tick = session.tick(
            &running.engine,
            &running.frames,
            running.symbols.dropped(),
            now_ns,
        );
        let mut events = recorder.events();
        events.extend(&self.more.events);
        let stream = recorder.watch(&self.more, &session.records_moment(&tick, &events));
        session.records = Some(recorder);
        if self.more.syscalls {
            session
                .settle_calls(&mut running.engine, now_ns)
                .map_err(|error| kernel_refusal(&error))?;
            // The first stack may be named when the process has ended already.
            running.symbols.meeting(session.pids(), Box::new(|| ()))();
        }
        Ok(stream)
    }

    fn streams(session: &Session) -> &dyn Streams {
        &session.records
    }

    fn streams_mut(session: &mut Session) -> &mut dyn Streams {
        &mut session.records
    }

    /// Off the CPU, inside spans alone, unless all is asked for.
    fn times(session: &Session) -> Times {
        let Some(recorder) = &session.records else {
            return Times::default();
        };
        let times = if recorder.has_off_cpu() {
            FlameTimes::Both.sampled(false)
        } else if session.divides() {
            FlameTimes::Both.sampled(true)
        } else {
            FlameTimes::OnCpu.sampled(false)
        };
        let of_events = recorder.events().into_iter();
        let of_events = of_events.map(|event| FlameTimes::Event(event).sampled(session.divides()));
        let times = of_events.fold(times, Times::or);
        if recorder.has_waits() {
            times.or(Times::WAITS)
        } else {
            times
        }
    }

    fn wanted(session: &Session) -> Wanted {
        let is_recorded = session.is_recorded();
        Wanted {
            groupings: session.records.iter().flat_map(|_| GROUPINGS).collect(),
            samples: is_recorded,
            tasks: is_recorded,
            ..Wanted::default()
        }
    }

    fn accepts(session: &Session, steps: &[&Step]) -> Result<(), SessionError> {
        if session.records_calls() {
            refuse_unrecordable(steps)?;
        }
        Ok(())
    }

    fn publish(session: &mut Session, tick: &Tick<'_>) {
        session.hand_over_records(tick);
    }
}

impl Streams for Option<Recorder> {
    fn len(&self) -> usize {
        self.as_ref().map_or(0, Recorder::watchers)
    }

    fn sweep(&mut self) {
        if self.as_mut().is_some_and(|recorder| !recorder.sweep()) {
            *self = None;
        }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.as_ref().is_some_and(|recorder| recorder.is_due(now_ns))
    }
}

impl Handle {
    /// What a session's flame graphs and latency are made of, as it comes. The sampler runs while one of these is open.
    ///
    /// # Errors
    /// Where there is no such session, it only counts hits, or the kernel refuses the sampler.
    pub async fn watch_records(
        &self,
        caller: Caller,
        name: String,
        more: MoreRecords,
    ) -> Result<mpsc::Receiver<RecordBatch>, SessionError> {
        self.watch(caller, name, Records { more }).await
    }
}

impl Session {
    /// Whether records are kept.
    pub fn is_recorded(&self) -> bool {
        self.records.is_some()
    }

    /// The events whose stacks are recorded.
    pub(in super::super) fn recorded_events(&self) -> BTreeSet<Event> {
        self.records.as_ref().map(Recorder::events).unwrap_or_default()
    }

    /// Whether its system calls are.
    pub fn records_calls(&self) -> bool {
        self.records.as_ref().is_some_and(Recorder::has_calls)
    }

    /// Whether hits come to be shown.
    fn shows_hits(&self) -> bool {
        let capture = self.capture.as_ref();
        capture.is_some_and(|capture| capture.purpose == Purpose::Shown)
    }

    /// Whether these are kept.
    pub(in super::super) fn records_hits(&self) -> bool {
        self.is_recorded() && self.shows_hits()
    }

    /// Hands over what came by now: what comes from here on is of another scope.
    pub fn flush_records(&mut self, engine: &Engine, frames: &FrameTable, dropped: Dropped, now_ns: u64) {
        if self.is_recorded() {
            let tick = self.tick(engine, frames, dropped, now_ns);
            self.hand_over_calls(now_ns, true);
            self.hand_over_records(&tick);
        }
    }

    /// Has records go on with the scope as it is now.
    pub fn renew_records(&mut self) {
        if let Some(mut recorder) = self.records.take() {
            recorder.set_scope(self.recorded_scope());
            self.records = Some(recorder);
        }
    }

    /// Whether it is to be looked who is off the CPU, to tell who records.
    pub(in super::super) fn is_to_look_off_cpu(&self, now_ns: u64) -> bool {
        let recorder = self.records.as_ref();
        recorder.is_some_and(|recorder| recorder.is_to_look(now_ns))
    }

    fn hand_over_records(&mut self, tick: &Tick<'_>) {
        if !tick.is_last() && !self.off_look.is_looking() && self.is_to_look_off_cpu(tick.now_ns) {
            self.begin_waits();
        }
        self.hand_over_calls(tick.now_ns, tick.is_last());
        let moment = self.records_moment(tick, &self.recorded_events());
        if let Some(recorder) = &mut self.records {
            recorder.publish(&moment);
        }
    }

    /// Hands over what was counted of system calls, where it is known who made them; all of it where nothing comes after it.
    fn hand_over_calls(&mut self, now_ns: u64, all: bool) {
        if let (Some(recorder), Some(calls)) = (&mut self.records, &mut self.calls) {
            recorder.take_turns(calls.recorded(now_ns, all));
        }
    }

    fn records_moment<'a>(&self, tick: &Tick<'a>, events: &BTreeSet<Event>) -> Moment<'a> {
        Moment {
            now_ns: tick.now_ns,
            frames: tick.frames,
            readings: tick.engine,
            sampling: Sampling::now(tick.engine, tick.dropped),
            spans: SpanLosses::now(tick.engine),
            own: self.own_losses(),
            trace: self.trace.losses(),
            events: (events.iter())
                .map(|event| EventReading {
                    event: *event,
                    counts: self.events.counts(FlameTimes::Event(*event), tick.engine),
                })
                .collect(),
            cost: tick.cost,
            ended: tick.ended,
        }
    }

    fn recorded_scope(&self) -> RecordedScope {
        RecordedScope {
            text: Arc::clone(&self.scope_text),
            steps: RecordedScope::steps(self.steps.iter()),
            pids: self.pids(),
            frequency_hz: self.frequency_hz,
            ages: self.ages,
            warnings: self.warnings(),
            places: if self.shows_hits() {
                self.trace.recorded_places()
            } else {
                Vec::new()
            },
            // As each who records asks for it.
            off_cpu: false,
            events: Vec::new(),
        }
    }
}
