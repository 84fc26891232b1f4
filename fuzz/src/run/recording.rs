//! Recordings: the chunks of a file that may be damaged.
//!
//! An input is a file as it is; and, with checksums put right, chunks: a byte each for kind and flags, the payload's length in
//! two bytes, the payload.

use std::{io::Cursor, ops::Range};

use profiler_recording::{Chunk, MAX_CONTENT_BYTES, Reader, Writer};

use super::input::Input;

/// Chunks that are made of an input.
const MAX_CHUNKS: usize = 8;

/// Reads an input as it is, and with what is compared put right.
///
/// # Panics
/// Where a chunk holds more than it may.
pub fn run(data: &[u8]) {
    read(data);
    read(&put_right(data));
}

fn read(file: &[u8]) {
    let Ok(mut reader) = Reader::open(Cursor::new(file)) else {
        return;
    };
    let chunks: Vec<Chunk> = reader.chunks().copied().collect();
    for (number, _) in chunks.iter().enumerate() {
        if let Ok(content) = reader.read(number) {
            assert!(content.len() <= MAX_CONTENT_BYTES);
        }
    }
    if let Some(cut) = reader.cut() {
        assert!(cut.at + cut.bytes == file.len() as u64);
    }
}

/// A file of chunks whose heads are as they should be, whatever their payloads are.
fn put_right(data: &[u8]) -> Vec<u8> {
    let begin = Writer::begin(Vec::new());
    let mut file = begin.map(Writer::into_inner).unwrap_or_default();
    let mut input = Input(data);
    for _ in 0..MAX_CHUNKS {
        if input.0.is_empty() {
            break;
        }
        let (kind, flags, length) = (input.byte(), input.byte(), input.short());
        let payload = input.bytes(usize::from(length));
        let times = 0..0;
        push_chunk(&mut file, Head { kind, flags, times }, payload);
    }
    file
}

/// What the head of a chunk says.
pub struct Head {
    /// What is in it.
    pub kind: u8,
    /// Whether numbers begin anew.
    pub flags: u8,
    /// Of which time it is.
    pub times: Range<u64>,
}

/// Appends a chunk whose head is as it should be, whatever its payload is.
pub fn push_chunk(file: &mut Vec<u8>, said: Head, payload: &[u8]) {
    let mut head = [0; 36];
    head[..4].copy_from_slice(b"CHNK");
    (head[4], head[5]) = (said.kind, said.flags);
    let bytes = u32::try_from(payload.len()).unwrap_or(0);
    head[8..12].copy_from_slice(&bytes.to_le_bytes());
    head[12..16].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    head[16..24].copy_from_slice(&said.times.start.to_le_bytes());
    head[24..32].copy_from_slice(&said.times.end.to_le_bytes());
    let checksum = crc32fast::hash(&head[..32]);
    head[32..].copy_from_slice(&checksum.to_le_bytes());
    file.extend(head);
    file.extend(payload);
}
