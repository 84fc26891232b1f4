//! `profiler record`.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use profiler_daemon::Summarizer;
use profiler_proto::v1::{self, record};
use profiler_recording::{Chunk, Kind, MAX_CONTENT_BYTES, Writer};
use prost::Message as _;
use tempfile::NamedTempFile;
use tonic::Status;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::{
        exit::Failure,
        request::{Host, Record},
    },
    connect::connect,
    output::{Progress, note, warnings},
    render::{escape::terminal, units},
    stop::Stop,
    watch::Run,
};

/// A chunk is written when it holds this much, unfolded.
const CHUNK_BYTES: usize = 256 << 10;

/// Or is of so long a time.
const CHUNK_NS: u64 = 1_000_000_000;

/// Runs it.
pub async fn run(host: &Host, request: Record, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let failed = |error: &io::Error| Failure::writing(&request.output.to_string_lossy(), error);
    let file = NewFile::open(&request.output, request.force)?;
    let (attached, target, stream) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let mut client = connection.views();
        let watch = v1::WatchRecordsRequest {
            session: attached.session.name.clone(),
        };
        let stream = client.watch_records(watch).await?.into_inner();
        let target = target::label(&connection, &attached.session).await;
        Ok((attached, target, stream))
    })
    .await?;
    warnings(&attached.session.warnings);

    // From here on there is something in it.
    let file = file.take_place().map_err(|error| failed(&error))?;
    let mut recorder = Recorder::begin(file, &target).map_err(|error| failed(&error))?;
    let mut progress = Progress::default();
    let run = Run::begin(request.duration, stop, owned, &attached);
    // A second stream would begin where the first has ended, and knows nothing of what lies between.
    let again = async || Err(Status::cancelled("a recording is of one stream"));
    let watched = run
        .watch(stream, again, |message: v1::WatchRecordsResponse| {
            recorder.take(message).map_err(|error| failed(&error))?;
            progress.show(&recorder.taken.describe(recorder.writer.bytes()));
            Ok(())
        })
        .await;
    // Whatever ended it, what has come is kept.
    let written = recorder.flush().map_err(|error| failed(&error));
    drop(progress);
    note(&format!(
        "{} written: {}",
        terminal(&request.output.to_string_lossy()),
        recorder.written.describe(recorder.writer.bytes())
    ));
    if recorder.dropped > 0 {
        note(&format!(
            "warning: {} samples and ends of calls came faster than they could be written, and are not in the file.",
            units::count(recorder.dropped)
        ));
    }
    let ended = watched?;
    written?;
    ended.result(true)
}

/// A file that takes its place when there is something to write; until then, the one that may be there stays.
struct NewFile<'a> {
    path: &'a Path,
    /// Its owner alone may read it: what is recorded of a process is its user's.
    temporary: NamedTempFile,
    force: bool,
}

impl<'a> NewFile<'a> {
    fn open(path: &'a Path, force: bool) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::writing(&path.to_string_lossy(), &error);
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_file() && force => {}
            Ok(there) if there.is_file() => {
                return Err(Failure::usage(format!(
                    "{} exists already: name another file, or replace it with --force.",
                    terminal(&path.to_string_lossy())
                )));
            }
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{} is not a regular file, which a recording needs: name a new one.",
                    terminal(&path.to_string_lossy())
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let temporary = tempfile::Builder::new()
            .prefix(".profiler-")
            .tempfile_in(folder)
            .map_err(|error| failed(io::Error::from(error.kind())))?;
        Ok(Self {
            path,
            temporary,
            force,
        })
    }

    fn take_place(self) -> io::Result<File> {
        let persisted = if self.force {
            self.temporary.persist(self.path)
        } else {
            self.temporary.persist_noclobber(self.path)
        };
        persisted.map_err(|error| error.error)
    }
}

