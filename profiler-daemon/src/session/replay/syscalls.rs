//! The system calls of a part of a recording: what was counted in its turns, added up and drawn as a session draws it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use profiler_aggregate::system_calls::{MAX_ROWS, NO_STACK, SystemCalls};
use profiler_scope::{Scope, Step};
use profiler_symbolize::{FrameId, Frames, Grouping, Stacks};

use super::{
    super::{
        ending::Ending,
        error::{Reason, SessionError},
        picture::Losses,
        recorded_calls::{CALLS_DROPPED, NAMED_WITHIN_NS, RecordedTurn},
        span_losses::OwnLosses,
        state::views::{syscalls::SYSCALLS, unknown::refuse_unknown},
        system_calls::{STACKS_FULL, SyscallsPicture},
        watchers::{self, Pictures},
    },
    asked::{self, AskedStep},
    begun::{self, nothing},
    part::{LATE_NS, Part, since},
    taken::{DROPPED, Taken, Told},
    unreadable,
};
use crate::{
    kernel::CallNumber,
    recording::{self, Also, Batch, Recording, Wanted},
};

/// So long after its end, what was counted in a turn may be told.
const TOLD_WITHIN_NS: u64 = NAMED_WITHIN_NS + LATE_NS;

/// Where the last turn ends so long before its part does, it is said.
const MISSING_NS: u64 = 300_000_000;

/// The system calls of a part.
///
/// # Errors
/// Where they were not recorded, or not for this scope, or it cannot be read.
pub fn syscalls(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    by: Grouping,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Pictures<SyscallsPicture>, SessionError> {
    let begun = begun::begin(recording, asked, part)?;
    let begin_ns = recording.begin_ns();
    let mut playing = Playing {
        asked,
        part,
        taken: Taken::new(part, begun.begin_ns),
        turns: Turns::new(by),
        is_recorded: false,
    };
    let mut frames = Frames::default();
    let wanted = Wanted {
        from_ns: part.begin_ns,
        by: Some(by),
        also: Some(Also::Syscalls),
        answers: None,
    };
    recording
        .read(wanted, &mut frames, |read, _| is_awaited() && playing.take(read))
        .map_err(|error| unreadable(&error))?;
    let whole = part.begin_ns <= begin_ns && part.end_ns >= recording.end_ns();
    playing.picture(begin_ns, whole, &begun.scope.into(), &frames)
}

/// What was counted in turns, added up.
struct Turns {
    by: Grouping,
    calls: SystemCalls<CallNumber>,
    /// The stacks that calls were made from, by their number less one.
    stacks: Vec<Vec<FrameId>>,
    numbers: HashMap<Vec<FrameId>, u64>,
    /// Those that had not returned at the end of the last.
    open: BTreeMap<CallNumber, u64>,
    lost: Losses,
    /// How long all took.
    watched_ns: u64,
    /// When the first began and the last ended.
    shown: Option<(u64, u64)>,
    /// How long of the time between them is in none.
    missing_ns: u64,
}

impl Turns {
    fn new(by: Grouping) -> Self {
        Self {
            by,
            calls: SystemCalls::default(),
            stacks: Vec::new(),
            numbers: HashMap::new(),
            open: BTreeMap::new(),
            lost: Losses::new(),
            watched_ns: 0,
            shown: None,
            missing_ns: 0,
        }
    }

    fn take(&mut self, turn: RecordedTurn) {
        for calls in &turn.calls {
            let stack = self.number(&calls.stacks);
            self.calls.take(calls.call, calls.error, stack, calls.counted);
        }
        self.calls.take_begun_before(turn.begun_before);
        self.open = turn.open;
        for (reason, count) in turn.lost {
            let sum = self.lost.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
        self.watched_ns = (self.watched_ns).saturating_add(turn.to_ns - turn.from_ns);
        let (first_ns, last_ns) = self.shown.unwrap_or((turn.from_ns, turn.from_ns));
        self.missing_ns = (self.missing_ns).saturating_add(turn.from_ns.saturating_sub(last_ns));
        self.shown = Some((first_ns.min(turn.from_ns), last_ns.max(turn.to_ns)));
    }

    /// The number of a stack; one that no row can have where there is no room for it.
    fn number(&mut self, stacks: &Stacks) -> u64 {
        let stack = stacks.of(self.by).unwrap_or_default();
        if stack.is_empty() {
            return NO_STACK;
        }
        if let Some(known) = self.numbers.get(stack) {
            return *known;
        }
        if self.stacks.len() >= MAX_ROWS {
            return u64::MAX;
        }
        self.stacks.push(stack.to_vec());
        let number = self.stacks.len() as u64;
        self.numbers.insert(stack.to_vec(), number);
        number
    }

    fn stack(&self, number: u64) -> Vec<FrameId> {
        let at = number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.stacks.get(at)).cloned().unwrap_or_default()
    }
}

/// A way through the recording.
struct Playing<'a> {
    asked: Option<&'a Scope>,
    /// As it is asked for: each turn belongs to the part that it begins in, so that parts behind one another add up.
    part: Part,
    taken: Taken,
    turns: Turns,
    /// There are turns, be it of another time.
    is_recorded: bool,
}

