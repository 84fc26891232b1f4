//! The system calls of a session's threads: what begins and ends with those who watch them.

use std::sync::Arc;

use profiler_symbolize::Groupings;

use super::{
    super::{
        cost::monotonic_ns,
        flame::Moment,
        steps::RunningStep,
        system_calls::{CallView, SyscallsPicture, UnnamedStacks, WatchedCalls},
    },
    Session,
};
use crate::kernel::{CountedCalls, Engine, KernelError, SharedStack};

impl Session {
    /// Whether somebody watches its system calls.
    pub fn watches_calls(&self) -> bool {
        !self.syscalls_watchers.is_empty()
    }

    /// The gates' bits that stand for its having all system calls counted, where calls are counted for it.
    pub(super) fn call_views(&self) -> Option<u32> {
        let calls = self.calls.as_ref().filter(|_| self.watches_calls())?;
        Some(match calls.view() {
            CallView::All => calls.gate().bits(),
            CallView::InSpans | CallView::BehindLine => 0,
        })
    }

    /// Begins and ends the look at system calls with its watchers.
    ///
    /// # Errors
    /// Where too many count something in spans.
    pub fn settle_calls(&mut self, engine: &mut Engine, now_ns: u64) -> Result<(), KernelError> {
        if !self.watches_calls() {
            self.end_calls(engine);
        } else if self.calls.is_none() {
            self.begin_calls(engine, now_ns)?;
        }
        Ok(())
    }

    /// Goes on with another scope, from nothing.
    pub(super) fn renew_calls(&mut self, engine: &mut Engine, now_ns: u64) {
        if self.calls.is_none() {
            return;
        }
        self.end_calls(engine);
        if let Err(error) = self.begin_calls(engine, now_ns) {
            // Tried again at the next reading.
            tracing::warn!(%error, "system calls are not counted");
        }
        self.note_calls();
    }

    fn begin_calls(&mut self, engine: &mut Engine, now_ns: u64) -> Result<(), KernelError> {
        let behind_line = self.steps.last().filter(|last| !last.step.place.has_spans());
        let (gate, view) = match behind_line.and_then(RunningStep::gate) {
            Some(gate) => (gate, CallView::BehindLine),
            None if self.steps.last().is_none() => (engine.take_gate(now_ns)?, CallView::All),
            None => (engine.take_gate(now_ns)?, CallView::InSpans),
        };
        let calls = WatchedCalls::new(engine, gate, view, &self.pids());
        self.calls = Some(calls);
        engine.add_call_view(gate, view != CallView::All);
        if view == CallView::InSpans {
            self.steps.open_in_last(engine, Some(gate));
        }
        Ok(())
    }

    /// Ends the look at system calls.
    pub(super) fn end_calls(&mut self, engine: &mut Engine) {
        let Some(calls) = self.calls.take() else { return };
        let gate = calls.gate();
        engine.remove_call_view(gate);
        match calls.view() {
            CallView::All => engine.give_back_gate(gate),
            CallView::InSpans => {
                self.steps.open_in_last(engine, None);
                engine.give_back_gate(gate);
            }
            // It stays the step's.
            CallView::BehindLine => {}
        }
    }

    /// Begins the look at system calls where they are counted by now.
    pub(super) fn note_calls(&mut self) {
        let is_counted = self.sampled_from.is_sampled();
        if let Some(calls) = self.calls.as_mut().filter(|_| is_counted) {
            calls.begin(monotonic_ns());
        }
    }

    /// Takes calls that returned, of whatever session.
    pub fn take_calls(&mut self, counted: &[CountedCalls]) {
        if let Some(calls) = &mut self.calls {
            for counted in counted {
                calls.take(counted);
            }
        }
    }

    /// Stacks that system calls were made from and that have no names yet, and what to name them in.
    pub fn unnamed_callers(&mut self, engine: &Engine) -> (UnnamedStacks, Groupings) {
        let groupings: Groupings = self.syscalls_watchers.variants().collect();
        let calls = self.calls.as_mut();
        let unnamed = calls.map_or_else(Vec::new, |calls| calls.unnamed(engine, groupings));
        (unnamed, groupings)
    }

    /// Has them named another time: nobody had the time.
    pub fn ask_again(&mut self, stacks: &[(u32, Arc<SharedStack>)]) {
        if let Some(calls) = &mut self.calls {
            calls.ask_again(stacks);
        }
    }

    /// Gives watchers of system calls their pictures.
    pub(super) fn publish_calls(
        watchers: &mut super::SyscallsWatchers,
        calls: &WatchedCalls,
        engine: &Engine,
        moment: &Moment<'_>,
    ) {
        let open = engine.open_calls().unwrap_or_else(|error| {
            tracing::warn!(%error, "open system calls could not be read");
            Vec::new()
        });
        watchers.publish(moment.now_ns, moment.ended.is_some(), |by, seq| {
            Some(SyscallsPicture {
                seq,
                ..calls.picture(engine, by, moment, &open)
            })
        });
    }
}
