//! Chunks appended to a file.

use std::io::{self, Write};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::{
    MAGIC, MAX_CONTENT_BYTES, VERSION,
    chunk::{Chunk, HEAD_BYTES, Head},
};

/// A chunk has more bytes than a reader takes: [`MAX_CONTENT_BYTES`].
#[derive(Debug, thiserror::Error)]
#[error("a chunk of {0} bytes is larger than a recording's chunks may be ({MAX_CONTENT_BYTES} bytes)")]
pub struct TooLarge(usize);

/// Writes a recording.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn begin(mut out: W) -> io::Result<Self> {
        let mut prologue = MAGIC.to_vec();
        prologue.extend(VERSION.to_le_bytes());
        out.write_all(&prologue)?;
        Ok(Self {
            out,
            bytes: prologue.len() as u64,
        })
    }

    /// Goes on with a recording that ends after so many bytes, where `out` appends.
    pub fn resume(out: W, bytes: u64) -> Self {
        Self { out, bytes }
    }

    /// Appends a chunk. It is whole in the file when this returns.
    ///
    /// # Errors
    /// Where it cannot be written, or is larger than a reader takes: [`TooLarge`].
    pub fn write(&mut self, chunk: Chunk, content: &[u8]) -> io::Result<()> {
        self.append(&WrittenChunk::of(chunk, content)?)
    }

    /// As [`Self::write`], of a chunk whose size was looked at before.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn append(&mut self, chunk: &WrittenChunk) -> io::Result<()> {
        // In one piece, so that others see as little as possible of a chunk that is not whole.
        self.out.write_all(&chunk.bytes)?;
        self.out.flush()?;
        self.bytes += chunk.bytes();
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it is written to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// What it was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// A chunk as it is written.
#[derive(Debug)]
pub struct WrittenChunk {
    bytes: Vec<u8>,
    to_ns: u64,
}

impl WrittenChunk {
    /// A chunk with this content.
    ///
    /// # Errors
    /// Where it is larger than a reader takes: [`TooLarge`].
    pub fn of(chunk: Chunk, content: &[u8]) -> io::Result<Self> {
        if content.len() > MAX_CONTENT_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                TooLarge(content.len()),
            ));
        }
        let payload = compress_to_vec(content, CompressionLevel::Fastest);
        let length = u32::try_from(payload.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, TooLarge(payload.len())))?;
        let head = Head {
            chunk,
            length,
            checksum: crc32fast::hash(&payload),
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
        bytes.extend(head.bytes());
        bytes.extend(payload);
        Ok(Self {
            bytes,
            to_ns: chunk.to_ns,
        })
    }

    /// Bytes that it takes in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Until when its content is.
    #[must_use]
    pub fn to_ns(&self) -> u64 {
        self.to_ns
    }
}
