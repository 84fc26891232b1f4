//! The chunks of a file that may be damaged.

use std::io::{self, Read, Seek, SeekFrom};

use crate::{
    MAGIC, MAX_CHUNKS, MAX_CONTENT_BYTES, PROLOGUE_BYTES, VERSION,
    chunk::{self, Chunk, HEAD_BYTES, Head},
};

/// Why a file is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It does not begin as recordings do.
    #[error("it is not a recording of `profiler record`")]
    NotARecording,
    /// It was written by a newer version.
    #[error(
        "it is a recording of format {0}, and this version reads up to format {VERSION}: it takes a newer `profiler`"
    )]
    Newer(u32),
}

/// Why a chunk is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Its bytes are not those that were written.
    #[error("the chunk at byte {at} is damaged")]
    Damaged {
        /// Where its head begins.
        at: u64,
    },
}

/// Where a file ends that does not end behind a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Where the last chunk before it ends, in bytes.
    pub at: u64,
    /// Bytes from there to the end of the file.
    pub bytes: u64,
    /// Whether there are so many chunks before it that no more are looked at.
    pub too_many: bool,
}

/// A chunk and where it is.
#[derive(Clone, Copy, Debug)]
struct Placed {
    head: Head,
    at: u64,
    /// Whether the bytes before it are of no chunk.
    is_behind_hole: bool,
}

/// Bytes that are searched for a head at once.
const SEARCHED: usize = 64 << 10;

/// A recording that is open.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    placed: Vec<Placed>,
    cut: Option<Cut>,
}

impl<R: Read + Seek> Reader<R> {
    /// Looks at the heads of all chunks.
    ///
    /// # Errors
    /// Where the file cannot be read, or is not a recording of a known version. One that was cut off is opened:
    /// [`Self::cut`].
    pub fn open(mut file: R) -> Result<Self, OpenError> {
        let end = file.seek(SeekFrom::End(0))?;
        if end == 0 {
            return Err(OpenError::Empty);
        }
        if end < PROLOGUE_BYTES {
            return Err(OpenError::NotARecording);
        }
        file.seek(SeekFrom::Start(0))?;
        let (mut magic, mut version) = ([0; 8], [0; 4]);
        file.read_exact(&mut magic)?;
        file.read_exact(&mut version)?;
        if magic != *MAGIC {
            return Err(OpenError::NotARecording);
        }
        match u32::from_le_bytes(version) {
            0 => return Err(OpenError::NotARecording),
            1..=VERSION => {}
            newer => return Err(OpenError::Newer(newer)),
        }
        let mut reader = Self {
            file,
            placed: Vec::new(),
            cut: None,
        };
        let mut at = PROLOGUE_BYTES;
        let mut hole_at = None;
        while at < end {
            if reader.placed.len() == MAX_CHUNKS {
                reader.cut = Some(Cut {
                    at,
                    bytes: end - at,
                    too_many: true,
                });
                return Ok(reader);
            }
            if let Some(head) = reader.head(at, end)? {
                reader.placed.push(Placed {
                    head,
                    at,
                    is_behind_hole: hole_at.take().is_some(),
                });
                at += HEAD_BYTES as u64 + u64::from(head.length);
            } else {
                // What was damaged may be a head alone.
                hole_at.get_or_insert(at);
                at = reader.next_magic(at + 1, end)?;
            }
        }
        reader.cut = hole_at.map(|at| Cut {
            at,
            bytes: end - at,
            too_many: false,
        });
        Ok(reader)
    }

    /// The head of the chunk at a place; `None` where there is no whole one.
    fn head(&mut self, at: u64, end: u64) -> io::Result<Option<Head>> {
        if end - at < HEAD_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0; HEAD_BYTES];
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(&mut bytes)?;
        let head = Head::read(&bytes);
        Ok(head.filter(|head| end - at - HEAD_BYTES as u64 >= u64::from(head.length)))
    }

    /// Where something begins as heads do, from a place on; the end where nothing does.
    fn next_magic(&mut self, mut at: u64, end: u64) -> io::Result<u64> {
        let magic = chunk::MAGIC.to_le_bytes();
        let mut bytes = Vec::with_capacity(SEARCHED);
        while at < end {
            bytes.clear();
            self.file.seek(SeekFrom::Start(at))?;
            self.file.by_ref().take(SEARCHED as u64).read_to_end(&mut bytes)?;
            if let Some(found) = bytes.windows(magic.len()).position(|bytes| bytes == magic) {
                return Ok(at + found as u64);
            }
            if bytes.len() < SEARCHED {
                break;
            }
            // It may lie across the border.
            at += (SEARCHED - magic.len() + 1) as u64;
        }
        Ok(end)
    }

    /// The chunks, in the order in which they were written.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &Chunk> + DoubleEndedIterator {
        self.placed.iter().map(|placed| &placed.head.chunk)
    }

    /// Whether bytes before the chunk of a number are of no chunk: something was there that is damaged.
    #[must_use]
    pub fn is_behind_hole(&self, number: usize) -> bool {
        self.placed
            .get(number)
            .is_some_and(|placed| placed.is_behind_hole)
    }

    /// Where the chunk of a number begins, in bytes.
    #[must_use]
    pub fn place(&self, number: usize) -> Option<u64> {
        self.placed.get(number).map(|placed| placed.at)
    }

    /// Where the file ends, if it does so amid a chunk.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// The content of the chunk of a number, of [`Self::chunks`].
    ///
    /// # Errors
    /// Where there is no such chunk, it cannot be read, or is damaged.
    pub fn read(&mut self, number: usize) -> Result<Vec<u8>, ReadError> {
        let Some(Placed { head, at, .. }) = self.placed.get(number).copied() else {
            let message = "there is no such chunk";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message).into());
        };
        let damaged = || ReadError::Damaged { at };
        self.file.seek(SeekFrom::Start(at + HEAD_BYTES as u64))?;
        // The file is known to have so many bytes; no memory is taken before they are read.
        let mut payload = Vec::new();
        self.file
            .by_ref()
            .take(u64::from(head.length))
            .read_to_end(&mut payload)?;
        if payload.len() as u64 != u64::from(head.length) || crc32fast::hash(&payload) != head.checksum {
            return Err(damaged());
        }
        let decoder = ruzstd::decoding::StreamingDecoder::new(payload.as_slice()).map_err(|_| damaged())?;
        let mut content = Vec::new();
        let most = MAX_CONTENT_BYTES as u64 + 1;
        decoder
            .take(most)
            .read_to_end(&mut content)
            .map_err(|_| damaged())?;
        if content.len() as u64 == most {
            return Err(damaged());
        }
        Ok(content)
    }
}
