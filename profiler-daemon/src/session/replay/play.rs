//! Plays a recording once: does at its ticks what a session would have done.

use std::sync::Arc;

use profiler_aggregate::{
    Over, ThreadId,
    latency::AgeConfig,
    path::{self, Path},
    slots::WindowConfig,
    threshold::{Band, Division},
};
use profiler_common::record::SpanEnd;
use profiler_scope::Scope;
use profiler_symbolize::{Frame, Frames};
use tokio::sync::watch;

use super::{
    super::{
        division::{self, Bands, CountedStep as _, StepBand},
        ending::Ending,
        error::{Reason, SessionError},
        flame::{Flame, Moment},
        picture::{
            AskedPace, Cost, FlamePicture, FlameRequest, FlameTimes, FlameVariant, FunctionInfo,
            LatencyPicture, Losses, SlowCall,
        },
        population::{Calls, JoinedCalls},
        records::{
            AT_EVENTS_DROPPED, AtEvent, OUTSIDE_DROPPED, Recorded, RecordedSample, RecordedScope,
            WAITS_DROPPED,
        },
        sampling::{SampleCounts, Sampling, event_losses},
        span_losses::{OwnLosses, SpanLosses},
        spans::{self, Before, SpansRequest},
        state::{
            read::join_losses,
            views::{UNIQUE, unknown::refuse_unknown},
        },
        symbols::{Dropped, Named},
        trace::{Around, TraceLosses},
        watchers::Watchers,
    },
    around,
    asked::{self, AskedStep, Compared},
    counts::RecordedCounts,
    hits::{self, Hits},
    named_counts::{NamedCounts, is_of_all},
    spans::Slowest,
    summed, unreadable,
    waiting::Waiting,
};
use crate::{
    kernel::{Activity, Event, EventCounts, Key, Pace},
    recording::{self, Also, Batch, Offered, OfferedKind, Recording, Summary, Wanted},
};

/// Why records are missing that were lost before they were written.
pub const DROPPED: &str = "recording_behind";

/// Why records are missing of kinds that a newer version has written.
pub const UNKNOWN: &str = "newer_format";

/// So long after it happened, a hit, a wait or a bucket of counters may be told.
pub const LATE_NS: u64 = 2_000_000_000;

/// Why the last picture of a recording is the last.
const END: &str = "the end of the recording";

/// A part of a recording's time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// `CLOCK_MONOTONIC` of the recorded machine.
    pub begin_ns: u64,
    /// The same.
    pub end_ns: u64,
    pub ages: AskedAges,
}

/// How long calls are remembered by the window and by the moving average; 0 for as long as where it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct AskedAges {
    pub window_ns: u64,
    pub half_life_ns: u64,
}

impl Part {
    /// How long calls are remembered.
    fn ages(&self, recorded: &RecordedScope) -> AgeConfig {
        let or = |asked_ns: u64, recorded_ns: u64| if asked_ns == 0 { recorded_ns } else { asked_ns };
        AgeConfig {
            window: WindowConfig {
                window_ns: or(self.ages.window_ns, recorded.ages.window.window_ns),
                ..recorded.ages.window
            },
            half_life_ns: or(self.ages.half_life_ns, recorded.ages.half_life_ns),
        }
    }
}

/// What is known of a part when its session is made.
pub struct Begun {
    /// Canonical text.
    pub scope: String,
    pub pids: Vec<u32>,
    pub frequency_hz: u32,
    pub warnings: Vec<String>,
    /// When it begins: at what was recorded first in it.
    pub begin_ns: u64,
    /// The functions of its steps.
    pub functions: Vec<Arc<FunctionInfo>>,
}

/// Looks at the scope with which a part begins.
///
/// # Errors
/// Where the scope that is asked for was not recorded, or nothing can be read.
pub fn begin(recording: &mut Recording, asked: Option<&Scope>, part: Part) -> Result<Begun, SessionError> {
    let mut found: Option<(RecordedScope, u64)> = None;
    let mut frames = Frames::default();
    let wanted = Wanted {
        from_ns: part.begin_ns,
        by: None,
        also: None,
        answers: None,
    };
    let read = recording.read(wanted, &mut frames, |read, _| {
        if let recording::Part::Batch(batch) = read {
            let is_in = batch.is_in(part);
            if let Some((scope, _)) = batch.scope {
                found = Some((scope, batch.from_ns));
            } else if let Some((_, from_ns)) = &mut found {
                *from_ns = batch.from_ns;
            }
            return !is_in;
        }
        true
    });
    read.map_err(|error| unreadable(&error))?;
    let (scope, from_ns) = found.ok_or_else(nothing)?;
    let steps = asked::steps(&scope, asked, part.ages(&scope), part.begin_ns)?;
    let mut warnings = scope.warnings.clone();
    if asked.is_none() {
        warnings.extend(around::moves(&self::scope(&steps)));
    }
    let late_ns = from_ns.saturating_sub(part.begin_ns);
    if late_ns > 0 && part.begin_ns > recording.begin_ns() {
        warnings.push(format!(
            "counts are recorded every 0.25 s: the time shown begins at {} s, and ends at such a time too",
            since(recording.begin_ns(), from_ns)
        ));
    }
    Ok(Begun {
        scope: self::scope(&steps).to_string(),
        pids: scope.pids,
        frequency_hz: scope.frequency_hz,
        warnings,
        begin_ns: from_ns,
        functions: (scope.steps.iter().take(steps.len()))
            .flat_map(|step| step.functions.iter().map(|function| Arc::clone(&function.info)))
            .collect(),
    })
}

/// The scope of these steps.
fn scope(steps: &[AskedStep]) -> Scope {
    Scope {
        steps: steps.iter().map(|step| step.step().clone()).collect(),
    }
}

/// Refuses a part in which there is nothing.
pub fn nothing() -> SessionError {
    SessionError::new(Reason::ArgumentInvalid, "nothing was recorded in that time")
}

