//! What slow calls of recordings that were made up do that others do not.

use profiler_aggregate::{
    ThreadId,
    explain::Means,
    waits::{Place as WaitingAt, Wait, Waiting, Waker},
};
use profiler_plan::values::{Reading, Value};

use super::*;
use crate::{
    kernel::HitCounts,
    session::{
        ExplainPicture, HitReading, Numbered, RecordedLook, RecordedPlace, RecordedReached, RecordedWait,
        TracedPlace,
    },
};

/// A line's places in two processes.
const LINES: [ProbeId; 2] = [ProbeId(8), ProbeId(9)];

impl Replay {
    fn explain(&self, scope: &str, begin_ns: u64, end_ns: u64) -> Result<Numbered<ExplainPicture>, String> {
        let session = self.session(scope, begin_ns, end_ns)?;
        let watch = self.handle.watch_explain(ROOT, session, 1);
        let pictures = self.runtime.block_on(watch).map_err(|error| error.to_string())?;
        Ok(pictures.borrow().clone().unwrap())
    }
}

fn finding<'a>(picture: &'a ExplainPicture, text: &str) -> &'a crate::session::Explained {
    let mut findings = picture.findings.iter();
    let found = findings.find(|finding| finding.text.contains(text));
    found.unwrap_or_else(|| panic!("no {text}: {:?}", picture.findings))
}

/// A recording of 40 batches, whose slow calls read another value than others; `is_kept` says whose ends were recorded.
fn with_values(path: &Path, is_kept: impl Fn(u64) -> bool) {
    let mut target = more::target();
    let first = target.first();
    let mut batches = vec![more::with_more(&target, first)];
    for _ in 0..40 {
        let batch = more::next(&mut target);
        let number = |record: &Recorded| match record {
            Recorded::Sample(sample) => sample.spans[0].sequence,
            Recorded::SpanEnd(end) | Recorded::Call(end, _) => end.sequence,
            _ => CALLS,
        };
        let records = batch.records.iter().filter(|record| is_kept(number(record)));
        let records = records.cloned().map(|record| match record {
            Recorded::Call(end, look) => {
                let is_slow = end.sequence % CALLS == 0;
                let value = if is_slow { 900 } else { end.sequence % 7 };
                let values = vec![Reading::Ok(Value::Signed(value.into()))];
                Recorded::Call(end, RecordedLook { values, ..look })
            }
            record => record,
        });
        let records = Arc::new(records.collect());
        batches.push(RecordBatch { records, ..batch });
    }
    write(path, &batches);
}

#[test]
fn slow_calls_are_told_from_others_by_values_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_values(&path, |_| true);
    let replay = Replay::of(&path);
    let picture = replay.explain("f[>= p97]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (40, 40 * (CALLS - 1)));
    assert_eq!((picture.calls, picture.looked_at), (40 * CALLS, 40 * CALLS));
    let value = finding(&picture, "n > ");
    assert!(value.difference.low > 0.5, "{value:?}");
    assert_eq!((value.slow.have, value.other.have), (value.slow.of, 0));
    assert!(
        value.next.as_ref().unwrap().starts_with("f[>= p97][n > "),
        "{value:?}"
    );
    let sampled = finding(&picture, "samples in slow");
    assert!(
        sampled.difference.low > 0.5 && sampled.next.is_none(),
        "{sampled:?}"
    );
    let left_out = format!("{:?}", picture.left_out);
    assert!(
        left_out.contains("--calls") && !left_out.contains("--print"),
        "{left_out}"
    );
    // A part has fewer.
    let part = replay.explain("f[>= p97]", 0, 20 * BATCH_NS).unwrap();
    assert_eq!(part.calls, 20 * CALLS);
}

/// Half of the calls are no less numerous for being told by their number alone.
#[test]
fn calls_that_were_only_counted_are_compared_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_values(&path, |number| number % CALLS == 0 || number % 2 == 0);
    let replay = Replay::of(&path);
    let picture = replay.explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (40, 40 * (CALLS - 1)));
    let value = finding(&picture, "n > ");
    // Of those, no value is known. The bound is found on every second of the others.
    assert!(value.other.of < 40 * CALLS / 2, "{value:?}");
    assert!(value.difference.low > 0.5, "{value:?}");
}

