//! Programs that are loaded before they are attached: the kernel checks each for a tenth of a second, or two.

use super::{
    AttachKind, Engine,
    attach::{ENTRY, ENTRY_STEP, RET, RETURN},
    hits::HIT_STEP,
    off_cpu, perf, sampled_events, system_calls,
    tracepoints::{Place, Watch},
};

/// What a session will attach to in its target, as far as that can be told before the target's files are read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Expected {
    /// Spans that are only timed.
    pub timed_spans: bool,
    /// Spans at whose beginning more is done: conditions are decided, values are read.
    pub read_spans: bool,
    /// Instructions at which something is read.
    pub read_hits: bool,
}

impl Engine {
    /// Loads what sees the beginnings that are expected. What the kernel says against it, it says again where it is
    /// attached.
    pub fn ready(&mut self, expected: Expected) {
        let programs = [
            (expected.timed_spans, ENTRY),
            (expected.read_spans, self.entry_look_program()),
            (expected.read_hits, self.hit_program()),
        ];
        for (_, program) in programs.into_iter().filter(|(is_expected, _)| *is_expected) {
            self.load_ahead(program);
        }
    }

    /// Loads all that looks at targets, whatever a session will ask for; not what sees functions of the kernel, which root alone looks at.
    pub fn ready_all(&mut self) {
        let costs = sampled_events::COSTS.iter().map(|(_, places)| *places);
        let watches: [&[Place]; 2] = [&off_cpu::PROGRAMS, &system_calls::PLACES];
        for places in watches.into_iter().chain(costs) {
            if let Err(error) = Watch::load(&mut self.ebpf, places) {
                tracing::debug!(%error, "not loaded ahead");
            }
        }
        if let Err(error) = self.load_call_programs() {
            tracing::debug!(%error, "not loaded ahead");
        }
        let by_program: &[&str] = if self.ability().write_context {
            &[ENTRY_STEP, HIT_STEP]
        } else {
            &[]
        };
        let readers = [self.hit_program(), self.entry_look_program()];
        for program in [ENTRY, RET, RETURN].iter().chain(&readers).chain(by_program) {
            self.load_ahead(program);
        }
    }

    fn load_ahead(&mut self, program: &'static str) {
        let loaded = match self.ability().attach {
            AttachKind::Multi => self.multi.load(program).map(|_| ()),
            AttachKind::Perf => perf::load(&mut self.ebpf, program),
        };
        if let Err(error) = loaded {
            tracing::debug!(%error, program, "not loaded ahead");
        }
    }
}
