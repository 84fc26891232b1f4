//! Reading a process's memory without waiting for it.
//!
//! A read of a page that is not there has the kernel fetch it, from whomever the process has put behind it: a file system of its
//! own (FUSE), or itself (`userfaultfd(2)`), which may never answer. Such a read cannot be given up, not even by a signal.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _};

/// Bytes of an entry of `/proc/PID/pagemap` (`Documentation/admin-guide/mm/pagemap.rst`).
const ENTRY_BYTES: u64 = 8;
/// The bit of an entry that says that the page is in memory, mapped.
const PRESENT: u64 = 1 << 63;

/// The bit of an entry that says that the page is a file's, or shared: nobody has written to it since it was mapped privately.
const OF_FILE: u64 = 1 << 61;

/// The memory of a process, as far as it is there.
#[derive(Debug)]
pub struct Memory {
    bytes: File,
    pages: File,
    page_size: u64,
}

impl Memory {
    /// That of a process.
    ///
    /// # Errors
    /// Where the process is gone, or this one may not look at it.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            bytes: File::open(format!("/proc/{pid}/mem"))?,
            pages: File::open(format!("/proc/{pid}/pagemap"))?,
            page_size: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
        })
    }

    /// Reads from an address on.
    ///
    /// A page that goes between the look at it and the reading is waited for all the same.
    ///
    /// # Errors
    /// `WouldBlock` where a page is not in memory; others where nothing is mapped, or the process is gone.
    pub fn read_exact_at(&self, into: &mut [u8], address: u64) -> io::Result<()> {
        let Some(last) = u64::try_from(into.len()).unwrap_or(u64::MAX).checked_sub(1) else {
            return Ok(());
        };
        let last = address.checked_add(last).ok_or(io::ErrorKind::InvalidInput)?;
        for page in address / self.page_size..=last / self.page_size {
            if self.entry(page)? & PRESENT == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "the page is not in memory",
                ));
            }
        }
        self.bytes.read_exact_at(into, address)
    }

    /// Whether a page in a range is in memory and the process's own: of what is mapped privately from a file, one that was written to.
    ///
    /// # Errors
    /// Where the process is gone.
    pub fn is_private(&self, addresses: Range<u64>) -> io::Result<bool> {
        let last = addresses.end.saturating_sub(1).max(addresses.start);
        for page in addresses.start / self.page_size..=last / self.page_size {
            if self.entry(page)? & (PRESENT | OF_FILE) == PRESENT {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn entry(&self, page: u64) -> io::Result<u64> {
        let mut entry = [0; 8];
        self.pages.read_exact_at(&mut entry, page * ENTRY_BYTES)?;
        Ok(u64::from_le_bytes(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_resident_pages_and_faults_none_in() {
        let length = 2 * rustix::param::page_size();
        let mut map = memmap2::MmapMut::map_anon(length).unwrap();
        let address = map.as_ptr() as u64;
        let memory = Memory::open(std::process::id()).unwrap();
        let read = |address| {
            let mut word = [0; 8];
            memory.read_exact_at(&mut word, address).map(|()| word)
        };
        assert_eq!(read(address).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        map[..8].copy_from_slice(b"12345678");
        assert_eq!(read(address).unwrap(), *b"12345678");
        // The second page has not been touched.
        let end = address + length as u64 / 2 - 4;
        assert_eq!(read(end).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        map[length / 2] = b'x';
        assert_eq!(read(end).unwrap(), *b"\0\0\0\0x\0\0\0");
        assert!(read(u64::MAX - 3).is_err());
        assert!(memory.read_exact_at(&mut [], address).is_ok());
    }

    #[test]
    fn a_page_of_a_file_is_private_once_it_was_written_to() {
        let page = rustix::param::page_size();
        let file = File::open("/proc/self/exe").unwrap();
        // SAFETY: nobody shortens the program that runs.
        let mut map = unsafe { memmap2::MmapOptions::new().len(2 * page).map_copy(&file) }.unwrap();
        let start = map.as_ptr() as u64;
        let memory = Memory::open(std::process::id()).unwrap();
        let is_private = |from: usize, to: usize| {
            let range = start + from as u64..start + to as u64;
            memory.is_private(range).unwrap()
        };
        assert_eq!(map[0], 0x7f);
        assert!(!is_private(0, 2 * page), "it was only read");
        map[page] = 1;
        assert!(is_private(0, page + 1) && is_private(page, page + 1));
        assert!(!is_private(0, page));
    }
}
