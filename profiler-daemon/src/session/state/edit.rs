//! Replaces the scope of a session, and keeps the state of the steps that both scopes have.

use std::{collections::HashSet, sync::Arc};

use profiler_aggregate::path::{self, Path};

use super::{
    super::{
        budget::Budget,
        by_value::Counted,
        command::{Editable, Purpose, TargetSpec},
        cost::monotonic_ns,
        division::CountedStep,
        explain::Explain,
        late_code::MappedCode,
        lines::{self, TracedPlace},
        prepare::Prepared,
        steps::RunningStep,
        symbols::Dropped,
        trace::Around,
    },
    Session,
    take::Inside,
    views::{At, Renewed},
};
use crate::kernel::{Engine, KernelError};

/// Edits of a scope that can be taken back.
pub const MAX_HISTORY: usize = 64;

impl Session {
    /// What an edit of the scope begins with.
    pub fn editable(&self) -> Editable {
        Editable {
            target: TargetSpec::Pids(self.pids()),
            exit_method: self.exit_method,
            capture: self.capture.clone(),
            scope: self.scope.clone(),
            history: self.history.clone(),
            budget: self.budget.as_ref().map(Budget::share),
            revision: self.revision,
        }
    }

    /// Grows with each edit of the scope.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// As [`Self::replace`], by an edit that can be taken back; `undone` is the number of edits that it takes back itself.
    pub fn edit(
        &mut self,
        engine: &mut Engine,
        dropped: Dropped,
        prepared: Prepared,
        undone: usize,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        let before = Arc::clone(&self.scope_text);
        // What both scopes have stays as it is attached, unless that is not safe any more. Where then nothing else can be attached, the
        // session's return probes are looked after: it is planned anew, or ends.
        let is_given_up = self
            .steps
            .give_up_returns(engine, &prepared.steps, &prepared.no_returns_in);
        let replaced = self.replace(engine, dropped, prepared, now_ns);
        if replaced.is_err() && is_given_up {
            self.returns.set_outdated(&self.return_probed());
        }
        replaced?;
        self.revision += 1;
        self.is_edited = true;
        if undone > 0 {
            self.history.truncate(self.history.len().saturating_sub(undone));
        } else if before != self.scope_text {
            if self.history.len() == MAX_HISTORY {
                self.history.remove(0);
            }
            self.history.push(before);
        }
        Ok(())
    }

    /// Puts a prepared scope in the place of the present one. What both have keeps its probes and counts; where the
    /// probes are the same, what was sampled stays too.
    pub fn replace(
        &mut self,
        engine: &mut Engine,
        dropped: Dropped,
        prepared: Prepared,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        self.codes.set(std::iter::empty(), &[]);
        let replaced = self.replace_unwatched(engine, dropped, prepared, now_ns);
        self.tell_code();
        replaced
    }

    fn replace_unwatched(
        &mut self,
        engine: &mut Engine,
        dropped: Dropped,
        prepared: Prepared,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        let Prepared {
            scope,
            text,
            found: _,
            processes,
            steps,
            warnings,
            parents: _,
            children_before: _,
            explain: _,
            allocators: _,
            code,
            no_returns_in: _,
        } = prepared;
        let (nesting, asks) = (self.nesting(), self.asked());
        let before: HashSet<_> = self.probes().collect();
        let (records, ages) = (self.capture.is_some(), self.ages);
        // Those that begin from here on may have the probes.
        self.note_children(engine);
        let mut replaced = Ok(());
        let detached = engine.detached_by(|engine| {
            replaced = self.steps.replace(engine, steps, records, ages, now_ns);
        });
        self.note_detached(engine, detached);
        replaced?;
        if self.processes.is_empty() {
            self.processes = processes.into();
        }
        self.returns.set(&self.return_probed(), code);
        self.scope = scope;
        self.scope_text = text.into();
        self.planned_warnings = warnings;
        if asks != self.asked() {
            let path = Path::new(self.asked(), Inside::weight);
            let mut before = std::mem::replace(&mut self.path, path);
            let waiting = before.waiting();
            self.drop_joined(before.take_dropped());
            self.dropped.expired += waiting;
        }
        let live: HashSet<_> = self.probes().collect();
        self.joined_calls.retain(|probe| live.contains(&probe));
        self.settle_trace(engine);
        let is_joined = self.steps.is_joined(self.steps.iter().len().saturating_sub(1));
        if let Some(by) = &mut self.by {
            let counted = Counted {
                engine,
                joined: &self.joined_calls,
            };
            by.settle(
                counted,
                self.steps.last(),
                is_joined,
                |probe| before.contains(&probe),
                |probe| live.contains(&probe),
                // Not when the edit was asked for: by now all that begins is recorded.
                monotonic_ns(),
            );
        }
        if let Some(budget) = &mut self.budget {
            budget.expect_new(now_ns);
        }
        let renewed = Renewed {
            has_same_nesting: nesting == self.nesting(),
        };
        self.set_bands();
        self.renew_views(engine, At { dropped, now_ns }, renewed);
        Ok(())
    }

