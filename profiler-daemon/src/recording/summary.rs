//! Reads the summary of a minute of a recording; [`summarizer`](super::summarizer) makes it.

use std::{collections::HashMap, ops::Range, sync::Arc};

use profiler_aggregate::{
    join::{Awaited, Elsewhere, Reason},
    matrix::{BucketCell, Cell},
};
use profiler_common::{layout::BUCKETS, probe::ProbeId};
use profiler_proto::v1::{self, record::Record};
use profiler_recording::Kind;
use profiler_symbolize::Frames;
use prost::Message as _;

use super::{
    Offered, OfferedKind,
    columns::ColumnReader,
    decode::{self, Batch, Counted, Damaged, Decoder, MAX_COUNT, ToldFrame},
    summarizer::{MAX_ENTRIES, MAX_MOMENTS},
};
use crate::session::{RecordedScope, SummedElsewhere, SummedRow, SummedSamples};

/// A summary, read.
pub struct Summary {
    /// What was told, and the records that are kept.
    pub batch: Batch,
    /// None where calls are asked for.
    pub samples: SummedSamples,
    /// None where samples are asked for: all that was counted is the batch's.
    pub moments: Arc<[Moment]>,
}

/// What was counted until a time, since the moment before.
pub struct Moment {
    pub to_ns: u64,
    pub calls: Vec<Counted>,
}

impl Moment {
    /// How much memory it takes, about.
    fn bytes(&self) -> usize {
        let of_calls = |calls: &Counted| size_of_val(calls) + size_of_val(calls.ended.as_slice());
        size_of_val(self) + self.calls.iter().map(of_calls).sum::<usize>()
    }
}

/// A summary's message, read as far as it is the same for all questions.
pub struct Message {
    of: Told,
    /// The frames that are told: each question gives them numbers of its own.
    frames: Vec<ToldFrame>,
    /// The rest.
    told: v1::WatchRecordsResponse,
    scope: (RecordedScope, HashMap<ProbeId, u64>),
    /// Bytes that it was read from: those of its texts, among others.
    content_bytes: usize,
}

/// What a message tells.
enum Told {
    Samples(ToldSamples),
    Calls(Arc<[Moment]>),
}

/// Samples that are summed up.
struct ToldSamples {
    steps: u32,
    rows: Vec<v1::SummaryRow>,
    cells: Arc<[BucketCell]>,
    elsewhere: SummedElsewhere,
}

impl Message {
    /// Reads the content of a chunk.
    pub fn read(kind: Kind, content: &[u8]) -> Result<Self, Damaged> {
        let (of, mut told) = if kind == Kind::Samples {
            let mut samples = v1::SampleSummary::decode(content).map_err(|_| Damaged)?;
            let told = samples.told.take().ok_or(Damaged)?;
            (Told::Samples(ToldSamples::of(samples)?), told)
        } else {
            let calls = v1::CallSummary::decode(content).map_err(|_| Damaged)?;
            let told = calls.told.ok_or(Damaged)?;
            let moments = moments(calls.moments, told.from_ns, told.to_ns)?;
            (Told::Calls(moments), told)
        };
        ColumnReader::default().unpack(&mut told)?;
        if decode::is_too_much(&told) {
            return Err(Damaged);
        }
        let scope = decode::scope(told.scope.take().ok_or(Damaged)?)?;
        let frames = std::mem::take(&mut told.frames);
        Ok(Self {
            of,
            frames: frames.into_iter().map(ToldFrame::of).collect(),
            // The other fields of a message are not of a summary. Nothing was told before it.
            told: v1::WatchRecordsResponse {
                info: Some(told.beginning()),
                from_ns: told.from_ns,
                to_ns: told.to_ns,
                nodes: told.nodes,
                threads: told.threads,
                records: told.records,
                calls: told.calls,
                counters: told.counters,
                weight_ns: told.weight_ns,
                ..Default::default()
            },
            scope,
            content_bytes: content.len(),
        })
    }

