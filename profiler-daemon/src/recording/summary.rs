//! A minute of a recording, summed up: made while it is recorded, and read.
//!
//! The samples of an hour are millions, the stacks and durations among them thousands. A question of an hour is answered
//! by the sums of its minutes, and by the records at its edges.
//!
//! See `docs/internals/recordings.md` for what a summary holds, and why it gives the same answer.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use profiler_aggregate::{
    calltree::NodeId,
    join::{Awaited, Elsewhere, Joiner, Reason, Sample},
    matrix::{BucketCell, Cell},
};
use profiler_common::{
    layout::BUCKETS,
    probe::ProbeId,
    record::{SpanEnd, SpanRef},
};
use profiler_proto::v1::{self, record::Record};
use profiler_recording::Kind;
use profiler_symbolize::Frames;
use prost::Message as _;

use super::{
    Offered, OfferedKind,
    columns::{ColumnReader, ColumnWriter},
    decode::{self, Batch, Counted, Damaged, Decoder, MAX_COUNT, ToldFrame},
};
use crate::{
    kernel::Activity,
    rpc::{histogram, records::after},
    session::{RecordedScope, SummedElsewhere, SummedRow, SummedSamples, SummedSteps, summed_steps},
};

/// Rows, cells, records, names, buckets and samples that wait of a minute that is summed up; one with more is not.
const MAX_ENTRIES: usize = 1 << 19;

/// Messages of a minute that is summed up: they come four times a second, and one more with each edit.
const MAX_MOMENTS: usize = 1024;

/// Whoever reads the clock before what happened meanwhile is ahead of it by less than this.
const CLOCK_AHEAD_NS: u64 = 1_000_000_000;

/// Sums up the messages of a stream, as they come.
#[derive(Default)]
pub struct Summarizer {
    minute: Option<Minute>,
    /// While there is none.
    between: Between,
}

/// The summaries of a minute: of the time from one message that begins anew to the next, which is shorter than a minute where
/// the scope was edited. There is none where records were lost, or there are too many.
#[derive(Default)]
pub struct Summaries {
    /// For each number of steps that the scope can be asked with.
    pub samples: Vec<v1::SampleSummary>,
    /// Where the scope has steps.
    pub calls: Option<v1::CallSummary>,
}

impl Summarizer {
    /// Takes the next message; gives what the ones before come to, where this one begins anew.
    pub fn take(&mut self, message: &v1::WatchRecordsResponse) -> Summaries {
        let mut ended = Summaries::default();
        if message.begins_anew {
            if let Some(minute) = &self.minute {
                self.between.open = minute.open();
            }
            ended = self.end();
            self.between.threads.clear();
            self.minute = Minute::begin(message, &mut self.between.open);
        }
        if let Some(minute) = &mut self.minute
            && minute.take(message).is_err()
        {
            self.between = Between {
                open: minute.open(),
                threads: std::mem::take(&mut minute.threads),
            };
            self.minute = None;
        }
        if self.minute.is_none() {
            self.between.take(message);
        }
        ended
    }

    /// What came since numbers began anew comes to, where nothing more comes.
    pub fn end(&mut self) -> Summaries {
        // Two edits at once have nothing between them.
        let minute = self.minute.take();
        let minute = minute.filter(|minute| minute.told.from_ns < minute.told.to_ns);
        minute.map(Minute::end).unwrap_or_default()
    }
}

/// What is known of spans while no minute is summed up: a minute behind is to know which of them samples wait for.
#[derive(Default)]
struct Between {
    open: HashMap<SpanKey, Awaited>,
    threads: HashMap<u32, Thread>,
}

