//! How prepared steps take the place of those that run.

use std::collections::HashSet;

use profiler_aggregate::latency::AgeConfig;
use profiler_scope::Place;

use super::{
    super::{
        functions::{Functions, Key, key},
        prepare::PreparedStep,
    },
    Steps,
    attach::Fresh,
    detach,
    running::{AttachedSpan, AttachedSpans, RunningStep},
};
use crate::kernel::{Engine, Gate, Gates, KernelError};

impl Steps {
    /// Puts prepared steps in the place of these. What did not change keeps its probes and counts: the steps up to the
    /// first that differs, and of that one the functions that both have.
    ///
    /// # Errors
    /// Where something cannot be attached; then everything is as it was.
    pub fn replace(
        &mut self,
        engine: &mut Engine,
        prepared: Vec<PreparedStep>,
        records: bool,
        ages: AgeConfig,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        let kept = self.kept(&prepared);
        let mut gates: Vec<Option<Gate>> = Vec::new();
        let mut taken = Vec::new();
        for number in 0..prepared.len() {
            let known = self
                .list
                .get(number)
                .filter(|_| number < kept)
                .and_then(|step| step.gate);
            let is_last = number + 1 == prepared.len();
            // What lies behind a line is told by its gate, be it only for samples.
            let opens = !is_last || number > 0 && !prepared[number].step.place.has_spans();
            gates.push(match known {
                _ if !opens => None,
                Some(gate) => Some(gate),
                None => match engine.take_gate(now_ns) {
                    Ok(gate) => {
                        taken.push(gate);
                        Some(gate)
                    }
                    Err(error) => {
                        give_back(engine, taken);
                        return Err(error);
                    }
                },
            });
        }
        let mut joined = false;
        let gates_of: Vec<Gates> = prepared
            .iter()
            .enumerate()
            .map(|(number, prepared)| {
                let gates = Gates {
                    requires: number.checked_sub(1).and_then(|before| gates[before]),
                    opens: gates[number],
                    joined,
                };
                joined |= prepared.step.asks_for_end();
                gates
            })
            .collect();
        let fresh = match self.attach(engine, &prepared, kept, &gates_of, records) {
            Ok(fresh) => fresh,
            Err(error) => {
                give_back(engine, taken);
                return Err(error);
            }
        };
        // Nothing can fail from here on.
        let before: Vec<Gate> = self.list.iter().filter_map(|step| step.gate).collect();
        for step in self.list.drain(kept..) {
            detach(engine, step);
        }
        for (number, (prepared, fresh)) in prepared.into_iter().zip(fresh).enumerate() {
            self.settle(engine, number, prepared, fresh, ages, now_ns);
        }
        let count = self.list.len();
        for (number, (step, gates)) in self.list.iter_mut().zip(gates_of).enumerate() {
            step.gate = gates.opens;
            for probe in step.leftovers() {
                engine.set_gates(probe, Gates::default());
                engine.set_threshold(probe, u64::MAX);
                engine.set_records(probe, false);
            }
            for probe in step.probes() {
                engine.set_gates(probe, gates);
                engine.set_threshold(probe, u64::MAX);
            }
            for probe in step.probes() {
                engine.set_records(probe, records && number + 1 == count);
            }
        }
        for gate in before {
            if !self.list.iter().any(|step| step.gate == Some(gate)) {
                engine.give_back_gate(gate);
            }
        }
        self.given_up_in.clear();
        Ok(())
    }

    /// How many of the steps have something that the prepared ones have too.
    pub(super) fn kept(&self, prepared: &[PreparedStep]) -> usize {
        let mut kept = 0;
        for (known, new) in self.list.iter().zip(prepared) {
            let (known, new) = (&known.step, &new.step);
            let are_functions = is_by_name(&known.place) && is_by_name(&new.place);
            if known.conditions != new.conditions || known.place != new.place && !are_functions {
                break;
            }
            // What begins where something inlined does is seen in it only where that was attached after it.
            let behind = prepared.get(kept + 1).map(|step| &step.step.place);
            let is_new = self.list.get(kept + 1).map(|step| &step.step.place) != behind;
            let is_close = match &new.place {
                Place::Inlined(_) => behind.is_some_and(Place::may_begin_at_once),
                place => is_by_name(place) && matches!(behind, Some(Place::Inlined(_))),
            };
            if is_new && is_close {
                break;
            }
            kept += 1;
            if known != new {
                break;
            }
        }
        kept
    }

    /// Makes one step what was prepared.
    fn settle(
        &mut self,
        engine: &mut Engine,
        number: usize,
        prepared: PreparedStep,
        fresh: Fresh,
        ages: AgeConfig,
        now_ns: u64,
    ) {
        let PreparedStep {
            step, files, code, ..
        } = prepared;
        if number == self.list.len() {
            self.list.push(RunningStep {
                step: step.clone(),
                functions: Functions::default(),
                sites: Vec::new(),
                spans: Vec::new(),
                lines: Vec::new(),
                gate: None,
                taken_off: None,
                code: Vec::new(),
            });
        }
        let running = &mut self.list[number];
        running.step = step;
        running.keep_code(code, &fresh);
        for AttachedSpans {
            attachment, spans, ..
        } in &fresh.spans
        {
            for (probe, AttachedSpan { site, .. }) in attachment.probes().iter().zip(spans) {
                running
                    .functions
                    .add(&site.function, site.exit_method, *probe, ages, now_ns);
            }
        }
        running.spans.extend(fresh.spans);
        running.lines.extend(fresh.lines);
        running.sites = running.sites_of(files);
        let wanted: HashSet<Key> = running.sites.iter().map(|site| key(&site.function)).collect();
        running.functions.retain(|function| wanted.contains(function));
        let (kept, unused): (Vec<_>, Vec<_>) =
            std::mem::take(&mut running.spans)
                .into_iter()
                .partition(|attached| {
                    let mut spans = attached.spans.iter();
                    spans.any(|span| wanted.contains(&span.function))
                });
        running.spans = kept;
        for attached in unused {
            engine.detach(attached.attachment);
        }
        // Not of what was let go of, however often a scope is edited.
        running.code = running.code().collect();
    }
}

fn give_back(engine: &mut Engine, gates: Vec<Gate>) {
    for gate in gates {
        engine.give_back_gate(gate);
    }
}

/// Whether a step's spans are those of functions of a name.
fn is_by_name(place: &Place) -> bool {
    matches!(place, Place::Function(_) | Place::Inlined(_))
}
