//! Messages as files keep them: their nodes and records in columns, and back.
//!
//! A sample or an end as a message of its own takes as much for saying which number follows as for the numbers, and each has
//! others of another kind beside it, which compress badly. In columns, most are what is expected, or small.
//!
//! Other kinds of records, and what else messages tell, stay as they are.

use std::collections::{HashMap, hash_map::Entry};

use foldhash::fast::RandomState;
use profiler_proto::v1::{self, record::Record};

use super::decode::Damaged;
use crate::rpc::records::number;

/// Records of a message that are read: more than are told in one.
const MAX_RECORDS: usize = 1 << 18;

/// Spans of its samples, all in all.
const MAX_SPANS: usize = 1 << 22;

/// Places that are known since numbers began anew.
const MAX_PLACES: usize = 1 << 20;

/// What a record is.
const OTHER: u8 = 0;
const SAMPLE: u8 = 1;
const END: u8 = 2;

/// Where a sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Place {
    function: u32,
    line: u32,
    activity: i32,
    incomplete: bool,
    system_call: u32,
}

/// A span in the columns, when it began being counted as [`Threads::now_ns`] is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    probe: u32,
    sequence: u64,
    began_ns: i64,
    gates: u32,
}

/// What is known of a thread in a message.
#[derive(Default)]
struct Thread {
    last_ns: i64,
    sequence: u64,
    spans: Vec<Known>,
}

/// What is known of all threads in a message.
#[derive(Default)]
struct Threads {
    /// When the record before was, in nanoseconds after the message's beginning.
    now_ns: i64,
    by_number: HashMap<u32, Thread, RandomState>,
    /// The weight of samples that tell none.
    usual_ns: u64,
}

impl Threads {
    /// Those of a message that begins.
    fn of_message(message: &v1::WatchRecordsResponse) -> Self {
        Self {
            usual_ns: message.weight_ns,
            ..Self::default()
        }
    }

    /// What a sample weighs that tells this.
    fn weight(&self, told_ns: u64) -> u64 {
        if told_ns == 0 { self.usual_ns } else { told_ns }
    }

    /// A thread, when a record of it is expected that stands for so long a time, and when the record before was.
    fn of(&mut self, thread: u32, weight_ns: u64) -> OfThread<'_> {
        let Self {
            now_ns, by_number, ..
        } = self;
        let (thread, expected_ns) = match by_number.entry(thread) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                let expected_ns = known.last_ns.wrapping_add(weight_ns.cast_signed());
                (known, expected_ns)
            }
            Entry::Vacant(new) => (new.insert(Thread::default()), *now_ns),
        };
        OfThread {
            thread,
            expected_ns,
            now_ns,
        }
    }
}

/// What is known of a thread, and where a record of it is in time.
struct OfThread<'a> {
    thread: &'a mut Thread,
    /// When a record of it is expected.
    expected_ns: i64,
    /// When the record before was, of whichever thread.
    now_ns: &'a mut i64,
}

impl OfThread<'_> {
    /// The next record is of this time; how long after the one before.
    fn is_at(&mut self, now_ns: i64) -> i64 {
        self.thread.last_ns = now_ns;
        now_ns.wrapping_sub(std::mem::replace(self.now_ns, now_ns))
    }
}

/// Brings the messages of a stream into columns, as they come.
#[derive(Default)]
pub struct ColumnWriter {
    /// Places that were told since numbers began anew.
    places: HashMap<Place, u32, RandomState>,
    last: Place,
}

impl ColumnWriter {
    /// Moves the nodes and records of the next message into columns.
    pub fn pack(&mut self, message: &mut v1::WatchRecordsResponse) {
        if message.begins_anew {
            *self = Self::default();
        }
        let mut columns = v1::RecordColumns::default();
        pack_nodes(message, &mut columns);
        let mut threads = Threads::of_message(message);
        let records = std::mem::take(&mut message.records);
        for record in records {
            match &record.record {
                Some(Record::Sample(sample)) if self.places.len() < MAX_PLACES => {
                    columns.kinds.push(SAMPLE);
                    self.sample(sample, &mut threads, &mut columns);
                }
                Some(Record::SpanEnd(end)) => {
                    columns.kinds.push(END);
                    pack_end(end, &mut threads, &mut columns);
                }
                _ => {
                    columns.kinds.push(OTHER);
                    message.records.push(record);
                }
            }
        }
        leave_out(&mut columns);
        message.columns = (columns != v1::RecordColumns::default()).then_some(columns);
    }