#[test]
fn a_scope_that_does_not_say_what_is_slow_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_values(&path, |_| true);
    let refused = Replay::of(&path).explain("f", 0, u64::MAX).unwrap_err();
    assert!(refused.contains("say which calls are slow"), "{refused}");
}

#[test]
fn time_in_calls_inside_tells_slow_calls_from_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let durations: Vec<u64> = (0..200)
        .map(|number| if number % 10 == 0 { 60 } else { 2 })
        .collect();
    write(&path, &calls_inside("a[>= 0ns]/b", &durations));
    let replay = Replay::of(&path);
    let picture = replay.explain("a[> 10ms]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (20, 180));
    let inside = finding(&picture, "b[> ");
    assert!(inside.difference.low > 0.5, "{inside:?}");
    let Means { slow, other } = inside.means.unwrap();
    assert!(
        (slow - 30e6).abs() < 1.0 && (other - 1e6).abs() < 1.0,
        "{slow} {other}"
    );
    assert!(
        inside.next.as_ref().unwrap().starts_with("a[> 10ms]/b[> "),
        "{inside:?}"
    );
    let with_both = replay.explain("a[> 10ms]/b[> 1ms]", 0, u64::MAX).unwrap_err();
    assert!(with_both.contains("no other step has one"), "{with_both}");
}

fn said(picture: &ExplainPicture) -> String {
    format!("{:?} {:?}", picture.left_out, picture.findings)
}

/// A recording of 40 batches of a function and a line in it, which each slow call reaches, and every hundredth of the others; only
/// the ends of those were recorded.
fn with_line(path: &Path, text: &str, change: impl Fn(usize, RecordBatch) -> RecordBatch) {
    let mut target = Target::new();
    let places = LINES.map(|probe| RecordedPlace {
        probe,
        place: Arc::new(TracedPlace {
            site: "a.c:10".to_owned(),
            function: "f".to_owned(),
            file: "a.c".to_owned(),
            line: 10,
            module: "a".to_owned(),
            address: 0x1000 + u64::from(probe.0),
        }),
        is_call: false,
        shown_per_second: 0,
        expressions: Vec::new(),
    });
    let step = |text: &str| RecordedStep {
        text: text.to_owned(),
        functions: Vec::new(),
        gates: 0,
    };
    let mut recorded = scope(text.split('/').next().unwrap());
    recorded.steps.extend(text.split('/').skip(1).map(step));
    recorded.text = text.into();
    recorded.places = places.to_vec();
    target.scope = Arc::new(recorded);
    let mut batches = vec![change(0, target.first())];
    for number in 1..=40 {
        let batch = target.next();
        let mut records = Vec::new();
        for record in batch.records.iter() {
            let Recorded::SpanEnd(end) = record else {
                continue;
            };
            let is_slow = end.sequence % CALLS == 0;
            if !is_slow && end.sequence % 100 != 1 {
                continue;
            }
            let hit = RecordedReached {
                tgid: end.tgid,
                tid: end.tid,
                // Each process has its own.
                probe: LINES[usize::from(number % 2 == 0)],
                ts_ns: end.start_ns + 1,
                parent: end.sequence,
                joined: true,
            };
            let look = RecordedLook {
                values: Vec::new(),
                stack: None,
            };
            records.push(Recorded::Reached(hit, look));
            records.push(Recorded::SpanEnd(SpanEnd {
                flags: 1 << SpanEnd::INSIDE_SHIFT,
                ..*end
            }));
        }
        let records = Arc::new(records);
        batches.push(change(number, RecordBatch { records, ..batch }));
    }
    write(path, &batches);
}

#[test]
fn calls_that_were_only_counted_did_not_reach_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_line(&path, "f[>= 5ms]/a.c:10", |_, batch| batch);
    let picture = Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    let line = finding(&picture, "a.c:10");
    // Those of the second process too.
    assert_eq!((line.slow.have, line.slow.of), (line.slow.of, line.slow.of));
    assert!(line.slow.of >= 20, "{line:?}");
    let of_other = 40 * (CALLS - 1);
    assert!(line.other.of >= of_other / 2 - 1, "{line:?}");
    assert!(line.other.have * 50 < line.other.of, "{line:?}");
}

