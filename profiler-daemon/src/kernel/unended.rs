//! Spans whose ends nobody sees any more, as their probes were taken off the target while a session goes on.
//!
//! The programs keep such a span open until the thread's stack has become shorter than it was at the span's beginning and another
//! probe is reached: without this, samples, intervals off the CPU and recorded system calls would lie inside of calls that have long
//! returned. What the programs count themselves, calls of steps inside of such a span and system calls in it, is not changed by this.

use std::collections::HashMap;

use profiler_common::{probe::ProbeId, record::SpanRef};

use super::{off_cpu::Interval, ring::Record};

/// Since when the ends of spans are not seen, by probe.
#[derive(Default)]
pub(super) struct Unended(HashMap<ProbeId, u64>);

impl Unended {
    /// The ends of these probes' spans are not seen from now on.
    pub fn add(&mut self, probes: impl IntoIterator<Item = ProbeId>, now_ns: u64) {
        for probe in probes {
            self.0.entry(probe).or_insert(now_ns);
        }
    }

    /// The probe is nobody's any more.
    pub fn forget(&mut self, probe: ProbeId) {
        self.0.remove(&probe);
    }

    /// Takes spans that may be over out of a record.
    pub fn leave_out_of(&self, record: &mut Record) {
        match record {
            Record::Sample { spans, ts_ns, .. } => self.leave_out(spans, *ts_ns),
            Record::OffCpu(interval) => self.leave_out_of_interval(interval),
            Record::SystemCall(call) => self.leave_out(&mut call.spans, call.start_ns),
            Record::Weight(_) | Record::SpanEnd(_) | Record::Hit(_) => {}
        }
    }

    /// The same of an interval off the CPU, whose spans were open when it began.
    pub fn leave_out_of_interval(&self, interval: &mut Interval) {
        self.leave_out(&mut interval.spans, interval.start_ns);
    }

    fn leave_out(&self, spans: &mut Vec<SpanRef>, at_ns: u64) {
        if !self.0.is_empty() {
            spans.retain(|span| self.0.get(&span.probe).is_none_or(|since_ns| at_ns <= *since_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ring::Key;

    #[test]
    fn spans_of_probes_that_were_taken_off_are_open_until_then() {
        let span = |probe| SpanRef {
            probe: ProbeId(probe),
            gates: 0,
            sequence: 1,
            start_ns: 5,
        };
        let left = |unended: &Unended, ts_ns| {
            let mut record = Record::Sample {
                event: 0,
                tgid: 1,
                tid: 1,
                ts_ns,
                weight: 1,
                key: Key::default(),
                spans: vec![span(1), span(2)],
                kernel: Vec::new(),
                user: Vec::new(),
                flags: 0,
            };
            unended.leave_out_of(&mut record);
            let Record::Sample { spans, .. } = record else {
                unreachable!()
            };
            spans.iter().map(|span| span.probe.0).collect::<Vec<_>>()
        };
        let mut unended = Unended::default();
        assert_eq!(left(&unended, 20), [1, 2]);
        unended.add([ProbeId(1)], 10);
        unended.add([ProbeId(1)], 30);
        assert_eq!(left(&unended, 10), [1, 2]);
        assert_eq!(left(&unended, 11), [2]);
        unended.forget(ProbeId(1));
        assert_eq!(left(&unended, 11), [1, 2]);
    }
}
