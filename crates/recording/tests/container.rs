//! What is written is read again, whatever becomes of the file's end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    io::{self, Cursor},
};

use profiler_recording::{Chunk, Kind, OpenError, ReadError, Reader, Writer};
use proptest::prelude::*;

fn chunk(number: u64) -> Chunk {
    Chunk {
        kind: if number == 0 { Kind::About } else { Kind::Records },
        begins_anew: number % 3 == 1,
        from_ns: number * 1_000,
        to_ns: (number + 1) * 1_000,
    }
}

fn written(contents: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new()).unwrap();
    for (number, content) in (0..).zip(contents) {
        writer.write(chunk(number), content).unwrap();
    }
    let bytes = writer.bytes();
    let file = writer.into_inner();
    assert_eq!(bytes, file.len() as u64);
    file
}

fn contents() -> Vec<Vec<u8>> {
    vec![
        b"about".to_vec(),
        Vec::new(),
        vec![7; 400],
        (0..60_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect(),
    ]
}

/// What was read of a file.
struct Read {
    /// By the numbers that they were written with; `None` of a chunk that is damaged.
    chunks: BTreeMap<u64, Option<Vec<u8>>>,
    is_cut: bool,
}

fn read(file: Vec<u8>) -> Result<Read, OpenError> {
    let mut reader = Reader::open(Cursor::new(file))?;
    let numbers: Vec<u64> = reader.chunks().map(|chunk| chunk.from_ns / 1_000).collect();
    let all = numbers
        .into_iter()
        .enumerate()
        .map(|(at, number)| match reader.read(at) {
            Ok(content) => (number, Some(content)),
            Err(ReadError::Damaged { .. }) => (number, None),
            Err(error) => panic!("{error}"),
        });
    Ok(Read {
        chunks: all.collect(),
        is_cut: reader.cut().is_some(),
    })
}

fn numbered(contents: &[Vec<u8>]) -> BTreeMap<u64, Option<Vec<u8>>> {
    (0..).zip(contents.iter().cloned().map(Some)).collect()
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let contents = contents();
    let file = written(&contents);
    let reader = Reader::open(Cursor::new(file.clone())).unwrap();
    let chunks: Vec<Chunk> = reader.chunks().copied().collect();
    assert_eq!(chunks, (0..4).map(chunk).collect::<Vec<_>>());
    let Read { chunks: all, is_cut } = read(file).unwrap();
    assert_eq!(all, numbered(&contents));
    assert!(!is_cut);
}

#[test]
fn a_file_cut_off_at_any_byte_has_all_chunks_before_it() {
    let contents = contents();
    let file = written(&contents);
    let mut whole_before = 0;
    for length in 0..file.len() {
        let cut = read(file[..length].to_vec());
        if length == 0 {
            assert!(matches!(cut, Err(OpenError::Empty)));
            continue;
        }
        if length < 12 {
            assert!(matches!(cut, Err(OpenError::NotARecording)), "{length}");
            continue;
        }
        let Read { chunks: all, is_cut } = cut.unwrap();
        assert_eq!(all, numbered(&contents[..all.len()]), "{length}");
        assert!(all.len() >= whole_before, "{length}");
        whole_before = all.len();
        let ends_behind_a_chunk = written(&contents[..all.len()]).len() == length;
        assert_eq!(is_cut, !ends_behind_a_chunk, "{length}");
    }
    assert_eq!(whole_before, contents.len() - 1);
}

#[test]
fn a_flipped_bit_costs_the_chunk_that_it_is_in_and_is_never_read_as_content() {
    let contents = contents();
    let file = written(&contents);
    let ends: Vec<usize> = (1..=contents.len())
        .map(|count| written(&contents[..count]).len())
        .collect();
    for bit in 0..file.len() * 8 {
        let mut file = file.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        let Ok(Read { chunks: all, .. }) = read(file) else {
            assert!(bit < 12 * 8, "{bit}");
            continue;
        };
        let damaged = ends.partition_point(|end| *end <= bit / 8);
        for (number, content) in contents.iter().enumerate() {
            match all.get(&(number as u64)) {
                Some(Some(read)) => assert_eq!(read, content, "bit {bit}, chunk {number}"),
                _ => assert_eq!(number, damaged, "bit {bit}: no other chunk is lost"),
            }
        }
    }
}

#[test]
fn refuses_files_that_are_not_recordings_with_the_reason() {
    let refused = |bytes: &[u8]| Reader::open(Cursor::new(bytes.to_vec())).unwrap_err().to_string();
    assert_eq!(refused(b""), "it is empty");
    assert_eq!(
        refused(b"PERFILE2 and more"),
        "it is not a recording of `profiler record`"
    );
    let mut newer = written(&[]);
    newer[8] = 9;
    assert!(refused(&newer).contains("format 9"), "{}", refused(&newer));
    assert!(
        refused(&newer).contains("newer `profiler`"),
        "{}",
        refused(&newer)
    );
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in any::<Vec<u8>>(), behind in any::<bool>()) {
        let mut file = if behind { written(&contents()) } else { Vec::new() };
        file.extend(bytes);
        let _ = read(file);
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: Cursor<Vec<u8>>,
    bytes: u64,
}

impl io::Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl io::Seek for Counted {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn a_file_of_nothing_but_beginnings_of_heads_is_read_once() {
    let mut file = written(&contents());
    let chunks = read(file.clone()).unwrap().chunks;
    file.extend(b"CHNK".repeat(1 << 18));
    // A chunk behind them is found.
    let mut writer = Writer::begin(Vec::new()).unwrap();
    let prologue = usize::try_from(writer.bytes()).unwrap();
    writer.write(chunk(9), b"behind").unwrap();
    file.extend_from_slice(&writer.into_inner()[prologue..]);
    let length = file.len() as u64;
    let mut counted = Counted {
        file: Cursor::new(file),
        bytes: 0,
    };
    let reader = Reader::open(&mut counted).unwrap();
    assert_eq!(reader.chunks().len(), chunks.len() + 1);
    assert!(reader.is_behind_hole(chunks.len()));
    drop(reader);
    assert!(counted.bytes < length * 2, "{} bytes of {length}", counted.bytes);
}
