//! Summaries give the answers that the records give.

use std::time::{Duration, Instant};

use profiler_aggregate::{ThreadId, slots::WindowConfig, waits};

use super::*;
use crate::{
    recording::{Part, Summaries, Summarizer, Wanted},
    session::{RecordedWait, ScopeEdit},
};

/// Functions of the scope, outermost first, and one that is not in it.
const OUTER: ProbeId = ProbeId(1);
const INNER: ProbeId = ProbeId(2);
const STRANGER: ProbeId = ProbeId(9);

/// Batches between two that begin anew.
const ANEW: u64 = 3;

/// What happens to a thread.
#[derive(Clone, Copy, Debug)]
enum Event {
    Enter(ProbeId),
    Sample {
        stack: u8,
        complete: bool,
        activity: Activity,
        continues: bool,
        late_ms: u64,
    },
    Leave {
        abandoned: bool,
        is_delivered: bool,
    },
    /// The thread ends in its calls, and another has its number.
    Reborn,
}

impl Event {
    /// A call that ends, and whose end is told.
    const LEAVE: Self = Self::Leave {
        abandoned: false,
        is_delivered: true,
    };

    /// A whole sample on the CPU, which comes in time.
    fn on_cpu(stack: u8) -> Self {
        Self::Sample {
            stack,
            complete: true,
            activity: Activity::OnCpu,
            continues: false,
            late_ms: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Happening {
    thread: u8,
    after_ms: u64,
    event: Event,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let probe = prop::sample::select(vec![OUTER, INNER, INNER, STRANGER]);
    let activity = prop::sample::select(vec![Activity::OnCpu, Activity::OnCpu, Activity::Sleeping]);
    let late_ms = prop_oneof![8 => Just(0), 1 => 0u64..600];
    let sample = (
        0u8..4,
        prop::bool::weighted(0.9),
        activity,
        prop::bool::weighted(0.1),
        late_ms,
    );
    let sample = sample.prop_map(|(stack, complete, activity, continues, late_ms)| Event::Sample {
        stack,
        complete,
        activity,
        continues,
        late_ms,
    });
    let leave = (prop::bool::weighted(0.1), prop::bool::weighted(0.95));
    let leave = leave.prop_map(|(abandoned, is_delivered)| Event::Leave {
        abandoned,
        is_delivered,
    });
    let event = prop_oneof![
        30 => probe.prop_map(Event::Enter),
        60 => sample,
        30 => leave,
        1 => Just(Event::Reborn),
    ];
    let happening = (0u8..3, prop_oneof![4 => 0u64..40, 1 => 0u64..900], event);
    let happening = happening.prop_map(|(thread, after_ms, event)| Happening {
        thread,
        after_ms,
        event,
    });
    prop::collection::vec(happening, 1..160)
}

#[derive(Default)]
struct Thread {
    open: Vec<SpanRef>,
    last: u64,
}

#[derive(Default)]
struct Calls {
    entries: u64,
    abandoned: u64,
    ended: BTreeMap<usize, u64>,
}

/// A target in which things happen, and the batches that come of it.
struct Story {
    target: Target,
    scope: RecordedScope,
    threads: [Thread; 3],
    calls: BTreeMap<ProbeId, Calls>,
    records: Vec<Recorded>,
    batches: Vec<RecordBatch>,
    now_ns: u64,
}

impl Story {
    fn new(scope: RecordedScope) -> Self {
        let mut target = Target::new();
        target.scope = Arc::new(scope.clone());
        let first = target.first();
        Self {
            target,
            scope,
            threads: Default::default(),
            calls: [OUTER, INNER].map(|probe| (probe, Calls::default())).into(),
            records: Vec::new(),
            batches: vec![RecordBatch {
                readings: Arc::default(),
                ..first
            }],
            now_ns: BEGIN_NS,
        }
    }

    /// Batches of what happens.
    fn told(scope: RecordedScope, happenings: &[Happening]) -> Vec<RecordBatch> {
        let mut story = Self::new(scope);
        for Happening {
            thread,
            after_ms,
            event,
        } in happenings
        {
            let until_ns = story.now_ns + after_ms * MS + 1;
            while story.end_ns() <= until_ns {
                story.end_batch();
            }
            story.now_ns = until_ns;
            story.happens(*thread, *event);
        }
        story.end_batch();
        story.batches
    }

    fn end_ns(&self) -> u64 {
        BEGIN_NS + (self.target.batches + 1) * BATCH_NS
    }

    fn end_batch(&mut self) {
        if self.target.batches.is_multiple_of(ANEW) {
            // Told anew, as after a minute.
            self.target.scope = Arc::new(self.scope.clone());
        }
        let readings = self.calls.iter().map(|(probe, calls)| ProbeReading {
            probe: *probe,
            ended: calls
                .ended
                .iter()
                .map(|(bucket, count)| (*bucket, *count))
                .collect(),
            counts: ProbeCounts {
                entries: calls.entries,
                abandoned: calls.abandoned,
                ..ProbeCounts::default()
            },
        });
        let batch = RecordBatch {
            readings: Arc::new(readings.collect()),
            ..self.target.batch(std::mem::take(&mut self.records))
        };
        self.target.batches += 1;
        self.target.calls += 3;
        self.now_ns = self.now_ns.max(batch.to_ns);
        self.batches.push(batch);
    }

    fn happens(&mut self, thread: u8, event: Event) {
        let tid = 41 + u32::from(thread);
        let place = &mut self.threads[usize::from(thread)];
        let now_ns = self.now_ns;
        match event {
            Event::Enter(probe) => {
                if place.open.len() >= 5 {
                    return;
                }
                place.last += 1;
                place.open.push(SpanRef {
                    probe,
                    gates: 0,
                    sequence: place.last,
                    start_ns: now_ns,
                });
                self.calls.entry(probe).or_default().entries += 1;
            }
            Event::Sample {
                stack,
                complete,
                activity,
                continues,
                late_ms,
            } => {
                let ts_ns = now_ns - (late_ms * MS).min(now_ns - 1);
                let mut frames = self.target.fast.clone();
                frames.truncate(1 + usize::from(stack) % 3);
                if stack == 3 {
                    frames.clone_from(&self.target.slow);
                }
                let spans = place.open.iter().filter(|span| span.start_ns <= ts_ns);
                self.records.push(Recorded::Sample(RecordedSample {
                    tgid: 40,
                    tid,
                    ts_ns,
                    weight_ns: if activity == Activity::OnCpu {
                        10 * MS
                    } else {
                        // Some began minutes before.
                        [3, 40, 700, 2500][usize::from(stack)] * MS
                    },
                    activity,
                    continues,
                    system_call: None,
                    task: Some(self.target.task),
                    stacks: Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| frames.clone()),
                    complete,
                    spans: spans.copied().collect(),
                }));
            }
            Event::Reborn => *place = Thread::default(),
            Event::Leave {
                abandoned,
                is_delivered,
            } => {
                let Some(span) = place.open.pop() else { return };
                let parent = place.open.last().map_or(0, |span| span.sequence);
                let calls = self.calls.entry(span.probe).or_default();
                if abandoned {
                    calls.abandoned += 1;
                } else {
                    *calls.ended.entry(bucket_of(now_ns - span.start_ns)).or_default() += 1;
                }
                if is_delivered {
                    self.records.push(Recorded::SpanEnd(SpanEnd {
                        kind: SPAN_END,
                        flags: if abandoned { SpanEnd::ABANDONED } else { 0 },
                        tgid: 40,
                        tid,
                        probe: span.probe,
                        hits: 1,
                        sequence: span.sequence,
                        start_ns: span.start_ns,
                        end_ns: now_ns,
                        parent: u32::try_from(parent).unwrap(),
                        gates: 0,
                        returned: [0; 2],
                    }));
                }
            }
        }
    }
}

fn scope_of(steps: &[(&str, ProbeId)]) -> RecordedScope {
    let function = |name: &str, probe: ProbeId| RecordedFunction {
        info: Arc::new(FunctionInfo {
            name: name.to_owned(),
            address: u64::from(probe.0),
            ..FunctionInfo::default()
        }),
        method: ExitMethod::Ret,
        overhead_ns: 0,
        probes: vec![probe],
    };
    let texts: Vec<&str> = steps.iter().map(|(text, _)| *text).collect();
    let text = texts.join("/");
    RecordedScope {
        steps: (steps.iter())
            .map(|(text, probe)| RecordedStep {
                text: (*text).to_owned(),
                functions: vec![function(text.split('[').next().unwrap(), *probe)],
                gates: 0,
            })
            .collect(),
        // Short, so that what is asked of calls goes by summaries too.
        ages: AgeConfig {
            window: WindowConfig {
                window_ns: BATCH_NS,
                ..WindowConfig::default()
            },
            ..AgeConfig::default()
        },
        ..scope(&text)
    }
}

/// The contents of summaries' chunks.
fn contents(summaries: &Summaries) -> Vec<(Kind, &v1::WatchRecordsResponse, Vec<u8>)> {
    let Summaries { samples, calls } = summaries;
    let samples = samples.iter().map(|samples| {
        let told = samples.told.as_ref().unwrap();
        (Kind::Samples, told, samples.encode_to_vec())
    });
    let calls = calls.iter().map(|calls| {
        let told = calls.told.as_ref().unwrap();
        (Kind::Calls, told, calls.encode_to_vec())
    });
    samples.chain(calls).collect()
}

/// The chunk of a summary of what was told.
fn of_summary(kind: Kind, told: &v1::WatchRecordsResponse) -> Chunk {
    Chunk {
        kind,
        begins_anew: true,
        from_ns: told.from_ns,
        to_ns: told.to_ns,
    }
}

/// Whether minutes are summed up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    Written,
    LeftOut,
}

/// Writes batches with the summaries that a recorder makes of them.
pub fn write_summed(path: &Path, batches: impl Iterator<Item = RecordBatch>) {
    write_as(path, batches, Messages::default(), Sums::Written);
}

fn write_as(path: &Path, batches: impl Iterator<Item = RecordBatch>, mut messages: Messages, sums: Sums) {
    let mut writer = Writer::begin(Vec::new()).unwrap();
    let mut summarizer = Summarizer::default();
    let mut columns = ColumnWriter::default();
    let write_summaries = |writer: &mut Writer<Vec<u8>>, summaries: &Summaries| {
        for (kind, told, content) in contents(summaries) {
            if sums == Sums::Written {
                writer.write(of_summary(kind, told), &content).unwrap();
            }
        }
    };
    for batch in batches {
        let mut message = messages.next(&batch);
        write_summaries(&mut writer, &summarizer.take(&message));
        columns.pack(&mut message);
        let content = message.encode_length_delimited_to_vec();
        writer.write(of_records(&message), &content).unwrap();
    }
    write_summaries(&mut writer, &summarizer.end());
    fs::write(path, writer.into_inner()).unwrap();
}

/// A flame graph's stacks with their weights: inside and outside, time and samples.
fn folded(picture: &FlamePicture) -> BTreeMap<String, [u64; 4]> {
    let weights = picture.picture.weights.iter();
    weights
        .map(|weight| {
            let mut stack = Vec::new();
            let mut node = weight.node.0;
            let mut is_complete = true;
            while node != 0 {
                let Node {
                    parent: NodeId(parent),
                    frame: FrameId(frame),
                    complete,
                } = picture.nodes[node as usize - 1];
                stack.push(picture.frames[frame as usize].function.to_string());
                is_complete &= complete;
                node = parent;
            }
            stack.push(format!("{is_complete}"));
            stack.reverse();
            let sides = [
                weight.inside_ns,
                weight.inside_samples,
                weight.outside_ns,
                weight.outside_samples,
            ];
            (stack.join(";"), sides)
        })
        .collect()
}

/// What is asked of a part of a recording.
#[derive(Clone, Copy, Debug)]
enum Question {
    Flame(Grouping, FlameTimes),
    Latency,
}

fn questions() -> Vec<Question> {
    let groupings = [
        Grouping::Function,
        Grouping::Line,
        Grouping::Thread,
        Grouping::Module,
    ];
    let times = [FlameTimes::OnCpu, FlameTimes::OffCpu, FlameTimes::Both];
    let flames = groupings
        .into_iter()
        .flat_map(|by| times.map(|times| Question::Flame(by, times)));
    flames.chain([Question::Latency]).collect()
}

/// What is answered, in words.
fn answer(replay: &Replay, scope: &str, (begin_ns, end_ns): (u64, u64), question: Question) -> String {
    let session = match replay.session(scope, begin_ns, end_ns) {
        Ok(session) => session,
        Err(error) => return error,
    };
    match question {
        Question::Flame(by, times) => {
            let request = FlameRequest::of(by, Some(times));
            let watch = replay.handle.watch_flame(ROOT, session, 1_000_000_000, request);
            match replay.runtime.block_on(watch) {
                Ok(pictures) => {
                    let picture = pictures.borrow().clone().unwrap();
                    format!(
                        "{} {:?} {:?} {} {:?} {:?}",
                        picture.scope,
                        folded(&picture),
                        picture.picture.summary,
                        picture.attempted,
                        picture.lost,
                        picture.ended
                    )
                }
                Err(error) => error.to_string(),
            }
        }
        Question::Latency => {
            let watch = replay.handle.watch_latency(ROOT, session, 1_000_000_000);
            match replay.runtime.block_on(watch) {
                Ok(pictures) => format!("{:?}", pictures.borrow().as_ref().unwrap()),
                Err(error) => error.to_string(),
            }
        }
    }
}

/// Summaries that are read in the place of the records of a whole recording.
fn summaries_read(path: &Path, by: Option<Grouping>) -> usize {
    let mut summaries = 0;
    let wanted = Wanted {
        from_ns: 0,
        by,
        also: None,
        answers: Some(&|_| true),
    };
    let take = |part: Part, _: &Frames| {
        summaries += usize::from(matches!(part, Part::Summary(_)));
        true
    };
    Recording::open(path)
        .unwrap()
        .read(wanted, &mut Frames::default(), take)
        .unwrap();
    summaries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_question_has_the_same_answer_with_and_without_summaries(
        happenings in happenings(),
        kind in 0usize..4,
        off_cpu in any::<bool>(),
        from in 0u64..12,
        length in 1u64..20,
    ) {
        let (steps, scopes): (&[(&str, ProbeId)], &[&str]) = [
            (&[] as &[_], &["", "a"] as &[_]),
            (&[("a", OUTER)], &["", "a[>= p50]", "a[< 20ms]", "a[>= p90][< p99]"]),
            (&[("a", OUTER), ("b", INNER)], &["", "a/b[>= p50]", "a[>= 5ms]", "a"]),
            (&[("a[>= 5ms]", OUTER), ("b", INNER)], &["", "a[>= p50]/b", "a[>= p50]", "a"]),
        ][kind];
        let scope = RecordedScope { off_cpu, ..scope_of(steps) };
        let batches = Story::told(scope, &happenings);
        let folder = tempfile::tempdir().unwrap();
        let (plain, summed) = (folder.path().join("plain"), folder.path().join("summed"));
        write(&plain, &batches);
        write_summed(&summed, batches.iter().cloned());
        let with_summaries = Replay::of(&summed);
        for time in [(0, u64::MAX), (from * BATCH_NS, (from + length) * BATCH_NS)] {
            for question in questions() {
                for scope in scopes {
                    // Nothing is left of the question before.
                    let expected = answer(&Replay::of(&plain), scope, time, question);
                    let found = answer(&with_summaries, scope, time, question);
                    prop_assert_eq!(found, expected, "{:?} of {} in {:?}", question, scope, time);
                }
            }
        }
        let minutes = (batches.len() - 1).div_ceil(usize::try_from(ANEW).unwrap());
        let read = summaries_read(&summed, Some(Grouping::Function));
        prop_assert!(read <= minutes);
        // There is none where a thread's number comes again.
        let is_reborn = happenings.iter().any(|happening| matches!(happening.event, Event::Reborn));
        prop_assert!(read == minutes || is_reborn);
        prop_assert!(summaries_read(&summed, None) <= minutes);
    }
}

/// The number of a thread comes again in a minute that is not summed up for that; the minute behind knows what waited before.
#[test]
fn a_span_that_waits_across_a_minute_without_a_summary_is_known_behind_it() {
    let (sample, leave) = (Event::on_cpu(0), Event::LEAVE);
    let happenings = [
        (1, 0, Event::Enter(OUTER)),
        (1, 0, sample),
        (0, 0, Event::Enter(OUTER)),
        (0, 0, sample),
        (0, 0, Event::Reborn),
        (1, 0, Event::Reborn),
        // In the next minute, which is not summed up.
        (1, 800, Event::Enter(OUTER)),
        (1, 0, sample),
        // In the one behind.
        (0, 800, Event::Enter(OUTER)),
        (0, 0, sample),
        (0, 0, leave),
    ];
    let happenings = happenings.map(|(thread, after_ms, event)| Happening {
        thread,
        after_ms,
        event,
    });
    let batches = Story::told(scope_of(&[("a", OUTER)]), &happenings);
    let folder = tempfile::tempdir().unwrap();
    let (plain, summed) = (folder.path().join("plain"), folder.path().join("summed"));
    write(&plain, &batches);
    write_summed(&summed, batches.into_iter());
    let answers = [plain, summed].map(|path| {
        let question = Question::Flame(Grouping::Function, FlameTimes::Both);
        answer(&Replay::of(&path), "a", (0, u64::MAX), question)
    });
    assert!(answers[0].contains("elsewhere_expired: 2"), "{}", answers[0]);
    assert_eq!(answers[1], answers[0]);
}

/// A recording of calls of `f` for so many batches, with summaries; and where its chunks begin.
fn summed(path: &Path, batches: usize) -> Vec<usize> {
    let mut target = Target::new();
    let mut all = vec![target.first()];
    for number in 0..batches {
        if number.is_multiple_of(usize::try_from(ANEW).unwrap()) {
            target.scope = Arc::new(scope("f"));
        }
        all.push(target.next());
    }
    write_summed(path, all.into_iter());
    let file = fs::read(path).unwrap();
    (0..file.len())
        .filter(|at| file[*at..].starts_with(b"CHNK"))
        .collect()
}

/// What kind of chunk begins at a place of a file.
fn kind(file: &[u8], at: usize) -> u8 {
    file[at + 4]
}

#[test]
fn a_minute_that_is_damaged_is_answered_by_its_summary_and_missing_where_that_does_not_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let chunks = summed(&path, 12);
    let whole = fs::read(&path).unwrap();
    let all = expected((12 * (CALLS - 1), 0), (12, 0));
    let records: Vec<usize> = chunks
        .iter()
        .copied()
        .filter(|at| kind(&whole, *at) == 2)
        .collect();
    // The first message, and then four minutes of three batches: those of the second minute.
    for damaged in 4..7 {
        let mut file = whole.clone();
        file[records[damaged]] ^= 1;
        fs::write(&path, &file).unwrap();
        let replay = Replay::of(&path);
        assert_eq!(replay.samples("f", 0, u64::MAX), all, "chunk {damaged}");
        // A comparison needs the records.
        let session = replay.session("f[>= 5ms]", 0, u64::MAX).unwrap();
        let request = FlameRequest {
            difference: true,
            ..FlameRequest::of(Grouping::Function, None)
        };
        let watch = replay.handle.watch_flame(ROOT, session, 1_000_000_000, request);
        let pictures = replay.runtime.block_on(watch).unwrap();
        let ended = pictures.borrow().as_ref().unwrap().ended.clone().unwrap();
        assert!(ended.contains("s of it are damaged"), "chunk {damaged}: {ended}");
    }
    // All of it; and of the third.
    for damaged in [4..7, 4..10] {
        let mut file = whole.clone();
        records[damaged].iter().for_each(|at| file[*at] ^= 1);
        fs::write(&path, &file).unwrap();
        assert_eq!(Replay::of(&path).samples("f", 0, u64::MAX), all);
    }
    // Summaries alone are damaged: nothing is missing.
    for damaged in chunks.iter().copied().filter(|at| kind(&whole, *at) != 2) {
        let mut file = whole.clone();
        file[damaged] ^= 1;
        fs::write(&path, &file).unwrap();
        let replay = Replay::of(&path);
        let session = replay.session("f", 0, u64::MAX).unwrap();
        let picture = replay.flame(&session).unwrap();
        assert_eq!(by_function(&picture), all);
        assert_eq!(picture.ended.as_deref(), Some("the end of the recording"));
    }
}