/// Messages on their way into a file.
struct Recorder {
    writer: Writer<File>,
    summarizer: Summarizer,
    content: Vec<u8>,
    /// Of what the content is.
    chunk: Option<Chunk>,
    /// Probes of the scope's last step.
    probes: HashSet<u32>,
    /// What has come.
    taken: Sum,
    /// What is in the file.
    written: Sum,
    dropped: u64,
}

/// What is in some messages.
#[derive(Clone, Copy, Default)]
struct Sum {
    from_ns: Option<u64>,
    to_ns: u64,
    samples: u64,
    /// Of the scope's last step; `None` where there is none.
    calls: Option<u64>,
}

impl Sum {
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
        text.push_str(&format!(", {} bytes", units::count(bytes)));
        text
    }
}

impl Recorder {
    fn begin(file: File, target: &str) -> io::Result<Self> {
        let mut writer = Writer::begin(file)?;
        let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let system = rustix::system::uname();
        let now_ns = nanoseconds(monotonic.tv_sec, monotonic.tv_nsec);
        let about = v1::RecordingAbout {
            writer: concat!("profiler ", env!("CARGO_PKG_VERSION")).to_owned(),
            host: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            monotonic_ns: now_ns,
            since_1970_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
            target: target.to_owned(),
        };
        let chunk = Chunk {
            kind: Kind::About,
            begins_anew: false,
            from_ns: now_ns,
            to_ns: now_ns,
        };
        writer.write(chunk, &about.encode_to_vec())?;
        Ok(Self {
            writer,
            summarizer: Summarizer::default(),
            content: Vec::new(),
            chunk: None,
            probes: HashSet::new(),
            taken: Sum::default(),
            written: Sum::default(),
            dropped: 0,
        })
    }

    fn take(&mut self, mut message: v1::WatchRecordsResponse) -> io::Result<()> {
        if message.encoded_len() > MAX_CONTENT_BYTES - CHUNK_BYTES {
            // More than a reader takes.
            message.dropped += message.records.len() as u64;
            message.records.clear();
        }
        if message.begins_anew {
            self.flush()?;
        }
        for summary in self.summarizer.take(&message) {
            self.write_summary(&summary)?;
        }
        self.count(&message);
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
        if is_long || message.r#final || self.content.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn count(&mut self, message: &v1::WatchRecordsResponse) {
        if let Some(scope) = &message.scope {
            let functions = scope.steps.last().into_iter().flat_map(|step| &step.functions);
            let probes = functions.flat_map(|function| &function.probes);
            self.probes = probes.map(|probe| probe.id).collect();
            if !self.probes.is_empty() {
                self.taken.calls.get_or_insert(0);
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
        self.dropped += message.dropped;
        self.taken.from_ns.get_or_insert(message.from_ns);
        self.taken.to_ns = message.to_ns;
    }

    /// Writes what has come.
    fn flush(&mut self) -> io::Result<()> {
        let Some(chunk) = self.chunk.take() else {
            return Ok(());
        };
        let content = std::mem::take(&mut self.content);
        self.write(chunk, &content)?;
        self.written = self.taken;
        Ok(())
    }

    /// Writes what a minute comes to. Where that is more than a reader takes, there is none.
    fn write_summary(&mut self, summary: &v1::RecordingSummary) -> io::Result<()> {
        let Some(told) = &summary.told else { return Ok(()) };
        if summary.encoded_len() > MAX_CONTENT_BYTES {
            return Ok(());
        }
        let chunk = Chunk {
            kind: Kind::Summary,
            begins_anew: true,
            from_ns: told.from_ns,
            to_ns: told.to_ns,
        };
        self.write(chunk, &summary.encode_to_vec())
    }

    fn write(&mut self, chunk: Chunk, content: &[u8]) -> io::Result<()> {
        self.writer.write(chunk, content).inspect_err(|_| {
            // Without the part of a chunk that may be there now; a reader passes over it in any case.
            let _ = self.writer.get_ref().set_len(self.writer.bytes());
        })
    }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}
