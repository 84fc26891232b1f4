//! What is made of files, kept in a folder, so that each build is read once, whatever becomes of the daemon.
//!
//! What is found there is used only where it says that it was made of this very file, is whole, and can have been written
//! by nobody but root and our own user: the files, and the folder, in which others could rename them. Whatever is wrong with
//! it, it is made anew. What else is in the folder is left alone.
//!
//! See `docs/internals/debug-info.md` for how large debug information is read.

use std::{
    fmt::Write as _,
    fs::{self, File, FileTimes},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use memmap2::Mmap;
use profiler_target::contents::{FileKey, UNKNOWN_OWNER, others_may_write};
use rustix::fs::OFlags;

/// Bytes that all that is kept in a folder may take; the least recently used goes first.
const MAX_BYTES: u64 = 4 << 30;
/// Bytes of a build-id, at most.
const MAX_BUILD_ID: usize = 64;
/// How the name of a file that is not finished goes on.
const UNFINISHED: &str = ".new-";
/// Age at which one that is not finished will never be.
const ABANDONED: Duration = Duration::from_hours(1);

/// What is in the name of an unfinished file, so that no two of this process have the same.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// What is kept of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An outline: code and source files by unit.
    Places,
    /// An outline: names by unit.
    Names,
    /// An outline: source lines by unit.
    Lines,
    /// An unwind table.
    Unwind,
    /// The file itself, its debug sections not compressed.
    Unfolded,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Places,
        Self::Names,
        Self::Lines,
        Self::Unwind,
        Self::Unfolded,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Places => "places",
            Self::Names => "names",
            Self::Lines => "lines",
            Self::Unwind => "unwind",
            Self::Unfolded => "unfolded",
        }
    }

    /// Whether it is right only of the very file that it was made of. What merely selects what to read is right of each
    /// file that has the build-id, the length, the time of writing and the owner.
    const fn is_of_one_file(self) -> bool {
        matches!(self, Self::Unwind | Self::Unfolded)
    }
}

/// What tells that something was made of a file: its length, when it was written to and its owner; and, where only that
/// will do, which file it is and when that was last changed, which nobody can set.
type Stamp = [u8; 64];

/// A folder with what is kept.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Whether it was said that nothing can be kept in it.
    has_complained: AtomicBool,
}

/// The place in a folder of what is kept of a file.
#[derive(Debug)]
pub struct Place {
    folder: Arc<Folder>,
    /// How the names begin.
    name: String,
    key: FileKey,
}

/// What is kept, as it lies in a file, behind its stamp.
#[derive(Debug)]
pub struct Kept(Mmap);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.0.get(size_of::<Stamp>()..).unwrap_or_default()
    }
}

impl Folder {
    /// One that may not be there yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            has_complained: AtomicBool::new(false),
        }
    }

    /// The folder that `PROFILER_CACHE` names, else that of our own user: root's is the system's.
    pub fn default_path() -> Option<PathBuf> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        if let Some(path) = absolute("PROFILER_CACHE") {
            return Some(path);
        }
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/cache/profiler"));
        }
        let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(caches.join("profiler"))
    }

    /// Where something is kept of a file; `None` of one without a build-id.
    pub fn place(self: &Arc<Self>, build_id: Option<&[u8]>, key: &FileKey) -> Option<Place> {
        let is_believed = key.owner != UNKNOWN_OWNER;
        let build_id = build_id.filter(|id| is_believed && (1..=MAX_BUILD_ID).contains(&id.len()))?;
        let mut name = String::new();
        for byte in build_id {
            let _ = write!(name, "{byte:02x}");
        }
        // A build-id is believed only among files of one owner.
        let _ = write!(name, "-{}", key.owner);
        Some(Place {
            folder: Arc::clone(self),
            name,
            key: *key,
        })
    }

    /// Says once why nothing is kept.
    fn complain(&self, error: &io::Error) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            let folder = self.path.display();
            tracing::warn!(%folder, %error, "what is made of large files cannot be kept: they may be read anew");
        }
    }

    /// Whether nobody but root and our own user may write to it.
    fn is_ours(&self) -> io::Result<bool> {
        Ok(!others_may_write(&fs::metadata(&self.path)?))
    }

    /// Writes a file as a whole: nobody sees a part of it.
    fn write(&self, path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
        if !self.is_ours()? {
            let text = "others than root and our own user may write to the folder: name one that they may not with \
                        `--cache` or PROFILER_CACHE";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut unfinished = path.as_os_str().to_owned();
        // Two services may have the same number, each in its container.
        unfinished.push(format!(
            "{UNFINISHED}{}-{}-{}",
            std::process::id(),
            WRITTEN.fetch_add(1, Ordering::Relaxed),
            now.unwrap_or_default().subsec_nanos(),
        ));
        let unfinished = PathBuf::from(unfinished);
        let written = || {
            let file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&unfinished)?;
            write(&file)?;
            // Or a machine that loses power may keep the name without the bytes.
            file.sync_data()?;
            fs::rename(&unfinished, path)
        };
        written().inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// Removes what was not used for longest, until the rest fits; and what was never finished.
    fn make_room(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(state) = name.to_str().and_then(State::of) else {
                continue;
            };
            // Another service may have removed it meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            let used = metadata.modified()?;
            let is_old = now.duration_since(used).is_ok_and(|age| age > ABANDONED);
            if state == State::Unfinished && is_old {
                remove(&entry.path())?;
            } else {
                files.push((used, metadata.len(), entry.path()));
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if bytes <= MAX_BYTES {
                break;
            }
            remove(&path)?;
            bytes -= length;
        }
        Ok(())
    }
}