/// What waits for the calls around it.
enum Inside {
    Call {
        end: SpanEnd,
        /// It is one of those that are looked at.
        counts: bool,
        /// What was gathered of it, where the slowest are asked for.
        before: Option<Before>,
    },
    Hit(hits::Waiting),
}

impl Inside {
    fn weight(&self) -> u64 {
        match self {
            Self::Call { counts, .. } => u64::from(*counts),
            Self::Hit(_) => 1,
        }
    }

    /// Memory beside its own, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Call { before, .. } => {
                let begun = before.as_ref().and_then(|before| before.entry.as_ref());
                begun.map_or(0, spans::Begun::bytes)
            }
            Self::Hit(waiting) => waiting.bytes(),
        }
    }
}

/// What a way through a recording is for.
#[derive(Clone, Copy, PartialEq)]
pub enum Question {
    /// A flame graph.
    Flame(FlameRequest),
    /// Latency.
    Latency,
    /// Hits.
    Trace,
    /// The slowest calls.
    Spans(SpansRequest),
}

impl Question {
    /// Whether summaries may answer it: observations, times within a minute, and waits one by one are not summed up.
    fn can_be_summed(self) -> bool {
        match self {
            Self::Flame(request) => {
                let is_of_time = !request.waits && request.event().is_none();
                request.over == Over::Start && !request.difference && is_of_time
            }
            Self::Latency => true,
            Self::Trace | Self::Spans(_) => false,
        }
    }

    /// Whether only what comes of all of it is asked for, and not of when it was.
    fn asks_for_sums(self) -> bool {
        matches!(self, Self::Flame(_)) && self.can_be_summed()
    }

    /// Whether a flame graph is asked for with who was waited for.
    fn draws_waits(self) -> bool {
        self.flame().is_some_and(|request| request.waits)
    }

    /// The flame graph that is asked for, if one is.
    fn flame(self) -> Option<FlameRequest> {
        match self {
            Self::Flame(request) => Some(request),
            Self::Latency | Self::Trace | Self::Spans(_) => None,
        }
    }

    /// What is read beyond samples and calls.
    fn also(self) -> Option<Also> {
        match self {
            Self::Flame(request) if request.event().is_some() => Some(Also::Events),
            Self::Flame(request) => request.waits.then_some(Also::Waits),
            Self::Latency => None,
            Self::Trace => Some(Also::Hits),
            Self::Spans(_) => Some(Also::InCalls),
        }
    }
}

/// What came of a way through the recording.
pub struct Played {
    pub scope: Arc<str>,
    parsed: Scope,
    /// The scope that was told first.
    recorded: RecordedScope,
    pub steps: Vec<AskedStep>,
    pub counts: RecordedCounts,
    joined: JoinedCalls,
    /// As of [`Asked::around`].
    around: Vec<Option<Band>>,
    path: Path<Inside>,
    dropped: path::Dropped,
    pub flame: Option<Flame>,
    /// Where waits are drawn with who was waited for.
    waiting: Option<Waiting>,
    /// When the part began.
    begun_ns: u64,
    /// Time off the CPU is drawn that lies in no call.
    draws_outside: bool,
    /// What became of the samples of the event that is drawn.
    event_counts: EventCounts,
    pub hits: Option<Hits>,
    pub spans: Option<Slowest>,
    /// What was counted is read with each message, as a session does at its ticks; or else at the end, where only the sums are asked
    /// for.
    reads_each: bool,
    pub threads: hits::Threads,
    ages: AgeConfig,
    slow_from_ns: u64,
    /// In this part.
    counters: NamedCounts,
    /// Records that were lost before they were written.
    lost: u64,
    /// Records of kinds that a newer version has written.
    unknown: u64,
    pub frames: Arc<Vec<Frame>>,
    pub cost: Cost,
    pub now_ns: u64,
    /// Until when summaries did in the place of records; 0 where none did.
    summed_until_ns: u64,
    pub ended: Ending,
}

/// Goes through a part of a recording.
///
/// # Errors
/// As [`begin`], and where the flame graph that is asked for was not recorded, or nobody waits for it any more.
pub fn play(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    question: Question,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Played, SessionError> {
    let around = around::bands(recording, asked, part, question, is_awaited)?;
    let asked = Asked {
        scope: asked,
        around: &around,
    };
    let is_summed = question.can_be_summed();
    let played = go_through(recording, asked, part, question, is_awaited, is_summed)?;
    // It ended before the part does: its last windows may have been summed up.
    let is_cut_short = question == Question::Latency
        && played.summed_until_ns > 0
        && played.summed_until_ns.saturating_add(recent_ns(played.ages)) > played.now_ns;
    if is_cut_short {
        return go_through(recording, asked, part, question, is_awaited, false);
    }
    Ok(played)
}

/// How long before its end the calls of a part are kept one by one, and counts by when they came: two windows, as a slow call
/// is kept for a window after the next; one more, in which so many came that others were not kept; and a moment.
fn recent_ns(ages: AgeConfig) -> u64 {
    ages.window
        .window_ns
        .saturating_mul(3)
        .saturating_add(1_000_000_000)
}

/// The scope that is asked for.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// `None` for the recorded one.
    pub scope: Option<&'a Scope>,
    /// What its outer steps with spans ask of durations, where that is known before: see [`around::bands`].
    pub around: &'a [Option<Band>],
}

