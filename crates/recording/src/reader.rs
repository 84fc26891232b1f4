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
const SEARCHED_BYTES: usize = 64 << 10;

/// Bytes of the file that were read to search them.
#[derive(Debug, Default)]
struct Searched {
    at: u64,
    bytes: Vec<u8>,
}

/// A recording that is open.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    placed: Vec<Placed>,
    cut: Option<Cut>,
    searched: Searched,
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
            searched: Searched::default(),
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
                at = reader.next_head(at + 1, end)?;
            }
        }
        reader.searched = Searched::default();
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
        Ok(whole_head(&bytes, at, end))
    }

    /// Where the next whole chunk's head is, from a place on; the end where there is none. The bytes of a file are read once, however
    /// many in it look like the beginning of a head.
    fn next_head(&mut self, mut at: u64, end: u64) -> io::Result<u64> {
        let magic = chunk::MAGIC.to_le_bytes();
        loop {
            if self.bytes_from(at) < HEAD_BYTES {
                self.search(at)?;
                if self.bytes_from(at) < HEAD_BYTES {
                    return Ok(end);
                }
            }
            let Searched { bytes, .. } = &self.searched;
            let unread = bytes.get(bytes.len() - self.bytes_from(at)..).unwrap_or_default();
            let found = unread.windows(HEAD_BYTES).zip(at..).find(|(head, at)| {
                let head = <&[u8; HEAD_BYTES]>::try_from(*head);
                head.is_ok_and(|head| head.starts_with(&magic) && whole_head(head, *at, end).is_some())
            });
            if let Some((_, at)) = found {
                return Ok(at);
            }
            // One may lie across the border.
            at += (unread.len() - HEAD_BYTES + 1) as u64;
        }
    }

    /// How many bytes from a place on were read to be searched.
    fn bytes_from(&self, at: u64) -> usize {
        let Searched { at: begin, bytes } = &self.searched;
        let before = at
            .checked_sub(*begin)
            .and_then(|before| usize::try_from(before).ok());
        before.map_or(0, |before| bytes.len().saturating_sub(before))
    }

    /// Reads what is searched, from a place on.
    fn search(&mut self, at: u64) -> io::Result<()> {
        self.searched.at = at;
        self.searched.bytes.clear();
        self.file.seek(SeekFrom::Start(at))?;
        let mut part = self.file.by_ref().take(SEARCHED_BYTES as u64);
        part.read_to_end(&mut self.searched.bytes)?;
        Ok(())
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

/// The head in these bytes at a place, where there is one and its content ends within the file.
fn whole_head(bytes: &[u8; HEAD_BYTES], at: u64, end: u64) -> Option<Head> {
    let behind = end.saturating_sub(at).saturating_sub(HEAD_BYTES as u64);
    Head::read(bytes).filter(|head| behind >= u64::from(head.length))
}