/// Removes a file, which may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a file of ours is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Finished,
    Unfinished,
}

impl State {
    /// By its name; `None` of a file that is not ours.
    fn of(name: &str) -> Option<Self> {
        let (name, state) = match name.split_once(UNFINISHED) {
            Some((name, _)) => (name, Self::Unfinished),
            None => (name, Self::Finished),
        };
        let (file, kind) = name.rsplit_once('.')?;
        let (build_id, owner) = file.rsplit_once('-')?;
        let is_kind = Kind::ALL.iter().any(|of| kind == of.name());
        let is_number = !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_digit());
        let is_id = !build_id.is_empty() && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_kind && is_number && is_id).then_some(state)
    }
}

impl Place {
    fn path(&self, kind: Kind) -> PathBuf {
        self.folder.path.join(format!("{}.{}", self.name, kind.name()))
    }

    /// What is kept, if it was made of this file, as `parse` gives it, which says `None` of what is damaged.
    pub fn read<T>(&self, kind: Kind, parse: impl FnOnce(Kept) -> Option<T>) -> Option<T> {
        if !self.folder.is_ours().ok()? {
            return None;
        }
        // Of what is no file nothing is waited for, and nothing happens to it.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(self.path(kind))
            .ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || others_may_write(&metadata) {
            return None;
        }
        // SAFETY: the bytes are only read, through checked slices. Only root and our own user may write to the file, and
        // this program replaces it by renaming and never cuts it short.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        if map.get(..size_of::<Stamp>())? != stamp(&self.key, kind) {
            return None;
        }
        let read = parse(Kept(map))?;
        // What is used stays longest. It is no loss where that cannot be said.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        Some(read)
    }

    /// Keeps what was made of this file, if it can be.
    pub fn keep(&self, kind: Kind, bytes: &[u8]) {
        self.keep_written(kind, |file, begin| file.write_all_at(bytes, begin));
    }

    /// Keeps what is written while it is made, into a file from a place on, if it can be.
    pub fn keep_written(&self, kind: Kind, write: impl FnOnce(&File, u64) -> io::Result<()>) {
        let stamp = stamp(&self.key, kind);
        let kept = self.folder.write(&self.path(kind), |file| {
            file.write_all_at(&stamp, 0)?;
            write(file, size_of::<Stamp>() as u64)
        });
        if let Err(error) = kept.and_then(|()| self.folder.make_room()) {
            self.folder.complain(&error);
        }
    }
}

fn stamp(key: &FileKey, kind: Kind) -> Stamp {
    let (seconds, nanoseconds) = key.modified;
    let state = [
        key.length,
        seconds.cast_unsigned(),
        nanoseconds.cast_unsigned(),
        key.owner.into(),
    ];
    let identity = kind.is_of_one_file().then(|| key.identity());
    let words = state.into_iter().chain(identity.into_iter().flatten());
    let mut stamp = [0; size_of::<Stamp>()];
    for (place, word) in stamp.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    stamp
}

#[cfg(test)]
mod tests;
