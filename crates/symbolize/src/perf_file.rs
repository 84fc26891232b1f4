//! A process's perf map, read as it grows: `/tmp/perf-PID.map` in the process's own mount namespace, where PID is
//! its number in its own PID namespace.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::{
        fd::AsFd as _,
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use profiler_debug_files::{Links, Reader, Rights, open_file};
use profiler_target::{OpenFile, Stat, Status, read_file, user_of};
use rustix::fs::{Mode, OFlags, open};

use super::{
    frame::{FrameId, Frames},
    look_budget::LookBudget,
    perf_map::{LeftOut, PerfMap},
};

/// How often it is looked whether there is more in the file, in ns: other code may lie where known code lay.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// The same for an address that is not known.
const LOOK_AGAIN_NS: u64 = 10_000_000;
/// Most bytes that are read at a time; the rest comes at the next look.
const READ_MAX: u64 = 16 << 20;
/// Bytes before the place that was read to, by which a file is recognised that was written anew in its place.
const TAIL_MAX: usize = 64;
/// A file that was last written so long before the process began is an earlier process's of that number; by
/// less, clocks may disagree.
const CLOCKS_DIFFER: Duration = Duration::from_secs(2);

/// How far which file was read.
#[derive(Clone)]
struct Seen {
    device: u64,
    inode: u64,
    read: u64,
    tail: Vec<u8>,
}

/// The perf map of one process, as far as it has been read.
#[derive(Default)]
pub(super) struct PerfFile {
    map: PerfMap,
    seen: Option<Seen>,
    looked_at_ns: Option<u64>,
}

/// Whose file is believed, and since when.
struct Writer {
    user: u32,
    /// The writer's rights.
    reader: Reader,
    /// Who answers for the file.
    answers: u32,
    began: SystemTime,
}

impl PerfFile {
    /// The function at an address, reading on in the file where that may help.
    pub fn resolve(
        &mut self,
        pid: u32,
        address: u64,
        now_ns: u64,
        budget: &mut LookBudget,
        frames: &mut Frames,
    ) -> Option<FrameId> {
        let age_ns = self.looked_at_ns.map(|at| now_ns.saturating_sub(at));
        let mut looked = age_ns.is_none_or(|age| age >= LOOK_EVERY_NS);
        if looked {
            self.look(pid, now_ns, budget);
        }
        let mut found = self.map.resolve(address, frames);
        if found.is_none() && !looked && age_ns.is_none_or(|age| age >= LOOK_AGAIN_NS) {
            looked = true;
            self.look(pid, now_ns, budget);
            found = self.map.resolve(address, frames);
        }
        if looked {
            let LeftOut { skipped, forgotten } = self.map.left_out();
            tracing::trace!(pid, skipped, forgotten, bytes = self.map.bytes(), "perf map read");
        }
        found
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// Reads what is new, where that does not take too much of the time. What was known stays where the file is gone: the code may still
    /// be there.
    fn look(&mut self, pid: u32, now_ns: u64, budget: &mut LookBudget) {
        let is_first = self.looked_at_ns.replace(now_ns).is_none();
        let result = place(pid).and_then(|(path, writer)| {
            if !budget.allows(writer.user, is_first, now_ns) {
                return Ok(());
            }
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            let begun = Instant::now();
            let result = self.read(&root, &path, &writer);
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            budget.use_up(writer.user, took_ns, now_ns);
            result
        });
        if let Err(error) = result
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, pid, "perf map not read");
        }
    }

    fn read(&mut self, root: &Path, path: &Path, writer: &Writer) -> io::Result<()> {
        let open = open_inside(root, path, writer)?;
        let mut seen = self.seen.clone();
        let read = read_file(open, move |open| {
            let goes_on = seen.as_ref().is_some_and(|seen| seen.goes_on_in(&open));
            let mut seen = seen.take_if(|_| goes_on).unwrap_or_else(|| Seen::begin(&open));
            let bytes = seen.read_on(&open.file)?;
            Ok(ReadOn { goes_on, seen, bytes })
        });
        let ReadOn { goes_on, seen, bytes } = read?;
        if !goes_on {
            self.map = PerfMap::default();
        }
        self.map.append(&bytes);
        self.seen = Some(seen);
        Ok(())
    }
}

