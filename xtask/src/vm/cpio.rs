//! Writes the archive format that the kernel unpacks as its first file system: cpio, "newc".
//!
//! Layout after the kernel's Documentation/driver-api/early-userspace/buffer-format.rst: a header of thirteen
//! numbers of eight hexadecimal digits after the magic, the name with its NUL, the data; name and data each
//! filled up to a multiple of four bytes.

use std::io::{self, Write};

const TRAILER: &str = "TRAILER!!!";

/// An archive being written; [`Archive::finish`] must be called for it to be complete.
#[derive(Debug)]
pub struct Archive<W> {
    output: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// An archive without entries.
    pub fn new(output: W) -> Self {
        Self { output, entries: 0 }
    }

    /// Adds a directory; its parents must be there already.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, libc::S_IFDIR | 0o755, (0, 0), &[])
    }

    /// Adds a file with its permission bits.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, libc::S_IFREG | (permissions & 0o7777), (0, 0), content)
    }

    /// Adds a character device.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, libc::S_IFCHR | 0o600, (major, minor), &[])
    }

    /// Ends the archive and returns what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, (0, 0), &[])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        // Names in the archive are relative to the root.
        let name = path.trim_start_matches('/');
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{path} is larger than 4 GiB")))?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        self.entries += 1;
        // Without a link count of one, entries with the same inode would become hard links.
        let (inode, links, owner, time) = (self.entries, 1, 0, 0);
        let (major, minor) = device;
        write!(self.output, "070701")?;
        for number in [
            inode, mode, owner, owner, links, time, size, 0, 0, major, minor, name_size, 0,
        ] {
            write!(self.output, "{number:08X}")?;
        }
        self.output.write_all(name.as_bytes())?;
        // The header has 110 bytes.
        let name_end = 110 + name.len() + 1;
        self.output.write_all(&[0; 4][..=padding(name_end)])?;
        self.output.write_all(content)?;
        self.output.write_all(&[0; 4][..padding(content.len())])
    }
}

/// Bytes from `length` to the next multiple of four.
fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = Archive::new(Vec::new());
        archive.directory("/bin").unwrap();
        for (path, content) in files {
            archive.file(path, 0o755, content).unwrap();
        }
        archive.finish().unwrap()
    }

    #[test]
    fn the_bytes_are_as_the_format_says() {
        let bytes = archive(&[("/bin/abc", b"12345")]);
        let file = &bytes[116..];
        assert_eq!(&file[..14], b"07070100000002");
        assert_eq!(&file[14..22], b"000081ED");
        assert_eq!(&file[54..62], b"00000005", "size");
        assert_eq!(&file[94..102], b"00000008", "length of the name with its NUL");
        assert_eq!(&file[110..118], b"bin/abc\0");
        assert_eq!(&file[120..128], b"12345\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn cpio_unpacks_what_was_packed() {
        let directory = tempfile::tempdir().unwrap();
        let contents: Vec<Vec<u8>> = (0..9_u8)
            .map(|length| vec![length; usize::from(length)])
            .collect();
        let names: Vec<String> = (0..9)
            .map(|length| format!("/bin/{}", "n".repeat(length + 1)))
            .collect();
        let files: Vec<_> = names
            .iter()
            .map(String::as_str)
            .zip(contents.iter().map(Vec::as_slice))
            .collect();
        let Ok(mut child) = Command::new("cpio")
            .args(["--extract", "--quiet"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .spawn()
        else {
            panic!("cpio is missing: run `cargo xtask setup`");
        };
        child.stdin.take().unwrap().write_all(&archive(&files)).unwrap();
        assert!(child.wait().unwrap().success());
        for (name, content) in files {
            assert_eq!(
                std::fs::read(directory.path().join(&name[1..])).unwrap(),
                content,
                "{name}"
            );
        }
    }
}
