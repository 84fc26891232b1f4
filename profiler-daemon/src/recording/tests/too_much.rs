//! Messages that tell more than any that was written: somebody has made them up, in a file of a few bytes.

use super::*;
use crate::recording::{Part, Wanted, decode::Damaged, summary::Message};

/// More of each kind than a message may have.
const TOO_MANY: usize = (1 << 18) + 1;

const ALL: Wanted<'static> = Wanted {
    from_ns: 0,
    by: None,
    also: None,
    answers: None,
};

/// A message with the scope of a target.
fn told() -> v1::WatchRecordsResponse {
    Messages::default().next(&more::target().first())
}

#[test]
fn a_message_of_too_many_records_is_damaged_and_what_is_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let first = told();
    let second = v1::WatchRecordsResponse {
        begins_anew: false,
        from_ns: first.to_ns,
        to_ns: first.to_ns + 1_000,
        records: vec![v1::Record::default(); TOO_MANY],
        ..Default::default()
    };
    let mut writer = Writer::begin(Vec::new()).unwrap();
    for message in [&first, &second] {
        let content = message.encode_length_delimited_to_vec();
        writer.write(of_records(message), &content).unwrap();
    }
    let file = writer.into_inner();
    assert!(file.len() < 64 << 10, "{} bytes", file.len());
    fs::write(&path, file).unwrap();
    let mut recording = Recording::open(&path).unwrap();
    let mut read = Vec::new();
    let take = |part: Part, _: &Frames| {
        read.push(match part {
            Part::Batch(batch) => (batch.from_ns, batch.to_ns, true),
            Part::Missing { from_ns, to_ns } => (from_ns, to_ns, false),
            Part::Summary(_) => panic!("a summary"),
        });
        true
    };
    recording.read(ALL, &mut Frames::default(), take).unwrap();
    let [first, second] = [first, second].map(|message| (message.from_ns, message.to_ns));
    assert_eq!(read, [(first.0, first.1, true), (second.0, second.1, false)]);
}

#[test]
fn a_summary_of_what_none_has_is_damaged_or_leaves_it_out() {
    let summary = |told| {
        let calls = v1::CallSummary {
            told: Some(told),
            moments: Vec::new(),
        };
        Message::read(Kind::Calls, &calls.encode_to_vec())
    };
    let hits = |count| v1::WatchRecordsResponse {
        hits: vec![v1::RecordedHit::default(); count],
        ..told()
    };
    assert_eq!(summary(hits(TOO_MANY)).err(), Some(Damaged));
    // What they take while a summary is kept is that of their bytes.
    let [without, with] = [0, 1000].map(|count| summary(hits(count)).unwrap().bytes());
    assert!(with - without < 10_000, "{with} of {without}");
    let records = v1::WatchRecordsResponse {
        records: vec![v1::Record::default(); TOO_MANY],
        ..told()
    };
    assert_eq!(summary(records).err(), Some(Damaged));
}
