//! The text of source files. Which file is read, the target says: with whose rights, [`Home`] knows.

use std::{
    io::{self, Read as _},
    path::Path,
    sync::OnceLock,
    time::SystemTime,
};

use md5::{Digest as _, Md5};
use profiler_target::{OpenFile, read_file};

use super::home::Home;

/// Largest source file that is read, in bytes.
pub const MAX_BYTES: u64 = 16 << 20;
/// Longest line that is shown, in characters; the rest is left out.
const MAX_CHARS: usize = 1_000;
/// As many of them as are looked at, in bytes: a character has up to four, and one more is looked for.
const MAX_LINE_BYTES: usize = 4 * (MAX_CHARS + 1);

/// A source file's text.
#[derive(Clone, Debug)]
pub struct SourceText {
    bytes: Vec<u8>,
    /// Where each line begins.
    starts: Vec<u32>,
    md5: OnceLock<[u8; 16]>,
    /// When the file was last written to.
    pub modified: Option<SystemTime>,
}

impl SourceText {
    /// Reads a file at home.
    ///
    /// # Errors
    /// Where there is no such regular file that may be read there, or it has more than `max_bytes`.
    pub fn read(home: &Home, path: &str, max_bytes: u64) -> io::Result<Self> {
        if !path.starts_with('/') {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its folder is not known"));
        }
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for file in home.open(Path::new(path)) {
            let most = max_bytes.min(MAX_BYTES);
            match read_file(file, move |open| Self::of(&open, most)) {
                Ok(text) => return Ok(text),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn of(open: &OpenFile, max_bytes: u64) -> io::Result<Self> {
        let mut bytes = Vec::new();
        (&*open.file).take(max_bytes + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Self::new(bytes, open.metadata.modified().ok()))
    }

    /// A file's text from its bytes; lines that begin beyond 4 GiB are left out.
    #[must_use]
    pub fn new(bytes: Vec<u8>, modified: Option<SystemTime>) -> Self {
        let after_breaks = memchr::memchr_iter(b'\n', &bytes).map(|at| at + 1);
        let starts = std::iter::once(0)
            .chain(after_breaks)
            .filter(|&start| start < bytes.len())
            .map_while(|start| u32::try_from(start).ok())
            .collect();
        Self {
            bytes,
            starts,
            md5: OnceLock::new(),
            modified,
        }
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digest that compilers note of a source file. It tells one version from another; nothing is trusted for it.
    #[must_use]
    pub fn md5(&self) -> [u8; 16] {
        *self.md5.get_or_init(|| Md5::digest(&self.bytes).into())
    }

    /// Number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A line, counted from 1, without its end.
    #[must_use]
    pub fn line(&self, number: u32) -> Option<String> {
        let at = (number as usize).checked_sub(1)?;
        let start = *self.starts.get(at)? as usize;
        let end = self
            .starts
            .get(at + 1)
            .map_or(self.bytes.len(), |&end| end as usize)
            .min(start + MAX_LINE_BYTES);
        let line = String::from_utf8_lossy(&self.bytes[start..end]);
        let line = line.trim_end_matches(['\n', '\r']);
        if line.chars().nth(MAX_CHARS).is_none() {
            return Some(line.to_owned());
        }
        Some(line.chars().take(MAX_CHARS).chain(['…']).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::Reader;

    use super::*;

    #[test]
    fn lines_are_counted_from_1() {
        let text = SourceText::new(b"one\r\ntwo\n\n\xff".to_vec(), None);
        let line = |number| text.line(number);
        assert_eq!(text.len(), 4);
        assert_eq!(line(0), None);
        assert_eq!(line(1).as_deref(), Some("one"));
        assert_eq!(line(2).as_deref(), Some("two"));
        assert_eq!(line(3).as_deref(), Some(""));
        assert_eq!(line(4).as_deref(), Some("\u{fffd}"));
        assert_eq!(line(5), None);
        assert!(SourceText::new(Vec::new(), None).is_empty());
    }

    #[test]
    fn only_regular_files_that_the_caller_can_read_are_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("a.c");
        std::fs::write(&path, "int a;\n").unwrap();
        let own = rustix::process::geteuid().as_raw();
        let home = |uid| Home::new(Path::new(""), &["/"]).read_by(Reader::user(uid));
        let read = |uid, path: &Path| SourceText::read(&home(uid), path.to_str().unwrap(), MAX_BYTES);
        assert_eq!(read(own, &path).unwrap().line(1).as_deref(), Some("int a;"));
        assert!(read(own, folder.path()).is_err());
        assert!(read(own, Path::new("/dev/zero")).is_err());
        assert!(read(own, Path::new("a.c")).is_err());
        assert!(read(own, Path::new("/proc/self/maps")).is_err());
        assert!(SourceText::read(&home(own), path.to_str().unwrap(), 3).is_err());
        if own == 0 {
            let nobody = 65_534;
            assert!(read(nobody, &path).is_ok());
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            assert!(read(nobody, &path).is_err(), "not even through root's group");
            assert!(read(0, &path).is_ok(), "the thread's rights went with it");
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let text = SourceText::new("é".repeat(100_000).into_bytes(), None);
        assert_eq!(text.line(1).unwrap().chars().count(), MAX_CHARS + 1);
    }
}