#[test]
fn a_thread_with_the_number_of_one_that_ended_in_a_call_has_samples_of_its_own() {
    let (sample, leave) = (Event::on_cpu(3), Event::LEAVE);
    // The second call has the first one's number, and begins and ends in a minute of its own.
    let minute_ms = ANEW * BATCH_NS / MS;
    let happenings: Vec<Happening> = [
        (10, Event::Enter(OUTER)),
        (10, sample),
        (10, Event::Reborn),
        (minute_ms, Event::Enter(OUTER)),
        (10, sample),
        (10, leave),
        (2 * minute_ms, Event::Enter(OUTER)),
        (10, leave),
    ]
    .map(|(after_ms, event)| Happening {
        thread: 0,
        after_ms,
        event,
    })
    .to_vec();
    let batches = Story::told(scope_of(&[("a", OUTER)]), &happenings);
    let folder = tempfile::tempdir().unwrap();
    let (plain, summed) = (folder.path().join("plain"), folder.path().join("summed"));
    write(&plain, &batches);
    write_summed(&summed, batches.iter().cloned());
    let question = Question::Flame(Grouping::Function, FlameTimes::OnCpu);
    let [expected, found] =
        [&plain, &summed].map(|path| answer(&Replay::of(path), "a[>= 1ms]", (0, u64::MAX), question));
    assert!(expected.contains("elsewhere_expired: 1"), "{expected}");
    assert_eq!(found, expected);
}

