//! Copies of large files that others may write to: on disk, in files that have no name, so that they take no memory. Holes stay
//! holes.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memmap2::Mmap;
use rustix::fs::{Mode, OFlags};

use super::contents::FileKey;

/// Bytes of copies of one user's files that may be on disk at once: who fills them up holds up nobody else.
const DISK_MAX: u64 = 4 << 30;
/// Part of a file system's free room that all copies may take.
const FREE_PART: u64 = 4;
/// Folders for copies; the first that can be written to has them. `/tmp` may be memory.
const FOLDERS: [&str; 2] = ["/var/tmp", "/tmp"];
/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// A copy that has no name, mapped.
pub struct OnDisk {
    map: Mmap,
    #[allow(dead_code, reason = "given back where this is dropped, behind the mapping")]
    room: Room,
}

/// Bytes on disk that are taken until this is dropped.
struct Room {
    of: &'static Taken,
    /// Whose files they are copies of.
    owner: u32,
    bytes: u64,
}

/// Bytes of copies that are on disk, by the owners of the files.
struct Taken(Mutex<BTreeMap<u32, u64>>);

static TAKEN: Taken = Taken(Mutex::new(BTreeMap::new()));

impl Taken {
    fn by_owner(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Takes more of the room that is free there.
    fn grow(&mut self, bytes: u64, free: u64) -> io::Result<()> {
        let mut taken = self.of.by_owner();
        let of_all = taken.values().sum::<u64>() + bytes;
        let of_owner = taken.entry(self.owner).or_default();
        if *of_owner + bytes > DISK_MAX {
            let text = format!(
                "copies of files of user {} take more than {DISK_MAX} bytes: end a session of a target that has them",
                self.owner
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        // What is taken is not free any more.
        if of_all > (free + of_all) / FREE_PART {
            let text = "no room on disk for a copy of a file that others may write to";
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        *of_owner += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut taken = self.of.by_owner();
        if let Some(of_owner) = taken.get_mut(&self.owner) {
            *of_owner -= self.bytes;
            if *of_owner == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

impl OnDisk {
    /// Copies so many bytes of a file, into the first of some folders that has room.
    ///
    /// # Errors
    /// Where it cannot be read, or there is no room: [`io::ErrorKind::FileTooLarge`] where copies take all that they may.
    pub(super) fn of(file: &File, length: u64) -> io::Result<Self> {
        let copy = FOLDERS
            .iter()
            .find_map(|folder| nameless(folder).ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "no folder for copies"))?;
        copy.set_len(length)?;
        let mut room = Room {
            of: &TAKEN,
            owner: FileKey::of_open(file, &file.metadata()?).owner,
            bytes: 0,
        };
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while let Some(data) = next_data(file, at, length)? {
            at = data.start;
            while at < data.end {
                let wanted = usize::try_from(data.end - at).unwrap_or(PIECE).min(PIECE);
                let read = file.read_at(&mut piece[..wanted], at)?;
                if read == 0 {
                    // It was cut short meanwhile: the rest is zeroes.
                    break;
                }
                room.grow(read as u64, free(&copy)?)?;
                copy.write_all_at(&piece[..read], at)?;
                at += read as u64;
            }
            at = data.end;
        }
        // SAFETY: as of `Contents::of`; nobody else has the file, which has no name.
        let map = unsafe { Mmap::map(&copy)? };
        Ok(Self { map, room })
    }
}

/// A file of a folder that nobody can find there (`O_TMPFILE` in open(2)).
fn nameless(folder: &str) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// The next stretch of a file that is no hole; `None` behind the last.
fn next_data(file: &File, at: u64, length: u64) -> io::Result<Option<Range<u64>>> {
    if at >= length {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(start) if start < length => start,
        Ok(_) | Err(rustix::io::Errno::NXIO) => return Ok(None),
        // What cannot tell has no holes.
        Err(rustix::io::Errno::INVAL) => return Ok(Some(at..length)),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start)).map_or(length, |end| end.min(length));
    Ok(Some(start..end.max(start + 1)))
}

/// Bytes that are free on the file system of a file.
fn free(file: &File) -> io::Result<u64> {
    let left = rustix::fs::fstatvfs(file)?;
    Ok(left.f_bavail.saturating_mul(left.f_frsize))
}

impl AsRef<[u8]> for OnDisk {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::{super::contents::Contents, *};

    #[test]
    fn a_large_copy_takes_no_memory_and_its_holes_no_room() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("copy");
        let whole = fs::read("/bin/true").unwrap();
        fs::write(&path, &whole).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let (far, length) = (600 << 20, 900 << 20);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        file.write_all_at(b"far", far).unwrap();
        // Several at once, as a process may have mapped.
        let copies: Vec<Contents> = (0..6)
            .map(|_| Contents::of(&File::open(&path).unwrap()).unwrap())
            .collect();
        file.set_len(0).unwrap();
        for copy in &copies {
            let Contents::OnDisk(on_disk) = copy else {
                panic!("copied into memory")
            };
            assert!(on_disk.room.bytes < 1 << 20, "{}", on_disk.room.bytes);
            let bytes = copy.as_ref();
            assert_eq!(bytes.len() as u64, length);
            assert!(bytes.starts_with(&whole));
            let at = usize::try_from(far).unwrap();
            assert_eq!(&bytes[at - 3..at + 6], b"\0\0\0far\0\0\0");
        }
    }

    #[test]
    fn one_users_copies_leave_room_for_others() {
        static TAKEN: Taken = Taken(Mutex::new(BTreeMap::new()));
        let room = |owner| Room {
            of: &TAKEN,
            owner,
            bytes: 0,
        };
        let (mut full, mut other) = (room(1), room(2));
        let free = 1 << 60;
        full.grow(DISK_MAX, free).unwrap();
        let refused = full.grow(1, free).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        other.grow(DISK_MAX, free).unwrap();
        let refused = other.grow(1, 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        drop(full);
        let mut again = room(1);
        let refused = again.grow(DISK_MAX, DISK_MAX).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        again.grow(DISK_MAX, free).unwrap();
        drop((other, again));
        assert!(TAKEN.by_owner().is_empty());
    }
}