#[test]
fn a_line_of_which_hits_were_left_out_tells_nothing_of_calls_that_were_only_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_line(&path, "f[>= 5ms]/a.c:10", |number, batch| {
        let counts = HitCounts {
            limited: if number < 20 { 0 } else { 7 },
            ..HitCounts::default()
        };
        let probe = LINES[1];
        RecordBatch {
            hits: Arc::new(vec![HitReading { probe, counts }]),
            ..batch
        }
    });
    let picture = Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    let found = |text: &str| picture.findings.iter().any(|finding| finding.text.contains(text));
    assert!(!found("a.c:10"), "{}", said(&picture));
    let mut left_out = picture.left_out.iter();
    assert!(left_out.any(|not| not.what == "a.c:10" && not.reason.contains("lost")));
    assert_eq!(
        picture.lost.get("inside_rate_limit"),
        Some(&7),
        "{:?}",
        picture.lost
    );
}

/// The hits that were recorded are those of the last step.
#[test]
fn hits_of_a_line_are_not_taken_for_those_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_line(&path, "f[>= 5ms]/a.c:10/a.c:20", |_, batch| batch);
    let picture = Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!(picture.calls, 40 * CALLS);
    assert!(
        picture
            .findings
            .iter()
            .all(|finding| !finding.text.contains("a.c:"))
    );
    let what = picture.left_out.iter().map(|not| not.what.as_str());
    assert!(what.into_iter().any(|what| what == "branches and lines"));
}

/// A recording of 40 batches with waits, one in each slow call. It has the ends of those and of every so manyth of the others; the rest
/// were counted alone.
fn with_waits(path: &Path, every: u64, change: impl Fn(usize, RecordBatch) -> RecordBatch) {
    let mut target = more::target();
    let first = target.first();
    let mut batches = vec![change(0, more::with_more(&target, first))];
    for number in 1..=40 {
        let batch = target.next();
        let mut records = Vec::new();
        for record in batch.records.iter() {
            let Recorded::SpanEnd(end) = record else {
                continue;
            };
            if end.sequence % CALLS != 0 {
                let is_kept = end.sequence % every == 0;
                records.extend(is_kept.then(|| record.clone()));
                continue;
            }
            let place = WaitingAt {
                thread: target.task.thread,
                stack: target.slow.clone().into(),
            };
            let wait = Wait {
                thread: ThreadId {
                    tgid: end.tgid,
                    tid: end.tid,
                },
                place: place.clone(),
                waiting: Some(Waiting::Sleeping),
                lock: None,
                times: [end.start_ns + MS, end.start_ns + 11 * MS, end.start_ns + 11 * MS],
                waker: Waker::Thread {
                    thread: ThreadId {
                        tgid: end.tgid,
                        tid: end.tid + 1,
                    },
                    place,
                    is_own: true,
                },
                still_ns: None,
            };
            let spans = vec![SpanRef {
                probe: PROBE,
                gates: 0,
                sequence: end.sequence,
                start_ns: end.start_ns,
            }];
            records.push(Recorded::Wait(Box::new(RecordedWait { wait, spans })));
            records.push(record.clone());
        }
        let records = Arc::new(records);
        let batch = more::with_more(&target, RecordBatch { records, ..batch });
        batches.push(change(number, batch));
    }
    write_with_waits(path, &batches);
}

#[test]
fn waits_tell_slow_calls_from_those_that_were_only_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_waits(&path, u64::MAX, |number, batch| RecordBatch {
        // Nothing of this concerns them.
        own: OwnLosses {
            children: number as u64,
            ..OwnLosses::default()
        },
        ..batch
    });
    let picture = Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!(picture.lost.get("children_not_counted"), Some(&40));
    let waits = finding(&picture, "waits");
    assert_eq!((waits.slow.have, waits.other.have), (waits.slow.of, 0));
    assert!(waits.other.of >= 40 * (CALLS - 1) / 2 - 1, "{waits:?}");
    let Means { slow, other } = waits.means.unwrap();
    assert!((slow - 10e6).abs() < 1.0 && other == 0.0, "{slow} {other}");
}