    fn sample(
        &mut self,
        sample: &v1::RecordedSample,
        threads: &mut Threads,
        columns: &mut v1::RecordColumns,
    ) {
        let v1::RecordedSample {
            thread,
            after_ns,
            weight_ns,
            activity,
            continues,
            function_node,
            line_node,
            incomplete,
            spans,
            system_call,
        } = sample;
        let now_ns = threads.now_ns.wrapping_add(*after_ns);
        let mut of = threads.of(*thread, threads.weight(*weight_ns));
        columns.threads.push(*thread);
        columns.after_ns.push(now_ns.wrapping_sub(of.expected_ns));
        of.is_at(now_ns);
        let of_thread = of.thread;
        columns.weights_ns.push(*weight_ns);
        columns.continues.push(*continues);
        columns.span_counts.push(number(spans.len()));
        for (at, span) in spans.iter().enumerate() {
            let known = Known {
                probe: span.probe,
                sequence: span.sequence,
                began_ns: now_ns.wrapping_sub(span.before_ns),
                gates: span.gates,
            };
            let is_known = of_thread.spans.get(at) == Some(&known);
            columns.spans_known.push(is_known.into());
            if !is_known {
                columns.span_probes.push(span.probe);
                let sequence = std::mem::replace(&mut of_thread.sequence, span.sequence);
                columns
                    .span_sequences
                    .push(span.sequence.wrapping_sub(sequence).cast_signed());
                columns.span_before_ns.push(span.before_ns);
                columns.span_gates.push(span.gates);
                of_thread.spans.truncate(at);
                of_thread.spans.push(known);
            }
        }
        of_thread.spans.truncate(spans.len());
        let place = Place {
            function: *function_node,
            line: *line_node,
            activity: *activity,
            incomplete: *incomplete,
            system_call: *system_call,
        };
        self.place(place, columns);
    }

    fn place(&mut self, place: Place, columns: &mut v1::RecordColumns) {
        let next = number(self.places.len());
        let known = *self.places.entry(place).or_insert(next);
        columns.places.push(known);
        if known == next {
            let before = std::mem::replace(&mut self.last, place);
            columns
                .place_functions
                .push(place.function.wrapping_sub(before.function).cast_signed());
            columns
                .place_lines
                .push(place.line.wrapping_sub(place.function).cast_signed());
            columns.place_activities.push(place.activity);
            columns.place_incomplete.push(place.incomplete.into());
            columns.place_system_calls.push(place.system_call);
        }
    }
}

fn pack_end(end: &v1::RecordedSpanEnd, threads: &mut Threads, columns: &mut v1::RecordColumns) {
    let v1::RecordedSpanEnd {
        thread,
        probe,
        sequence,
        after_ns,
        duration_ns,
        flags,
        parent,
        gates,
        hits,
    } = end;
    let now_ns = threads.now_ns.wrapping_add(*after_ns);
    let mut of = threads.of(*thread, 0);
    columns.threads.push(*thread);
    columns.after_ns.push(now_ns.wrapping_sub(of.expected_ns));
    of.is_at(now_ns);
    let of_thread = of.thread;
    let began_ns = now_ns.wrapping_sub(duration_ns.cast_signed());
    let known = of_thread
        .spans
        .iter()
        .position(|span| (span.probe, span.sequence, span.began_ns) == (*probe, *sequence, began_ns));
    columns
        .ends_known
        .push(known.map_or(0, |known| number(known).saturating_add(1)));
    if known.is_none() {
        columns.end_probes.push(*probe);
        columns
            .end_sequences
            .push(sequence.wrapping_sub(of_thread.sequence).cast_signed());
        columns.end_durations_ns.push(*duration_ns);
    }
    columns.end_flags.push(*flags);
    columns.end_parents.push(*parent);
    columns.end_gates.push(*gates);
    columns.end_hits.push(*hits);
    of_thread.sequence = *sequence;
}

/// Moves nodes into columns, where their numbers follow one another.
fn pack_nodes(message: &mut v1::WatchRecordsResponse, columns: &mut v1::RecordColumns) {
    let Some(first) = message.nodes.first().and_then(|node| node.id.checked_sub(1)) else {
        return;
    };
    let is_next = |(node, id): (&v1::RecordedNode, u32)| node.id == id && node.parent < id;
    if !message.nodes.iter().zip(first + 1..).all(is_next) {
        return;
    }
    columns.first_node = first;
    let mut last = 0;
    for v1::RecordedNode { id, parent, frame } in std::mem::take(&mut message.nodes) {
        columns.node_parents.push(id - 1 - parent);
        let before = std::mem::replace(&mut last, frame);
        columns.node_frames.push(frame.wrapping_sub(before).cast_signed());
    }
}

