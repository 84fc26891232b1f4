//! A recording, read: from the chunks of a file to what a running session would have given.
//!
//! | file | idea |
//! |---|---|
//! | `columns` | messages as files keep them |
//! | `counters` | counters over time |
//! | `decode` | from messages to records |
//! | `events` | samples of events among those of time |
//! | `reasons` | why something was lost, as a newer version says it |
//! | `scopes` | which scopes were recorded |
//! | `summarizer` | sums up a minute's records while they are recorded |
//! | `summary` | a minute's records, summed up, from messages |
//! | `syscalls` | system calls by when they returned |
//! | `trigger` | what a recording waits for |
//! | `waits` | waits of threads |
//! | `values` | values of hits in messages |

mod columns;
mod counters;
mod decode;
mod events;
mod reasons;
mod scopes;
mod summarizer;
mod summary;
mod syscalls;
#[cfg(test)]
mod tests;
mod trigger;
pub(crate) mod values;
mod waits;

use std::{
    collections::{HashMap, HashSet},
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_proto::v1;
use profiler_recording::{Cut, Kind, PROLOGUE_BYTES, ReadError, Reader};
use profiler_scope::MAX_STEPS;
use profiler_symbolize::{Frames, Grouping};
use prost::Message as _;

use self::decode::Decoder;
use self::summary::Message;
pub use self::{
    columns::ColumnWriter,
    counters::RecordedBucket,
    decode::{Batch, Counted, Damaged, MAX_COUNT, TaskOf},
    reasons::reason,
    summarizer::{Summaries, Summarizer},
    summary::Summary,
    trigger::{Trigger, TriggerError},
};
use crate::session::RecordedScope;

/// Messages of one chunk that are read; a second's are four, and one more for each edit.
const MAX_MESSAGES: usize = 1024;

/// Memory for summaries that are kept once they are read, in bytes: those of an hour or two.
const MAX_SUMMARY_BYTES: usize = 128 << 20;

/// Memory for contents of chunks of records that are kept, in bytes: those of some minutes.
const MAX_CONTENT_BYTES: usize = 16 << 20;

/// Why a recording is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {source}", path = path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is no file.
    #[error("{path} is not a regular file, which a recording is", path = .0.display())]
    NotAFile(PathBuf),
    /// It is not a recording, or one of a newer format.
    #[error("cannot open {path}: {source}", path = path.display())]
    Refused {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: profiler_recording::OpenError,
    },
    /// Files were put behind one another.
    #[error(
        "{path} is of several recordings behind one another, of {first} and of {second}: the second begins at byte {at}, take them apart there",
        path = path.display()
    )]
    Several {
        /// Its path.
        path: PathBuf,
        /// Where the first was made.
        first: String,
        /// Where the second was.
        second: String,
        /// Where that begins.
        at: u64,
    },
    /// Nothing of it was recorded, or all is damaged.
    #[error("{path} has no records: it was cut off before the first", path = .0.display())]
    Nothing(PathBuf),
}

/// A recording that is open.
pub struct Recording {
    reader: Reader<File>,
    /// The chunks of records, in order.
    chunks: Vec<Place>,
    /// Those of summaries, in the order of what they sum up.
    summaries: Vec<SummaryPlace>,
    /// Some of these, read: each question of a long time asks for most of them.
    kept_summaries: Kept<Message>,
    /// The contents of chunks of records that were asked for last: questions of one time read the same ones at its edges.
    kept_contents: Kept<Vec<u8>>,
}

/// What was read of chunks, within a bound.
struct Kept<T> {
    by_number: HashMap<usize, Arc<T>>,
    bytes: usize,
    max_bytes: usize,
}

impl<T> Kept<T> {
    fn new(max_bytes: usize) -> Self {
        Self {
            by_number: HashMap::new(),
            bytes: 0,
            max_bytes,
        }
    }

