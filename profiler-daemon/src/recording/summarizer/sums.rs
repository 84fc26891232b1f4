//! The samples of a minute, added up by row and duration as the ends of their calls come.

use std::collections::{BTreeMap, HashMap};

use profiler_aggregate::{
    join::{Awaited, Elsewhere, Joiner, Reason, Sample},
    matrix::Cell,
};
use profiler_common::record::SpanEnd;
use profiler_proto::v1;

use super::minute::RowKey;
use crate::{rpc::records::after, session::SummedSteps};

/// The samples of a minute, for some of the scope's steps.
pub struct Sums {
    steps: usize,
    /// `None` where all samples are inside.
    joiners: Option<Joiners>,
    /// Of calls that ended, by row and bucket.
    ended: HashMap<(u32, usize), Cell<u64>>,
}

/// Samples that wait for the ends of their calls.
struct Joiners {
    on_cpu: Joiner,
    off_cpu: Joiner,
}

impl Sums {
    /// Sums, and those that wait.
    pub fn entries(&self) -> usize {
        let joiners = self.joiners.as_ref();
        let waiting = joiners.map_or(0, |Joiners { on_cpu, off_cpu }| {
            on_cpu.stacks() + off_cpu.stacks()
        });
        self.ended.len() + waiting
    }

    /// The spans that samples wait for.
    pub fn awaited(&self) -> impl Iterator<Item = &Awaited> {
        let joiners = self.joiners.iter();
        joiners.flat_map(|Joiners { on_cpu, off_cpu }| on_cpu.awaited().chain(off_cpu.awaited()))
    }

    /// None yet, for one number of the scope's steps.
    pub fn new(summed: SummedSteps) -> Self {
        let SummedSteps { steps, nesting } = summed;
        Self {
            steps,
            joiners: nesting.map(|nesting| Joiners {
                on_cpu: Joiner::new(nesting.levels.clone()),
                off_cpu: Joiner::new(nesting.levels),
            }),
            ended: HashMap::new(),
        }
    }

    /// Whether samples need no call to count: the scope has no steps.
    pub fn are_all_inside(&self) -> bool {
        self.joiners.is_none()
    }

    /// Adds a sample, or keeps it until its calls end.
    pub fn sample(&mut self, sample: &Sample<'_>, is_on_cpu: bool) {
        match &mut self.joiners {
            Some(Joiners { on_cpu, .. }) if is_on_cpu => on_cpu.sample(sample),
            Some(Joiners { off_cpu, .. }) => off_cpu.sample(sample),
            None => {
                *self.ended.entry((sample.node.0, 0)).or_default() += Cell {
                    weight: sample.weight_ns,
                    samples: sample.count,
                };
            }
        }
    }

    /// Adds the samples that waited for a call that ended.
    pub fn span_end(&mut self, end: &SpanEnd) {
        let Some(Joiners { on_cpu, off_cpu }) = &mut self.joiners else {
            return;
        };
        for ended in [on_cpu.span_end(end), off_cpu.span_end(end)]
            .into_iter()
            .flatten()
        {
            for (node, cell) in ended.leaves {
                *self.ended.entry((node.0, ended.bucket)).or_default() += cell;
            }
        }
    }

    /// What they come to, with the samples that still wait at `to_ns`. Weights are told by what they differ from `usual_ns` a sample.
    pub fn summary(mut self, keys: &[RowKey], usual_ns: u64, to_ns: u64) -> v1::SampleSummary {
        let mut rows: BTreeMap<u32, v1::SummaryRow> = BTreeMap::new();
        let mut ended: Vec<_> = self.ended.into_iter().collect();
        ended.sort_unstable_by_key(|(at, _)| *at);
        let mut elsewhere = [None, None];
        if let Some(Joiners { on_cpu, off_cpu }) = &mut self.joiners {
            for (joiner, elsewhere) in [on_cpu, off_cpu].into_iter().zip(&mut elsewhere) {
                *elsewhere = told_elsewhere(joiner.take_elsewhere());
                for (span, node, cell) in joiner.waiting() {
                    row_of(&mut rows, keys, node.0).open.push(v1::SummaryOpen {
                        probe: span.probe.0,
                        sequence: span.sequence,
                        before_ns: after(span.start_ns, to_ns),
                        weight_ns: cell.weight,
                        samples: cell.samples,
                    });
                }
            }
        }
        let mut cells = v1::SummaryCells {
            weight_ns: usual_ns,
            ..Default::default()
        };
        let mut last = (u32::MAX, 0);
        for ((row, bucket), cell) in ended {
            let before = if last.0 == row { last.1 } else { 0 };
            last = (row, bucket);
            row_of(&mut rows, keys, row).cells += 1;
            let delta = u32::try_from(bucket - before).unwrap_or(u32::MAX);
            cells.bucket_deltas.push(delta);
            cells.samples.push(cell.samples);
            let usual_ns = usual_ns.saturating_mul(cell.samples);
            cells.weights_beyond_ns.push(after(usual_ns, cell.weight));
        }
        if cells.weights_beyond_ns.iter().all(|beyond_ns| *beyond_ns == 0) {
            cells.weights_beyond_ns.clear();
        }
        let [on_cpu_elsewhere, off_cpu_elsewhere] = elsewhere;
        v1::SampleSummary {
            steps: u32::try_from(self.steps).unwrap_or(u32::MAX),
            rows: rows.into_values().collect(),
            cells: Some(cells),
            on_cpu_elsewhere,
            off_cpu_elsewhere,
            told: None,
        }
    }
}

fn row_of<'a>(
    rows: &'a mut BTreeMap<u32, v1::SummaryRow>,
    keys: &[RowKey],
    row: u32,
) -> &'a mut v1::SummaryRow {
    rows.entry(row).or_insert_with(|| {
        let key = keys.get(row as usize).copied();
        key.map_or_else(v1::SummaryRow::default, |key| v1::SummaryRow {
            thread: key.thread,
            activity: key.activity,
            function_node: key.function_node,
            line_node: key.line_node,
            incomplete: key.incomplete,
            ..Default::default()
        })
    })
}

fn told_elsewhere(elsewhere: Elsewhere) -> Option<v1::SummaryElsewhere> {
    (elsewhere != Elsewhere::default()).then(|| v1::SummaryElsewhere {
        no_span: elsewhere[Reason::NoSpan as usize],
        abandoned: elsewhere[Reason::Abandoned as usize],
        expired: elsewhere[Reason::Expired as usize],
    })
}