/// The recording of release 0.1.0: nine batches of calls of `f`, in three minutes.
const RELEASED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/src/recording/tests/released/0.1.0.profrec"
);

#[test]
fn recordings_of_earlier_releases_are_opened() {
    let released = Path::new(RELEASED);
    let replay = Replay::of(released);
    assert_eq!(
        replay.samples("f[>= 5ms]", 0, u64::MAX),
        expected((0, 9 * (CALLS - 1)), (9, 0))
    );
    assert_eq!(
        replay.samples("", 2 * BATCH_NS, 4 * BATCH_NS),
        expected((2 * (CALLS - 1), 0), (2, 0))
    );
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let calls = replay.latency(&session).functions[0].since_start.clone();
    let calls: u64 = calls.iter().map(|(_, count)| count).sum();
    assert_eq!(calls, 9 * CALLS);
    assert_eq!(summaries_read(released, Some(Grouping::Function)), 2);
    assert_eq!(summaries_read(released, None), 2);
}

/// What [`RELEASED`] was made by. A release with another format has a file of its own, beside those before.
#[test]
#[ignore = "writes a file: its path is in PROFILER_RELEASED"]
fn the_recording_of_a_release_is_written() {
    let path = std::env::var("PROFILER_RELEASED").unwrap();
    summed(Path::new(&path), 9);
}

