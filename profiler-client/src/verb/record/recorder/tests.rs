//! A recording that is kept short can be read from its first minute on, and says what is in it.

use std::{fs, io::Cursor, path::Path, time::Duration};

use profiler_recording::Reader;

use super::*;
use crate::verb::record::file::NewFile;

const SECOND_NS: u64 = 1_000_000_000;

/// Records `seconds`, a message each of them that has this many bytes; numbers begin anew every ten.
fn record(path: &Path, keep: Keep, seconds: u64, bytes: usize) -> Recorder {
    let file = NewFile::open(path, false).unwrap().take_place().unwrap();
    let mut recorder = Recorder::begin(file, heading(), keep).unwrap();
    for second in 0..seconds {
        recorder.take(message(second, bytes)).unwrap();
    }
    recorder
}

fn message(second: u64, bytes: usize) -> v1::WatchRecordsResponse {
    let begins_anew = second.is_multiple_of(10);
    // Digits that do not compress away.
    let mut number = second + 1;
    let text: String = (0..bytes)
        .map(|_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'0' + u8::try_from(number >> 58).unwrap())
        })
        .collect();
    v1::WatchRecordsResponse {
        info: Some(v1::StreamInfo {
            end: Some(v1::StreamEnd {
                cause: v1::EndCause::Other.into(),
                reason: text,
                signal: 0,
            }),
            ..v1::StreamInfo::default()
        }),
        from_ns: second * SECOND_NS,
        to_ns: (second + 1) * SECOND_NS,
        begins_anew,
        scope: begins_anew.then(v1::RecordedScope::default),
        ..Default::default()
    }
}

/// The chunks of a file.
fn chunks(path: &Path) -> Vec<Chunk> {
    let reader = Reader::open(Cursor::new(fs::read(path).unwrap())).unwrap();
    assert!(reader.cut().is_none());
    reader.chunks().copied().collect()
}

fn heading() -> Heading<'static> {
    Heading {
        target: Some("a"),
        lens: None,
        host: v1::HostInfo::default(),
    }
}

#[test]
fn a_file_stays_below_its_size_and_begins_with_a_whole_minute() {
    const MAX_BYTES: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let keep = Keep {
        max_bytes: Some(MAX_BYTES),
        max_age: None,
    };
    let file = NewFile::open(&path, false).unwrap().take_place().unwrap();
    let mut recorder = Recorder::begin(file, heading(), keep).unwrap();
    let mut largest = 0;
    for second in 0..200 {
        recorder.take(message(second, 50_000)).unwrap();
        let bytes = fs::metadata(&path).unwrap().len();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes at second {second}");
        largest = largest.max(bytes);
    }
    assert!(largest > MAX_BYTES / 2);
    let chunks = chunks(&path);
    let [about, first, .., last] = chunks.as_slice() else {
        panic!("{chunks:?}")
    };
    assert_eq!(about.kind, Kind::About);
    assert!(first.begins_anew && first.kind == Kind::Records && first.from_ns > 100 * SECOND_NS);
    assert_eq!(last.to_ns, 200 * SECOND_NS);
    let records: Vec<&Chunk> = chunks
        .iter()
        .filter(|chunk| chunk.kind == Kind::Records)
        .collect();
    assert!(
        records.windows(2).all(|two| two[0].to_ns == two[1].from_ns),
        "nothing is missing between"
    );
    let kept = format!("{}.0 s, 0 samples", 200 - first.from_ns / SECOND_NS);
    assert!(
        recorder.describe_written().starts_with(&kept),
        "{} is not {kept}",
        recorder.describe_written()
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_older_than_asked_goes_and_what_is_not_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let keep = Keep {
        max_bytes: None,
        max_age: Some(Duration::from_secs(30)),
    };
    let file = NewFile::open(&path, false).unwrap().take_place().unwrap();
    let mut recorder = Recorder::begin(file, heading(), keep).unwrap();
    for second in 0..300 {
        recorder.take(message(second, 10)).unwrap();
        let first = chunks(&path)
            .into_iter()
            .find(|chunk| chunk.kind == Kind::Records);
        let age = second + 1 - first.unwrap().from_ns / SECOND_NS;
        assert!(age >= 30.min(second + 1), "{age} s at {second}");
        assert!(age <= 60, "{age} s at {second}");
    }
}

#[test]
fn a_minute_is_kept_however_large_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let keep = Keep {
        max_bytes: Some(1 << 20),
        max_age: None,
    };
    record(&path, keep, 10, 400_000);
    assert_eq!(chunks(&path).len(), 11);
}

