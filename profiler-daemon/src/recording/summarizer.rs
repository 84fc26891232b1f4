//! A minute of a recording, summed up while it is recorded.
//!
//! The samples of an hour are millions, the stacks and durations among them thousands. A question of an hour is answered
//! by the sums of its minutes, and by the records at its edges.
//!
//! See `docs/internals/recordings.md` for what a summary holds, and why it gives the same answer.

mod minute;
mod sums;

use std::collections::HashMap;

use profiler_aggregate::join::Awaited;
use profiler_common::record::{SpanEnd, SpanRef};
use profiler_proto::v1::{self, record::Record};

use self::minute::Minute;
use super::decode;

/// Rows, cells, records, names, buckets and samples that wait of a minute that is summed up; one with more is not.
pub const MAX_ENTRIES: usize = 1 << 19;

/// Messages of a minute that is summed up: they come four times a second, and one more with each edit.
pub const MAX_MOMENTS: usize = 1024;

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
            && let Some(minute) = self.minute.take()
        {
            self.between = Between {
                open: minute.open(),
                threads: minute.into_threads(),
            };
        }
        if self.minute.is_none() {
            self.between.take(message);
        }
        ended
    }

    /// What came since numbers began anew comes to, where nothing more comes.
    pub fn end(&mut self) -> Summaries {
        let minute = self.minute.take().filter(Minute::has_passed);
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
        if message.records_lost() > 0 {
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