impl Playing<'_> {
    /// Takes a part of the recording; whether to go on.
    fn take(&mut self, read: recording::Part) -> bool {
        match read {
            recording::Part::Summary(_) => true,
            recording::Part::Missing { from_ns, to_ns } => {
                self.taken.pass_over(from_ns, to_ns);
                true
            }
            recording::Part::Batch(mut batch) => {
                if self.taken.tell_of(&mut batch, self.asked) == Told::Edited {
                    return false;
                }
                self.take_turns(std::mem::take(&mut batch.turns)) && self.take_batch(&batch)
            }
        }
    }

    /// Refuses other scopes than the one whose system calls were counted.
    fn check(&self) -> Result<(), SessionError> {
        let recorded = self.taken.recorded.as_ref().ok_or_else(nothing)?;
        let steps = asked::steps(recorded, self.asked, recorded.ages, 0)?;
        let parsed: Vec<Step> = steps.iter().map(AskedStep::text).collect();
        refuse_unknown(&parsed.iter().collect::<Vec<_>>(), SYSCALLS)?;
        if steps.len() == recorded.steps.len() {
            return Ok(());
        }
        let message = format!(
            "the recording holds the system calls that were made in calls of its last step alone, `{}`: for others, record them with `profiler record --syscalls`",
            recorded.text
        );
        Err(SessionError::new(Reason::ArgumentInvalid, message))
    }

    fn take_turns(&mut self, turns: Vec<RecordedTurn>) -> bool {
        let Part { begin_ns, end_ns, .. } = self.part;
        self.is_recorded |= !turns.is_empty();
        for turn in turns {
            if turn.from_ns < begin_ns || turn.from_ns >= end_ns {
                continue;
            }
            if self.turns.shown.is_none()
                && let Err(error) = self.check()
            {
                self.taken.failed = Some(error);
                return false;
            }
            self.turns.take(turn);
        }
        true
    }

    fn take_batch(&mut self, batch: &Batch) -> bool {
        let end_ns = self.part.end_ns;
        if batch.to_ns > end_ns {
            return batch.from_ns <= end_ns.saturating_add(TOLD_WITHIN_NS);
        }
        if batch.from_ns >= self.taken.part.begin_ns {
            self.taken.count(batch);
        }
        true
    }

    fn picture(
        self,
        begin_ns: u64,
        whole: bool,
        scope: &Arc<str>,
        frames: &Frames,
    ) -> Result<Pictures<SyscallsPicture>, SessionError> {
        let Self { taken, turns, .. } = &self;
        if let Some(error) = self.taken.failed {
            return Err(error);
        }
        let refuse = |message: &str| SessionError::new(Reason::ArgumentInvalid, message);
        if !self.is_recorded {
            return Err(refuse(
                "the recording does not have which system calls were made: record it with `profiler record --syscalls`",
            ));
        }
        let (from_ns, to_ns) = turns.shown.ok_or_else(|| {
            refuse(
                "system calls are recorded four times a second, and no such count begins in that part of the recording: \
                 ask for half a second or more; where that has none either, they are missing there",
            )
        })?;
        let mut ended = vec![taken.ending(begin_ns).to_string()];
        if !whole || turns.missing_ns > 0 || to_ns.saturating_add(MISSING_NS) < taken.now_ns {
            ended.push(format!(
                "; the system calls are those that returned from {} s to {} s",
                since(begin_ns, from_ns),
                since(begin_ns, to_ns)
            ));
        }
        if turns.missing_ns > 0 {
            let missing = since(0, turns.missing_ns);
            ended.push(format!(", without {missing} s that are missing"));
        }
        let dropped = taken.counted(CALLS_DROPPED);
        let mut lost = turns.lost.clone();
        for (reason, count) in [(STACKS_FULL, turns.calls.unplaced()), (DROPPED, dropped)] {
            let sum = lost.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
        lost.extend(taken.newer());
        lost.extend(OwnLosses::of_counters(|name| taken.counted(name)).by_reason());
        lost.retain(|_, count| *count > 0);
        let picture = SyscallsPicture {
            scope: Arc::clone(scope),
            by: turns.by,
            frames: frames.table().clone(),
            calls: turns.calls.table(&turns.open, |number| turns.stack(number)),
            begun_before: turns.calls.begun_before(),
            watched_ns: turns.watched_ns,
            lost,
            cost: taken.cost,
            ended: Some(Ending::of_recording(ended.concat())),
        };
        Ok(watchers::single(picture))
    }
}