impl Between {
    /// Takes a message of a minute that is not summed up.
    fn take(&mut self, message: &v1::WatchRecordsResponse) {
        if message.dropped > 0 {
            // Whoever reads it gives up all that waits.
            self.open.clear();
        }
        self.threads.extend(threads(message));
        let mut last_ns = message.from_ns;
        for record in message.records.iter().filter_map(|record| record.record.as_ref()) {
            match record {
                Record::Sample(sample) => {
                    last_ns = last_ns.saturating_add_signed(sample.after_ns);
                    let Some(thread) = self.threads.get(&sample.thread) else {
                        continue;
                    };
                    for span in decode::spans(sample, last_ns) {
                        let awaited = thread.awaits(&span);
                        if self.open.len() < MAX_ENTRIES {
                            // Samples of another kind may go on waiting for the one before it.
                            self.open.entry(SpanKey::of(&awaited)).or_insert(awaited);
                        }
                    }
                }
                Record::SpanEnd(end) => {
                    last_ns = last_ns.saturating_add_signed(end.after_ns);
                    if let Some(Thread { pid, tid }) = self.threads.get(&end.thread).copied() {
                        let span = decode::span_end(end, (pid, tid), last_ns);
                        forget_ended(&mut self.open, &span);
                    }
                }
            }
        }
    }
}

/// Forgets a span that ended, of those that samples wait for; one with its key that is another goes on.
fn forget_ended(open: &mut HashMap<SpanKey, Awaited>, end: &SpanEnd) {
    let key = SpanKey {
        tid: end.tid,
        sequence: end.sequence,
    };
    let is_it = |span: &Awaited| (span.probe, span.start_ns) == (end.probe, end.start_ns);
    if open.get(&key).is_some_and(is_it) {
        open.remove(&key);
    }
}

/// The threads that a message tells, by number.
fn threads(message: &v1::WatchRecordsResponse) -> impl Iterator<Item = (u32, Thread)> {
    message.threads.iter().map(|thread| {
        let (pid, tid) = (thread.pid, thread.tid);
        (thread.id, Thread { pid, tid })
    })
}

/// Why a minute is not summed up: records are missing, contradict each other, or are too many.
struct NotSummed;

/// The identity of a row, as messages have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RowKey {
    thread: u32,
    activity: i32,
    function_node: u32,
    line_node: u32,
    incomplete: bool,
}

/// An interval off the CPU that began before the minute.
struct BegunBefore {
    /// When it ended.
    ts_ns: u64,
    sample: v1::RecordedSample,
}

/// A process's thread.
#[derive(Clone, Copy)]
struct Thread {
    pid: u32,
    tid: u32,
}

impl Thread {
    /// A span of its that samples wait for.
    fn awaits(self, span: &SpanRef) -> Awaited {
        Awaited {
            tgid: self.pid,
            tid: self.tid,
            sequence: span.sequence,
            probe: span.probe,
            start_ns: span.start_ns,
        }
    }
}

/// What came since numbers began anew.
struct Minute {
    told: v1::WatchRecordsResponse,
    threads: HashMap<u32, Thread>,
    /// When the record before was taken: in the stream, and among those that are kept.
    last_ns: u64,
    last_kept_ns: u64,
    rows: Vec<RowKey>,
    row_of: HashMap<RowKey, u32>,
    sums: Vec<Sums>,
    calls: BTreeMap<u32, CallSum>,
    moments: Vec<v1::CallMoment>,
    last_moment_ns: u64,
    usual_ns: u64,
    /// Intervals off the CPU that began before it, where they are recorded in calls or not: whoever begins with it counts the part of
    /// them that lies in it.
    begun_before: Vec<BegunBefore>,
    /// Entries of all kinds, so far.
    entries: usize,
    /// Spans that samples waited for when it began.
    open_before: HashMap<SpanKey, Awaited>,
}

/// A span's id on the recorded host: its thread, and its number there. It comes again with another thread of that number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SpanKey {
    tid: u32,
    sequence: u64,
}

impl SpanKey {
    fn of(span: &Awaited) -> Self {
        Self {
            tid: span.tid,
            sequence: span.sequence,
        }
    }
}

