//! The way through a part: what is told before it, where it begins, and where it ends.

use profiler_aggregate::path::{self, Path};
use profiler_symbolize::{FrameTable, Frames};

use super::{
    super::{
        super::{
            division,
            ending::Ending,
            error::{Reason, SessionError},
            picture::Cost,
            population::{Calls, JoinedCalls},
            records::RecordedScope,
        },
        asked::{self, AskedStep, Compared},
        begun::{nothing, scope_of},
        counts::RecordedCounts,
        hits::{self, Hits},
        named_counts::NamedCounts,
        part::{Part, end_of_part},
        question::Question,
        spans::Slowest,
        unreadable,
        waiting::Waiting,
    },
    Asked, Played,
    behind::{self, Behind},
    flame::{draws_outside, new_flame},
    inside::Inside,
    summary::{answers, may_answer},
};
use crate::{
    kernel::EventCounts,
    recording::{self, Batch, Offered, Recording, Wanted},
};

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
        behind: Behind::default(),
        failed: None,
        edited_ns: None,
        waits_are_told: false,
        waiting: question.draws_waits().then(Waiting::default),
        threads: hits::Threads::default(),
    };
    let does =
        |offered: &Offered<'_>| answers(offered, asked.scope, Part { end_ns, ..part }, question, is_summed);
    recording
        .read(
            Wanted {
                from_ns: part.begin_ns,
                by: question.flame().map(|request| request.by),
                also: question.also(),
                answers: may_answer(question, is_summed).then_some(&does),
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
        behind,
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
    played.frames = frames.table().clone();
    played.threads = threads;
    let mut reason = end_of_part(recording.begin_ns(), edited_ns, missing_ns);
    if behind.is_incomplete() && played.draws_outside {
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
    played.ended = Ending::of_recording(reason);
    Ok(played)
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
    behind: Behind,
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
pub(super) enum Next {
    Play,
    /// Only what was told late.
    PlayLate,
    /// Only the time of intervals off the CPU that lies before the part's end.
    PlayGoingOn,
    PassOver,
    End,
}

impl Playing<'_> {
    /// Takes a part of the recording; whether to go on.
    fn take(&mut self, read: recording::Part) -> bool {
        match read {
            recording::Part::Missing { from_ns, to_ns } => {
                if from_ns >= self.part.end_ns {
                    self.behind.miss();
                    return self.played.as_ref().is_some_and(|played| played.draws_outside);
                }
                let missing_to_ns = to_ns;
                let (from_ns, to_ns) = (from_ns.max(self.part.begin_ns), to_ns.min(self.part.end_ns));
                let missing_ns = to_ns.saturating_sub(from_ns);
                self.missing_ns = self.missing_ns.saturating_add(missing_ns);
                self.is_behind_hole = true;
                if let Some(waiting) = &mut self.waiting {
                    waiting.forget_until(missing_to_ns);
                }
                if let Some(played) = &mut self.played {
                    played.forget_until(missing_to_ns);
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
                self.take_behind(&goes_on, &mut batch);
                self.goes_on(goes_on, |played| played.take(*batch))
            }
            recording::Part::Summary(mut summary) => {
                let goes_on = self.tell(&mut summary.batch);
                self.take_behind(&goes_on, &mut summary.batch);
                self.goes_on(goes_on, |played| played.take_summary(*summary))
            }
        }
    }

    /// Takes what goes on behind the part, where that is what comes next.
    fn take_behind(&mut self, next: &Result<Next, SessionError>, batch: &mut Batch) {
        if let (Ok(Next::PlayGoingOn), Some(played)) = (next, &mut self.played) {
            self.behind.take(batch, played);
        }
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
            return Ok(behind::next(self.played.as_mut(), batch));
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
        let parsed = scope_of(&steps);
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
            counters: NamedCounts::default(),
            lost: 0,
            unknown: 0,
            frames: FrameTable::default(),
            cost: Cost::default(),
            now_ns,
            summed_until_ns: 0,
            ended: Ending::of_recording(String::new()),
        })
    }
}
