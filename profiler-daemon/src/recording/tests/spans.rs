//! The slowest calls of recordings that were made up.

use profiler_plan::values::{Reading, Value};

use super::*;
use crate::session::{Numbered, SlowSpan, SpansPicture, SpansRequest};

impl Replay {
    fn spans(&self, session: &str, number: usize, waits: bool) -> Result<Numbered<SpansPicture>, String> {
        let request = SpansRequest {
            number,
            waits,
            system_calls: false,
        };
        let watch = self.handle.watch_spans(ROOT, session.to_owned(), 1, request);
        let pictures = self.runtime.block_on(watch).map_err(|error| error.to_string())?;
        Ok(pictures.borrow().clone().unwrap())
    }
}

fn ended(picture: &SpansPicture) -> String {
    picture.ended.as_deref().unwrap_or_default().to_owned()
}

fn innermost(picture: &SpansPicture, span: &SlowSpan) -> String {
    let frame = span.stack.last().map(|frame| &picture.frames[frame.0 as usize]);
    frame.map_or_else(String::new, |frame| frame.function.to_string())
}

#[test]
fn the_slowest_calls_are_those_of_the_part_with_what_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, 8);
    let replay = Replay::of(&path);
    let session = replay.session("", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, false).unwrap();
    let durations: Vec<u64> = picture.spans.iter().map(|span| span.duration_ns).collect();
    assert_eq!(durations, [[SLOW_NS; 8].as_slice(), &[FAST_NS; 2]].concat());
    assert_eq!((picture.calls, picture.window_ns), (8 * CALLS, 8 * BATCH_NS));
    for span in &picture.spans {
        let function = if span.duration_ns == SLOW_NS {
            "slow"
        } else {
            "fast"
        };
        assert_eq!(innermost(&picture, span), function);
        assert_eq!((span.samples, span.stack_samples), (1, 1));
        // What was not seen off the CPU was on it.
        assert_eq!(span.times.unwrap()[0], span.duration_ns);
    }
    // Each call was recorded, so that none is missing.
    assert_eq!(
        (picture.threshold_ns, picture.lost.len()),
        (0, 0),
        "{:?}",
        picture.lost
    );
    assert_eq!(ended(&picture), "the end of the recording");

    let session = replay.session("f", 2 * BATCH_NS, 5 * BATCH_NS).unwrap();
    let picture = replay.spans(&session, 100, false).unwrap();
    let slow = picture.spans.iter().filter(|span| span.duration_ns == SLOW_NS);
    assert_eq!((slow.count(), picture.calls), (3, 3 * CALLS));
    let from_ns = BEGIN_NS + 2 * BATCH_NS;
    assert!(picture.spans.iter().all(|span| span.start_ns >= from_ns));
}

#[test]
fn conditions_on_durations_are_those_of_all_calls_of_the_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, 8);
    let replay = Replay::of(&path);
    let session = replay.session("f[< p97]", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 100, false).unwrap();
    assert_eq!(picture.spans.len(), 100);
    assert!(picture.spans.iter().all(|span| span.duration_ns == FAST_NS));
    let said = ended(&picture);
    assert!(said.contains("percentiles are exact"), "{said}");
}

#[test]
fn calls_that_were_only_counted_are_said_to_be_missing_with_what_records_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let first = target.first();
    let mut batches = vec![first];
    for _ in 0..4 {
        let batch = target.next();
        // No sample hit the fast ones.
        let is_slow = |record: &Recorded| match record {
            Recorded::SpanEnd(end) => end.end_ns - end.start_ns == SLOW_NS,
            Recorded::Sample(sample) => sample.spans.iter().any(|span| span.sequence % CALLS == 0),
            _ => false,
        };
        let records = batch.records.iter().filter(|record| is_slow(record));
        let records = Arc::new(records.cloned().collect());
        batches.push(RecordBatch { records, ..batch });
    }
    write(&path, &batches);
    let replay = Replay::of(&path);
    let session = replay.session("", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, true).unwrap();
    assert_eq!(picture.spans.len(), 4);
    assert_eq!(picture.calls, 4 * CALLS);
    assert_eq!(picture.lost.get("below_limit"), Some(&(4 * (CALLS - 1))));
    assert!(
        (FAST_NS + 1..SLOW_NS).contains(&picture.threshold_ns),
        "{}",
        picture.threshold_ns
    );
    let said = ended(&picture);
    assert!(
        said.contains("76 of them belong here") && said.contains("'f[>= 1ms]'"),
        "{said}"
    );
    assert!(said.contains("--waits"), "{said}");
    // Those that are asked for are all there.
    let session = replay.session("f[>= 5ms]", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 4, false).unwrap();
    assert_eq!((picture.spans.len(), picture.lost.len()), (4, 0));
}