#[test]
fn a_session_of_a_recording_has_other_scopes_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    summed(&path, 9);
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let edit = |edit: ScopeEdit| {
        let edited = replay
            .runtime
            .block_on(replay.handle.edit_scope(ROOT, session.clone(), edit));
        edited
            .map(|session| session.scope)
            .map_err(|error| error.to_string())
    };
    let shown = || by_function(&replay.flame(&session).unwrap());
    let (fast, slow) = (9 * (CALLS - 1), 9);
    assert_eq!(edit(ScopeEdit::Set("f[>= 5ms]".to_owned())).unwrap(), "f[>= 5ms]");
    assert_eq!(shown(), expected((0, fast), (slow, 0)));
    let refused = edit(ScopeEdit::Set("g".to_owned())).unwrap_err();
    assert!(refused.contains("was not recorded"), "{refused}");
    assert_eq!(shown(), expected((0, fast), (slow, 0)), "it goes on as it was");
    assert_eq!(edit(ScopeEdit::Drop(1)).unwrap(), "");
    assert_eq!(shown(), expected((fast, 0), (slow, 0)));
    assert_eq!(edit(ScopeEdit::Undo(2)).unwrap(), "f");
    assert_eq!(shown(), expected((fast, 0), (slow, 0)));
    assert!(edit(ScopeEdit::Undo(1)).unwrap_err().contains("0 edits"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Summaries that a checksum does not help against: made up by somebody.
    #[test]
    fn hostile_summaries_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut target = Target::new();
        let mut messages = Messages::default();
        let mut summarizer = Summarizer::default();
        let mut writer = Writer::begin(Vec::new()).unwrap();
        let mut batches = vec![target.first(), target.next(), target.next()];
        target.scope = Arc::new(scope("f"));
        batches.extend([target.next(), target.next()]);
        for batch in &batches {
            let message = messages.next(batch);
            let made = summarizer.take(&message);
            for (kind, told, mut content) in contents(&made) {
                for (at, byte) in &changes {
                    let at = at.index(content.len());
                    content[at] = *byte;
                }
                if is_cut {
                    content.truncate(length.index(content.len()));
                }
                writer.write(of_summary(kind, told), &content).unwrap();
            }
            writer.write(of_records(&message), &message.encode_length_delimited_to_vec()).unwrap();
        }
        fs::write(&path, writer.into_inner()).unwrap();
        let replay = Replay::of(&path);
        for scope in ["f[>= p95]", "f", ""] {
            if let Ok(session) = replay.session(scope, 0, u64::MAX) {
                let _ = replay.flame(&session);
                let watch = replay.handle.watch_latency(ROOT, session, 1);
                let _ = replay.runtime.block_on(watch);
            }
        }
    }
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// What an hour has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hour {
    SamplesAlone,
    /// Each sample in a call of its own.
    Calls,
    /// As many waits too, one in each call, with who ended it.
    CallsAndWaits,
}