/// Leaves out columns whose numbers are all 0, and the kinds where all are samples.
fn leave_out(columns: &mut v1::RecordColumns) {
    fn zeros<T: Default + PartialEq>(column: &mut Vec<T>) {
        if column.iter().all(|number| *number == T::default()) {
            column.clear();
        }
    }
    if columns.kinds.iter().all(|kind| *kind == SAMPLE) {
        columns.kinds.clear();
    }
    zeros(&mut columns.place_lines);
    zeros(&mut columns.place_activities);
    zeros(&mut columns.place_incomplete);
    zeros(&mut columns.place_system_calls);
    zeros(&mut columns.weights_ns);
    zeros(&mut columns.continues);
    zeros(&mut columns.span_counts);
    zeros(&mut columns.spans_known);
    zeros(&mut columns.span_gates);
    zeros(&mut columns.ends_known);
    zeros(&mut columns.end_flags);
    zeros(&mut columns.end_parents);
    zeros(&mut columns.end_gates);
    zeros(&mut columns.end_hits);
}

/// A column on its way back.
struct Column<T> {
    numbers: std::vec::IntoIter<T>,
    is_left_out: bool,
}

impl<T: Default> Column<T> {
    /// One in which each number is.
    fn whole(numbers: Vec<T>) -> Self {
        Self {
            numbers: numbers.into_iter(),
            is_left_out: false,
        }
    }

    /// One that is left out where all its numbers are 0.
    fn of(numbers: Vec<T>) -> Self {
        Self {
            is_left_out: numbers.is_empty(),
            ..Self::whole(numbers)
        }
    }

    fn next(&mut self) -> Result<T, Damaged> {
        if self.is_left_out {
            return Ok(T::default());
        }
        self.numbers.next().ok_or(Damaged)
    }
}

/// Brings messages back from columns, as they come.
#[derive(Default)]
pub struct ColumnReader {
    /// Places that were told since numbers began anew.
    places: Vec<Place>,
}

/// What is asked of columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unpacked {
    /// All.
    Records,
    /// What others than these records need: nodes, places.
    Told,
}

impl ColumnReader {
    /// Moves the nodes and records of the next message out of columns.
    ///
    /// # Errors
    /// Where they contradict each other.
    pub fn unpack(&mut self, message: &mut v1::WatchRecordsResponse) -> Result<(), Damaged> {
        let mut records = self.records(message, Unpacked::Records)?;
        let mut all = Vec::with_capacity(records.left);
        while let Some(told) = records.next() {
            let record = match told? {
                ColumnRecord::Sample(sample, spans) => Some(Record::Sample(v1::RecordedSample {
                    spans: spans.iter().collect(),
                    ..sample
                })),
                ColumnRecord::Record(record) => record,
            };
            all.push(v1::Record { record });
        }
        message.records = all;
        Ok(())
    }

    /// Moves the nodes of the next message out of columns; gives its records, which come out one by one.
    ///
    /// # Errors
    /// Where nodes and places contradict each other, and where there are too many.
    pub fn records(
        &mut self,
        message: &mut v1::WatchRecordsResponse,
        unpacked: Unpacked,
    ) -> Result<Records<'_>, Damaged> {
        if message.begins_anew {
            self.places.clear();
        }
        let mut columns = message.columns.take();
        if let Some(columns) = &mut columns {
            unpack_nodes(columns, &mut message.nodes)?;
            self.tell_places(columns)?;
        }
        let others = std::mem::take(&mut message.records);
        let spans = others.iter().map(|record| match &record.record {
            Some(Record::Sample(sample)) => sample.spans.len(),
            _ => 0,
        });
        if others.len() > MAX_RECORDS || spans.sum::<usize>() > MAX_SPANS {
            return Err(Damaged);
        }
        let columns = columns.filter(|_| unpacked == Unpacked::Records);
        let Some(mut columns) = columns else {
            return Ok(Records::without_columns(others));
        };
        let left = match columns.kinds.len() {
            0 => columns.threads.len(),
            records => records,
        };
        if left > MAX_RECORDS || columns.kinds.is_empty() && !others.is_empty() {
            return Err(Damaged);
        }
        let kinds = std::mem::take(&mut columns.kinds);
        let threads = Threads::of_message(message);
        Ok(Records {
            left,
            kinds: kinds.into_iter(),
            others: others.into_iter(),
            unpacking: Some(Unpacking::of(columns, threads, &self.places)),
        })
    }

    fn tell_places(&mut self, columns: &mut v1::RecordColumns) -> Result<(), Damaged> {
        let functions = std::mem::take(&mut columns.place_functions);
        if self.places.len() + functions.len() > MAX_PLACES {
            return Err(Damaged);
        }
        let mut lines = Column::of(std::mem::take(&mut columns.place_lines));
        let mut activities = Column::of(std::mem::take(&mut columns.place_activities));
        let mut incomplete = Column::of(std::mem::take(&mut columns.place_incomplete));
        let mut system_calls = Column::of(std::mem::take(&mut columns.place_system_calls));
        for function in functions {
            let before = self.places.last().copied().unwrap_or_default();
            let function = before.function.wrapping_add(function.cast_unsigned());
            self.places.push(Place {
                function,
                line: function.wrapping_add(lines.next()?.cast_unsigned()),
                activity: activities.next()?,
                incomplete: incomplete.next()? != 0,
                system_call: system_calls.next()?,
            });
        }
        Ok(())
    }
}