#[test]
fn a_file_that_is_removed_ends_the_recording_and_one_that_is_moved_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("a"), folder.path().join("b"));
    let mut recorder = record(&path, Keep::default(), 5, 10);
    fs::rename(&path, &moved).unwrap();
    (5..20).for_each(|second| recorder.take(message(second, 10)).unwrap());
    let of_records = chunks(&moved)
        .into_iter()
        .filter(|chunk| chunk.kind == Kind::Records);
    assert_eq!(of_records.count(), 20);
    fs::remove_file(&moved).unwrap();
    let error = recorder.take(message(20, 10)).unwrap_err();
    assert!(error.to_string().contains("removed"), "{error}");
}

#[test]
fn another_file_in_its_place_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let keep = Keep {
        max_bytes: Some(1 << 20),
        max_age: None,
    };
    let mut recorder = record(&path, keep, 5, 50_000);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let error = (5..100).find_map(|second| recorder.take(message(second, 50_000)).err());
    let error = error.unwrap();
    assert!(error.to_string().contains("another file"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn what_was_waited_for_stays_with_what_was_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let keep = Keep {
        max_bytes: None,
        max_age: Some(Duration::from_secs(30)),
    };
    let mut recorder = record(&path, keep, 100, 10);
    recorder.keep_before(100 * SECOND_NS);
    for second in 100..300 {
        recorder.take(message(second, 10)).unwrap();
    }
    let first = chunks(&path)
        .into_iter()
        .find(|chunk| chunk.kind == Kind::Records);
    let from_s = first.unwrap().from_ns / SECOND_NS;
    assert!((50..=70).contains(&from_s), "{from_s}");
}

#[test]
fn a_clock_that_is_set_back_changes_the_date_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    // The second is begun as if the clock had been set back to before 1970 since the first.
    let contents = [1_700_000_000_000_000_000, 0].map(|since_1970_ns| {
        let path = folder.path().join("a");
        let file = NewFile::open(&path, true).unwrap().take_place().unwrap();
        let heading = Heading {
            host: v1::HostInfo {
                monotonic_ns: 7,
                since_1970_ns,
                ..Default::default()
            },
            ..heading()
        };
        let mut recorder = Recorder::begin(file, heading, Keep::default()).unwrap();
        for second in 0..30 {
            recorder.take(message(second, 100)).unwrap();
        }
        recorder.finish().unwrap();
        let mut reader = Reader::open(Cursor::new(fs::read(&path).unwrap())).unwrap();
        let chunks: Vec<Chunk> = reader.chunks().copied().collect();
        let contents = (0..chunks.len()).map(|number| reader.read(number).unwrap());
        let contents: Vec<Vec<u8>> = contents.collect();
        (chunks, contents)
    });
    let [(chunks, first), (others, second)] = contents;
    assert_eq!(chunks, others, "times of chunks");
    assert!(chunks.len() > 30, "{}", chunks.len());
    assert_eq!(first[1..], second[1..]);
    let abouts = [&first[0], &second[0]].map(|about| v1::RecordingAbout::decode(about.as_slice()).unwrap());
    let dates = abouts.map(|about| (about.machine().monotonic_ns, about.machine().since_1970_ns));
    assert_eq!(dates, [(7, 1_700_000_000_000_000_000), (7, 0)]);
}