#[test]
fn waits_of_which_some_were_lost_are_left_out_for_all_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let with_lost = |lost: u64| {
        with_waits(&path, u64::MAX, |number, batch| RecordBatch {
            waits_dropped: if number == 30 { lost } else { 0 },
            ..batch
        });
        Replay::of(&path)
    };
    let replay = with_lost(1_000);
    let picture = replay.explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    let is_wait =
        |picture: &ExplainPicture| picture.findings.iter().any(|found| found.text.contains("waits"));
    assert!(!is_wait(&picture), "{}", said(&picture));
    assert_eq!((picture.features, picture.judged), (1, 0));
    let mut left_out = picture.left_out.iter();
    assert!(left_out.any(|not| not.what == "waits" && not.reason.contains("--time")));
    // A part in which none was lost has them.
    let part = replay.explain("f[>= 5ms]", 0, 20 * BATCH_NS).unwrap();
    assert!(is_wait(&part), "{}", said(&part));
    // So does one in which few were, of so many calls, and says how many.
    let few = with_lost(1).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert!(is_wait(&few), "{}", said(&few));
    assert!(few.left_out.iter().any(|not| not.what == "1 of all waits"));
    // One of 40 slow calls may have waited for all that is known.
    let whole = with_lost(0).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    let certain = |picture: &ExplainPicture| finding(picture, "waits").difference.low;
    assert!((certain(&whole) - certain(&few) - 1.0 / 40.0).abs() < 1e-9);
}

/// A recording of calls inside of others, each of whose records may be changed.
fn with_calls_inside(path: &Path, text: &str, change: impl Fn(u64, SpanEnd) -> Option<SpanEnd>) {
    let durations: Vec<u64> = (0..200)
        .map(|number| if number % 10 == 0 { 60 } else { 2 })
        .collect();
    let batches = calls_inside(text, &durations);
    let batches: Vec<RecordBatch> = (0..)
        .zip(batches)
        .map(|(number, batch)| {
            let records = batch.records.iter().filter_map(|record| match record {
                Recorded::SpanEnd(end) => change(number, *end).map(Recorded::SpanEnd),
                record => Some(record.clone()),
            });
            let records = Arc::new(records.collect());
            RecordBatch { records, ..batch }
        })
        .collect();
    write(path, &batches);
}

#[test]
fn of_calls_with_an_abandoned_one_inside_it_is_not_known_how_long_that_took() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_calls_inside(&path, "a[>= 0ns]/b", |number, mut end| {
        if end.probe == ProbeId(2) && number % 3 == 0 {
            end.flags |= SpanEnd::ABANDONED;
        }
        Some(end)
    });
    let picture = Replay::of(&path).explain("a[> 10ms]", 0, u64::MAX).unwrap();
    let inside = finding(&picture, "b[> ");
    let of = inside.slow.of + inside.other.of;
    assert!((50..=80).contains(&of), "every second of two thirds: {inside:?}");
    let Means { slow, other } = inside.means.unwrap();
    assert!(
        (slow - 30e6).abs() < 1.0 && (other - 1e6).abs() < 1.0,
        "{slow} {other}"
    );
}

#[test]
fn calls_with_nothing_inside_spent_no_time_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    // The ends of fast ones were not recorded, and nothing was inside of them; of slow ones one has nothing inside either.
    with_calls_inside(&path, "a[>= 10ms]/b", |number, mut end| {
        let is_slow = number % 10 == 1;
        if number == 1 && end.probe == ProbeId(1) {
            end.flags = 0;
        }
        (is_slow && (number, end.probe) != (1, ProbeId(2))).then_some(end)
    });
    let picture = Replay::of(&path).explain("a[> 10ms]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (20, 180));
    let inside = finding(&picture, "b");
    let Means { slow, other } = inside.means.unwrap();
    assert!((slow - 19.0 / 20.0 * 30e6).abs() < 1.0, "{slow}");
    assert!(other == 0.0, "{other}");
}