    fn get(&self, number: usize) -> Option<Arc<T>> {
        self.by_number.get(&number).map(Arc::clone)
    }

    /// Keeps what takes so many bytes, where there is room.
    fn keep(&mut self, number: usize, read: &Arc<T>, bytes: usize) {
        let sum = self.bytes.saturating_add(bytes);
        if sum <= self.max_bytes {
            self.bytes = sum;
            self.by_number.insert(number, Arc::clone(read));
        }
    }

    /// As [`Self::keep`], without what was kept before if there is no room.
    fn keep_rather(&mut self, number: usize, read: &Arc<T>, bytes: usize) {
        if self.bytes.saturating_add(bytes) > self.max_bytes {
            *self = Self::new(self.max_bytes);
        }
        self.keep(number, read, bytes);
    }
}

/// Where records are.
#[derive(Clone, Copy)]
struct Place {
    number: usize,
    begins_anew: bool,
    /// Something before it is damaged.
    is_behind_hole: bool,
    from_ns: u64,
    to_ns: u64,
}

/// Where a summary is.
#[derive(Clone, Copy)]
struct SummaryPlace {
    number: usize,
    kind: Kind,
    from_ns: u64,
    to_ns: u64,
}

/// What is to be read of a recording.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// From a little before this time on, and records from then on.
    pub from_ns: u64,
    /// What frames of stacks are to stand for; `None` where no stacks are wanted.
    pub by: Option<Grouping>,
    /// What else is.
    pub also: Option<Also>,
    /// Which summaries do in the place of the records that they sum up; `None` where none does.
    pub answers: Option<&'a dyn Fn(&Offered<'_>) -> bool>,
}

/// What is read beyond samples and calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Also {
    /// Hits.
    Hits,
    /// Counters over time.
    Counters,
    /// Waits.
    Waits,
    /// System calls, and neither samples nor calls.
    Syscalls,
    /// Samples of events.
    Events,
    /// What calls did: hits and waits, and the stacks of samples in functions and in lines.
    InCalls,
}

impl Also {
    /// Hits are among it.
    fn has_hits(self) -> bool {
        matches!(self, Self::Hits | Self::InCalls)
    }

    /// Waits are among it.
    fn has_waits(self) -> bool {
        matches!(self, Self::Waits | Self::InCalls)
    }
}

/// What is summed up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferedKind {
    /// Samples, for so many of the scope's steps.
    Samples { steps: usize },
    /// Calls.
    Calls,
}

/// A summary that is there in the place of records.
pub struct Offered<'a> {
    /// What was looked at.
    pub scope: &'a RecordedScope,
    pub of: OfferedKind,
    /// From when on.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

/// What is read of a recording.
pub enum Part {
    /// What came in a short time.
    Batch(Box<Batch>),
    /// What came in about a minute, summed up.
    Summary(Box<Summary>),
    /// Something in between that cannot be read: from when, until when.
    Missing {
        /// `CLOCK_MONOTONIC` of the machine.
        from_ns: u64,
        /// The same.
        to_ns: u64,
    },
}

