//! What is brought into columns comes back as it was.

use profiler_proto::v1::record::Record;

use super::*;
use crate::recording::columns::{ColumnReader, Unpacked};

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..4, 1 => any::<u32>()]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -5i64..2000, 1 => any::<i64>()]
}

fn span() -> impl Strategy<Value = v1::RecordedSpan> {
    (small(), small(), time(), small()).prop_map(|(probe, sequence, before_ns, gates)| v1::RecordedSpan {
        probe,
        sequence: sequence.into(),
        before_ns,
        gates,
    })
}

fn sample() -> impl Strategy<Value = Record> {
    let place = (small(), small(), 0i32..6, any::<bool>());
    let spans = prop::collection::vec(span(), 0..3);
    let others = (
        prop_oneof![4 => Just(0), 1 => any::<u64>()],
        any::<bool>(),
        small(),
    );
    (small(), time(), place, spans, others).prop_map(|(thread, after_ns, place, spans, others)| {
        let (function_node, line_node, activity, incomplete) = place;
        let (weight_ns, continues, system_call) = others;
        Record::Sample(v1::RecordedSample {
            thread,
            after_ns,
            weight_ns,
            activity,
            continues,
            function_node,
            line_node,
            incomplete,
            spans,
            system_call,
        })
    })
}

fn end() -> impl Strategy<Value = Record> {
    let told = (small(), small(), any::<u8>(), small(), small(), small());
    (small(), time(), any::<u64>(), told).prop_map(|(thread, after_ns, duration_ns, told)| {
        let (probe, sequence, flags, parent, gates, hits) = told;
        Record::SpanEnd(v1::RecordedSpanEnd {
            thread,
            probe,
            sequence: sequence.into(),
            after_ns,
            duration_ns,
            flags: flags.into(),
            parent,
            gates,
            hits,
        })
    })
}

fn message() -> impl Strategy<Value = v1::WatchRecordsResponse> {
    // One of a kind that this version does not know is there, too.
    let record = prop_oneof![
        8 => sample().prop_map(Some),
        4 => end().prop_map(Some),
        1 => Just(None),
    ];
    let record = record.prop_map(|record| v1::Record { record });
    let records = prop::collection::vec(record, 0..40);
    let nodes = (0u32..5, prop::collection::vec((small(), small()), 0..6));
    (prop::bool::weighted(0.2), records, nodes, small()).prop_map(|(begins_anew, records, nodes, weight)| {
        let (first, nodes) = nodes;
        v1::WatchRecordsResponse {
            begins_anew,
            records,
            weight_ns: weight.into(),
            nodes: (nodes.into_iter().zip(first..))
                .map(|((parent, frame), id)| v1::RecordedNode { id, parent, frame })
                .collect(),
            ..Default::default()
        }
    })
}

proptest! {
    #[test]
    fn messages_come_back_from_columns_as_they_were(messages in prop::collection::vec(message(), 1..6)) {
        let (mut writer, mut reader) = (ColumnWriter::default(), ColumnReader::default());
        for message in messages {
            let mut packed = message.clone();
            writer.pack(&mut packed);
            let content = packed.encode_to_vec();
            let mut read = v1::WatchRecordsResponse::decode(content.as_slice()).unwrap();
            reader.unpack(&mut read).unwrap();
            prop_assert_eq!(&read, &message);
        }
    }

    #[test]
    fn records_that_are_passed_over_do_not_change_those_behind(
        before in prop::collection::vec(message(), 1..4),
        message in message(),
    ) {
        let (mut writer, mut reader) = (ColumnWriter::default(), ColumnReader::default());
        for mut before in before {
            writer.pack(&mut before);
            reader.records(&mut before, Unpacked::Told).unwrap();
        }
        let mut packed = message.clone();
        writer.pack(&mut packed);
        reader.unpack(&mut packed).unwrap();
        prop_assert_eq!(&packed, &message);
    }
}

#[test]
fn columns_that_contradict_each_other_are_damaged() {
    let with = |columns| v1::WatchRecordsResponse {
        columns: Some(columns),
        ..Default::default()
    };
    for columns in [
        // Of no place.
        v1::RecordColumns {
            threads: vec![1],
            after_ns: vec![1],
            places: vec![0],
            ..Default::default()
        },
        // Without a time.
        v1::RecordColumns {
            threads: vec![1],
            places: vec![0],
            place_functions: vec![1],
            ..Default::default()
        },
        // The end of a span that was in no sample.
        v1::RecordColumns {
            kinds: vec![2],
            threads: vec![1],
            after_ns: vec![1],
            ends_known: vec![1],
            ..Default::default()
        },
        // Called by what does not exist.
        v1::RecordColumns {
            node_parents: vec![1],
            node_frames: vec![1],
            ..Default::default()
        },
    ] {
        let read = ColumnReader::default().unpack(&mut with(columns.clone()));
        assert!(read.is_err(), "{columns:?}");
    }
}
