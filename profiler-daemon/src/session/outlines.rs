//! Outlines of debug information in a folder, by build-id, so that each build is read once, whatever becomes of the
//! daemon.
//!
//! What is found there is used only where it says that it was made of this very file, is whole, and can have been written
//! by nobody but root and our own user. Whatever is wrong with it, the outline is made anew.

use std::{
    fmt::Write as _,
    fs::{self, File, FileTimes},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use memmap2::Mmap;

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

/// What tells that an outline was made of a file: the file's length, when it was written to, and its owner.
type Stamp = [u8; 32];

/// A folder with outlines.
pub struct Folder {
    path: PathBuf,
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
        Self { path }
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

    /// Writes a file as a whole: nobody sees a part of it.
    fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(format!(".{}", std::process::id()));
        let unfinished = PathBuf::from(unfinished);
        let written = || {
            // Left by one of our number that was killed.
            let _ = fs::remove_file(&unfinished);
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

    /// Removes those that were not used for longest, until the others fit; and what was never finished.
    fn make_room(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if bytes <= MAX_BYTES {
                break;
            }
            fs::remove_file(path)?;
            bytes -= length;
        }
        Ok(())
    }
}

impl Place {
    fn path(&self, part: Part) -> PathBuf {
        let part = match part {
            Part::Places => "places",
            Part::Names => "names",
        };
        self.folder.path.join(format!("{}.{part}", self.name))
    }

    /// The outline that is kept, if it is of this file.
    fn read(&self, part: Part) -> Option<Outline> {
        let file = File::open(self.path(part)).ok()?;
        if others_may_write(&file.metadata().ok()?) {
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
            tracing::debug!(path = %self.path(part).display(), %error, "an outline of debug information is not kept");
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
            .set_modified(SystemTime::now() + std::time::Duration::from_secs(7))
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

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::new(parent.path().to_path_buf());
        for number in 0..3 {
            let file = File::create(parent.path().join(number.to_string())).unwrap();
            file.set_len(MAX_BYTES / 2).unwrap();
            let age = std::time::Duration::from_secs(100 * (3 - number));
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        folder.make_room().unwrap();
        let left = |name: &str| parent.path().join(name).exists();
        assert!(!left("0") && left("1") && left("2"));
    }
}
