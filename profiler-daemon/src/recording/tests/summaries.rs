//! Summaries give the answers that the records give.

use profiler_aggregate::slots::WindowConfig;

use super::*;
use crate::recording::{Part, Summaries, Summarizer, Wanted};

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
    let event = prop_oneof![3 => probe.prop_map(Event::Enter), 6 => sample, 3 => leave];
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
                        3 * MS
                    },
                    activity,
                    continues,
                    task: Some(self.target.task),
                    stacks: Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| frames.clone()),
                    complete,
                    spans: spans.copied().collect(),
                }));
            }
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

/// Writes batches with the summaries that a recorder makes of them.
fn write_summed(path: &Path, batches: impl Iterator<Item = RecordBatch>) {
    let mut writer = Writer::begin(Vec::new()).unwrap();
    let mut messages = Messages::default();
    let mut summarizer = Summarizer::default();
    for batch in batches {
        let message = messages.next(&batch);
        let Summaries { samples, calls } = summarizer.take(&message);
        let samples =
            (samples.iter()).map(|samples| (Kind::Samples, samples.told.as_ref(), samples.encode_to_vec()));
        let calls = (calls.iter()).map(|calls| (Kind::Calls, calls.told.as_ref(), calls.encode_to_vec()));
        for (kind, told, content) in samples.chain(calls) {
            let told = told.unwrap();
            let chunk = Chunk {
                kind,
                begins_anew: true,
                from_ns: told.from_ns,
                to_ns: told.to_ns,
            };
            writer.write(chunk, &content).unwrap();
        }
        let chunk = Chunk {
            kind: Kind::Records,
            begins_anew: message.begins_anew,
            from_ns: message.from_ns,
            to_ns: message.to_ns,
        };
        let content = message.encode_length_delimited_to_vec();
        writer.write(chunk, &content).unwrap();
    }
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
                let (parent, frame, complete) = picture.nodes[node as usize - 1];
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
        answers: &|_| true,
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
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn a_question_has_the_same_answer_with_and_without_summaries(
        happenings in happenings(),
        kind in 0usize..4,
        from in 0u64..12,
        length in 1u64..20,
    ) {
        let (steps, scopes): (&[(&str, ProbeId)], &[&str]) = [
            (&[] as &[_], &["", "a"] as &[_]),
            (&[("a", OUTER)], &["", "a[>= p50]", "a[< 20ms]", "a[>= p90][< p99]"]),
            (&[("a", OUTER), ("b", INNER)], &["", "a/b[>= p50]", "a[>= 5ms]", "a"]),
            (&[("a[>= 5ms]", OUTER), ("b", INNER)], &["", "a[>= p50]/b", "a[>= p50]", "a"]),
        ][kind];
        let batches = Story::told(scope_of(steps), &happenings);
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
        let minutes = (batches.len() - 1).div_ceil(usize::try_from(ANEW).unwrap()) - 1;
        prop_assert_eq!(summaries_read(&summed, Some(Grouping::Function)), minutes);
        prop_assert!(summaries_read(&summed, None) <= minutes);
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

/// How long questions of an hour take: 8 busy threads, 99 samples a second of each in as many calls, 400 stacks.
#[test]
#[ignore = "a measurement: run it with --release --nocapture"]
fn an_hour() {
    const BATCHES: u64 = 4 * 3600;
    const THREADS: u32 = 8;
    const DEPTH: u64 = 12;
    const MINUTE_NS: u64 = 60_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut story = Story::new(scope_of(&[("a", OUTER)]));
    let mut frames = Frames::default();
    let mut frame = |number: u64| {
        frames.intern(Frame {
            function: format!("function_{number}").into(),
            ..story.target.frames[0].clone()
        })
    };
    let mut numbers = Numbers(1);
    let stacks: Vec<Stacks> = (0..400)
        .map(|_| {
            let stack: Vec<FrameId> = (0..DEPTH)
                .map(|depth| frame(10 * depth + numbers.below(10)))
                .collect();
            Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| stack.clone())
        })
        .collect();
    story.target.frames = frames.table().to_vec();
    let scope = Arc::new(story.scope.clone());
    let first = RecordBatch {
        frames: story.target.frames.clone().into(),
        ..story.batches[0].clone()
    };
    let mut sequence = 0;
    let batches = (0..BATCHES).map(|_| {
        let from_ns = story.end_ns() - BATCH_NS;
        for number in 0..25 {
            for thread in 0..THREADS {
                sequence += 1;
                let duration_ns = MS / 2 + numbers.below(40) * numbers.below(40) * MS / 160;
                let start_ns = from_ns + number * 10 * MS + u64::from(thread) * 1000;
                let span = SpanRef {
                    probe: OUTER,
                    gates: 0,
                    sequence,
                    start_ns,
                };
                let drawn = numbers.below(20) * numbers.below(20);
                story.records.push(Recorded::Sample(RecordedSample {
                    tgid: 40,
                    tid: 41 + thread,
                    ts_ns: start_ns + duration_ns / 2,
                    weight_ns: 10 * MS,
                    activity: Activity::OnCpu,
                    continues: false,
                    task: Some(story.target.task),
                    stacks: stacks[usize::try_from(drawn).unwrap()].clone(),
                    complete: true,
                    spans: vec![span],
                }));
                story.records.push(Recorded::SpanEnd(SpanEnd {
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
                let calls = story.calls.get_mut(&OUTER).unwrap();
                calls.entries += 1;
                *calls.ended.entry(bucket_of(duration_ns)).or_default() += 1;
            }
        }
        story.target.scope = Arc::clone(&scope);
        story.end_batch();
        let batch = story.batches.pop().unwrap();
        RecordBatch {
            scope: Arc::clone(&scope),
            frames: [].into(),
            ..batch
        }
    });
    write_summed(&path, std::iter::once(first).chain(batches));
    println!("{} bytes", fs::metadata(&path).unwrap().len());
    let since = std::time::Instant::now();
    let replay = Replay::of(&path);
    println!("opened in {:?}", since.elapsed());
    for (scope, by, begin_ns, end_ns) in [
        ("a[>= p95]", Grouping::Function, 0, u64::MAX),
        ("a[>= p99.9]", Grouping::Function, 0, u64::MAX),
        ("a[>= p50][< p60]", Grouping::Function, 0, u64::MAX),
        ("a[>= p95]", Grouping::Line, 0, u64::MAX),
        ("a[>= p95]", Grouping::Thread, 0, u64::MAX),
        ("a[>= p95]", Grouping::Function, 10 * MINUTE_NS, 20 * MINUTE_NS),
        (
            "a[>= p95]",
            Grouping::Function,
            10 * MINUTE_NS + 30_000 * MS,
            50 * MINUTE_NS + 30_000 * MS,
        ),
        ("a", Grouping::Function, 59 * MINUTE_NS, u64::MAX),
    ] {
        let since = std::time::Instant::now();
        let session = replay.session(scope, begin_ns, end_ns).unwrap();
        let made = since.elapsed();
        let picture = replay.flame_by(&session, by).unwrap();
        let summary = picture.picture.summary;
        println!(
            "{scope} by {by:?} from {begin_ns}: {} inside of {}, in {:?}, session {made:?}",
            summary.inside,
            summary.samples,
            since.elapsed()
        );
    }
    for scope in ["a", "a[>= p99.9]"] {
        let since = std::time::Instant::now();
        let session = replay.session(scope, 0, u64::MAX).unwrap();
        replay.latency(&session);
        println!("latency of {scope} in {:?}", since.elapsed());
    }
}