/// A call in which a sample is taken.
struct SampledCall {
    stack: u64,
    duration_ns: u64,
}

/// What 8 threads do that are never idle.
struct Busy {
    batches: u64,
    /// How many there are.
    stacks: u64,
    call: fn(&mut Numbers) -> SampledCall,
}

impl Busy {
    /// An hour of 400 stacks.
    const HOUR: Self = Self {
        batches: 4 * 3600,
        stacks: 400,
        call: |numbers| SampledCall {
            duration_ns: MS / 2 + numbers.below(40) * numbers.below(40) * MS / 160,
            stack: numbers.below(20) * numbers.below(20),
        },
    };

    /// More stacks at more durations than a flame graph has room for; half of the calls are in a few stacks.
    const BEYOND_ROOM: Self = Self {
        batches: 2_400,
        stacks: 4_000,
        call: |numbers| {
            let octave_ns = 1_000 << numbers.below(13);
            SampledCall {
                duration_ns: octave_ns + numbers.below(octave_ns),
                stack: match numbers.below(2) {
                    0 => numbers.below(20),
                    _ => numbers.below(4_000),
                },
            }
        },
    };
}

/// Writes an hour: 8 busy threads, 99 samples a second of each.
fn write_an_hour(path: &Path, hour: Hour) {
    write_busily(path, &Busy::HOUR, hour, Sums::Written);
}

