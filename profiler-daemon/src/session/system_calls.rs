//! The system calls of a session's threads, while somebody watches them.
//!
//! See `docs/internals/system-calls.md` for how system calls are counted.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use profiler_aggregate::system_calls::{CallTotal, Counted, NO_STACK, SystemCalls};
use profiler_common::counter::Counter;
use profiler_symbolize::{FrameId, FrameTable, Grouping, Groupings, Stacks};

use super::{
    ending::Ending,
    flame::Moment,
    picture::{Cost, Losses},
    recorded_calls::{CallsToRecord, CountedTurn, RecordedTurn},
    records::GROUPINGS,
};
use crate::kernel::{CallNumber, CallResult, CountedCalls, Engine, Gate, OpenSystemCall, SharedStack};

/// System calls at one moment, and who makes them.
#[derive(Clone, Debug)]
pub struct SyscallsPicture {
    /// Canonical text of the scope.
    pub scope: Arc<str>,
    /// What frames stand for.
    pub by: Grouping,
    /// Frames by number; only ever appended to.
    pub frames: FrameTable,
    /// The most time first; a caller is its stack, root first, empty where that was not taken.
    pub calls: Vec<CallTotal<CallNumber, Vec<FrameId>>>,
    /// Calls that had begun before they were watched.
    pub begun_before: u64,
    /// How long they have been watched.
    pub watched_ns: u64,
    /// Losses by reason.
    pub lost: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

/// A stack that calls were made from.
struct CallerStack {
    tgid: u32,
    stack: Option<Arc<SharedStack>>,
    /// In the groupings that it was asked for in, once they have come.
    names: Stacks,
    /// What was asked for.
    asked: Groupings,
    missing: Missing,
}

/// What the names of a stack lack because a process or a file system did not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    /// Nothing, as far as is known.
    Nothing,
    /// Some, since then.
    Since(u64),
    /// Some, which have been asked for again.
    AskedAgain,
}

/// How long after something did not answer names are asked for again, and of how many stacks of a session in a turn.
const ASK_AGAIN_NS: u64 = 10_000_000_000;
const MAX_ASKED_AGAIN: usize = 16;

impl CallerStack {
    fn of(tgid: u32) -> Self {
        Self {
            tgid,
            stack: None,
            names: Stacks::default(),
            asked: Groupings::default(),
            missing: Missing::Nothing,
        }
    }

    /// Whether names that are missing may come by now.
    fn is_to_be_asked_again(&self, now_ns: u64) -> bool {
        matches!(self.missing, Missing::Since(ns) if now_ns.saturating_sub(ns) >= ASK_AGAIN_NS)
    }

    /// Its names are asked for.
    fn ask(&mut self, groupings: Groupings) {
        self.asked = groupings;
        if self.missing != Missing::Nothing {
            self.missing = Missing::AskedAgain;
        }
    }

    /// Takes names, unless they are not those that were asked for, or lack some where those that there are do not.
    fn name(&mut self, stacks: &Stacks, unanswered_ns: Option<u64>) {
        if !stacks.have(self.asked) {
            return;
        }
        let is_first = !self.names.have(self.asked);
        if is_first || unanswered_ns.is_none() {
            self.names = stacks.clone();
        }
        match unanswered_ns {
            None => self.missing = Missing::Nothing,
            Some(ns) if is_first || self.missing != Missing::Nothing => self.missing = Missing::Since(ns),
            Some(_) => {}
        }
    }
}

/// Why calls are not counted.
pub const CALL_LOSSES: [&str; 3] = ["syscall_limit", "syscall_open_limit", "syscall_missed"];

/// What calls are counted by whose stack is not told apart.
pub const STACKS_FULL: &str = "syscall_stacks_full";

/// Stacks that are told apart and have names, of one session: as many as the kernel counts by at once. Calls of others count without a
/// stack.
const MAX_STACKS: usize = 16_384;

/// Stacks to be named, each with its process.
pub type UnnamedStacks = Vec<(u32, Arc<SharedStack>)>;

/// System calls of a session's threads.
pub struct WatchedCalls {
    calls: SystemCalls<CallNumber>,
    stacks: HashMap<u64, CallerStack>,
    /// Calls of stacks beyond [`MAX_STACKS`].
    beyond_stacks: u64,
    gate: Gate,
    view: CallView,
    /// Since when they are counted; `None` until they are.
    since_ns: Option<u64>,
    /// The target.
    pids: HashSet<u32>,
    before: Losses,
    /// Those that are on their way into recordings, while there are any.
    to_record: Option<CallsToRecord>,
}

