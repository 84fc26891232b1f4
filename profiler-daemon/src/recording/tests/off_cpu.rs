//! Time off the CPU of all threads, in calls or not.

use super::{summaries::write_summed, *};

/// A thread that does nothing but wait, and runs for a moment at these times; what it still waits for goes on at the end.
const RAN_MS: [u64; 3] = [100, 150, 2900];

/// When it began to wait for the first time, and when the recording ends.
const BEGIN_MS: u64 = 20;
const END_MS: u64 = 3000;

/// Batches of such a thread, which are told anew each second.
fn waiting(off_cpu: bool, text: &str) -> Vec<RecordBatch> {
    waiting_amid_edits(off_cpu, [text; 3])
}

/// The same where each second has a scope of its own.
fn waiting_amid_edits(off_cpu: bool, texts: [&str; 3]) -> Vec<RecordBatch> {
    let mut target = Target::new();
    let scope = |second: usize| {
        let text = texts[second];
        RecordedScope {
            off_cpu,
            steps: if text.is_empty() {
                Vec::new()
            } else {
                super::scope(text).steps
            },
            ..super::scope(text)
        }
    };
    target.scope = Arc::new(scope(0));
    let mut batches = vec![RecordBatch {
        readings: Arc::default(),
        ..target.first()
    }];
    let waits = |from_ms: u64, to_ms: u64, goes_on: bool| {
        Recorded::Sample(RecordedSample {
            tgid: 40,
            tid: 42,
            ts_ns: BEGIN_NS + to_ms * MS,
            weight_ns: (to_ms - from_ms) * MS,
            activity: Activity::Sleeping,
            continues: goes_on,
            system_call: None,
            task: None,
            stacks: Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| {
                let mut frames = vec![FrameId(u32::try_from(Frames::default().table().len()).unwrap())];
                frames.push(Word::Sleeping.frame());
                frames.extend(goes_on.then_some(Word::GoesOn.frame()));
                frames
            }),
            complete: true,
            spans: Vec::new(),
        })
    };
    let mut begin_ms = BEGIN_MS;
    for to_ms in (BATCH_NS / MS..=END_MS).step_by(250) {
        if (to_ms - 250).is_multiple_of(1000) {
            target.scope = Arc::new(scope(usize::try_from((to_ms - 250) / 1000).unwrap()));
        }
        let mut records = Vec::new();
        for ran_ms in RAN_MS {
            if (to_ms - 250..to_ms).contains(&ran_ms) {
                records.push(waits(begin_ms, ran_ms, false));
                begin_ms = ran_ms;
            }
        }
        if to_ms == END_MS {
            records.push(waits(begin_ms, END_MS, true));
        }
        batches.push(RecordBatch {
            readings: Arc::default(),
            ..target.batch(records)
        });
        target.batches += 1;
    }
    batches
}

/// Off the CPU in a part: what ended in it, with the number of intervals, and what went on at its end; in milliseconds.
fn off_cpu(replay: &Replay, from_ms: u64, to_ms: u64) -> Result<[u64; 3], String> {
    let target = TargetSpec::Recording(RecordedTime {
        begin_ns: from_ms * MS,
        end_ns: to_ms * MS,
        without_scope: true,
    });
    let session = replay.session_of(target, "", 0)?;
    let request = FlameRequest::of(Grouping::Function, Some(FlameTimes::OffCpu));
    let picture = replay.flame_of(&session, request)?;
    let mut sums = [0; 3];
    for weight in &picture.picture.weights {
        let frame = picture.nodes[weight.node.0 as usize - 1].frame.0;
        if FrameId(frame) == Word::GoesOn.frame() {
            assert_eq!(weight.inside_samples, 0, "it is counted where it ends");
            sums[2] += weight.inside_ns / MS;
        } else {
            sums[0] += weight.inside_ns / MS;
            sums[1] += weight.inside_samples;
        }
    }
    Ok(sums)
}

#[test]
fn time_off_the_cpu_of_a_part_is_that_which_lies_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, summed) = (folder.path().join("plain"), folder.path().join("summed"));
    // Where a session's scope is edited meanwhile, from nothing to something and back, too.
    for texts in [["", "", ""], ["", "f", ""], ["f", "", "f[n > 1]"]] {
        let batches = waiting_amid_edits(true, texts);
        write(&plain, &batches);
        write_summed(&summed, batches.into_iter());
        for path in [&plain, &summed] {
            let replay = Replay::of(path);
            let part = |from_ms, to_ms| off_cpu(&replay, from_ms, to_ms).unwrap();
            let of = format!("{texts:?} {path:?}");
            assert_eq!(part(0, u64::MAX / MS), [2880, 3, 100], "{of}");
            assert_eq!(part(0, 1000), [130, 2, 850], "{of}");
            assert_eq!(
                part(1000, 2000),
                [0, 0, 1000],
                "no interval begins or ends in it: {of}"
            );
            assert_eq!(part(500, 1500), [0, 0, 1000], "{of}");
            assert_eq!(part(2000, 3000), [900, 1, 100], "{of}");
            assert_eq!(part(500, 2500), [0, 0, 2000], "{of}");
        }
    }
}

#[test]
fn without_the_flag_only_time_off_the_cpu_in_calls_is_recorded_and_the_flag_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for text in ["", "f"] {
        write(&path, &waiting(false, text));
        let refused = off_cpu(&Replay::of(&path), 0, 1000).unwrap_err();
        assert!(refused.contains("record with --off-cpu"), "{refused}");
    }
    // Of a session that is recorded with the flag as well, these are not for this file.
    let told = |off_cpu: bool| {
        let mut messages = Messages::default();
        let batches = waiting(off_cpu, "");
        let messages = batches.iter().take(2).map(|batch| messages.next(batch));
        messages.map(|message| message.records.len()).sum::<usize>()
    };
    assert_eq!((told(true), told(false)), (2, 0));
}

#[test]
fn steps_may_be_left_out_where_time_off_the_cpu_is_recorded_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write_summed(&path, waiting(true, "f").into_iter());
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let inside = replay.flame(&session).unwrap().picture.weights.len();
    assert_eq!(inside, 0, "it waits in no call");
    assert_eq!(off_cpu(&replay, 0, 1000).unwrap(), [130, 2, 850]);
}
