//! Messages on their way into a file, which may be kept short.

use std::{
    collections::{HashSet, VecDeque},
    fs::File,
    io::{self, Write as _},
    ops::Range,
    os::unix::fs::FileExt as _,
};

use profiler_daemon::{
    ColumnWriter, Summaries, Summarizer,
    session::{AT_EVENTS_DROPPED, CALLS_DROPPED, OUTSIDE_DROPPED, WAITS_DROPPED},
};
use profiler_proto::v1::{self, record};
use profiler_recording::{Chunk, Kind, MAX_CONTENT_BYTES, Writer, WrittenChunk};
use prost::Message as _;

use super::file::Placed;
use crate::{
    cli::request::Keep, render::units, tui::lens::message::MAX_BYTES as MAX_LENS_BYTES, watch::Message as _,
};

/// A chunk is written when it holds this much, unfolded.
const CHUNK_BYTES: usize = 256 << 10;

/// Or is of so long a time, that is of three messages: a recorder that is killed loses less than a second, though the fourth may be on
/// its way for a while.
const CHUNK_NS: u64 = 750_000_000;

/// Bytes that are copied at once.
const COPIED_BYTES: usize = 256 << 10;

/// Messages on their way into a file.
pub struct Recorder {
    file: Placed,
    writer: Writer<File>,
    keep: Keep,
    /// What is later stays, however old it gets: what was waited for, with what was before.
    kept_from_ns: Option<u64>,
    /// Where the first minute begins: before it is what every file begins with.
    head_bytes: u64,
    /// What begins anew in the file, oldest first.
    minutes: VecDeque<Minute>,
    summarizer: Summarizer,
    columns: ColumnWriter,
    content: Vec<u8>,
    /// Of what the content is.
    chunk: Option<Chunk>,
    /// Probes of the scope's last step.
    probes: HashSet<u32>,
    /// What has come.
    taken: Sum,
    /// What was written.
    written: Sum,
    /// The file could not be written: nothing more is.
    has_failed: bool,
    dropped: u64,
    /// Buckets of counters that came in messages larger than a reader takes.
    lost_buckets: u64,
}

/// A part of the file that can be understood without those before it.
#[derive(Clone, Copy, Debug)]
struct Minute {
    at: u64,
    from_ns: u64,
    /// What was written before it, since the recording began.
    before: Sum,
}

/// What is in some messages.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    from_ns: Option<u64>,
    to_ns: u64,
    samples: u64,
    /// Of the scope's last step; `None` where there is none.
    calls: Option<u64>,
    /// Where hits are recorded.
    hits: Option<u64>,
}

impl Sum {
    /// What came since a minute began.
    fn since(&self, minute: &Minute) -> Self {
        Self {
            from_ns: Some(minute.from_ns),
            to_ns: self.to_ns,
            samples: self.samples - minute.before.samples,
            calls: self.calls.map(|calls| calls - minute.before.calls.unwrap_or(0)),
            hits: self.hits.map(|hits| hits - minute.before.hits.unwrap_or(0)),
        }
    }

    /// In words, in so many bytes.
    fn describe(&self, bytes: u64) -> String {
        let length_ns = self.to_ns.saturating_sub(self.from_ns.unwrap_or(self.to_ns));
        let mut text = format!(
            "{}, {} samples",
            units::duration(length_ns as f64),
            units::count(self.samples)
        );
        if let Some(calls) = self.calls {
            text.push_str(&format!(", {} calls", units::count(calls)));
        }
        if let Some(hits) = self.hits {
            text.push_str(&format!(", {} hits", units::count(hits)));
        }
        text.push_str(&format!(", {} bytes", units::count(bytes)));
        text
    }
}

/// What is said of a recording at its beginning.
pub struct Heading<'a> {
    /// What is recorded; `None` where the file is not to tell whose and where it is.
    pub target: Option<&'a str>,
    /// How it is looked at meanwhile; `None` where nobody does.
    pub lens: Option<v1::Lens>,
    /// The machine, at the beginning.
    pub host: v1::HostInfo,
}

