//! Copies of large files that others may write to: on disk, in files that have no name, so that they take no memory. Holes stay
//! holes.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::Mmap;
use rustix::fs::{Mode, OFlags};

/// Bytes of copies that may be on disk at once.
const DISK_MAX: u64 = 4 << 30;
/// Part of a file system's free room that a copy may take.
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
struct Room(u64);

/// Bytes of copies that are on disk.
static TAKEN: AtomicU64 = AtomicU64::new(0);

impl Room {
    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        let taken = TAKEN.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.0 += bytes;
        if taken <= DISK_MAX {
            return Ok(());
        }
        let text = format!("copies of files that others may write to take more than {DISK_MAX} bytes");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
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
        let mut room = Room(0);
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
                room.grow(read as u64)?;
                refuse_full(&copy, read as u64)?;
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

/// Refuses to take more than a part of the room that is left.
fn refuse_full(copy: &File, bytes: u64) -> io::Result<()> {
    let left = rustix::fs::fstatvfs(copy)?;
    if bytes <= left.f_bavail.saturating_mul(left.f_frsize) / FREE_PART {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        "no room on disk for a copy of a file that others may write to",
    ))
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
            assert!(on_disk.room.0 < 1 << 20, "{}", on_disk.room.0);
            let bytes = copy.as_ref();
            assert_eq!(bytes.len() as u64, length);
            assert!(bytes.starts_with(&whole));
            let at = usize::try_from(far).unwrap();
            assert_eq!(&bytes[at - 3..at + 6], b"\0\0\0far\0\0\0");
        }
    }
}