    /// What it is of.
    pub fn offered(&self) -> Result<Offered<'_>, Damaged> {
        let of = match &self.of {
            Told::Samples(samples) => OfferedKind::Samples {
                steps: usize::try_from(samples.steps).map_err(|_| Damaged)?,
            },
            Told::Calls(_) => OfferedKind::Calls,
        };
        Ok(Offered {
            scope: &self.scope.0,
            of,
            from_ns: self.told.from_ns,
            to_ns: self.told.to_ns,
        })
    }

    /// How much memory it takes, about.
    pub fn bytes(&self) -> usize {
        let own = match &self.of {
            Told::Samples(ToldSamples { rows, cells, .. }) => {
                let open: usize = rows.iter().map(|row| row.open.len()).sum();
                size_of_val(rows.as_slice())
                    + size_of_val::<[BucketCell]>(cells)
                    + open * size_of::<v1::SummaryOpen>()
            }
            Told::Calls(moments) => moments.iter().map(Moment::bytes).sum(),
        };
        let told = &self.told;
        let spans = told.records.iter().map(|record| match &record.record {
            Some(Record::Sample(sample)) => size_of_val(sample.spans.as_slice()),
            _ => 0,
        });
        let counts = told.calls.iter().map(|calls| {
            let ended = calls.ended.as_ref();
            ended.map_or(0, |ended| {
                size_of_val(ended.bucket_deltas.as_slice()) + size_of_val(ended.counts.as_slice())
            })
        });
        own + self.content_bytes
            + size_of_val(self.frames.as_slice())
            + size_of_val(told.nodes.as_slice())
            + size_of_val(told.records.as_slice())
            + size_of_val(told.threads.as_slice())
            + size_of_val(told.calls.as_slice())
            + spans.sum::<usize>()
            + counts.sum::<usize>()
    }
}

impl ToldSamples {
    fn of(message: v1::SampleSummary) -> Result<Self, Damaged> {
        let v1::SampleSummary {
            steps,
            told: _,
            rows,
            cells,
            on_cpu_elsewhere,
            off_cpu_elsewhere,
        } = message;
        let told = cells.unwrap_or_default();
        let entries = told.samples.len() + rows.len();
        let open: usize = rows.iter().map(|row| row.open.len()).sum();
        if told.samples.len() != told.bucket_deltas.len() || entries + open > MAX_ENTRIES {
            return Err(Damaged);
        }
        let mut cells = Vec::with_capacity(told.samples.len());
        for row in &rows {
            read_cells(&told, row.cells, &mut cells)?;
        }
        if total(&rows, &cells).is_none_or(|total| total.weight > MAX_COUNT || total.samples > MAX_COUNT) {
            return Err(Damaged);
        }
        Ok(Self {
            steps,
            rows,
            cells: cells.into(),
            elsewhere: SummedElsewhere {
                on_cpu: read_elsewhere(on_cpu_elsewhere)?,
                off_cpu: read_elsewhere(off_cpu_elsewhere)?,
            },
        })
    }
}

impl Decoder {
    /// Reads a summary; nothing was read before.
    pub fn summary(&mut self, message: &Message, frames: &mut Frames) -> Result<Summary, Damaged> {
        let Message {
            of,
            frames: told_frames,
            told,
            scope,
            content_bytes: _,
        } = message;
        self.know(told_frames.iter().cloned(), frames);
        let mut batch = self.next(told.clone(), frames)?;
        if batch.dropped > 0 {
            return Err(Damaged);
        }
        batch.scope = Some(scope.clone());
        let (samples, moments) = match of {
            Told::Samples(samples) => (self.samples(samples, batch.to_ns, frames)?, Arc::default()),
            Told::Calls(moments) => (SummedSamples::default(), Arc::clone(moments)),
        };
        Ok(Summary {
            batch,
            samples,
            moments,
        })
    }

    fn samples(
        &mut self,
        samples: &ToldSamples,
        to_ns: u64,
        frames: &mut Frames,
    ) -> Result<SummedSamples, Damaged> {
        let mut begin = 0_usize;
        let rows = samples.rows.iter().map(|row| {
            let end = begin.saturating_add(row.cells as usize);
            let cells = std::mem::replace(&mut begin, end)..end;
            self.summed_row(row, cells, to_ns, frames)
        });
        Ok(SummedSamples {
            to_ns,
            rows: rows.collect::<Result<_, _>>()?,
            cells: Arc::clone(&samples.cells),
            elsewhere: samples.elsewhere,
        })
    }