/// Goes through a part once, by its summaries where they answer the question and may.
///
/// # Errors
/// As [`play`].
pub fn go_through(
    recording: &mut Recording,
    asked: Asked<'_>,
    part: Part,
    question: Question,
    is_awaited: &dyn Fn() -> bool,
    is_summed: bool,
) -> Result<Played, SessionError> {
    let mut frames = Frames::default();
    let end_ns = part.end_ns.min(recording.end_ns());
    let mut playing = Playing {
        asked,
        part,
        end_ns,
        question,
        recorded: None,
        counts: RecordedCounts::default(),
        is_behind_hole: false,
        played: None,
        missing_ns: 0,
        is_incomplete_behind: false,
        failed: None,
        edited_ns: None,
        waits_are_told: false,
        waiting: question.draws_waits().then(Waiting::default),
        threads: hits::Threads::default(),
    };
    recording
        .read(
            Wanted {
                from_ns: part.begin_ns,
                by: question.flame().map(|request| request.by),
                also: question.also(),
                answers: Some(&|offered| {
                    answers(offered, asked.scope, Part { end_ns, ..part }, question, is_summed)
                }),
            },
            &mut frames,
            |read, _| is_awaited() && playing.take(read),
        )
        .map_err(|error| unreadable(&error))?;
    if !is_awaited() {
        let message = "nobody waits for the answer any more";
        return Err(SessionError::new(Reason::Stopping, message));
    }
    let Playing {
        played,
        failed,
        missing_ns,
        is_incomplete_behind,
        edited_ns,
        threads,
        ..
    } = playing;
    if let Some(error) = failed {
        return Err(error);
    }
    let mut played = played.ok_or_else(nothing)?;
    if let Some(waiting) = &played.waiting {
        waiting.check()?;
    }
    if !played.reads_each {
        played.read();
    }
    played.frames = Arc::new(frames.table().to_vec());
    played.threads = threads;
    let mut reason = end_of_part(recording.begin_ns(), edited_ns, missing_ns);
    if is_incomplete_behind && played.draws_outside {
        reason.push_str(
            "; what was off the CPU when it ended may be missing, as what follows is damaged or has losses",
        );
    }
    if asked.around.iter().any(Option::is_some) {
        reason.push_str(match question {
            Question::Spans(_) => "; percentiles are exact: those of all calls of the time shown",
            _ => "; percentiles of outer steps are exact: those of all calls of the time shown",
        });
    }
    played.ended = Ending::other(reason);
    Ok(played)
}

/// Why nothing more of a part is shown: its end or a change of the scope, and how much of it is missing.
pub fn end_of_part(begin_ns: u64, edited_ns: Option<u64>, missing_ns: u64) -> String {
    let mut reason = match edited_ns {
        Some(edited_ns) => {
            let at = since(begin_ns, edited_ns);
            format!(
                "the scope was changed {at} s into the recording, and only the time before is shown; for the rest: --time {at}s.."
            )
        }
        None => END.to_owned(),
    };
    if missing_ns > 0 {
        let missing = format!("; {} s of it are damaged and left out", since(0, missing_ns));
        reason.push_str(&missing);
    }
    reason
}

/// Whether a summary does in the place of the records that it sums up.
fn answers(
    offered: &Offered<'_>,
    asked: Option<&Scope>,
    part: Part,
    question: Question,
    is_summed: bool,
) -> bool {
    let Offered {
        scope,
        of,
        from_ns,
        to_ns,
    } = offered;
    // Behind the part, intervals that it ends amid of are looked for, which are not summed up.
    let is_behind = *from_ns >= part.end_ns;
    let is_of_event = question.flame().is_some_and(|request| request.event().is_some());
    if is_of_event || !(is_behind || is_summed && *to_ns <= part.end_ns) {
        return false;
    }
    let ages = part.ages(scope);
    let Ok(asked) = asked::steps(scope, asked, ages, *to_ns) else {
        return false;
    };
    match (question, *of) {
        (Question::Flame(request), OfferedKind::Samples { steps }) => {
            summed::answers(scope, steps, &asked) && (!is_behind || draws_outside(request, &asked))
        }
        (Question::Latency, OfferedKind::Calls) => {
            !is_behind
                && to_ns.saturating_add(recent_ns(ages)) <= part.end_ns
                && !division::is_joined(&asked, asked.len().saturating_sub(1))
        }
        _ => false,
    }
}

/// A way through the recording that has not come to its end.
struct Playing<'a> {
    asked: Asked<'a>,
    part: Part,
    /// When that ends, or else the recording.
    end_ns: u64,
    question: Question,
    /// The scope that was told last.
    recorded: Option<RecordedScope>,
    /// Before the part begins, for what is open then.
    counts: RecordedCounts,
    /// Whether something was missing since the scope was told.
    is_behind_hole: bool,
    played: Option<Played>,
    missing_ns: u64,
    /// Something is missing of what came after the part.
    is_incomplete_behind: bool,
    failed: Option<SessionError>,
    edited_ns: Option<u64>,
    /// Waits were recorded before the part begins.
    waits_are_told: bool,
    /// Until then, what threads did before.
    waiting: Option<Waiting>,
    /// What threads were called by then.
    threads: hits::Threads,
}

/// What to do with records.
enum Next {
    Play,
    /// Only what was told late.
    PlayLate,
    /// Only the time of intervals off the CPU that lies before the part's end.
    PlayGoingOn,
    PassOver,
    End,
}

impl Batch {
    /// Whether it lies in a part as a whole.
    fn is_in(&self, part: Part) -> bool {
        self.from_ns >= part.begin_ns
    }
}