    /// Takes its return probes off the target at once: it ends, as they are not safe any more.
    pub fn take_returns_off(&mut self, engine: &mut Engine) {
        self.steps.take_returns_off(engine);
        if let Some(explain) = &mut self.explain {
            explain.take_off_now(engine);
        }
    }

    /// Says which code its probes are in.
    pub(super) fn tell_code(&self) {
        let pids = self.pids();
        // Of what is to be attached again, it is not known which breakpoints are there.
        let steps = self.steps.iter().filter(|_| !self.is_awaited());
        let codes = steps.flat_map(RunningStep::code);
        self.codes
            .set(codes.filter(|code| pids.contains(&code.pid)), &self.processes);
    }

    /// Processes in which it has return probes, or had and needs others in their place.
    pub(super) fn return_probed(&self) -> HashSet<u32> {
        let explain = self.explain.iter().flat_map(Explain::return_probed);
        self.steps.return_probed().chain(explain).collect()
    }

    /// Whether there are return probes in processes in which they are not safe, or nothing yet in the place of some.
    pub fn needs_other_probes(&self, no_returns_in: &HashSet<u32>) -> bool {
        let is_unsafe = |pid: &u32| no_returns_in.contains(pid);
        self.steps.has_given_up() || self.return_probed().iter().any(is_unsafe)
    }

    /// Keeps its return probes, which are safe beside this code too.
    pub fn keep_returns(&mut self, code: MappedCode) {
        self.returns.set(&self.return_probed(), code);
    }

    /// Gives up return probes where what was prepared of the same scope says that they are not safe: the code beside them has changed.
    pub fn give_up_returns(
        &mut self,
        engine: &mut Engine,
        dropped: Dropped,
        prepared: Prepared,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        self.steps
            .give_up_returns(engine, &prepared.steps, &prepared.no_returns_in);
        self.replace(engine, dropped, prepared, now_ns)
    }

    /// Says which probes are traced by now: those of the last step.
    fn settle_trace(&mut self, engine: &Engine) {
        let Some(capture) = &self.capture else { return };
        let interval_ns = if self.is_told_late() {
            lines::interval_ns(capture)
        } else {
            0
        };
        let around = Around {
            dropped: self.dropped,
            waiting: 0,
        };
        let Some(last) = self.steps.last() else {
            self.trace.retain(engine, around, |_| false);
            self.dropped = path::Dropped::default();
            return;
        };
        for (probe, place, printed) in last.lines() {
            self.trace
                .add_line(probe, place, Arc::clone(printed), interval_ns);
        }
        for function in last.functions.iter() {
            let info = &function.info;
            let place = Arc::new(TracedPlace {
                site: info.name.clone(),
                function: info.name.clone(),
                file: String::new(),
                line: 0,
                module: info.module.clone(),
                address: info.address,
            });
            for probe in function.probes() {
                self.trace.add_call(probe, &place, last.shown(probe), interval_ns);
            }
        }
        let live: HashSet<_> = last
            .lines()
            .map(|(probe, ..)| probe)
            .chain(last.functions.probes())
            .collect();
        if self.trace.retain(engine, around, |probe| live.contains(&probe)) {
            // What is counted from here on is of other probes.
            self.dropped = path::Dropped::default();
        }
        self.set_limits(engine);
    }

    /// Whether it is known only when a call ends which hits of the last step are shown.
    fn is_told_late(&self) -> bool {
        self.steps.last().is_some_and(CountedStep::asks) || self.is_joined()
    }

    /// Whether that is another call, which the last step is inside of.
    fn is_joined(&self) -> bool {
        let count = self.steps.iter().len();
        self.steps.is_joined(count.saturating_sub(1))
    }

    /// Says how many hits of the last step are recorded: while they are traced, enough of those that may not be shown.
    pub(super) fn set_limits(&self, engine: &Engine) {
        let (Some(capture), Some(last)) = (&self.capture, self.steps.last()) else {
            return;
        };
        if capture.purpose != Purpose::Shown {
            return;
        }
        let is_fetched = self.trace.watchers() > 0 || self.records_hits();
        let is_traced = is_fetched || last.step.asks_for_return();
        let interval_ns = if !is_traced || !self.is_told_late() {
            lines::interval_ns(capture)
        } else if self.is_joined() {
            lines::joined_interval_ns(capture)
        } else {
            lines::late_interval_ns(capture)
        };
        for probe in last.probes() {
            engine.set_interval(probe, interval_ns);
        }
    }
}