    fn summed_row(
        &mut self,
        row: &v1::SummaryRow,
        cells: Range<usize>,
        to_ns: u64,
        frames: &mut Frames,
    ) -> Result<SummedRow, Damaged> {
        let thread = self.thread(row.thread)?;
        let open = row.open.iter().map(|open| {
            let span = Awaited {
                tgid: thread.tgid,
                tid: thread.tid,
                sequence: open.sequence,
                probe: ProbeId(open.probe),
                start_ns: to_ns.saturating_sub_signed(open.before_ns),
            };
            Ok((span, cell(open.weight_ns, open.samples)?))
        });
        Ok(SummedRow {
            activity: decode::activity(row.activity()),
            stacks: self.stacks((row.function_node, row.line_node), thread.task, frames)?,
            complete: !row.incomplete,
            cells,
            open: open.collect::<Result<_, _>>()?,
        })
    }
}

/// What was counted when, of a time.
fn moments(told: Vec<v1::CallMoment>, from_ns: u64, to_ns: u64) -> Result<Arc<[Moment]>, Damaged> {
    if told.len() > MAX_MOMENTS {
        return Err(Damaged);
    }
    let mut last_ns = from_ns;
    let moments = told.into_iter().map(|moment| {
        last_ns = last_ns.saturating_add(moment.after_ns);
        let calls = moment.calls.into_iter().map(decode::counted);
        Ok(Moment {
            to_ns: last_ns.min(to_ns),
            calls: calls.collect::<Result<_, _>>()?,
        })
    });
    moments.collect()
}

/// The sum of all cells; `None` where it is too large to be one.
fn total(rows: &[v1::SummaryRow], cells: &[BucketCell]) -> Option<Cell<u64>> {
    let open = rows.iter().flat_map(|row| &row.open).map(|open| Cell {
        weight: open.weight_ns,
        samples: open.samples,
    });
    let mut cells = cells.iter().map(|ended| ended.cell()).chain(open);
    cells.try_fold(Cell::default(), |sum: Cell<u64>, cell| {
        Some(Cell {
            weight: sum.weight.checked_add(cell.weight)?,
            samples: sum.samples.checked_add(cell.samples)?,
        })
    })
}

/// Reads the next cells, which are a row's, behind those before.
fn read_cells(told: &v1::SummaryCells, count: u32, cells: &mut Vec<BucketCell>) -> Result<(), Damaged> {
    let begin = cells.len();
    let end = begin.saturating_add(count as usize);
    let deltas = told.bucket_deltas.get(begin..end).ok_or(Damaged)?;
    let samples = told.samples.get(begin..end).ok_or(Damaged)?;
    let mut bucket = 0_usize;
    for (number, (delta, samples)) in deltas.iter().zip(samples).enumerate() {
        bucket = bucket.saturating_add(*delta as usize);
        // All are of the usual weight where none is told.
        let beyond_ns = match told.weights_beyond_ns.as_slice() {
            [] => 0,
            beyond_ns => *beyond_ns.get(begin + number).ok_or(Damaged)?,
        };
        let weight_ns = told
            .weight_ns
            .saturating_mul(*samples)
            .saturating_add_signed(beyond_ns);
        if bucket >= BUCKETS {
            return Err(Damaged);
        }
        let ended = BucketCell::new(bucket, cell(weight_ns, *samples)?);
        cells.push(ended.ok_or(Damaged)?);
    }
    Ok(())
}

fn cell(weight: u64, samples: u64) -> Result<Cell<u64>, Damaged> {
    if weight > MAX_COUNT || samples > MAX_COUNT {
        return Err(Damaged);
    }
    Ok(Cell { weight, samples })
}

fn read_elsewhere(elsewhere: Option<v1::SummaryElsewhere>) -> Result<Elsewhere, Damaged> {
    let elsewhere = elsewhere.unwrap_or_default();
    let mut read = Elsewhere::default();
    for (reason, count) in [
        (Reason::NoSpan, elsewhere.no_span),
        (Reason::Abandoned, elsewhere.abandoned),
        (Reason::Expired, elsewhere.expired),
    ] {
        if count > MAX_COUNT {
            return Err(Damaged);
        }
        read[reason as usize] = count;
    }
    Ok(read)
}