impl Playing<'_> {
    /// Takes a part of the recording; whether to go on.
    fn take(&mut self, read: recording::Part) -> bool {
        match read {
            recording::Part::Missing { from_ns, to_ns } => {
                if from_ns >= self.part.end_ns {
                    self.is_incomplete_behind = true;
                    return self.draws_outside();
                }
                let (from_ns, to_ns) = (from_ns.max(self.part.begin_ns), to_ns.min(self.part.end_ns));
                let missing_ns = to_ns.saturating_sub(from_ns);
                self.missing_ns = self.missing_ns.saturating_add(missing_ns);
                self.is_behind_hole = true;
                if let Some(waiting) = &mut self.waiting {
                    waiting.forget();
                }
                if let Some(played) = &mut self.played {
                    played.forget();
                }
                true
            }
            recording::Part::Batch(mut batch) => {
                if self.question.also().is_some() {
                    self.threads.tell(&batch.threads);
                }
                let goes_on = self.tell(&mut batch);
                if let (Ok(Next::PlayLate), Some(played)) = (&goes_on, &mut self.played) {
                    played.take_each(&mut batch);
                    played.dropped += played.path.take_dropped();
                }
                self.take_going_on(&goes_on, &mut batch);
                self.goes_on(goes_on, |played| played.take(*batch))
            }
            recording::Part::Summary(mut summary) => {
                let goes_on = self.tell(&mut summary.batch);
                self.take_going_on(&goes_on, &mut summary.batch);
                self.goes_on(goes_on, |played| played.take_summary(*summary))
            }
        }
    }

    /// Takes intervals off the CPU that go on when the part ends, where that is what comes next.
    fn take_going_on(&mut self, next: &Result<Next, SessionError>, batch: &mut Batch) {
        if let (Ok(Next::PlayGoingOn), Some(played)) = (next, &mut self.played) {
            let is_lost = |(name, count): (&String, &u64)| {
                *count > 0 && (name == OUTSIDE_DROPPED || name.starts_with("off_cpu_") && !is_of_all(name))
            };
            self.is_incomplete_behind |= batch.dropped > 0 || batch.counters.iter().any(is_lost);
            played.take_going_on(std::mem::take(&mut batch.records));
        }
    }

    /// Whether time off the CPU is drawn that lies in no call.
    fn draws_outside(&self) -> bool {
        self.played.as_ref().is_some_and(|played| played.draws_outside)
    }

    /// Plays something, where that is what comes next; whether to go on.
    fn goes_on(&mut self, next: Result<Next, SessionError>, play: impl FnOnce(&mut Played)) -> bool {
        match next {
            Ok(Next::Play) => {
                if let Some(played) = &mut self.played {
                    play(played);
                }
                true
            }
            Ok(Next::PassOver | Next::PlayLate | Next::PlayGoingOn) => true,
            Ok(Next::End) => false,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    /// Takes what is told with records.
    fn tell(&mut self, batch: &mut Batch) -> Result<Next, SessionError> {
        if batch.to_ns > self.part.end_ns {
            return Ok(self.late(batch));
        }
        let told = batch.scope.take();
        if let Some((scope, open)) = told {
            let is_behind_hole = std::mem::take(&mut self.is_behind_hole);
            for (probe, open) in open {
                let counts = match &mut self.played {
                    Some(played) => &mut played.counts,
                    None => &mut self.counts,
                };
                counts.set_open(probe, open, is_behind_hole);
            }
            if let Some(waiting) = self.waiting_now() {
                waiting.set_pids(&scope.pids);
            }
            if self.played.is_some() && self.is_another(&scope) {
                self.edited_ns = Some(batch.from_ns);
                return Ok(Next::End);
            }
            self.recorded = Some(scope);
        }
        if !batch.is_in(self.part) {
            self.waits_are_told |= batch.off_cpu.is_some() || !batch.waits.is_empty();
            batch.calls.iter().for_each(|calls| self.counts.add(calls));
            if let Some(waiting) = &mut self.waiting {
                waiting.take(std::mem::take(&mut batch.waits), batch.off_cpu.take());
            }
            return Ok(Next::PassOver);
        }
        if self.played.is_none() {
            let mut played = self.begin(batch.from_ns)?;
            // Conditions are in force from the beginning, as in a session.
            played.read();
            self.played = Some(played);
        }
        Ok(Next::Play)
    }

    /// What is known of waits, be it that the part has begun.
    fn waiting_now(&mut self) -> Option<&mut Waiting> {
        match &mut self.played {
            Some(played) => played.waiting.as_mut(),
            None => self.waiting.as_mut(),
        }
    }

    /// What to do with what came after the part: hits and calls of it may be among that, and intervals that it ends amid of.
    fn late(&mut self, batch: &Batch) -> Next {
        let Some(played) = &mut self.played else {
            return Next::End;
        };
        if played.draws_outside {
            // How long it went on is told when it has ended, be it an hour later.
            return Next::PlayGoingOn;
        }
        let now_ns = played.now_ns;
        if batch.from_ns >= now_ns.saturating_add(LATE_NS) {
            return Next::End;
        }
        if let Some(hits) = &mut played.hits {
            hits.end_at(now_ns);
        } else if let Some(spans) = &mut played.spans {
            spans.end_at(now_ns);
        } else {
            return Next::End;
        }
        Next::PlayLate
    }

    /// Whether anything waits for the ends of calls around it, whose bands move with the calls.
    fn waits(steps: &[AskedStep]) -> bool {
        division::divider(steps).is_some_and(|divider| division::is_joined(steps, divider))
    }

    /// Whether another scope than before was told, as far as it is asked for: conditions on durations are free.
    fn is_another(&self, scope: &RecordedScope) -> bool {
        let steps = self.played.as_ref().map_or(0, |played| played.steps.len());
        let compared = match self.asked.scope {
            Some(_) => Compared::AnyDurations(steps),
            None => Compared::AsRecorded,
        };
        (self.recorded.as_ref()).is_some_and(|before| asked::is_another(before, scope, compared))
    }

    fn begin(&mut self, now_ns: u64) -> Result<Played, SessionError> {
        let recorded = self.recorded.as_ref().ok_or_else(|| {
            SessionError::new(
                Reason::ArgumentInvalid,
                "the recording is damaged: its scope is missing",
            )
        })?;
        let ages = self.part.ages(recorded);
        let steps = asked::steps(recorded, self.asked.scope, ages, now_ns)?;
        let mut counts = std::mem::take(&mut self.counts);
        counts.begin();
        let joined = JoinedCalls::default();
        let calls = Calls {
            counted: &counts,
            joined: &joined,
        };
        if let Question::Flame(_) = self.question {
            asked::refuse_lines(&steps)?;
        }
        let hits = (self.question == Question::Trace)
            .then(|| Hits::new(recorded, &steps, now_ns))
            .transpose()?;
        let spans = match self.question {
            Question::Spans(request) => {
                let end_ns = self.end_ns;
                let part = Part { end_ns, ..self.part };
                let mut slowest = Slowest::new(recorded, &steps, request, part, now_ns)?;
                slowest.take_waits(Vec::new(), self.waits_are_told);
                Some(slowest)
            }
            _ => None,
        };
        let request = self.question.flame();
        let flame = match request {
            Some(request) => Some(new_flame(request, recorded, &steps, calls, ages, now_ns)?),
            None => None,
        };
        let draws_outside = request.is_some_and(|request| draws_outside(request, &steps));
        let parsed = scope(&steps);
        Ok(Played {
            scope: parsed.to_string().into(),
            parsed,
            recorded: recorded.clone(),
            path: Path::new(division::asked(&steps), Inside::weight)
                .with_room(hits::MAX_HIT_BYTES, Inside::bytes),
            counts,
            joined,
            around: self.asked.around.to_vec(),
            dropped: path::Dropped::default(),
            flame,
            waiting: self.waiting.take(),
            begun_ns: now_ns,
            draws_outside,
            event_counts: EventCounts::default(),
            hits,
            spans,
            reads_each: !self.question.asks_for_sums() || Self::waits(&steps),
            steps,
            threads: hits::Threads::default(),
            ages,
            slow_from_ns: u64::MAX,
            counters: NamedCounts::default(),
            lost: 0,
            unknown: 0,
            frames: Arc::default(),
            cost: Cost::default(),
            now_ns,
            summed_until_ns: 0,
            ended: Ending::other(String::new()),
        })
    }
}

/// Whether a flame graph of these steps has time off the CPU that lies in no call.
fn draws_outside(request: FlameRequest, steps: &[AskedStep]) -> bool {
    let divides = division::divider(steps).is_some();
    !divides && request.variant(divides).kind.times.contain(Activity::Runnable)
}

/// An event that is asked for, as it was recorded.
///
/// # Errors
/// Where its stacks were not recorded, or were taken more or less often than is said.
fn recorded_event(event: Event, pace: AskedPace, recorded: &RecordedScope) -> Result<Event, SessionError> {
    if recorded.events.contains(&event) {
        return Ok(event);
    }
    let mut events = recorded.events.iter();
    if let Some(known) = events.find(|known| known.is_of_the_name_of(event)) {
        if pace == AskedPace::LeftOut {
            return Ok(*known);
        }
        let flag = match known.pace() {
            Pace::Period(period) => format!(" (-c {period})"),
            Pace::Frequency(_) => String::new(),
        };
        let message = format!(
            "`{event}` was recorded with {}{flag}, which cannot be changed afterwards: leave -c out",
            known.pace()
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let names: Vec<String> = recorded.events.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        let message = format!(
            "no events were recorded: record them with --costs {event}, or leave -e out to draw time"
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let message = format!(
        "`{event}` was not recorded. There are: {}. record --costs {event} has it",
        names.join(", ")
    );
    Err(SessionError::new(Reason::CounterNotFound, message).with("nearest", names.join(",")))
}

/// What is drawn for a request: of an event, as often as stacks were taken at it when it was recorded.
///
/// # Errors
/// Where the event was not recorded so, or not so that what it is about can be counted once.
fn recorded_variant(
    request: FlameRequest,
    recorded: &RecordedScope,
    divides: bool,
) -> Result<FlameVariant, SessionError> {
    let mut variant = request.variant(divides);
    if let Some(event) = request.event() {
        let event = recorded_event(event, request.pace, recorded)?;
        variant.kind.times = FlameTimes::Event(event);
        if request.unique && !event.has_keys() {
            let message = format!(
                "`{event}` was recorded with {}: --unique needs each one, as `record --costs {event}` takes them",
                event.pace()
            );
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
    }
    Ok(variant)
}

fn new_flame(
    request: FlameRequest,
    recorded: &RecordedScope,
    steps: &[AskedStep],
    calls: Calls<'_>,
    ages: AgeConfig,
    now_ns: u64,
) -> Result<Flame, SessionError> {
    let divides = division::divider(steps).is_some();
    let variant = recorded_variant(request, recorded, divides)?;
    if request.unique {
        refuse_unknown(&steps.iter().map(AskedStep::step).collect::<Vec<_>>(), UNIQUE)?;
    }
    let refused = if draws_outside(request, steps) && !recorded.off_cpu {
        Some(
            "time off the CPU was recorded only inside calls: leave --off-cpu out, or record with --off-cpu to have that of all threads",
        )
    } else {
        None
    };
    if let Some(message) = refused {
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let before = SampleCounts::default();
    // Where it is not compared with another, that is not looked at.
    let mut flame = Flame::new(variant.kind, before, steps, calls, ages, now_ns).comparable();
    flame.maintain(variant.over, now_ns);
    if !request.difference {
        flame = flame.without_observations();
    }
    Ok(flame)
}

impl Played {
    fn take(&mut self, mut batch: Batch) {
        if batch.dropped > 0 {
            // Ends of calls and waits may be among what was lost.
            self.forget();
            self.lost = self.lost.saturating_add(batch.dropped);
        }
        self.take_records(&mut batch);
        batch.calls.iter().for_each(|calls| self.counts.add(calls));
        if let Some(event) = self.flame.as_ref().and_then(|flame| flame.kind().times.event()) {
            let of_event = batch.event_counts.iter().filter(|reading| reading.event == event);
            for reading in of_event {
                self.event_counts.add(reading.counts);
            }
        }
        if self.hits.is_some() || self.spans.is_some() {
            let places = &self.recorded.places;
            let is_known = |probe| places.iter().any(|place| place.probe == probe);
            for hits in &batch.hit_counts {
                self.counts.add_hits(hits, is_known);
            }
        }
        self.now_ns = batch.to_ns;
        if self.reads_each {
            self.read();
        }
    }

    fn take_summary(&mut self, summary: Summary) {
        let Summary {
            mut batch,
            samples,
            moments,
        } = summary;
        // Ends of calls that were open before, which what follows may go on with.
        self.take_records(&mut batch);
        if let Some(flame) = &mut self.flame {
            flame.summed(&samples);
        }
        batch.calls.iter().for_each(|calls| self.counts.add(calls));
        for moment in moments {
            moment.calls.iter().for_each(|calls| self.counts.add(calls));
            let calls = Calls {
                counted: &self.counts.changed_by(&moment.calls),
                joined: &self.joined,
            };
            // No record is held against a threshold in between: what follows from the counts is read at the end.
            division::read(&mut self.steps, calls, moment.to_ns);
        }
        self.now_ns = batch.to_ns;
        self.summed_until_ns = batch.to_ns;
        if self.reads_each {
            self.read();
        }
    }

    /// Takes records, and what was counted on their way.
    fn take_records(&mut self, batch: &mut Batch) {
        self.take_each(batch);
        self.unknown = self.unknown.saturating_add(batch.unknown);
        self.counters.add(&batch.counters);
        self.cost = batch.cost;
    }

    /// Takes records; of a batch that was told after the end of the part, hits and the ends that they wait for.
    fn take_each(&mut self, batch: &mut Batch) {
        if let Some(spans) = &mut self.spans {
            spans.take_waits(std::mem::take(&mut batch.waits), batch.off_cpu.is_some());
        } else if let Some(waiting) = &mut self.waiting {
            waiting.take(std::mem::take(&mut batch.waits), batch.off_cpu.take());
        }
        let mut records = std::mem::take(&mut batch.records).into_iter().peekable();
        while let Some(record) = records.next() {
            match record {
                Recorded::Sample(sample) => {
                    if let Some(flame) = &mut self.flame {
                        let thread = ThreadId {
                            tgid: sample.tgid,
                            tid: sample.tid,
                        };
                        let since_ns = if self.draws_outside { self.begun_ns } else { 0 };
                        let (ts_ns, activity, weight_ns) = (sample.ts_ns, sample.activity, sample.weight_ns);
                        let shown = sample.since(since_ns);
                        // Of a wait that the part begins amid of, what it was for is not told from what that was before.
                        let waiting = self.waiting.as_mut().filter(|_| shown.weight_ns == weight_ns);
                        let drawn =
                            waiting.map_or(&[][..], |waiting| waiting.of_sample(thread, ts_ns, activity));
                        flame.sample(&named(shown), None, drawn);
                    } else if let Some(spans) = &mut self.spans {
                        spans.sample(sample);
                    }
                }
                Recorded::SpanEnd(end) => {
                    // What was read where it began is told behind its end.
                    if let Some(spans) = &mut self.spans
                        && let Some(Recorded::Call(of, look)) = records.peek()
                        && (of.tid, of.probe, of.sequence) == (end.tid, end.probe, end.sequence)
                    {
                        spans.values(&end, look);
                    }
                    self.span_end(&end);
                }
                // They are read by themselves.
                Recorded::Wait(_) => {}
                Recorded::AtEvent(at) => {
                    if let Some(flame) = &mut self.flame {
                        let event = at.event;
                        match at.what {
                            AtEvent::Sample(sample, key) => {
                                flame.sample(&named_at(sample, key), Some(event), &[]);
                            }
                            AtEvent::Weight(weight) => flame.weight(&weight, event),
                        }
                    }
                }
                Recorded::Reached(hit, look) => {
                    if let Some(spans) = &mut self.spans {
                        spans.reached(&hit);
                    }
                    if let Some(hits) = &mut self.hits
                        && let Some(waiting) = hits.reached(&hit, &look)
                    {
                        if hit.joined {
                            let inside = Inside::Hit(waiting);
                            self.path.wait(hit.tgid, hit.tid, hit.parent, hit.ts_ns, inside);
                        } else {
                            hits.take(waiting);
                        }
                    }
                }
                Recorded::Call(end, look) => {
                    if let Some(hits) = &mut self.hits
                        && let Some(waiting) = hits.call(&end, &look)
                    {
                        if !self.path.is_joined(end.probe) {
                            hits.take(waiting);
                        } else if is_joined(&end) {
                            let inside = Inside::Hit(waiting);
                            self.path
                                .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, inside);
                        }
                    }
                }
            }
        }
        if let Some(hits) = &mut self.hits {
            hits.keep();
        }
    }

    /// Takes the time of intervals off the CPU that lies in the part, of those that were told after it.
    fn take_going_on(&mut self, records: Vec<Recorded>) {
        let Some(flame) = &mut self.flame else { return };
        for record in records {
            let Recorded::Sample(sample) = record else {
                continue;
            };
            if sample.activity == Activity::OnCpu || sample.begin_ns() >= self.now_ns {
                continue;
            }
            if sample.ts_ns <= self.now_ns {
                // It was told late.
                flame.sample(&named(sample.since(self.begun_ns)), None, &[]);
                continue;
            }
            let until = RecordedSample {
                weight_ns: self.now_ns - sample.begin_ns(),
                ts_ns: self.now_ns,
                ..sample
            };
            flame.goes_on(&until.since(self.begun_ns));
        }
    }

    fn span_end(&mut self, end: &SpanEnd) {
        for inside in self.path.span_end(end) {
            match inside {
                Inside::Call { end, before, .. } if end.flags & SpanEnd::REFUSED == 0 => {
                    self.joined.add(&end);
                    self.note_slow(&end);
                    if let Some(spans) = &mut self.spans {
                        spans.call(&end, before);
                    }
                }
                Inside::Call { .. } => {}
                Inside::Hit(waiting) => {
                    if let Some(hits) = &mut self.hits {
                        hits.take(waiting);
                    }
                }
            }
        }
        let before = self.spans.as_mut().and_then(|spans| spans.span_end(end));
        if !self.path.is_joined(end.probe) {
            self.note_slow(end);
            if let Some(spans) = &mut self.spans {
                spans.call(end, before);
            }
        } else if is_joined(end) {
            let last = self.steps.last();
            let call = Inside::Call {
                end: *end,
                // Where hits are looked at, they count, each by itself.
                counts: self.hits.is_none() && last.is_some_and(|last| last.functions.has(end.probe)),
                before,
            };
            self.path
                .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, call);
        }
        if let Some(flame) = &mut self.flame {
            flame.span_end(end);
        }
    }

    fn note_slow(&mut self, end: &SpanEnd) {
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        if end.flags & (SpanEnd::REFUSED | SpanEnd::ABANDONED) == 0
            && duration_ns >= self.slow_from_ns
            && let Some(last) = self.steps.last_mut()
        {
            let call = SlowCall {
                ts_ns: end.end_ns,
                tid: end.tid,
                duration_ns,
            };
            last.functions
                .note_slow(end.probe, call, self.ages.window.window_ns);
        }
    }

    /// Reads what was counted, as a session does at its ticks.
    fn read(&mut self) {
        let now_ns = self.now_ns;
        let calls = Calls {
            counted: &self.counts,
            joined: &self.joined,
        };
        division::read(&mut self.steps, calls, now_ns);
        let Bands { of_spans, last } = division::bands(&self.steps);
        for (place, StepBand { band, step }) in of_spans.iter().enumerate() {
            let known = self.around.get(place).copied().flatten();
            let band = known.unwrap_or(*band);
            self.path.set_band(place, band);
            if let Some(flame) = &mut self.flame {
                flame.set_band(place, band);
            }
            if let Some(spans) = &mut self.spans
                && *step == spans.step()
            {
                spans.set_band(band);
            }
        }
        if let (Some(flame), Some(divider)) = (&mut self.flame, division::divider(&self.steps))
            && let Some(step) = self.steps.get(divider)
        {
            let population = division::population(&self.steps, divider, calls);
            // Which threads have ended meanwhile is not recorded.
            flame.read(
                population,
                step.functions.probes(),
                None::<fn(ThreadId) -> bool>,
                now_ns,
            );
        }
        if let Some(hits) = &mut self.hits {
            let last_is_call = self
                .steps
                .last()
                .is_some_and(|last| last.step().place.has_spans());
            let known = of_spans.len().checked_sub(1).filter(|_| last_is_call);
            let known = known.and_then(|place| self.around.get(place).copied().flatten());
            let asked = last.as_ref().map_or(Band::ALL, Division::inside);
            hits.set_band(known.unwrap_or(asked));
        }
        self.dropped += self.path.take_dropped();
        self.slow_from_ns = self.slow_from_ns(last.as_ref());
    }

    /// Forgets what threads did, as what follows is missing: samples and calls that wait for an end, and waits.
    fn forget(&mut self) {
        self.forget_open();
        if let Some(waiting) = &mut self.waiting {
            waiting.forget();
        }
    }

    /// Forgets samples and calls that wait for an end, which may have been lost.
    fn forget_open(&mut self) {
        if let Some(flame) = &mut self.flame {
            flame.forget_open(self.now_ns);
        }
        if let Some(spans) = &mut self.spans {
            spans.forget_open(self.now_ns);
        }
        self.path.expire(self.now_ns, 0, |_| true);
    }

    fn slow_from_ns(&self, division: Option<&Division>) -> u64 {
        let last = self.steps.last().zip(division);
        let slow = last.and_then(|(last, division)| division::slow_from_ns(last.step(), division));
        slow.unwrap_or(u64::MAX)
    }

    /// Waits that were lost before they were written.
    pub fn lost_waits(&self) -> Option<(&'static str, u64)> {
        let lost = self.counters.of(WAITS_DROPPED);
        (lost > 0).then(|| (DROPPED, lost.saturating_add(self.lost)))
    }

    /// What the session did not see.
    fn own_losses(&self) -> OwnLosses {
        OwnLosses::of_counters(|name| self.counters.of(name))
    }

    /// What was lost of spans on their way.
    pub fn span_losses(&self) -> Losses {
        let spans = SpanLosses::of_counters(|name| self.counters.of(name));
        spans
            .of_records()
            .chain(spans.unseen(&self.parsed))
            .chain(join_losses(self.dropped))
            .chain(self.own_losses().by_reason())
            .chain(self.dropped_records())
            .collect()
    }

    /// Records that this version does not know.
    fn unknown(&self) -> Option<(&'static str, u64)> {
        (self.unknown > 0).then_some((UNKNOWN, self.unknown))
    }

    /// What hits wait for, and have waited for in vain.
    pub fn around_hits(&self) -> Around {
        Around {
            dropped: self.dropped,
            waiting: self.path.waiting(),
        }
    }

    /// What was lost of hits before they were recorded.
    pub fn trace_losses(&self) -> TraceLosses {
        TraceLosses::of_counters(|name| self.counters.of(name))
    }

    /// Records that are not in the file, or cannot be read, and what else was lost of which only a newer version knows.
    pub fn dropped_records(&self) -> Losses {
        let dropped = (self.lost > 0).then_some((DROPPED, self.lost));
        let dropped = dropped.into_iter().chain(self.unknown());
        dropped.chain(self.counters.newer()).collect()
    }

    /// The same for a flame graph of these times, as far as it is known of which times they are.
    fn dropped_samples(&self, times: FlameTimes) -> Losses {
        let mut lost = self.dropped_records();
        let (on, off) = (times.contain(Activity::OnCpu), times.contain(Activity::Runnable));
        if self.waiting.is_some() {
            lost.extend(self.lost_waits());
        }
        for (name, is_drawn) in [
            (OUTSIDE_DROPPED, off),
            (AT_EVENTS_DROPPED, times.event().is_some()),
        ] {
            let dropped = self.counters.of(name);
            if is_drawn && dropped > 0 {
                let sum = lost.entry(DROPPED).or_default();
                *sum = sum.saturating_add(dropped);
            }
        }
        lost.retain(|reason, _| {
            (on || !reason.starts_with("sample_")) && (off || !reason.starts_with("off_cpu_"))
        });
        lost
    }

    /// What the session did not see, whatever was recorded.
    pub fn unseen(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let spans = SpanLosses::of_counters(|name| self.counters.of(name));
        spans.unseen(&self.parsed).chain(self.own_losses().by_reason())
    }

    /// What the last step with spans asks of durations, by all its calls.
    pub fn last_band(&self) -> Option<Band> {
        let bands = division::bands(&self.steps).of_spans;
        bands.last().map(|step| step.band)
    }

    /// The latency at the end.
    ///
    /// # Errors
    /// Where there is nothing to time.
    pub fn latency(&mut self) -> Result<LatencyPicture, SessionError> {
        // Those before may be summed up.
        let oldest_ns = self.now_ns.saturating_sub(self.ages.window.window_ns);
        for step in &mut self.steps {
            step.functions.forget_slow_before(oldest_ns);
        }
        let last = self.steps.last().filter(|last| last.step().place.has_spans());
        let last = last.ok_or_else(|| {
            SessionError::new(
                Reason::ArgumentInvalid,
                "the recording has nothing to time: its scope does not end with a function or a call",
            )
        })?;
        Ok(LatencyPicture {
            seq: 0,
            scope: Arc::clone(&self.scope),
            functions: last.functions.pictures(&self.counts, self.now_ns),
            by: Vec::new(),
            cost: self.cost,
            lost: self.span_losses(),
            ended: Some(self.ended.clone()),
        })
    }

    /// Whether another scope can be answered from what was played, and then does. It can where it asks other durations
    /// of the step that divides, and nothing else.
    pub fn ask_again(&mut self, asked: Option<&Scope>) -> bool {
        let Ok(steps) = asked::steps(&self.recorded, asked, self.ages, self.now_ns) else {
            return false;
        };
        if !summed::are_alike(&steps, &self.steps) {
            return false;
        }
        for (known, asked) in self.steps.iter_mut().zip(steps) {
            known.ask(asked);
        }
        self.parsed = scope(&self.steps);
        self.scope = self.parsed.to_string().into();
        if let Some(flame) = &mut self.flame {
            flame.set_predicates(division::dividing(&self.steps));
        }
        true
    }

    /// What a flame graph is asked for. An event is the recorded one, which is what is collected.
    pub fn variant(&self, request: FlameRequest) -> FlameVariant {
        let variant = request.variant(division::divider(&self.steps).is_some());
        FlameVariant {
            kind: self.flame.as_ref().map_or(variant.kind, Flame::kind),
            ..variant
        }
    }

    /// What became of the samples on their way.
    pub fn sampling(&self) -> Sampling {
        Sampling::of_counters(|name| self.counters.of(name))
    }

    /// What was lost of what a flame graph of these times is drawn of, before it came there.
    pub fn flame_losses(&self, times: FlameTimes) -> Losses {
        let mut lost = self.sampling().losses(times);
        lost.extend(event_losses(self.event_counts));
        lost.extend(self.dropped_samples(times));
        lost.extend(self.own_losses().by_reason());
        lost
    }

    /// Samples of these times that were attempted.
    pub fn attempted(&self, times: FlameTimes) -> u64 {
        self.sampling().attempted(times) + self.event_counts.attempted
    }

    /// The flame graph at the end.
    ///
    /// # Errors
    /// Where none was asked for.
    pub fn flame(
        &mut self,
        request: FlameRequest,
    ) -> Result<watch::Receiver<Option<Arc<FlamePicture>>>, SessionError> {
        let variant = self.variant(request);
        let sampling = self.sampling();
        let mut also_lost = self.dropped_samples(variant.kind.times);
        also_lost.extend(self.own_losses().by_reason());
        let Some(flame) = &mut self.flame else {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "no flame graph was requested",
            ));
        };
        let moment = Moment {
            now_ns: self.now_ns,
            scope: &self.scope,
            frames: &self.frames,
            cost: self.cost,
            dropped: Dropped::default(),
            also_lost,
            ended: Some(&self.ended),
        };
        let counts = SampleCounts {
            sampling,
            events: self.event_counts,
        };
        let mut watchers = Watchers::default();
        let receiver = watchers.add(variant, 0, 0);
        flame.publish(&mut watchers, counts, &moment);
        Ok(receiver)
    }
}

/// Whether a call waits for the calls around it.
fn is_joined(end: &SpanEnd) -> bool {
    end.flags & SpanEnd::JOINED != 0 && end.flags & SpanEnd::ABANDONED == 0
}

/// A time since another in seconds, rounded down so that what is there is not passed over.
pub fn since(begin_ns: u64, ns: u64) -> String {
    let ms = ns.saturating_sub(begin_ns) / 1_000_000;
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// A sample as the thread that names addresses gives it.
pub fn named(sample: RecordedSample) -> Named {
    named_at(sample, Key::default())
}

/// The same of what it was about.
fn named_at(sample: RecordedSample, key: Key) -> Named {
    Named::Sample {
        event: 0,
        tgid: sample.tgid,
        tid: sample.tid,
        ts_ns: sample.ts_ns,
        weight: sample.weight_ns,
        key,
        activity: sample.activity,
        count: u64::from(!sample.continues),
        spans: sample.spans,
        stacks: sample.stacks,
        complete: sample.complete,
        goes_on: false,
        lock: None,
        system_call: sample.system_call,
        task: sample.task,
    }
}