fn unpack_nodes(columns: &mut v1::RecordColumns, nodes: &mut Vec<v1::RecordedNode>) -> Result<(), Damaged> {
    let parents = std::mem::take(&mut columns.node_parents);
    let frames = std::mem::take(&mut columns.node_frames);
    if parents.len() != frames.len() {
        return Err(Damaged);
    }
    nodes.reserve_exact(parents.len());
    let (mut id, mut frame) = (columns.first_node, 0_u32);
    for (parent, frame_after) in parents.into_iter().zip(frames) {
        let before = id;
        id = id.checked_add(1).ok_or(Damaged)?;
        frame = frame.wrapping_add(frame_after.cast_unsigned());
        nodes.push(v1::RecordedNode {
            id,
            parent: before.checked_sub(parent).ok_or(Damaged)?,
            frame,
        });
    }
    Ok(())
}

/// A record that came out of columns.
pub enum ColumnRecord<'a> {
    /// A sample without its spans, and these.
    Sample(v1::RecordedSample, Spans<'a>),
    /// Another record; `None` of a kind that a newer version writes.
    Record(Option<Record>),
}

/// Spans of a sample.
pub struct Spans<'a> {
    known: &'a [Known],
    /// When the sample was taken.
    now_ns: i64,
}

impl Spans<'_> {
    /// They, outermost first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = v1::RecordedSpan> {
        self.known.iter().map(|span| v1::RecordedSpan {
            probe: span.probe,
            sequence: span.sequence,
            before_ns: self.now_ns.wrapping_sub(span.began_ns),
            gates: span.gates,
        })
    }
}

/// The records of a message, in order.
pub struct Records<'a> {
    /// Those that come yet, but for those behind the last in columns.
    left: usize,
    kinds: std::vec::IntoIter<u8>,
    /// Those that are not in columns.
    others: std::vec::IntoIter<v1::Record>,
    unpacking: Option<Unpacking<'a>>,
}

impl Records<'_> {
    fn without_columns(others: Vec<v1::Record>) -> Self {
        Self {
            left: 0,
            kinds: Vec::new().into_iter(),
            others: others.into_iter(),
            unpacking: None,
        }
    }

    /// How many come yet, at least.
    pub fn len(&self) -> usize {
        self.left.max(self.others.len())
    }

    /// The next one.
    pub fn next(&mut self) -> Option<Result<ColumnRecord<'_>, Damaged>> {
        let Some(left) = self.left.checked_sub(1) else {
            let other = self.others.next();
            return other.map(|other| Ok(ColumnRecord::Record(other.record)));
        };
        self.left = left;
        Some(self.packed())
    }

    fn packed(&mut self) -> Result<ColumnRecord<'_>, Damaged> {
        let unpacking = self.unpacking.as_mut().ok_or(Damaged)?;
        Ok(match self.kinds.next().unwrap_or(SAMPLE) {
            SAMPLE => {
                let (sample, spans) = unpacking.sample()?;
                ColumnRecord::Sample(sample, spans)
            }
            END => ColumnRecord::Record(Some(Record::SpanEnd(unpacking.end()?))),
            _ => ColumnRecord::Record(self.others.next().ok_or(Damaged)?.record),
        })
    }
}

/// Records on their way out of columns.
struct Unpacking<'a> {
    known: &'a [Place],
    threads_known: Threads,
    /// Spans of the samples so far.
    spans: usize,
    threads: Column<u32>,
    after_ns: Column<i64>,
    places: Column<u32>,
    weights_ns: Column<u64>,
    continues: Column<bool>,
    span_counts: Column<u32>,
    spans_known: Column<u32>,
    span_probes: Column<u32>,
    span_sequences: Column<i64>,
    span_before_ns: Column<i64>,
    span_gates: Column<u32>,
    ends_known: Column<u32>,
    end_probes: Column<u32>,
    end_sequences: Column<i64>,
    end_durations_ns: Column<u64>,
    end_flags: Column<u32>,
    end_parents: Column<u32>,
    end_gates: Column<u32>,
    end_hits: Column<u32>,
}