fn write_busily(path: &Path, busy: &Busy, hour: Hour, sums: Sums) {
    const DEPTH: u64 = 12;
    let steps: &[_] = match hour {
        Hour::SamplesAlone => &[],
        Hour::Calls | Hour::CallsAndWaits => &[("a", OUTER)],
    };
    let mut story = Story::new(scope_of(steps));
    let mut frames = Frames::default();
    let mut frame = |number: u64| {
        frames.intern(Frame {
            function: format!("function_{number}").into(),
            ..story.target.frames[0].clone()
        })
    };
    let mut numbers = Numbers(1);
    let drawn: Vec<Arc<[FrameId]>> = (0..busy.stacks)
        .map(|_| {
            (0..DEPTH)
                .map(|depth| frame(10 * depth + numbers.below(10)))
                .collect()
        })
        .collect();
    let stacks: Vec<Stacks> = (drawn.iter())
        .map(|stack| Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| stack.to_vec()))
        .collect();
    story.target.frames = frames.table().clone();
    let scope = Arc::new(story.scope.clone());
    let first = RecordBatch {
        frames: story.target.frames.clone(),
        ..story.batches[0].clone()
    };
    let batches = (0..busy.batches).map(|number| {
        story.happens_busily(number, &stacks, || (busy.call)(&mut numbers));
        match hour {
            Hour::SamplesAlone => story.without_calls(),
            Hour::Calls => {}
            Hour::CallsAndWaits => story.with_waits(&drawn, &mut numbers),
        }
        story.end_batch();
        story.target.scope = Arc::clone(&scope);
        let batch = story.batches.pop().unwrap();
        RecordBatch {
            scope: Arc::clone(&scope),
            ..batch
        }
    });
    let messages = Messages::new(hour == Hour::CallsAndWaits);
    write_as(path, std::iter::once(first).chain(batches), messages, sums);
}

