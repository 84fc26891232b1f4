//! What the chunks of a recording hold: messages and summaries that somebody made up, asked for pictures.
//!
//! An input is chunks: a byte each for kind and flags, the content's length in two bytes, the content. The heads say the times
//! that the contents do, as where it matters the two are compared.

use std::{fs::File, io::Write as _, ops::Range};

use profiler_daemon::session::ask_all;
use profiler_proto::v1;
use profiler_recording::Writer;
use prost::Message as _;
use rustix::fs::MemfdFlags;

use super::{
    input::Input,
    recording::{Head, push_chunk},
};

/// Chunks that are made of an input.
const MAX_CHUNKS: usize = 16;
/// Messages of a chunk that are looked at for its times.
const MAX_MESSAGES: usize = 1024;
/// Kinds of chunks, as in `crates/recording`.
const SAMPLES: u8 = 3;
const CALLS: u8 = 4;
/// What is asked for: the recorded scope with other durations, and without its step.
const SCOPES: [&str; 2] = ["f[>= p90]", ""];

/// Asks a recording of an input's chunks.
pub fn run(data: &[u8]) {
    let Ok(file) = rustix::fs::memfd_create("recorded", MemfdFlags::CLOEXEC) else {
        return;
    };
    let mut file = File::from(file);
    let Some(written) = written(data) else {
        return;
    };
    if file.write_all(&written).is_ok() {
        let _ = ask_all(file, &SCOPES);
    }
}

/// A file with an input's chunks.
fn written(data: &[u8]) -> Option<Vec<u8>> {
    let mut file = Writer::begin(Vec::new()).ok()?.into_inner();
    let mut input = Input(data);
    for _ in 0..MAX_CHUNKS {
        if input.0.is_empty() {
            break;
        }
        let (kind, flags, length) = (input.byte(), input.byte(), input.short());
        let content = input.bytes(usize::from(length));
        let times = times(kind, content).unwrap_or_default();
        push_chunk(&mut file, Head { kind, flags, times }, &frame(content));
    }
    Some(file)
}

/// A Zstandard frame of one block that is not compressed: compressing would take most of the time.
fn frame(content: &[u8]) -> Vec<u8> {
    // The content's size in four bytes, one segment.
    let mut frame = b"\x28\xb5\x2f\xfd\xa0".to_vec();
    let length = u32::try_from(content.len()).unwrap_or(0);
    frame.extend(length.to_le_bytes());
    frame.extend(&(length << 3 | 1).to_le_bytes()[..3]);
    frame.extend(content);
    frame
}

/// The times that a content says it is of.
fn times(kind: u8, mut content: &[u8]) -> Option<Range<u64>> {
    let told = match kind {
        SAMPLES => v1::SampleSummary::decode(content).ok()?.told?,
        CALLS => v1::CallSummary::decode(content).ok()?.told?,
        _ => {
            let mut next = || v1::WatchRecordsResponse::decode_length_delimited(&mut content).ok();
            let mut told = next()?;
            for _ in 1..MAX_MESSAGES {
                match next() {
                    Some(message) => told.to_ns = message.to_ns,
                    None => break,
                }
            }
            told
        }
    };
    Some(told.from_ns..told.to_ns)
}