/// What was read at a look.
struct ReadOn {
    /// It is more of the file that was read before.
    goes_on: bool,
    seen: Seen,
    bytes: Vec<u8>,
}

impl Seen {
    /// Nothing of a file yet.
    fn begin(open: &OpenFile) -> Self {
        Self {
            device: open.metadata.dev(),
            inode: open.metadata.ino(),
            read: 0,
            tail: Vec::new(),
        }
    }

    /// Whether a file is the one, with more in it at most.
    fn goes_on_in(&self, open: &OpenFile) -> bool {
        let mut tail = vec![0; self.tail.len()];
        let before = self.read - self.tail.len() as u64;
        (self.device, self.inode) == (open.metadata.dev(), open.metadata.ino())
            && open.metadata.len() >= self.read
            && open.file.read_exact_at(&mut tail, before).is_ok()
            && tail == self.tail
    }

    /// What there is more in it, as far as that is read at once.
    fn read_on(&mut self, file: &File) -> io::Result<Vec<u8>> {
        let mut file = file;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes)?;
        self.read += bytes.len() as u64;
        self.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_MAX)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_MAX);
        self.tail.drain(..surplus);
        Ok(bytes)
    }
}

/// Where a process writes its map, from its root, and whose it has to be.
fn place(pid: u32) -> io::Result<(PathBuf, Writer)> {
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "unknown format of /proc");
    let mut status = Vec::new();
    File::open(format!("/proc/{pid}/status"))?.read_to_end(&mut status)?;
    let status = Status::parse(&status).ok_or_else(unknown)?;
    let stat = Stat::parse(&fs::read(format!("/proc/{pid}/stat"))?).ok_or_else(unknown)?;
    let [_, user, ..] = status.users;
    let path = PathBuf::from(format!("tmp/perf-{}.map", status.own_pid));
    let began = began(stat.start_time_ticks);
    let reader = Reader::process(Rights::of(&status));
    let writer = Writer {
        user,
        reader,
        answers: user_of(pid).unwrap_or(user),
        began,
    };
    Ok((path, writer))
}

/// The time of a number of clock ticks since boot.
fn began(ticks: u64) -> SystemTime {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let up = Duration::new(
        u64::try_from(boot.tv_sec).unwrap_or(0),
        u32::try_from(boot.tv_nsec).unwrap_or(0),
    );
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let at = Duration::from_millis(ticks.saturating_mul(1000) / per_second);
    let now = SystemTime::now();
    now.checked_sub(up.saturating_sub(at)).unwrap_or(now)
}

/// Opens a file as it is seen from inside a root, if it is one that the process or root has written.
///
/// Everybody may write in `/tmp`: a file of another user's, a link to one, or a pipe, is not for the process to
/// answer for.
fn open_inside(root: &Path, path: &Path, writer: &Writer) -> io::Result<OpenFile> {
    let refused = |why: &str| {
        let text = format!("{}/{}: {why}", root.display(), path.display());
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root_directory = open(root, flags, Mode::empty())?;
    let open = open_file(
        root_directory.as_fd(),
        path,
        Links::Refused,
        &writer.reader,
        writer.answers,
    )?;
    let metadata = &open.metadata;
    if metadata.uid() != 0 && metadata.uid() != writer.user {
        return Err(refused("belongs neither to the process's user nor to root"));
    }
    // A file system may say any time: one that is later than there can be is later than the process.
    let modified = metadata.modified()?.checked_add(CLOCKS_DIFFER);
    if modified.is_some_and(|modified| modified < writer.began) {
        return Err(refused("older than the process"));
    }
    Ok(open)
}

#[cfg(test)]
mod tests;