impl Recorder {
    /// Begins a recording.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn begin(file: Placed, heading: Heading<'_>, keep: Keep) -> io::Result<Self> {
        let Heading { target, lens, host } = heading;
        let mut writer = Writer::begin(file.file.try_clone()?)?;
        let now_ns = host.monotonic_ns;
        let host = match target {
            Some(_) => host,
            None => v1::HostInfo {
                build: host.build,
                monotonic_ns: host.monotonic_ns,
                since_1970_ns: host.since_1970_ns,
                ..Default::default()
            },
        };
        let about = v1::RecordingAbout {
            writer: concat!("profiler ", env!("CARGO_PKG_VERSION")).to_owned(),
            host: Some(host),
            target: target.unwrap_or_default().to_owned(),
            redacted: target.is_none(),
            lens: lens.filter(|lens| lens.encoded_len() <= MAX_LENS_BYTES),
            ..Default::default()
        };
        let chunk = Chunk {
            kind: Kind::About,
            begins_anew: false,
            from_ns: now_ns,
            to_ns: now_ns,
        };
        writer.write(chunk, &about.encode_to_vec())?;
        Ok(Self {
            file,
            head_bytes: writer.bytes(),
            writer,
            keep,
            kept_from_ns: None,
            minutes: VecDeque::new(),
            summarizer: Summarizer::default(),
            columns: ColumnWriter::default(),
            content: Vec::new(),
            chunk: None,
            probes: HashSet::new(),
            taken: Sum::default(),
            written: Sum::default(),
            has_failed: false,
            dropped: 0,
            lost_buckets: 0,
        })
    }

    /// Keeps what is before a time, as old as it may be then, for good.
    pub fn keep_before(&mut self, at_ns: u64) {
        self.kept_from_ns = Some(at_ns.saturating_sub(self.max_age_ns()));
    }

    fn max_age_ns(&self) -> u64 {
        let max_age = self.keep.max_age.map(|age| u64::try_from(age.as_nanos()));
        max_age.and_then(Result::ok).unwrap_or(u64::MAX)
    }

    /// What has come and is kept, in words.
    pub fn describe_taken(&self) -> String {
        self.describe(&self.taken)
    }

    /// What is in the file, in words.
    pub fn describe_written(&self) -> String {
        self.describe(&self.written)
    }

    fn describe(&self, sum: &Sum) -> String {
        let kept = self.minutes.front().map(|oldest| sum.since(oldest));
        kept.unwrap_or_default().describe(self.writer.bytes())
    }

    /// Records that came faster than they were written, and buckets of counters that were too large for the file.
    pub fn dropped(&self) -> u64 {
        self.dropped + self.lost_buckets
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn take(&mut self, mut message: v1::WatchRecordsResponse) -> io::Result<()> {
        if message.encoded_len() > MAX_CONTENT_BYTES - CHUNK_BYTES {
            // More than a reader takes.
            self.drop_records(&mut message);
        }
        self.count_lost_buckets(&mut message);
        if message.begins_anew {
            self.flush()?;
        }
        let summaries = self.summarizer.take(&message);
        self.write_summaries(&summaries)?;
        if message.begins_anew {
            self.minutes.push_back(Minute {
                at: self.writer.bytes(),
                from_ns: message.from_ns,
                before: self.taken,
            });
        }
        self.count(&message);
        self.columns.pack(&mut message);
        let chunk = self.chunk.get_or_insert(Chunk {
            kind: Kind::Records,
            begins_anew: message.begins_anew,
            from_ns: message.from_ns,
            to_ns: message.to_ns,
        });
        chunk.to_ns = message.to_ns;
        let is_long = chunk.to_ns.saturating_sub(chunk.from_ns) >= CHUNK_NS;
        message
            .encode_length_delimited(&mut self.content)
            .map_err(io::Error::other)?;
        if is_long || message.is_final() || self.content.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Drops what a message tells one by one; each kind is counted as those are that the daemon drops.
    fn drop_records(&mut self, message: &mut v1::WatchRecordsResponse) {
        let dropped = (message.records.len() + message.hits.len()) as u64;
        message.info.get_or_insert_default().dropped += dropped;
        message.records.clear();
        message.hits.clear();
        let calls = message.syscalls.drain(..).flat_map(|turn| turn.calls);
        let calls = calls.map(|calls| calls.calls).sum();
        let waits = message.waits.drain(..).len() as u64;
        let at_events = message.event_samples.drain(..).len() as u64;
        for (name, dropped) in [
            (CALLS_DROPPED, calls),
            (WAITS_DROPPED, waits),
            (AT_EVENTS_DROPPED, at_events),
        ] {
            if dropped > 0 {
                *message.counters.entry(name.to_owned()).or_default() += dropped;
            }
        }
        let buckets = message.counted.take().map_or(0, |counted| counted.buckets.len());
        self.lost_buckets += buckets as u64;
    }

    /// Adds buckets that were dropped here to those that the daemon counts, since the recording began.
    fn count_lost_buckets(&self, message: &mut v1::WatchRecordsResponse) {
        let buckets = message
            .counted
            .iter_mut()
            .flat_map(|counted| &mut counted.buckets);
        buckets.for_each(|bucket| bucket.info.get_or_insert_default().dropped += self.lost_buckets);
    }

    fn count(&mut self, message: &v1::WatchRecordsResponse) {
        if let Some(scope) = &message.scope {
            let functions = scope.steps.last().into_iter().flat_map(|step| &step.functions);
            let probes = functions.flat_map(|function| &function.probes);
            self.probes = probes.map(|probe| probe.id).collect();
            if !self.probes.is_empty() {
                self.taken.calls.get_or_insert(0);
            }
            if !scope.places.is_empty() {
                self.taken.hits.get_or_insert(0);
            }
        }
        let records = message.records.iter().filter_map(|record| record.record.as_ref());
        let is_sample = |record: &&record::Record| match record {
            record::Record::Sample(sample) => !sample.continues,
            record::Record::SpanEnd(_) => false,
        };
        self.taken.samples += records.filter(is_sample).count() as u64;
        let calls = (message.calls.iter()).filter(|calls| self.probes.contains(&calls.probe));
        let ended = calls.filter_map(|calls| calls.ended.as_ref());
        if let Some(calls) = &mut self.taken.calls {
            *calls += ended.flat_map(|ended| &ended.counts).sum::<u64>();
        }
        if let Some(hits) = &mut self.taken.hits {
            *hits += message.hits.len() as u64;
        }
        let lost = [WAITS_DROPPED, CALLS_DROPPED, OUTSIDE_DROPPED, AT_EVENTS_DROPPED];
        let lost = lost.map(|name| message.counters.get(name));
        self.dropped +=
            message.info.as_ref().map_or(0, |info| info.dropped) + lost.into_iter().flatten().sum::<u64>();
        self.taken.to_ns = message.to_ns;
    }

    /// Writes what has come.
    ///
    /// # Errors
    /// As [`Self::finish`].
    fn flush(&mut self) -> io::Result<()> {
        let Some(chunk) = self.chunk.take() else {
            return Ok(());
        };
        let content = std::mem::take(&mut self.content);
        self.write(chunk, &content)
    }

    /// Writes what has come, and what the last minute comes to; nothing once the file could not be written.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.flush()?;
        let summaries = self.summarizer.end();
        self.write_summaries(&summaries)
    }

    /// Writes what a minute comes to.
    fn write_summaries(&mut self, summaries: &Summaries) -> io::Result<()> {
        for samples in &summaries.samples {
            self.write_summary(Kind::Samples, samples.told.as_ref(), samples)?;
        }
        if let Some(calls) = &summaries.calls {
            self.write_summary(Kind::Calls, calls.told.as_ref(), calls)?;
        }
        Ok(())
    }

    /// Writes a summary. Where it is more than a reader takes, there is none.
    fn write_summary(
        &mut self,
        kind: Kind,
        told: Option<&v1::WatchRecordsResponse>,
        summary: &impl prost::Message,
    ) -> io::Result<()> {
        let Some(told) = told.filter(|_| summary.encoded_len() <= MAX_CONTENT_BYTES) else {
            return Ok(());
        };
        let chunk = Chunk {
            kind,
            begins_anew: true,
            from_ns: told.from_ns,
            to_ns: told.to_ns,
        };
        self.write(chunk, &summary.encode_to_vec())
    }

    fn write(&mut self, chunk: Chunk, content: &[u8]) -> io::Result<()> {
        self.file
            .check_is_left()
            .inspect_err(|_| self.has_failed = true)?;
        let kind = chunk.kind;
        let chunk = WrittenChunk::of(chunk, content)?;
        // Where the file cannot be shortened, what has come is in it all the same.
        let shortened = self.shorten(chunk.to_ns(), chunk.bytes());
        let written = self.writer.append(&chunk).inspect_err(|_| {
            // Without the part of a chunk that may be there now; a reader passes over it in any case.
            let _ = self.writer.get_ref().set_len(self.writer.bytes());
        });
        self.has_failed |= written.is_err();
        if written.is_ok() && kind == Kind::Records {
            self.written = self.taken;
        }
        written.and(shortened)
    }

    /// Drops the oldest minutes before so many bytes are added, where enough may go that copying the others is worth it.
    fn shorten(&mut self, now_ns: u64, added_bytes: u64) -> io::Result<()> {
        let to_drop = self.minutes_to_drop(now_ns, added_bytes);
        let Some(kept) = self.minutes.get(to_drop).filter(|_| to_drop > 0).copied() else {
            return Ok(());
        };
        let mut successor = self.file.successor()?;
        let all = 0..self.writer.bytes();
        copy(&self.file.file, all.start..self.head_bytes, successor.file())?;
        copy(&self.file.file, kept.at..all.end, successor.file())?;
        let moved = kept.at - self.head_bytes;
        self.file = successor.take_place()?;
        self.writer = Writer::resume(self.file.file.try_clone()?, all.end - moved);
        self.minutes.drain(..to_drop);
        self.minutes.iter_mut().for_each(|minute| minute.at -= moved);
        Ok(())
    }

    /// How many of the oldest minutes go now; 0 where they are too few to go.
    fn minutes_to_drop(&self, now_ns: u64, added_bytes: u64) -> usize {
        let bytes = self.writer.bytes() + added_bytes;
        let last = self.minutes.len().saturating_sub(1);
        let ends = |number: usize| self.minutes.get(number + 1);
        let too_large = match self.keep.max_bytes {
            // To three quarters, so that what is copied is at most thrice what comes.
            Some(max_bytes) if bytes > max_bytes => (0..last)
                .take_while(|number| {
                    let dropped = self
                        .minutes
                        .get(*number)
                        .map_or(0, |minute| minute.at - self.head_bytes);
                    bytes - dropped > max_bytes - max_bytes / 4
                })
                .count(),
            _ => 0,
        };
        let too_old = self.keep.max_age.map_or(0, |_| {
            let oldest_ns = now_ns.saturating_sub(self.max_age_ns());
            let oldest_ns = self
                .kept_from_ns
                .map_or(oldest_ns, |from_ns| from_ns.min(oldest_ns));
            (0..last)
                .take_while(|number| ends(*number).is_some_and(|next| next.from_ns <= oldest_ns))
                .count()
        });
        let is_worth_it = too_old * 4 >= self.minutes.len();
        too_large.max(if is_worth_it { too_old } else { 0 })
    }
}

/// Copies a part of a file, whose own position stays where it is.
fn copy(from: &File, mut part: Range<u64>, to: &mut File) -> io::Result<()> {
    // The kernel copies, and shares blocks where the file system can.
    while part.start < part.end {
        let (mut begin, left) = (
            part.start,
            usize::try_from(part.end - part.start).unwrap_or(usize::MAX),
        );
        match rustix::fs::copy_file_range(from, Some(&mut begin), &*to, None, left) {
            Ok(copied) if copied > 0 => part.start += copied as u64,
            // It cannot here.
            _ => break,
        }
    }
    let mut buffer = vec![0; COPIED_BYTES];
    while part.start < part.end {
        let wanted =
            usize::try_from(part.end - part.start).map_or(COPIED_BYTES, |left| left.min(COPIED_BYTES));
        from.read_exact_at(&mut buffer[..wanted], part.start)?;
        to.write_all(&buffer[..wanted])?;
        part.start += wanted as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
