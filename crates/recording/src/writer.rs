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
    pub fn append(out: W, bytes: u64) -> Self {
        Self { out, bytes }
    }

    /// Appends a chunk. It is whole in the file when this returns.
    ///
    /// # Errors
    /// Where it cannot be written, or is larger than a reader takes: [`TooLarge`].
    pub fn write(&mut self, chunk: Chunk, content: &[u8]) -> io::Result<()> {
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
        // In one piece, so that others see as little as possible of a chunk that is not whole.
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        self.bytes += bytes.len() as u64;
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