#[test]
fn a_call_has_its_values_and_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = more::target();
    let first = target.first();
    let mut batches = vec![more::with_more(&target, first)];
    for _ in 0..3 {
        let mut batch = more::next(&mut target);
        let mut records: Vec<Recorded> = batch.records.to_vec();
        let wait = records.pop();
        let Some(Recorded::Wait(mut wait)) = wait else {
            panic!("{wait:?}")
        };
        // It lies in the slow call.
        let Some(Recorded::Sample(sample)) = records
            .iter()
            .rev()
            .find(|record| matches!(record, Recorded::Sample(_)))
        else {
            panic!("no sample");
        };
        let at_ns = sample.ts_ns;
        let times = [at_ns, at_ns + 7 * MS, at_ns + 7 * MS];
        wait.wait.times = times;
        let slept = RecordedSample {
            ts_ns: times[1],
            weight_ns: 7 * MS,
            activity: Activity::Sleeping,
            ..sample.clone()
        };
        let end = records.len() - 2;
        records.splice(end..end, [Recorded::Wait(wait), Recorded::Sample(slept)]);
        batch.records = Arc::new(records);
        batches.push(batch);
    }
    let mut messages = Messages::new(true);
    let mut writer = Writer::begin(Vec::new()).unwrap();
    for batch in &batches {
        let message = messages.next(batch);
        writer
            .write(of_records(&message), &message.encode_length_delimited_to_vec())
            .unwrap();
    }
    fs::write(&path, writer.into_inner()).unwrap();
    let replay = Replay::of(&path);
    let session = replay.session("f[>= 5ms]", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, true).unwrap();
    assert_eq!(picture.spans.len(), 3);
    for (number, span) in (0..).zip(picture.spans.iter().rev()) {
        let values = span.values.as_ref().unwrap();
        let expected = Reading::Ok(Value::Signed(i128::from((number + 1) * CALLS)));
        assert_eq!((&*values[0].expression, &values[0].reading), ("n", &expected));
        let times = span.times.unwrap();
        assert_eq!((times[0], times[1]), (SLOW_NS - 7 * MS, 7 * MS));
        assert_eq!((span.waits, span.samples), (1, 1));
        assert!(span.waker().is_some());
    }
    let names = picture.thread_names.as_ref().unwrap();
    assert!(
        names
            .iter()
            .any(|name| (name.tid, name.name.as_str()) == (41, "worker")),
        "{names:?}"
    );
    // Who ended it is told where it is asked for.
    let picture = replay.spans(&session, 10, false).unwrap();
    assert!(
        picture
            .spans
            .iter()
            .all(|span| span.waker().is_none() && span.longest_wait.is_some())
    );
}

#[test]
fn of_a_call_that_was_off_the_cpu_for_longer_than_it_took_no_times_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let mut batches = vec![target.first()];
    for slept_ns in [SLOW_NS, SLOW_NS + 1] {
        let batch = target.next();
        let mut records = batch.records.to_vec();
        let [.., Recorded::Sample(sample), Recorded::SpanEnd(end)] = &records[..] else {
            panic!("{records:?}");
        };
        let slept = RecordedSample {
            ts_ns: end.end_ns,
            weight_ns: slept_ns,
            activity: Activity::Sleeping,
            ..sample.clone()
        };
        records.insert(records.len() - 1, Recorded::Sample(slept));
        let records = Arc::new(records);
        batches.push(RecordBatch { records, ..batch });
    }
    write(&path, &batches);
    let replay = Replay::of(&path);
    let session = replay.session("f[>= 5ms]", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, false).unwrap();
    let [contradictory, other] = &picture.spans[..] else {
        panic!("{:?}", picture.spans);
    };
    assert_eq!((contradictory.duration_ns, contradictory.times), (SLOW_NS, None));
    assert_eq!((contradictory.waits, &contradictory.longest_wait), (0, &None));
    assert!(contradictory.off_cpu.periods.is_empty());
    assert_eq!(other.times.unwrap()[..2], [0, SLOW_NS]);
    assert_eq!(
        picture.lost.get("waits_over_duration"),
        Some(&1),
        "{:?}",
        picture.lost
    );
}