impl Story {
    /// Leaves out of a batch what is of calls.
    fn without_calls(&mut self) {
        self.calls.clear();
        self.records.retain_mut(|record| match record {
            Recorded::Sample(sample) => {
                sample.spans.clear();
                true
            }
            _ => false,
        });
    }

    /// Lets each call of a batch wait once.
    fn with_waits(&mut self, stacks: &[Arc<[FrameId]>], numbers: &mut Numbers) {
        let task = self.target.task.thread;
        let mut place = || {
            let drawn = numbers.below(20) * numbers.below(20);
            waits::Place {
                thread: task,
                stack: Arc::clone(&stacks[usize::try_from(drawn).unwrap()]),
            }
        };
        let records = std::mem::take(&mut self.records);
        for record in records {
            if let Recorded::SpanEnd(end) = &record {
                let (tgid, tid) = (end.tgid, end.tid);
                let ended_ns = end.end_ns - 1000;
                let wait = waits::Wait {
                    thread: ThreadId { tgid, tid },
                    place: place(),
                    waiting: Some(waits::Waiting::Sleeping),
                    lock: None,
                    times: [end.start_ns, ended_ns, ended_ns],
                    waker: waits::Waker::Thread {
                        thread: ThreadId { tgid, tid: tid + 1 },
                        place: place(),
                        is_own: true,
                    },
                    still_ns: None,
                };
                let spans = vec![SpanRef {
                    probe: end.probe,
                    gates: 0,
                    sequence: end.sequence,
                    start_ns: end.start_ns,
                }];
                self.records
                    .push(Recorded::Wait(Box::new(RecordedWait { wait, spans })));
            }
            self.records.push(record);
        }
    }

    /// What happens in a batch to 8 threads that are never idle.
    fn happens_busily(&mut self, batch: u64, stacks: &[Stacks], mut call: impl FnMut() -> SampledCall) {
        let from_ns = BEGIN_NS + batch * BATCH_NS;
        for (number, thread) in (0..25).flat_map(|number| (0..8).map(move |thread| (number, thread))) {
            let sequence = (batch * 25 + number) * 8 + u64::from(thread);
            let SampledCall { stack, duration_ns } = call();
            let start_ns = from_ns + number * 10 * MS + u64::from(thread) * 1000;
            self.records.push(Recorded::Sample(RecordedSample {
                tgid: 40,
                tid: 41 + thread,
                ts_ns: start_ns + duration_ns / 2,
                weight_ns: 10 * MS,
                activity: Activity::OnCpu,
                continues: false,
                system_call: None,
                task: Some(self.target.task),
                stacks: stacks[usize::try_from(stack).unwrap()].clone(),
                complete: true,
                spans: vec![SpanRef {
                    probe: OUTER,
                    gates: 0,
                    sequence,
                    start_ns,
                }],
            }));
            self.records.push(Recorded::SpanEnd(SpanEnd {
                kind: SPAN_END,
                flags: 0,
                tgid: 40,
                tid: 41 + thread,
                probe: OUTER,
                hits: 1,
                sequence,
                start_ns,
                end_ns: start_ns + duration_ns,
                parent: 0,
                gates: 0,
                returned: [0; 2],
            }));
            let calls = self.calls.entry(OUTER).or_default();
            calls.entries += 1;
            *calls.ended.entry(bucket_of(duration_ns)).or_default() += 1;
        }
    }
}

/// Time since something began: as the clock shows it, and that the CPUs spent, which others on the machine do not change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Spent {
    cpu: Duration,
    wall: Duration,
}

impl Spent {
    fn now() -> (Self, Instant) {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu = Duration::try_from(cpu).unwrap();
        let wall = Duration::ZERO;
        (Self { cpu, wall }, Instant::now())
    }

    fn since((begin, at): (Self, Instant)) -> Self {
        Self {
            cpu: Self::now().0.cpu.checked_sub(begin.cpu).unwrap(),
            wall: at.elapsed(),
        }
    }
}