/// What was counted in a turn, of all processes and sessions.
pub struct TakenTurn<'a> {
    pub counted: &'a [CountedCalls],
    /// `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// The same.
    pub to_ns: u64,
    /// Calls that had not returned at its end.
    pub open: &'a [OpenSystemCall],
    /// Losses since the programs were loaded.
    pub lost: &'a Losses,
}

/// Which calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallView {
    /// All of the target's.
    All,
    /// Those in spans that open a gate for it.
    InSpans,
    /// Those in spans behind a line, whose own gate it is.
    BehindLine,
}

impl WatchedCalls {
    /// None yet, counted by a gate.
    pub fn new(engine: &Engine, gate: Gate, view: CallView, pids: &[u32]) -> Self {
        Self {
            calls: SystemCalls::default(),
            stacks: HashMap::new(),
            beyond_stacks: 0,
            gate,
            view,
            since_ns: None,
            pids: pids.iter().copied().collect(),
            before: losses(engine),
            to_record: None,
        }
    }

    /// What they are counted by.
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// Which are counted.
    pub fn view(&self) -> CallView {
        self.view
    }

    /// Begins, once they are counted; goes on if it has begun.
    pub fn begin(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    /// Takes calls that returned, of whatever process and session.
    pub fn take(&mut self, counted: &CountedCalls) {
        if !self.is_own(counted.tgid, counted.views) {
            return;
        }
        let error = match counted.result {
            CallResult::Done => None,
            CallResult::Failed(error) => Some(error),
            CallResult::BegunBefore => {
                self.calls.take_begun_before(counted.calls);
                return;
            }
        };
        let calls = Counted {
            calls: counted.calls,
            failed: if error.is_some() { counted.calls } else { 0 },
            time_ns: counted.time_ns,
            longest_ns: counted.longest_ns,
        };
        if counted.stack != NO_STACK && self.stacks.len() < MAX_STACKS {
            self.stacks
                .entry(counted.stack)
                .or_insert_with(|| CallerStack::of(counted.tgid));
        }
        let stack = self.kept(counted.stack);
        if stack != counted.stack {
            self.beyond_stacks += calls.calls;
        }
        self.calls.take(counted.call, error, stack, calls);
    }

    /// A stack; none where it found no room.
    fn kept(&self, stack: u64) -> u64 {
        if self.stacks.contains_key(&stack) {
            stack
        } else {
            NO_STACK
        }
    }

    /// Has what is counted from now on recorded.
    pub fn begin_recording(&mut self, engine: &Engine) {
        self.to_record
            .get_or_insert_with(|| CallsToRecord::new(losses(engine)));
    }

    /// Records nothing more.
    pub fn end_recording(&mut self) {
        self.to_record = None;
    }

    /// Takes a turn, to be recorded.
    pub fn record(&mut self, taken: &TakenTurn<'_>) {
        let Some(since_ns) = self.since_ns.filter(|since_ns| *since_ns < taken.to_ns) else {
            return;
        };
        let from_ns = taken.from_ns.max(since_ns);
        let mut turn = CountedTurn::new(from_ns, taken.to_ns, self.own_open(taken.open));
        for counted in taken.counted {
            if self.is_own(counted.tgid, counted.views) {
                turn.add(counted, self.kept(counted.stack));
            }
        }
        if let Some(to_record) = &mut self.to_record {
            to_record.take(turn, taken.lost);
        }
    }

    /// Turns that can be recorded by now; all of them where none comes after these.
    pub fn recorded(&mut self, now_ns: u64, all: bool) -> Vec<RecordedTurn> {
        let Some(to_record) = &mut self.to_record else {
            return Vec::new();
        };
        let groupings: Groupings = GROUPINGS.into_iter().collect();
        let stacks = &self.stacks;
        to_record.give(now_ns, all, |id| {
            let names = stacks.get(&id).map(|caller| &caller.names);
            names.filter(|names| names.have(groupings)).cloned()
        })
    }

    /// Its own of these calls, by their kind.
    fn own_open(&self, open: &[OpenSystemCall]) -> BTreeMap<CallNumber, u64> {
        let mut open_of = BTreeMap::new();
        for call in open.iter().filter(|call| self.is_own(call.tgid, call.views)) {
            *open_of.entry(call.call).or_default() += 1;
        }
        open_of
    }

    /// Takes no more calls of a process.
    pub fn lose(&mut self, pid: u32) {
        self.pids.remove(&pid);
    }

    fn is_own(&self, tgid: u32, views: u32) -> bool {
        views & self.gate.bits() != 0 && self.pids.contains(&tgid)
    }

    /// Stacks that have not been asked for in these groupings, and those of which a part had no answer; they are by now.
    pub fn unnamed(&mut self, engine: &Engine, groupings: Groupings, now_ns: u64) -> UnnamedStacks {
        let mut unnamed = Vec::new();
        let mut again = 0;
        for (id, caller) in &mut self.stacks {
            if caller.asked == groupings {
                let is_there = self.pids.contains(&caller.tgid);
                if again == MAX_ASKED_AGAIN || !is_there || !caller.is_to_be_asked_again(now_ns) {
                    continue;
                }
                again += 1;
            }
            if caller.stack.is_none() {
                caller.stack = engine.shared_stack(*id);
            }
            if let Some(stack) = caller.stack.clone() {
                caller.ask(groupings);
                unnamed.push((caller.tgid, stack));
            }
        }
        unnamed
    }

    /// Asks for the names of some stacks again: nobody had the time.
    pub fn ask_again(&mut self, stacks: &[(u32, Arc<SharedStack>)]) {
        for (_, stack) in stacks {
            if let Some(caller) = self.stacks.get_mut(&stack.id) {
                caller.asked = Groupings::default();
            }
        }
    }

    /// Takes the names of a stack, be it that another session has asked for them, and perhaps in other groupings.
    pub fn name(&mut self, id: u64, stacks: &Stacks, unanswered_ns: Option<u64>) {
        if let Some(caller) = self.stacks.get_mut(&id) {
            caller.name(stacks, unanswered_ns);
        }
    }

    /// As it stands.
    pub fn picture(
        &self,
        engine: &Engine,
        by: Grouping,
        moment: &Moment<'_>,
        open: &[OpenSystemCall],
    ) -> SyscallsPicture {
        let open_of = self.own_open(open);
        let stack_of = |id: u64| {
            let caller = self.stacks.get(&id);
            let names = caller.and_then(|caller| caller.names.of(by));
            names.unwrap_or_default().to_vec()
        };
        let mut lost: Losses = losses(engine);
        for (reason, count) in &mut lost {
            *count -= self.before.get(reason).copied().unwrap_or(0).min(*count);
        }
        lost.insert(STACKS_FULL, self.calls.unplaced() + self.beyond_stacks);
        lost.retain(|_, count| *count > 0);
        lost.extend(&moment.also_lost);
        SyscallsPicture {
            scope: Arc::clone(moment.scope),
            by,
            frames: moment.frames.clone(),
            calls: self.calls.table(&open_of, stack_of),
            begun_before: self.calls.begun_before(),
            watched_ns: self
                .since_ns
                .map_or(0, |since_ns| moment.now_ns.saturating_sub(since_ns)),
            lost,
            cost: moment.cost,
            ended: moment.ended.cloned(),
        }
    }
}

/// Calls that were not counted, by reason, since the programs were loaded.
pub fn losses(engine: &Engine) -> Losses {
    let counts = [
        engine.counter(Counter::SyscallLimit),
        engine.counter(Counter::SyscallOpenLimit),
        engine.missed_calls(),
    ];
    CALL_LOSSES.into_iter().zip(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_had_no_answer_are_asked_for_again_and_others_are_not() {
        let asked: Groupings = [Grouping::Function].into_iter().collect();
        let [partial, whole] = [1, 2].map(|frame| Stacks::make(asked, |_| vec![FrameId(frame)]));
        let mut caller = CallerStack::of(1);
        caller.ask(asked);
        caller.name(&partial, Some(0));
        assert_eq!(caller.names, partial);
        assert!(!caller.is_to_be_asked_again(ASK_AGAIN_NS - 1));
        assert!(caller.is_to_be_asked_again(ASK_AGAIN_NS));
        caller.ask(asked);
        assert!(!caller.is_to_be_asked_again(u64::MAX), "it is under way");
        caller.name(&partial, Some(ASK_AGAIN_NS));
        assert!(caller.is_to_be_asked_again(2 * ASK_AGAIN_NS));
        caller.name(&whole, None);
        // Another session asked when something did not answer.
        caller.name(&partial, Some(ASK_AGAIN_NS));
        assert_eq!(caller.names, whole);
        assert!(!caller.is_to_be_asked_again(u64::MAX));
    }
}