#[test]
fn time_in_calls_of_certain_values_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for step in ["b[return > 0]", "b[n > 5]"] {
        with_calls_inside(&path, &format!("a[>= 0ns]/{step}"), |_, end| Some(end));
        let picture = Replay::of(&path).explain("a[> 10ms]", 0, u64::MAX).unwrap();
        assert!(
            picture
                .findings
                .iter()
                .all(|finding| !finding.text.starts_with('b'))
        );
        let what = picture.left_out.iter().map(|not| not.what.as_str());
        assert!(what.into_iter().any(|what| what == "calls inside"));
    }
}

#[test]
fn a_scope_with_other_probes_is_another_and_one_with_fewer_processes_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let write_with = |change: &dyn Fn(&mut RecordedScope)| {
        let mut target = more::target();
        let first = target.first();
        let mut batches = vec![more::with_more(&target, first)];
        for number in 0..40 {
            if number == 20 {
                let mut scope = (*target.scope).clone();
                change(&mut scope);
                target.scope = Arc::new(scope);
            }
            batches.push(more::next(&mut target));
        }
        write(&path, &batches);
    };
    write_with(&|scope| scope.pids.clear());
    let picture = Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!(picture.calls, 40 * CALLS);
    write_with(&|scope| scope.steps[0].functions = Vec::new());
    let picture = Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!(picture.calls, 20 * CALLS);
    let ended = picture.ended.as_deref().unwrap_or_default().to_owned();
    assert!(ended.contains("the scope was changed"), "{ended}");
}

#[test]
fn waits_before_the_part_are_none_of_its_features() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_waits(&path, u64::MAX, |number, batch| {
        let records = batch.records.iter().cloned().map(|mut record| {
            if let Recorded::Wait(wait) = &mut record
                && number < 10
            {
                wait.wait.waiting = Some(Waiting::Uninterruptible);
            }
            record
        });
        let records = Arc::new(records.collect());
        RecordBatch { records, ..batch }
    });
    let replay = Replay::of(&path);
    // The values, and waits.
    let all = replay.explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!(all.features, 3);
    let part = replay.explain("f[>= 5ms]", 20 * BATCH_NS, u64::MAX).unwrap();
    assert_eq!(part.features, 2);
    assert_eq!(finding(&part, "waits").other.have, 0);
}

#[test]
fn of_calls_that_began_in_a_damaged_part_it_is_not_known_how_long_they_waited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let write_damaged = |every| {
        with_waits(&path, every, |number, mut batch| {
            if number < 20 {
                return batch;
            }
            let mut records = batch.records.to_vec();
            if number == 20
                && let Some(Recorded::SpanEnd(end)) = records.first_mut()
            {
                end.start_ns = batch.from_ns - 100 * MS;
            }
            batch.records = Arc::new(records);
            // Numbers begin anew with another scope.
            batch.scope = Arc::new((*batch.scope).clone());
            batch
        });
        let mut damaged = fs::read(&path).unwrap();
        let heads = (0..damaged.len()).filter(|at| damaged[*at..].starts_with(b"CHNK"));
        let behind = heads.into_iter().nth(11).unwrap();
        damaged[behind - 1] ^= 1;
        fs::write(&path, &damaged).unwrap();
        Replay::of(&path).explain("f[>= 5ms]", 0, u64::MAX).unwrap()
    };
    let all = write_damaged(1);
    let ended = all.ended.as_deref().unwrap_or_default();
    assert!(ended.contains("damaged"), "{ended}");
    let Means { slow, other } = finding(&all, "waits").means.unwrap();
    assert!((slow - 10e6).abs() < 1.0 && other == 0.0, "{slow} {other}");
    // Where few ends were recorded, it is not known which of the calls that were counted began there.
    let few = write_damaged(u64::MAX);
    assert!(!few.findings.iter().any(|finding| finding.text.contains("waits")));
    assert!(few.left_out.iter().any(|not| not.what == "waits"));
}