#[test]
fn calls_inside_are_told_with_the_call_around_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path, &calls_inside("a[>= 0ns]/b", &[3, 9]));
    let replay = Replay::of(&path);
    let session = replay.session("a", 0, u64::MAX).unwrap();
    let alone = replay.spans(&session, 10, false).unwrap();
    assert_eq!(alone.spans.len(), 2);
    assert!(alone.spans.iter().all(|span| span.children.is_empty()));
    let session = replay.session("a/b", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, false).unwrap();
    assert_eq!(picture.spans.len(), 2);
    assert!(picture.spans.iter().all(|span| &*span.function.name == "a"));
    assert!(picture.spans.iter().all(|span| !span.children.is_empty()));
}

/// A recording of three batches with waits, of which the middle one says how many values were left out.
fn with_waits(path: &Path, change: impl Fn(usize, RecordBatch) -> RecordBatch) {
    let mut target = more::target();
    let first = target.first();
    let first = more::with_more(&target, first);
    let batches: Vec<RecordBatch> = [first]
        .into_iter()
        .chain((0..3).map(|_| more::next(&mut target)))
        .enumerate()
        .map(|(number, batch)| change(number, batch))
        .collect();
    write_with_waits(path, &batches);
}

#[test]
fn values_that_were_left_out_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_waits(&path, |number, mut batch| {
        let mut hits = batch.hits.to_vec();
        hits[0].counts.limited = if number < 2 { 0 } else { 4 };
        batch.hits = Arc::new(hits);
        batch
    });
    let replay = Replay::of(&path);
    let session = replay.session("", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, false).unwrap();
    assert_eq!(
        picture.lost.get("values_rate_limit"),
        Some(&4),
        "{:?}",
        picture.lost
    );
}

/// They are told every 30 s, and parts may begin behind.
#[test]
fn waits_of_a_part_that_does_not_tell_who_was_off_the_cpu_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_waits(&path, |number, batch| RecordBatch {
        off_cpu: batch.off_cpu.filter(|_| number == 0),
        ..batch
    });
    let replay = Replay::of(&path);
    let session = replay.session("f", 2 * BATCH_NS, u64::MAX).unwrap();
    let picture = replay.spans(&session, 10, true).unwrap();
    assert!(picture.calls > 0);
    let said = ended(&picture);
    assert!(!said.contains("--waits"), "{said}");
}

#[test]
fn the_wait_of_a_sample_may_be_told_with_the_records_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = more::target();
    let first = target.first();
    let first = more::with_more(&target, first);
    let mut before = more::next(&mut target);
    let mut behind = more::next(&mut target);
    // A call that begins in the first of them and ends in the second has waited in the first.
    let [start_ns, end_ns] = [before.from_ns + 245 * MS, behind.from_ns + 40 * MS];
    let times = [start_ns + MS, start_ns + 3 * MS, start_ns + 3 * MS];
    let open = SpanRef {
        probe: PROBE,
        gates: 0,
        sequence: 1000,
        start_ns,
    };
    let mut records = before.records.to_vec();
    let Some(Recorded::Wait(mut wait)) = records.pop() else {
        panic!("no wait");
    };
    wait.wait.times = times;
    wait.spans = vec![open];
    records.push(Recorded::Wait(wait));
    before.records = Arc::new(records);
    let mut records = behind.records.to_vec();
    let Some(Recorded::Sample(sample)) = records.first().cloned() else {
        panic!("no sample");
    };
    let Some(Recorded::SpanEnd(end)) = records.get(1).cloned() else {
        panic!("no end");
    };
    let slept = RecordedSample {
        ts_ns: times[1],
        weight_ns: 2 * MS,
        activity: Activity::Sleeping,
        spans: vec![open],
        ..sample
    };
    let end = SpanEnd {
        sequence: 1000,
        start_ns,
        end_ns,
        ..end
    };
    records.splice(0..0, [Recorded::Sample(slept), Recorded::SpanEnd(end)]);
    behind.records = Arc::new(records);
    write_with_waits(&path, &[first, before, behind]);
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let picture = replay.spans(&session, 1, true).unwrap();
    let [span] = &picture.spans[..] else {
        panic!("{:?}", picture.spans);
    };
    assert_eq!((span.duration_ns, span.waits), (end_ns - start_ns, 1));
    assert!(span.waker().is_some());
}
