//! The records of a session, while somebody keeps them.

use std::sync::Arc;

use profiler_symbolize::{Frame, Grouping};
use tokio::sync::mpsc;

use super::{
    super::{
        ending::Ending,
        picture::FlameTimes,
        records::{GROUPINGS, Moment, RecordBatch, RecordedScope, Recorder},
        sampling::Sampling,
        span_losses::SpanLosses,
        symbols::Dropped,
    },
    Session,
};
use crate::kernel::{Engine, Times};

impl Session {
    /// Opens a stream of records.
    pub fn watch_records(
        &mut self,
        engine: &Engine,
        frames: &Arc<Vec<Frame>>,
        dropped: Dropped,
        now_ns: u64,
    ) -> mpsc::Receiver<RecordBatch> {
        let mut recorder = match self.records.take() {
            Some(recorder) => recorder,
            None => Recorder::new(self.recorded_scope(), now_ns),
        };
        let receiver = recorder.watch(&self.records_moment(engine, frames, dropped, now_ns, None));
        self.records = Some(recorder);
        receiver
    }

    /// Whether records are kept.
    pub fn is_recorded(&self) -> bool {
        self.records.is_some()
    }

    /// Ends what nobody reads any more.
    pub fn sweep_records(&mut self) {
        if self.records.as_mut().is_some_and(|recorder| !recorder.sweep()) {
            self.records = None;
        }
    }

    /// What stacks are recorded in.
    pub(super) fn recorded_groupings(&self) -> impl Iterator<Item = Grouping> {
        self.records.iter().flat_map(|_| GROUPINGS)
    }

    /// In which times its target is to be sampled for records: off the CPU, inside spans alone, unless there are none.
    pub(super) fn recorded_times(&self) -> Times {
        if self.records.is_none() {
            return Times::default();
        }
        let times = if self.divides() {
            FlameTimes::Both
        } else {
            FlameTimes::OnCpu
        };
        times.sampled(self.divides())
    }

    /// Hands over what came by now: what comes from here on is of another scope.
    pub fn flush_records(
        &mut self,
        engine: &Engine,
        frames: &Arc<Vec<Frame>>,
        dropped: Dropped,
        now_ns: u64,
    ) {
        if let Some(mut recorder) = self.records.take() {
            recorder.publish(&self.records_moment(engine, frames, dropped, now_ns, None));
            self.records = Some(recorder);
        }
    }

    /// Has records go on with the scope as it is now.
    pub fn renew_records(&mut self) {
        if let Some(mut recorder) = self.records.take() {
            recorder.set_scope(self.recorded_scope());
            self.records = Some(recorder);
        }
    }

    /// Hands over what came, if it is time; all of it where `ended` says why it is the last.
    pub(super) fn publish_records(
        &mut self,
        engine: &Engine,
        frames: &Arc<Vec<Frame>>,
        dropped: Dropped,
        now_ns: u64,
        ended: Option<&Ending>,
    ) {
        let is_due = |recorder: &Recorder| ended.is_some() || recorder.is_due(now_ns);
        if let Some(mut recorder) = self.records.take_if(|recorder| is_due(recorder)) {
            recorder.publish(&self.records_moment(engine, frames, dropped, now_ns, ended));
            self.records = Some(recorder);
        }
    }

    fn records_moment<'a>(
        &mut self,
        engine: &'a Engine,
        frames: &'a Arc<Vec<Frame>>,
        dropped: Dropped,
        now_ns: u64,
        ended: Option<&'a Ending>,
    ) -> Moment<'a> {
        Moment {
            now_ns,
            frames,
            readings: engine,
            sampling: Sampling::now(engine, dropped),
            spans: SpanLosses::now(engine),
            own: self.own_losses(),
            cost: self.meter.read(now_ns),
            ended,
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
        }
    }
}