impl<'a> Unpacking<'a> {
    fn of(columns: v1::RecordColumns, threads: Threads, known: &'a [Place]) -> Self {
        Self {
            known,
            threads_known: threads,
            spans: 0,
            threads: Column::whole(columns.threads),
            after_ns: Column::whole(columns.after_ns),
            places: Column::whole(columns.places),
            weights_ns: Column::of(columns.weights_ns),
            continues: Column::of(columns.continues),
            span_counts: Column::of(columns.span_counts),
            spans_known: Column::of(columns.spans_known),
            span_probes: Column::whole(columns.span_probes),
            span_sequences: Column::whole(columns.span_sequences),
            span_before_ns: Column::whole(columns.span_before_ns),
            span_gates: Column::of(columns.span_gates),
            ends_known: Column::of(columns.ends_known),
            end_probes: Column::whole(columns.end_probes),
            end_sequences: Column::whole(columns.end_sequences),
            end_durations_ns: Column::whole(columns.end_durations_ns),
            end_flags: Column::of(columns.end_flags),
            end_parents: Column::of(columns.end_parents),
            end_gates: Column::of(columns.end_gates),
            end_hits: Column::of(columns.end_hits),
        }
    }

    /// The next sample, without its spans; and these.
    fn sample(&mut self) -> Result<(v1::RecordedSample, Spans<'_>), Damaged> {
        let thread = self.threads.next()?;
        let weight_ns = self.weights_ns.next()?;
        let place = self.places.next()? as usize;
        let place = *self.known.get(place).ok_or(Damaged)?;
        let expected_weight_ns = self.threads_known.weight(weight_ns);
        let mut of = self.threads_known.of(thread, expected_weight_ns);
        let now_ns = of.expected_ns.wrapping_add(self.after_ns.next()?);
        let after_ns = of.is_at(now_ns);
        let of_thread = of.thread;
        let count = self.span_counts.next()? as usize;
        self.spans = self.spans.saturating_add(count);
        if self.spans > MAX_SPANS {
            return Err(Damaged);
        }
        for at in 0..count {
            if self.spans_known.next()? != 0 {
                if at >= of_thread.spans.len() {
                    return Err(Damaged);
                }
                continue;
            }
            let sequence = self.span_sequences.next()?.cast_unsigned();
            of_thread.sequence = of_thread.sequence.wrapping_add(sequence);
            let known = Known {
                probe: self.span_probes.next()?,
                sequence: of_thread.sequence,
                began_ns: now_ns.wrapping_sub(self.span_before_ns.next()?),
                gates: self.span_gates.next()?,
            };
            of_thread.spans.truncate(at);
            of_thread.spans.push(known);
        }
        of_thread.spans.truncate(count);
        let sample = v1::RecordedSample {
            thread,
            after_ns,
            weight_ns,
            activity: place.activity,
            continues: self.continues.next()?,
            function_node: place.function,
            line_node: place.line,
            incomplete: place.incomplete,
            spans: Vec::new(),
            system_call: place.system_call,
        };
        let known = &of_thread.spans;
        Ok((sample, Spans { known, now_ns }))
    }

    fn end(&mut self) -> Result<v1::RecordedSpanEnd, Damaged> {
        let thread = self.threads.next()?;
        let mut of = self.threads_known.of(thread, 0);
        let now_ns = of.expected_ns.wrapping_add(self.after_ns.next()?);
        let after_ns = of.is_at(now_ns);
        let of_thread = of.thread;
        let (probe, sequence, duration_ns) = match self.ends_known.next()? {
            0 => {
                let sequence = self.end_sequences.next()?.cast_unsigned();
                (
                    self.end_probes.next()?,
                    of_thread.sequence.wrapping_add(sequence),
                    self.end_durations_ns.next()?,
                )
            }
            known => {
                let known = of_thread.spans.get(known as usize - 1).ok_or(Damaged)?;
                let duration_ns = now_ns.wrapping_sub(known.began_ns).cast_unsigned();
                (known.probe, known.sequence, duration_ns)
            }
        };
        of_thread.sequence = sequence;
        Ok(v1::RecordedSpanEnd {
            thread,
            probe,
            sequence,
            after_ns,
            duration_ns,
            flags: self.end_flags.next()?,
            parent: self.end_parents.next()?,
            gates: self.end_gates.next()?,
            hits: self.end_hits.next()?,
        })
    }
}
