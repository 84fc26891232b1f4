//! What came in a minute, until it is summed up.

use std::collections::{BTreeMap, HashMap};

use profiler_aggregate::{
    calltree::NodeId,
    join::{Awaited, Sample},
};
use profiler_common::record::SpanRef;
use profiler_proto::v1::{self, record::Record};

use super::{MAX_ENTRIES, MAX_MOMENTS, SpanKey, Summaries, Thread, forget_ended, sums::Sums, threads};
use crate::{
    kernel::Activity,
    recording::{columns::ColumnWriter, decode},
    rpc::{histogram, records::after},
    session::summed_steps,
};

/// Whoever reads the clock before what happened meanwhile is ahead of it by less than this.
const CLOCK_AHEAD_NS: u64 = 1_000_000_000;

/// Why a minute is not summed up: records are missing, contradict each other, or are too many.
pub struct NotSummed;

/// The identity of a row, as messages have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowKey {
    pub thread: u32,
    pub activity: i32,
    pub function_node: u32,
    pub line_node: u32,
    pub incomplete: bool,
}

/// An interval off the CPU that began before the minute.
struct BegunBefore {
    /// When it ended.
    ts_ns: u64,
    sample: v1::RecordedSample,
}

/// What came since numbers began anew.
pub struct Minute {
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

impl Minute {
    /// One that begins with a message, while these spans are open, which it takes over.
    pub fn begin(first: &v1::WatchRecordsResponse, open: &mut HashMap<SpanKey, Awaited>) -> Option<Self> {
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

    /// Takes a message of the stream. An error leaves the minute as it is so far.
    pub fn take(&mut self, message: &v1::WatchRecordsResponse) -> Result<(), NotSummed> {
        // What a newer version records cannot be summed up.
        let is_known = |record: &v1::Record| record.record.is_some();
        if !message.records.iter().all(is_known)
            || message.records_lost() > 0
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
        self.told.info = Some(v1::StreamInfo {
            cost: message.beginning().cost,
            ..Default::default()
        });
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
            if !(is_begun_before && sums.are_all_inside()) {
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

    /// Whether it has taken any time. Two edits at once have nothing between them.
    pub fn has_passed(&self) -> bool {
        self.told.from_ns < self.told.to_ns
    }

    /// The threads that it was told, by number.
    pub fn into_threads(self) -> HashMap<u32, Thread> {
        self.threads
    }

    /// Spans that samples wait for, of this minute and of those before.
    pub fn open(&self) -> HashMap<SpanKey, Awaited> {
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

    /// Its summaries; none where they would answer otherwise than its records.
    pub fn end(self) -> Summaries {
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
            told: Some(if sums.are_all_inside() {
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
