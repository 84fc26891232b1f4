//! Outlines of debug information in a folder, by build-id, so that each build is read once, whatever becomes of the
//! daemon.
//!
//! What is found there is used only where it says that it was made of this very file, is whole, and can have been written
//! by nobody but root and our own user: the files, and the folder, in which others could rename them. Whatever is wrong with
//! it, the outline is made anew. What else is in the folder is left alone.

use std::{
    fmt::Write as _,
    fs::{self, File, FileTimes},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use memmap2::Mmap;
use rustix::fs::OFlags;

use crate::{
    plan::{Outline, Outlines, Part, elf::Bytes},
    target::contents::{FileKey, others_may_write},
};

/// Files of which outlines are kept, in bytes: others are read in less time than theirs would take.
const MIN_LENGTH: u64 = 16 << 20;
/// Bytes that all outlines in a folder may take; the least recently used go first.
const MAX_BYTES: u64 = 512 << 20;
/// Bytes of a build-id, at most.
const MAX_BUILD_ID: usize = 64;
/// How the name of an outline that is not finished goes on.
const UNFINISHED: &str = ".new-";
/// Age at which one that is not finished will never be.
const ABANDONED: Duration = Duration::from_hours(1);

/// What is in the name of an unfinished outline, so that no two of this process have the same.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// What tells that an outline was made of a file: the file's length, when it was written to, and its owner.
type Stamp = [u8; 32];

/// A folder with outlines.
pub struct Folder {
    path: PathBuf,
    /// Whether it was said that nothing can be kept in it.
    has_complained: AtomicBool,
}

/// The place of a file's outlines in a folder.
struct Place {
    folder: Arc<Folder>,
    /// How their names begin.
    name: String,
    stamp: Stamp,
}

/// An outline as it lies in a file, behind its stamp.
struct Mapped(Mmap);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.get(size_of::<Stamp>()..).unwrap_or_default()
    }
}

impl Folder {
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

    /// Where the outline of a file is kept; `None` where it is not.
    pub fn place(self: &Arc<Self>, build_id: Option<&[u8]>, key: &FileKey) -> Option<Arc<dyn Outlines>> {
        let build_id = build_id.filter(|id| (1..=MAX_BUILD_ID).contains(&id.len()))?;
        if key.length < MIN_LENGTH {
            return None;
        }
        let mut name = String::new();
        for byte in build_id {
            let _ = write!(name, "{byte:02x}");
        }
        // A build-id is believed only among files of one owner.
        let _ = write!(name, "-{}", key.owner);
        Some(Arc::new(Place {
            folder: Arc::clone(self),
            name,
            stamp: stamp(key),
        }))
    }

    /// Says once why outlines are not kept.
    fn complain(&self, error: &io::Error) {
        if !self.has_complained.swap(true, Ordering::Relaxed) {
            let folder = self.path.display();
            tracing::warn!(%folder, %error, "outlines of debug information cannot be kept: large files may be read anew");
        }
    }

    /// Whether nobody but root and our own user may write to it.
    fn is_ours(&self) -> io::Result<bool> {
        Ok(!others_may_write(&fs::metadata(&self.path)?))
    }

    /// Writes a file as a whole: nobody sees a part of it.
    fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
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
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&unfinished)?;
            parts.iter().try_for_each(|part| file.write_all(part))?;
            fs::rename(&unfinished, path)
        };
        written().inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// Removes the outlines that were not used for longest, until the others fit; and what was never finished.
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
        let (file, part) = name.rsplit_once('.')?;
        let (build_id, owner) = file.rsplit_once('-')?;
        let is_part = PARTS.iter().any(|&of| part == part_name(of));
        let is_number = !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_digit());
        let is_id = !build_id.is_empty() && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_part && is_number && is_id).then_some(state)
    }
}

const PARTS: [Part; 2] = [Part::Places, Part::Names];

const fn part_name(part: Part) -> &'static str {
    match part {
        Part::Places => "places",
        Part::Names => "names",
    }
}

impl Place {
    fn path(&self, part: Part) -> PathBuf {
        self.folder
            .path
            .join(format!("{}.{}", self.name, part_name(part)))
    }

    /// The outline that is kept, if it is of this file.
    fn read(&self, part: Part) -> Option<Outline> {
        if !self.folder.is_ours().ok()? {
            return None;
        }
        // Of what is no file nothing is waited for, and nothing happens to it.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(self.path(part))
            .ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || others_may_write(&metadata) {
            return None;
        }
        // SAFETY: the bytes are only read, through checked slices. Only root and our own user may write to the file, and
        // this program replaces it by renaming and never cuts it short.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        if map.get(..size_of::<Stamp>())? != self.stamp {
            return None;
        }
        let bytes: Bytes = Arc::new(Mapped(map));
        let outline = Outline::read(bytes, part)?;
        // What is used stays longest. It is no loss where that cannot be said.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        Some(outline)
    }

    fn keep(&self, part: Part, outline: &Outline) -> io::Result<()> {
        self.folder
            .write(&self.path(part), [&self.stamp, outline.bytes()])?;
        self.folder.make_room()
    }
}