impl Minute {
    /// One that begins with a message, while these spans are open, which it takes over.
    fn begin(first: &v1::WatchRecordsResponse, open: &mut HashMap<SpanKey, Awaited>) -> Option<Self> {
        let (scope, _) = decode::scope(first.scope.clone()?).ok()?;
        Some(Self {
            told: v1::WatchRecordsResponse {
                from_ns: first.from_ns,
                to_ns: first.from_ns,
                begins_anew: true,
                scope: first.scope.clone(),
                ..Default::default()
            },
            threads: HashMap::new(),
            last_ns: first.from_ns,
            last_kept_ns: first.from_ns,
            rows: Vec::new(),
            row_of: HashMap::new(),
            sums: summed_steps(&scope).into_iter().map(Sums::new).collect(),
            calls: BTreeMap::new(),
            moments: Vec::new(),
            last_moment_ns: first.from_ns,
            usual_ns: 0,
            begun_before: Vec::new(),
            entries: 0,
            open_before: std::mem::take(open),
        })
    }

    fn take(&mut self, message: &v1::WatchRecordsResponse) -> Result<(), NotSummed> {
        // What a newer version records cannot be summed up.
        let is_known = |record: &v1::Record| record.record.is_some();
        if !message.records.iter().all(is_known)
            || message.dropped > 0
            || self.sums.is_empty()
            || self.moments.len() >= MAX_MOMENTS
        {
            return Err(NotSummed);
        }
        self.threads.extend(threads(message));
        self.told.threads.extend_from_slice(&message.threads);
        self.told.frames.extend_from_slice(&message.frames);
        self.told.nodes.extend_from_slice(&message.nodes);
        for (name, count) in &message.counters {
            let sum = self.told.counters.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.told.cost = message.cost;
        self.told.to_ns = message.to_ns;
        self.last_ns = message.from_ns;
        if self.usual_ns == 0 {
            self.usual_ns = message.weight_ns;
        }
        for record in message.records.iter().filter_map(|record| record.record.as_ref()) {
            match record {
                Record::Sample(sample) => self.sample(sample, message.weight_ns)?,
                Record::SpanEnd(end) => self.span_end(end)?,
            }
        }
        if !message.calls.is_empty() {
            for calls in &message.calls {
                self.entries += 1 + calls.ended.as_ref().map_or(0, |ended| ended.counts.len());
                self.calls.entry(calls.probe).or_default().add(calls);
            }
            self.moments.push(v1::CallMoment {
                after_ns: message.to_ns.saturating_sub(self.last_moment_ns),
                calls: message.calls.clone(),
            });
            self.last_moment_ns = message.to_ns;
        }
        let told = self.told.nodes.len() + self.told.frames.len() + self.told.threads.len();
        let cells: usize = self.sums.iter().map(Sums::entries).sum();
        if self.entries + told * self.sums.len() + cells > MAX_ENTRIES {
            return Err(NotSummed);
        }
        Ok(())
    }

    fn sample(&mut self, sample: &v1::RecordedSample, usual_ns: u64) -> Result<(), NotSummed> {
        let Thread { pid, tid } = *self.threads.get(&sample.thread).ok_or(NotSummed)?;
        let ts_ns = self.last_ns.saturating_add_signed(sample.after_ns);
        self.last_ns = ts_ns;
        let weight_ns = match sample.weight_ns {
            0 => usual_ns,
            weight_ns => weight_ns,
        };
        if ts_ns < self.told.from_ns {
            // Whoever begins here does not count it; whoever began before does.
            let after_ns = self.after_kept(ts_ns);
            self.keep(Record::Sample(v1::RecordedSample {
                after_ns,
                weight_ns,
                ..sample.clone()
            }));
            return Ok(());
        }
        let row = self.row(RowKey {
            thread: sample.thread,
            activity: sample.activity,
            function_node: sample.function_node,
            line_node: sample.line_node,
            incomplete: sample.incomplete,
        });
        let is_on_cpu = decode::activity(sample.activity()) == Activity::OnCpu;
        let is_off_cpu_everywhere = self.told.scope.as_ref().is_some_and(|scope| scope.off_cpu);
        let is_begun_before =
            is_off_cpu_everywhere && !is_on_cpu && ts_ns.saturating_sub(weight_ns) < self.told.from_ns;
        if is_begun_before {
            self.entries += 1;
            self.begun_before.push(BegunBefore {
                ts_ns,
                sample: v1::RecordedSample {
                    weight_ns,
                    ..sample.clone()
                },
            });
        }
        let spans = decode::spans(sample, ts_ns);
        let is_of_another = |span: &SpanRef| {
            let key = SpanKey {
                tid,
                sequence: span.sequence,
            };
            let before = self.open_before.get(&key);
            before.is_some_and(|before| (before.probe, before.start_ns) != (span.probe, span.start_ns))
        };
        if spans.iter().any(is_of_another) {
            // Whoever reads the minutes before gives up samples of a span whose key comes again.
            return Err(NotSummed);
        }
        let sample = Sample {
            tgid: pid,
            tid,
            ts_ns,
            weight_ns,
            count: u64::from(!sample.continues),
            node: NodeId(row),
            spans: &spans,
        };
        for sums in &mut self.sums {
            if !(is_begun_before && sums.joiners.is_none()) {
                sums.sample(&sample, is_on_cpu);
            }
        }
        Ok(())
    }

    fn span_end(&mut self, end: &v1::RecordedSpanEnd) -> Result<(), NotSummed> {
        let Thread { pid, tid } = *self.threads.get(&end.thread).ok_or(NotSummed)?;
        let end_ns = self.last_ns.saturating_add_signed(end.after_ns);
        self.last_ns = end_ns;
        let span = decode::span_end(end, (pid, tid), end_ns);
        forget_ended(&mut self.open_before, &span);
        if span.start_ns < self.told.from_ns.saturating_add(CLOCK_AHEAD_NS) {
            // Samples before may wait for it.
            let after_ns = self.after_kept(end_ns);
            self.keep(Record::SpanEnd(v1::RecordedSpanEnd { after_ns, ..*end }));
        }
        self.sums.iter_mut().for_each(|sums| sums.span_end(&span));
        Ok(())
    }

    /// A time, in nanoseconds after that of the record that was kept before.
    fn after_kept(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_kept_ns, ns), ns)
    }

    fn keep(&mut self, record: Record) {
        self.entries += 1;
        let record = Some(record);
        self.told.records.push(v1::Record { record });
    }

    fn row(&mut self, key: RowKey) -> u32 {
        let next = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let row = *self.row_of.entry(key).or_insert(next);
        if row == next {
            self.rows.push(key);
            self.entries += 1;
        }
        row
    }

    /// Spans that samples wait for, of this minute and of those before.
    fn open(&self) -> HashMap<SpanKey, Awaited> {
        let awaited = self.sums.iter().flat_map(Sums::awaited);
        let own = awaited.map(|span| (SpanKey::of(span), *span));
        let before = self.open_before.iter().map(|(key, span)| (*key, *span));
        // Ends that were lost never come.
        before.take(MAX_ENTRIES).chain(own).collect()
    }

    /// Whether samples on the CPU and off it wait for different spans of one key, where one would have given up the other.
    fn is_ambiguous(&self) -> bool {
        let mut known: HashMap<SpanKey, Awaited> = HashMap::new();
        let mut awaited = self.sums.iter().flat_map(Sums::awaited);
        awaited.any(|span| {
            let before = known.insert(SpanKey::of(span), *span);
            // Each number of steps has its own.
            before.is_some_and(|before| before.start_ns != span.start_ns && before.probe == span.probe)
        })
    }

    fn end(self) -> Summaries {
        if self.is_ambiguous() {
            return Summaries::default();
        }
        let Self {
            mut told,
            rows,
            sums,
            calls,
            moments,
            usual_ns,
            last_kept_ns,
            begun_before,
            ..
        } = self;
        let mut of_calls = v1::CallSummary {
            told: Some(v1::WatchRecordsResponse {
                frames: Vec::new(),
                nodes: Vec::new(),
                threads: (told.threads.iter())
                    .map(|thread| v1::RecordedThread {
                        thread_frame: 0,
                        process_frame: 0,
                        ..*thread
                    })
                    .collect(),
                ..told.clone()
            }),
            moments,
        };
        let calls = calls.into_iter().map(|(probe, sum)| sum.counted(probe));
        told.calls = calls.collect();
        let mut without_steps = told.clone();
        without_steps
            .records
            .extend(records_of(begun_before, last_kept_ns));
        ColumnWriter::default().pack(&mut told);
        ColumnWriter::default().pack(&mut without_steps);
        if let Some(told) = &mut of_calls.told {
            ColumnWriter::default().pack(told);
        }
        let samples = sums.into_iter().map(|sums| v1::SampleSummary {
            told: Some(if sums.joiners.is_none() {
                without_steps.clone()
            } else {
                told.clone()
            }),
            ..sums.summary(&rows, usual_ns, told.to_ns)
        });
        Summaries {
            samples: samples.collect(),
            calls: Some(of_calls).filter(|calls| !calls.moments.is_empty()),
        }
    }
}