/// Stacks that have no room of their own are told apart from the others; so two ways to the same answer, which may fold different ones,
/// differ in no stack by more than that.
#[test]
#[ignore = "takes a while: run it with --release --nocapture"]
fn answers_differ_by_no_more_than_is_folded() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = [Sums::Written, Sums::LeftOut].map(|sums| {
        let path = folder.path().join("a");
        write_busily(&path, &Busy::BEYOND_ROOM, Hour::Calls, sums);
        let replay = Replay::of(&path);
        let session = replay.session("a[>= p95]", 0, u64::MAX).unwrap();
        replay.flame_by(&session, Grouping::Function).unwrap()
    });
    let [by_sums, by_records] = &pictures;
    let (stacks, others) = (folded(by_sums), folded(by_records));
    let samples = |sides: Option<&[u64; 4]>| {
        let [_, inside, _, outside] = sides.copied().unwrap_or_default();
        inside + outside
    };
    let all = |stacks: &BTreeMap<String, [u64; 4]>| -> u64 {
        stacks.values().map(|sides| samples(Some(sides))).sum()
    };
    assert_eq!(all(&stacks), all(&others), "none is lost");
    let is_other = |stack: &&String| stack.as_str() == "true;[other]";
    let [in_other, in_others] = [&stacks, &others].map(|stacks| samples(stacks.get("true;[other]")));
    let names: std::collections::BTreeSet<&String> = stacks.keys().chain(others.keys()).collect();
    let differences = names.into_iter().filter(|name| !is_other(name)).map(|name| {
        let [one, other] = [&stacks, &others].map(|stacks| samples(stacks.get(name)));
        one.abs_diff(other)
    });
    let differences: Vec<u64> = differences.collect();
    for picture in &pictures {
        println!("{:?}", picture.picture.summary);
        assert!(picture.picture.summary.folded_stacks > 0, "it says so");
    }
    println!(
        "{} samples; folded by sums {in_other}, by records {in_others}; stacks differ by {} at most, {} in all",
        all(&stacks),
        differences.iter().max().unwrap(),
        differences.iter().sum::<u64>()
    );
    assert!(in_other > 0 && in_others > 0);
    assert!(differences.iter().sum::<u64>() <= in_other + in_others);
    let [one, other] = [by_sums, by_records].map(|picture| picture.picture.summary);
    let inside = one.inside.abs_diff(other.inside);
    println!(
        "inside {} and {}, thresholds {:?} and {:?}",
        one.inside, other.inside, one.threshold_ns, other.threshold_ns
    );
    assert!(
        one.threshold_ns != other.threshold_ns || inside == 0,
        "what is inside is exact at the threshold that is shown"
    );
}

/// How long questions of an hour take.
#[test]
#[ignore = "a measurement: run it with --release --nocapture"]
fn an_hour() {
    const MINUTE_NS: u64 = 60_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    // The last one is asked.
    for hour in [Hour::SamplesAlone, Hour::CallsAndWaits, Hour::Calls] {
        let since = Spent::now();
        write_an_hour(&path, hour);
        println!(
            "{hour:?}: {} bytes a minute, written in {:?}",
            fs::metadata(&path).unwrap().len() / 60,
            Spent::since(since)
        );
    }
    let since = Spent::now();
    let replay = Replay::of(&path);
    println!("opened in {:?}", Spent::since(since));
    let all = (0, u64::MAX);
    let amid = 10 * MINUTE_NS + MINUTE_NS / 2;
    for (scope, by, (begin_ns, end_ns)) in [
        ("a[>= p95]", Grouping::Function, all),
        ("a[>= p99.9]", Grouping::Function, all),
        ("a[>= p50][< p60]", Grouping::Function, all),
        ("a[>= p95]", Grouping::Line, all),
        ("a[>= p95]", Grouping::Thread, all),
        ("a[>= p95]", Grouping::Function, (10 * MINUTE_NS, 20 * MINUTE_NS)),
        ("a[>= p95]", Grouping::Function, (amid, amid + 40 * MINUTE_NS)),
        ("a", Grouping::Function, (59 * MINUTE_NS, u64::MAX)),
    ] {
        let since = Spent::now();
        let session = replay.session(scope, begin_ns, end_ns).unwrap();
        let picture = replay.flame_by(&session, by).unwrap();
        let summary = picture.picture.summary;
        let (inside, samples) = (summary.inside, summary.samples);
        println!(
            "{scope} by {by:?} from {begin_ns}: {inside} inside of {samples}, in {:?}",
            Spent::since(since)
        );
    }
    // A threshold that is moved, and a minute that is.
    let shown = |scope: &str, begin_ns, end_ns| {
        let since = Spent::now();
        let session = replay.session(scope, begin_ns, end_ns).unwrap();
        replay.flame_by(&session, Grouping::Function).unwrap();
        Spent::since(since)
    };
    shown("a[>= p50]", 0, u64::MAX);
    let moved = (51..100).map(|percentile| shown(&format!("a[>= p{percentile}]"), 0, u64::MAX));
    println!("scrubbed through percentiles: {:?} at most", moved.max().unwrap());
    let moved = (0..59).map(|minute| shown("a[>= p95]", minute * MINUTE_NS, (minute + 1) * MINUTE_NS));
    println!("scrubbed through minutes: {:?} at most", moved.max().unwrap());
    for scope in ["a", "a[>= p99.9]"] {
        let since = Spent::now();
        let session = replay.session(scope, 0, u64::MAX).unwrap();
        replay.latency(&session);
        println!("latency of {scope} in {:?}", Spent::since(since));
    }
}