impl Outlines for Place {
    fn outline(&self, part: Part, make: &dyn Fn() -> Outline) -> Outline {
        if let Some(kept) = self.read(part) {
            return kept;
        }
        let made = make();
        if let Err(error) = self.keep(part, &made) {
            self.folder.complain(&error);
        }
        // Mapped, it takes no memory of our own.
        self.read(part).unwrap_or(made)
    }
}

fn stamp(key: &FileKey) -> Stamp {
    let (seconds, nanoseconds) = key.modified;
    let mut stamp = Stamp::default();
    stamp[..8].copy_from_slice(&key.length.to_le_bytes());
    stamp[8..16].copy_from_slice(&seconds.to_le_bytes());
    stamp[16..24].copy_from_slice(&nanoseconds.to_le_bytes());
    stamp[24..28].copy_from_slice(&key.owner.to_le_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// A large file without debug information, the folder of its outlines, and how to get one: whether it was made.
    fn get(folder: &Path, file: &Path) -> bool {
        let key = FileKey::of(&fs::metadata(file).unwrap());
        let folder = Arc::new(Folder::new(folder.to_path_buf()));
        let place = folder.place(Some(&[1, 2, 3]), &key).unwrap();
        let made = Cell::new(false);
        let outline = place.outline(Part::Names, &|| {
            made.set(true);
            Outline::of_file(b"", Part::Names)
        });
        assert_eq!(outline.bytes(), Outline::of_file(b"", Part::Names).bytes());
        made.get()
    }

    #[test]
    fn what_is_stale_or_damaged_is_made_anew() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
        let sparse = File::create(&file).unwrap();
        sparse.set_len(MIN_LENGTH).unwrap();
        assert!(get(&folder, &file));
        assert!(!get(&folder, &file));
        let path = folder.join(format!("010203-{}.names", rustix::process::geteuid().as_raw()));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert!(get(&folder, &file), "byte {at}");
            assert!(!get(&folder, &file));
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(get(&folder, &file), "{length} bytes");
        }
        // One that others can have written.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(get(&folder, &file));
        assert!(!get(&folder, &file));
        // The file is built anew, and says that it is the same build.
        sparse
            .set_modified(SystemTime::now() + Duration::from_secs(7))
            .unwrap();
        assert!(get(&folder, &file));
        sparse.set_len(MIN_LENGTH + 1).unwrap();
        assert!(get(&folder, &file));
        assert!(!get(&folder, &file));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_done_without() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        File::create(&file).unwrap().set_len(MIN_LENGTH).unwrap();
        assert!(get(&file.join("cache"), &file));
    }

    /// A large file in a folder, and how long ago it was used.
    fn put(folder: &Path, name: &str, age: Duration) {
        let file = File::create(folder.join(name)).unwrap();
        file.set_len(MAX_BYTES / 2).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::new(parent.path().to_path_buf());
        let names = ["00ff-0.places", "00ff-0.names", "01ff-1000.places"];
        for (name, age) in names.into_iter().zip([300, 200, 100]) {
            put(parent.path(), name, Duration::from_secs(age));
        }
        folder.make_room().unwrap();
        let left = names.map(|name| parent.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn what_was_never_finished_goes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::new(parent.path().to_path_buf());
        let names = ["00ff-0.names.new-1-0-5", "00ff-0.names.new-1-1-5"];
        put(parent.path(), names[0], ABANDONED + Duration::from_mins(1));
        put(parent.path(), names[1], Duration::ZERO);
        folder.make_room().unwrap();
        let left = names.map(|name| parent.path().join(name).exists());
        assert_eq!(left, [false, true]);
    }

    #[test]
    fn what_else_is_in_the_folder_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::new(parent.path().to_path_buf());
        let names = ["film.mkv", "photos-2026.names", "00ff.names", "-0.names"];
        for name in names {
            put(parent.path(), name, Duration::from_secs(1_000_000));
        }
        put(parent.path(), "00ff-0.names", Duration::ZERO);
        folder.make_room().unwrap();
        let left = names.map(|name| parent.path().join(name).exists());
        assert_eq!(left, [true; 4]);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_done_without() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
        File::create(&file).unwrap().set_len(MIN_LENGTH).unwrap();
        assert!(get(&folder, &file));
        assert!(!get(&folder, &file));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(get(&folder, &file));
        assert!(get(&folder, &file));
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, file) = (parent.path().join("cache"), parent.path().join("file"));
        File::create(&file).unwrap().set_len(MIN_LENGTH).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let path = folder.join(format!("010203-{}.names", rustix::process::geteuid().as_raw()));
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // Reading it would wait for somebody who writes.
        assert!(get(&folder, &file));
        assert!(!get(&folder, &file));
    }
}
