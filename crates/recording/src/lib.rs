//! The file that a recording is kept in.
//!
//! A file is a prologue and chunks behind one another. Nothing in it is ever changed once it is written, and each chunk can be
//! read without those behind it: a writer that is killed, a full disk or a copy that was cut off costs the last chunk and no
//! other. What the chunks hold is messages of `profiler.v1`, of which this crate knows nothing: one `RecordingAbout`;
//! `WatchRecordsResponse` behind one another, each with its length before it; a `SampleSummary`; or a `CallSummary`.
//!
//! ```text
//! prologue   8 bytes   "profrec\n"
//!            4 bytes   version of the format, little endian
//! chunk      4 bytes   0x4b4e4843, "CHNK"
//!            1 byte    kind (chunk::Kind)
//!            1 byte    flags: 1 where the messages' numbering begins anew
//!            2 bytes   0
//!            4 bytes   length of the payload in bytes
//!            4 bytes   CRC-32 of the payload
//!            8 bytes   from when the content is, CLOCK_MONOTONIC of the recorded machine in nanoseconds
//!            8 bytes   until when
//!            4 bytes   CRC-32 of the 32 bytes before
//!            …         payload, a Zstandard frame
//! ```
//!
//! Whole numbers are little endian; CRC-32 is that of IEEE 802.3. There is no index: the heads of an hour's 5,000 chunks are
//! found by as many small reads, which take some milliseconds.
//!
//! | file | idea |
//! |---|---|
//! | `chunk` | the head of a chunk, to bytes and back |
//! | `writer` | chunks appended to a file |
//! | `reader` | the chunks of a file that may be damaged |
//!
//! See `docs/internals/recordings.md` for how a recording is made and queried.

mod chunk;
mod reader;
mod writer;

pub use chunk::{Chunk, Kind};
pub use reader::{Cut, OpenError, ReadError, Reader};
pub use writer::{TooLarge, Writer, WrittenChunk};

/// What a recording begins with.
pub const MAGIC: &[u8; 8] = b"profrec\n";

/// The version of the format that is written, and the newest that is read. Since 2, records are in columns.
pub const VERSION: u32 = 2;

/// Bytes of the prologue.
pub const PROLOGUE_BYTES: u64 = 12;

/// Bytes of a chunk's content, unfolded, at most.
pub const MAX_CONTENT_BYTES: usize = 16 << 20;

/// Chunks of a file that are looked at, at most: more than a month's.
pub const MAX_CHUNKS: usize = 1 << 22;