/// Intervals as records, behind one of this time.
fn records_of(intervals: Vec<BegunBefore>, mut last_ns: u64) -> impl Iterator<Item = v1::Record> {
    intervals.into_iter().map(move |BegunBefore { ts_ns, sample }| {
        let after_ns = after(std::mem::replace(&mut last_ns, ts_ns), ts_ns);
        v1::Record {
            record: Some(Record::Sample(v1::RecordedSample { after_ns, ..sample })),
        }
    })
}

/// The calls of a probe in a minute.
#[derive(Default)]
struct CallSum {
    ended: BTreeMap<u32, u64>,
    others: v1::CountedCalls,
}

impl CallSum {
    fn add(&mut self, calls: &v1::CountedCalls) {
        let mut bucket = 0_u32;
        if let Some(histogram) = &calls.ended {
            for (delta, count) in histogram.bucket_deltas.iter().zip(&histogram.counts) {
                bucket = bucket.saturating_add(*delta);
                let sum = self.ended.entry(bucket).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        let others = &mut self.others;
        for (sum, count) in [
            (&mut others.begun, calls.begun),
            (&mut others.abandoned, calls.abandoned),
            (&mut others.too_deep, calls.too_deep),
            (&mut others.open_at_attach, calls.open_at_attach),
            (&mut others.no_thread_state, calls.no_thread_state),
            (&mut others.no_histogram_page, calls.no_histogram_page),
            (&mut others.join_limit, calls.join_limit),
            (&mut others.refused, calls.refused),
            (&mut others.undecided, calls.undecided),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    fn counted(self, probe: u32) -> v1::CountedCalls {
        let ended: Vec<(u32, u64)> = self.ended.into_iter().collect();
        v1::CountedCalls {
            probe,
            ended: Some(histogram(&ended)),
            ..self.others
        }
    }
}

/// The samples of a minute, for some of the scope's steps.
struct Sums {
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
    fn entries(&self) -> usize {
        let joiners = self.joiners.as_ref();
        let waiting = joiners.map_or(0, |Joiners { on_cpu, off_cpu }| {
            on_cpu.stacks() + off_cpu.stacks()
        });
        self.ended.len() + waiting
    }

    /// The spans that samples wait for.
    fn awaited(&self) -> impl Iterator<Item = &Awaited> {
        let joiners = self.joiners.iter();
        joiners.flat_map(|Joiners { on_cpu, off_cpu }| on_cpu.awaited().chain(off_cpu.awaited()))
    }

    fn new(summed: SummedSteps) -> Self {
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

    fn sample(&mut self, sample: &Sample<'_>, is_on_cpu: bool) {
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

    fn span_end(&mut self, end: &SpanEnd) {
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

    fn summary(mut self, keys: &[RowKey], usual_ns: u64, to_ns: u64) -> v1::SampleSummary {
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
        let scope = decode::scope(told.scope.take().ok_or(Damaged)?)?;
        if !decode::are_frames(&told.frames) {
            return Err(Damaged);
        }
        let frames = std::mem::take(&mut told.frames);
        // Nothing was told before.
        told.begins_anew = false;
        Ok(Self {
            of,
            frames: frames.into_iter().map(ToldFrame::of).collect(),
            told,
            scope,
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
        let names: usize = (self.frames.iter())
            .map(|told| {
                let ToldFrame { frame, .. } = told;
                size_of_val(told) + frame.function.len() + frame.file.len() + frame.module.len()
            })
            .sum();
        own + names
            + size_of_val(told.nodes.as_slice())
            + size_of_val(told.records.as_slice())
            + size_of_val(told.threads.as_slice())
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