impl Recording {
    /// Opens a recording.
    ///
    /// # Errors
    /// Where it cannot be opened, or holds nothing.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let open = |source| OpenError::Open {
            path: path.to_owned(),
            source,
        };
        // A pipe that nobody writes to must not hold us up.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(open)?;
        if !file.metadata().map_err(open)?.is_file() {
            return Err(OpenError::NotAFile(path.to_owned()));
        }
        Self::of(file, path)
    }

    /// A recording in a file of this path.
    ///
    /// # Errors
    /// Where it is none, or holds nothing.
    pub fn of(file: File, path: &Path) -> Result<Self, OpenError> {
        let mut reader = Reader::open(file).map_err(|source| OpenError::Refused {
            path: path.to_owned(),
            source,
        })?;
        refuse_several(&mut reader, path)?;
        let mut is_behind_hole = false;
        let chunks: Vec<Place> = (reader.chunks().enumerate())
            .filter_map(|(number, chunk)| {
                // What is between two chunks of records may be behind the hole.
                is_behind_hole |= reader.is_behind_hole(number);
                (chunk.kind == Kind::Records).then(|| Place {
                    number,
                    begins_anew: chunk.begins_anew,
                    is_behind_hole: std::mem::take(&mut is_behind_hole),
                    from_ns: chunk.from_ns,
                    to_ns: chunk.to_ns,
                })
            })
            .collect();
        if chunks.is_empty() {
            return Err(OpenError::Nothing(path.to_owned()));
        }
        let mut summaries: Vec<SummaryPlace> = (reader.chunks().enumerate())
            .filter(|(_, chunk)| matches!(chunk.kind, Kind::Samples | Kind::Calls))
            .filter(|(_, chunk)| chunk.from_ns < chunk.to_ns)
            .map(|(number, chunk)| SummaryPlace {
                number,
                kind: chunk.kind,
                from_ns: chunk.from_ns,
                to_ns: chunk.to_ns,
            })
            .collect();
        summaries.sort_by_key(|summary| summary.from_ns);
        Ok(Self {
            reader,
            chunks,
            summaries,
            kept_summaries: Kept::new(MAX_SUMMARY_BYTES),
            kept_contents: Kept::new(MAX_CONTENT_BYTES),
        })
    }

    /// When it begins: `CLOCK_MONOTONIC` of the recorded machine.
    pub fn begin_ns(&self) -> u64 {
        self.chunks.first().map_or(0, |chunk| chunk.from_ns)
    }

    /// When it ends.
    pub fn end_ns(&self) -> u64 {
        self.chunks.last().map_or(0, |chunk| chunk.to_ns)
    }

    /// Where it ends before the file does; `None` where it does not.
    pub fn cut(&self) -> Option<Cut> {
        self.reader.cut()
    }

    /// The chunk of records with which to begin for a time: what is told from there on can be understood.
    fn first_for(&self, from_ns: u64) -> usize {
        let mut chunks = self.chunks.iter();
        chunks
            .rposition(|chunk| chunk.begins_anew && chunk.from_ns <= from_ns)
            .unwrap_or(0)
    }

    /// Reads what was recorded, in order; `take` says whether to go on. Frames get their numbers in `frames`.
    ///
    /// # Errors
    /// Where the file cannot be read. What is damaged is a part that is missing.
    pub fn read(
        &mut self,
        wanted: Wanted<'_>,
        frames: &mut Frames,
        mut take: impl FnMut(Part, &Frames) -> bool,
    ) -> io::Result<()> {
        let Wanted {
            from_ns, by, also, ..
        } = wanted;
        let mut way = Way::default();
        for number in self.first_for(from_ns)..self.chunks.len() {
            let place = self.chunks[number];
            if place.to_ns <= way.summed_until_ns {
                continue;
            }
            if !self.read_up_to(place, wanted, &mut way, frames, &mut take)? {
                return Ok(());
            }
            if place.to_ns <= way.summed_until_ns {
                continue;
            }
            if place.begins_anew {
                way.told = Some(Decoder::new(by, also).from(from_ns));
            }
            let content = match self.content(place.number) {
                Ok(content) => Some(content),
                Err(ReadError::Damaged { .. }) => None,
                Err(ReadError::Io(error)) => return Err(error),
            };
            let content = content.as_ref().map(|content| content.as_slice());
            let read = content.zip(way.told.as_mut());
            let mut read_to_ns = place.from_ns;
            let read = read.map_or(Err(Damaged), |(content, told)| {
                read_chunk(content, told, frames, |batch, frames| {
                    read_to_ns = batch.to_ns;
                    take(Part::Batch(Box::new(batch)), frames)
                })
            });
            way.until_ns = Some(place.to_ns);
            let goes_on = read.unwrap_or_else(|Damaged| {
                way.told = None;
                let (from_ns, to_ns) = (read_to_ns, place.to_ns);
                take(Part::Missing { from_ns, to_ns }, frames)
            });
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads summaries of what is missing before a chunk, and in the place of the chunk; whether to go on.
    fn read_up_to(
        &mut self,
        place: Place,
        wanted: Wanted<'_>,
        way: &mut Way,
        frames: &mut Frames,
        take: &mut impl FnMut(Part, &Frames) -> bool,
    ) -> io::Result<bool> {
        // Where no time is missing, a summary was damaged.
        let is_missing = |until_ns: &u64| *until_ns < place.from_ns;
        let mut missing_from_ns = way.until_ns.filter(is_missing).filter(|_| place.is_behind_hole);
        // A summary outlasts its records.
        while let Some(begins_ns) = missing_from_ns.filter(|begins_ns| *begins_ns >= wanted.from_ns) {
            let Some(summary) = self.summary(begins_ns, wanted, way, frames)? else {
                break;
            };
            missing_from_ns = Some(summary.batch.to_ns).filter(is_missing);
            way.is_summed_until(summary.batch.to_ns);
            if !take(Part::Summary(Box::new(summary)), frames) {
                return Ok(false);
            }
        }
        if let Some(from_ns) = missing_from_ns {
            way.told = None;
            let to_ns = place.from_ns;
            if !take(Part::Missing { from_ns, to_ns }, frames) {
                return Ok(false);
            }
        }
        // A chunk of no time has only told something.
        let begins_ns = place.from_ns;
        if !place.begins_anew || begins_ns == place.to_ns || begins_ns < wanted.from_ns {
            return Ok(true);
        }
        match self.summary(begins_ns, wanted, way, frames)? {
            Some(summary) => {
                way.is_summed_until(summary.batch.to_ns);
                Ok(take(Part::Summary(Box::new(summary)), frames))
            }
            None => Ok(true),
        }
    }

    /// The summary of what begins at a time, if there is one that does. Each is looked at once.
    fn summary(
        &mut self,
        from_ns: u64,
        wanted: Wanted<'_>,
        way: &mut Way,
        frames: &mut Frames,
    ) -> io::Result<Option<Summary>> {
        let Wanted { by, answers, .. } = wanted;
        let Some(answers) = answers else { return Ok(None) };
        // Stacks are of samples.
        let kind = if by.is_some() { Kind::Samples } else { Kind::Calls };
        let first = (self.summaries).partition_point(|summary| summary.from_ns < from_ns);
        let places = self.summaries.iter().skip(first);
        let places = places.take_while(|summary| summary.from_ns == from_ns);
        // No more were written: for each number of steps, and of calls.
        let places = places.take(MAX_STEPS + 2);
        let places = places.filter(|summary| summary.kind == kind).copied();
        let mut places: Vec<(usize, SummaryPlace)> = places.enumerate().collect();
        // The one that answered before is of as many steps as that of this minute in the same place.
        places.sort_by_key(|(at, _)| *at != way.answered_at);
        for (at, place) in places {
            if !way.looked_at.insert(place.number) {
                continue;
            }
            let Some(message) = self.summary_of(place)? else {
                continue;
            };
            if !message.offered().is_ok_and(|offered| answers(&offered)) {
                continue;
            }
            if let Ok(summary) = Decoder::new(by, None).summary(&message, frames)
                && (summary.batch.from_ns, summary.batch.to_ns) == (place.from_ns, place.to_ns)
            {
                way.answered_at = at;
                return Ok(Some(summary));
            }
        }
        Ok(None)
    }

    /// A summary, kept for the next question; `None` of one that is damaged.
    fn summary_of(&mut self, place: SummaryPlace) -> io::Result<Option<Arc<Message>>> {
        let SummaryPlace { number, kind, .. } = place;
        if let Some(known) = self.kept_summaries.get(number) {
            return Ok(Some(known));
        }
        let content = match self.reader.read(number) {
            Ok(content) => content,
            Err(ReadError::Damaged { .. }) => return Ok(None),
            Err(ReadError::Io(error)) => return Err(error),
        };
        let Ok(message) = Message::read(kind, &content) else {
            return Ok(None);
        };
        let message = Arc::new(message);
        self.kept_summaries.keep(number, &message, message.bytes());
        Ok(Some(message))
    }

    /// The content of a chunk of records, kept for the next question.
    fn content(&mut self, number: usize) -> Result<Arc<Vec<u8>>, ReadError> {
        if let Some(known) = self.kept_contents.get(number) {
            return Ok(known);
        }
        let content = Arc::new(self.reader.read(number)?);
        self.kept_contents
            .keep_rather(number, &content, content.capacity());
        Ok(content)
    }
}

/// Refuses a file with a second beginning: times and numbers of two recordings have nothing to do with each other.
fn refuse_several(reader: &mut Reader<File>, path: &Path) -> Result<(), OpenError> {
    let abouts = reader.chunks().enumerate();
    let mut abouts = abouts.filter_map(|(number, chunk)| (chunk.kind == Kind::About).then_some(number));
    let (Some(first), Some(second)) = (abouts.next(), abouts.next()) else {
        return Ok(());
    };
    drop(abouts);
    let mut host = |number| {
        let content = reader.read(number).ok();
        let about = content.and_then(|content| v1::RecordingAbout::decode(content.as_slice()).ok());
        let host = about.map(|about| about.machine().name);
        let host = host.filter(|host| !host.is_empty());
        host.map_or_else(
            || "a host that is not told".to_owned(),
            |host| format!("host {host}"),
        )
    };
    let (first, second_host) = (host(first), host(second));
    Err(OpenError::Several {
        path: path.to_owned(),
        first,
        second: second_host,
        at: reader.place(second).unwrap_or(0).saturating_sub(PROLOGUE_BYTES),
    })
}

/// The machine that was recorded, where that can be read.
pub(crate) fn host(path: &Path) -> Option<v1::HostInfo> {
    let mut reader = Reader::open(File::open(path).ok()?).ok()?;
    let number = reader.chunks().position(|chunk| chunk.kind == Kind::About)?;
    let about = v1::RecordingAbout::decode(reader.read(number).ok()?.as_slice()).ok()?;
    Some(about.machine())
}

/// How far a recording is read.
#[derive(Default)]
struct Way {
    /// What was told since numbers began anew; `None` at the beginning, and behind what is damaged or summed up.
    told: Option<Decoder>,
    /// Until when it is read; `None` before anything is.
    until_ns: Option<u64>,
    /// Until when summaries did in the place of records.
    summed_until_ns: u64,
    /// The numbers of the summaries that were looked at: each is once.
    looked_at: HashSet<usize>,
    /// Which of the summaries of one time answered last, in their order in the file.
    answered_at: usize,
}

impl Way {
    fn is_summed_until(&mut self, to_ns: u64) {
        self.told = None;
        self.until_ns = Some(to_ns);
        self.summed_until_ns = to_ns;
    }
}

/// Reads the messages of a chunk, one at a time; whether to go on.
fn read_chunk(
    mut content: &[u8],
    decoder: &mut Decoder,
    frames: &mut Frames,
    mut take: impl FnMut(Batch, &Frames) -> bool,
) -> Result<bool, Damaged> {
    let mut messages = 0;
    while !content.is_empty() {
        messages += 1;
        if messages > MAX_MESSAGES {
            return Err(Damaged);
        }
        let message = v1::WatchRecordsResponse::decode_length_delimited(&mut content).map_err(|_| Damaged)?;
        let batch = decoder.next(message, frames)?;
        if !take(batch, frames) {
            return Ok(false);
        }
    }
    Ok(true)
}
