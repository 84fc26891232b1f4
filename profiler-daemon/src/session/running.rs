//! The state while there are sessions: the loaded programs, and the records that they write.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    iter,
    sync::Arc,
};

use profiler_aggregate::ThreadId;
use profiler_common::record::SampleHeader;
use profiler_symbolize::FrameTable;

use super::{
    admissions::{Admissions, Changed},
    attendance::Attendance,
    calibrate::{self, CallCost, HitCosts},
    command::{Caller, Reply},
    cost::monotonic_ns,
    error::{Reason, SessionError},
    measure::{self, Ended, Measured, MeasuredFile, Measuring},
    name::SessionName,
    pace::{Pace, TICK_NS},
    picture::ExitMethod,
    prepare::Prepared,
    records::OffAtFirst,
    split_off,
    state::{ProbeCosts, Session},
    symbols::{Dropped, Symbols, Wanted},
    system_calls::{self, TakenTurn},
    timeline::Shares,
};
use crate::{
    cache::Folder,
    follow::Following,
    kernel::{Detached, Engine, Interval, KernelError, OpenSystemCall, Record, StillOff},
};

/// Longest wait for unwind tables before stacks are taken.
pub const OPENING_NS: u64 = 10_000_000_000;

/// Time between ticks while somebody waits for that, at first, or for what is recorded first.
const OPENING_TICK_NS: u64 = 5_000_000;

/// So long after a session was made, what it records is looked for often: it takes two ticks to be shown.
const FIRST_RECORDS_NS: u64 = 200_000_000;

/// Records taken at once, so that commands are not kept waiting.
const MAX_RECORDS: usize = 16_384;

/// No record is smaller, with the ring buffer's own word.
const RECORD_MIN_BYTES: usize = 32;

/// Records handed to the symbols thread at once.
const BATCH: usize = 1024;

/// A process whose stacks a session that is being made will take.
pub struct ExpectedProcess {
    pub pid: u32,
    /// So long the session is waited for.
    pub until_ns: u64,
}

/// What exists only while there are sessions, unless it is to be kept loaded: nothing is attached while nobody watches.
pub struct Running {
    pub engine: Engine,
    /// Size of its ring buffer.
    pub ring_bytes: u32,
    /// Which processes its programs may look at.
    pub admissions: Admissions,
    pub following: Following,
    /// Processes can be sampled that could not when the sampler was last set.
    pub has_new_tables: bool,
    /// When the sampler was last set.
    pub sampler_set_ns: u64,
    /// Sees which processes are still there.
    pub attendance: Attendance,
    /// Where what is made of large files is kept.
    pub folder: Option<Arc<Folder>>,
    pub symbols: Symbols,
    /// Frames by number.
    pub frames: FrameTable,
    /// Whether there may be more of these than at the start.
    pub has_names: bool,
    pub opening: Vec<Opening>,
    /// Places at which hits are counted for a moment.
    pub measuring: Vec<Measuring>,
    /// Who is answered once nothing of what has ended is on a target.
    pub leavers: Vec<Leaver>,
    /// Processes whose stacks a session that is being made will take.
    pub expected: Vec<ExpectedProcess>,
    /// What somebody looks at of what is recorded.
    pub wanted: Wanted,
    /// What probing a call costs, by how its end is seen.
    pub call_costs: HashMap<ExitMethod, CallCost>,
    /// What it costs to reach a probe, once it was asked for; `None` in it where that could not be measured.
    pub hit_costs: OnceCell<Option<HitCosts>>,
    /// Until then it stays, though there may be no session: one is being prepared.
    pub keep_until_ns: u64,
    /// How often that was asked for.
    pub preparations: u64,
    /// Until then the first records of a session are looked for.
    pub first_records_ns: u64,
    pub pace: Pace,
    /// Which turns of counting system calls are to be taken.
    pub turns: CallTurns,
    /// How much time goes into users' timelines.
    pub shares: Shares,
    pub next_tick_ns: u64,
    pub next_read_ns: u64,
}

/// When turns of counting system calls began.
#[derive(Default)]
pub struct CallTurns {
    /// The first that was not taken.
    untaken_ns: u64,
    /// The one that goes on.
    current_ns: u64,
    /// Calls that had not returned when it began, where that was looked at.
    open: Option<Vec<OpenSystemCall>>,
}

/// Who is answered once what was detached is off the target.
pub struct Leaver {
    detached: Detached,
    answer: Box<dyn FnOnce() + Send>,
}

/// A stream or session that takes stacks and is not open yet: the tables to walk its stacks by are being made, or the events opened that
/// they are taken at, or it is looked who is off the CPU.
pub struct Opening {
    /// Those that it may still wait for.
    pub pids: Vec<u32>,
    /// Then it opens all the same.
    pub until_ns: u64,
    /// The session that it is a stream of; `None` of a session that is being made.
    pub stream_of: Option<SessionName>,
    /// Opens it, unless something is why it cannot be.
    pub open: Box<dyn FnOnce(Option<SessionError>) + Send>,
}

impl Opening {
    /// A session that is opened by an answer.
    pub fn new(
        pids: Vec<u32>,
        until_ns: u64,
        open: impl FnOnce(Option<SessionError>) + Send + 'static,
    ) -> Self {
        Self {
            pids,
            until_ns,
            stream_of: None,
            open: Box::new(open),
        }
    }

    /// From one look whether it can be opened to the next: nobody waits much longer for that than for the tables.
    fn tick_ns(&self, now_ns: u64) -> u64 {
        let waited_ns = OPENING_NS.saturating_sub(self.until_ns.saturating_sub(now_ns));
        (waited_ns / 16).clamp(OPENING_TICK_NS, TICK_NS)
    }

    /// The same of a stream of a session.
    pub fn of_stream(mut self, session: SessionName) -> Self {
        self.stream_of = Some(session);
        self
    }
}

impl Running {
    /// Whether somebody waits for a session or stream whose processes all have their tables.
    pub fn can_open_any(&self) -> bool {
        let has_tables = |pid: &u32| !self.following.is_awaited(*pid);
        let mut opening = self.opening.iter();
        opening.any(|opening| opening.pids.iter().all(has_tables))
    }

    /// Answers those whose targets are sampled by now, or who have waited long enough.
    pub fn open(&mut self, sessions: &mut BTreeMap<SessionName, Session>, now_ns: u64) {
        sessions.values_mut().for_each(Session::take_begun);
        let following = &self.following;
        let is_open = |opening: &mut Opening| {
            // Those whose tables are there are not asked about again.
            while opening.pids.pop_if(|pid| !following.is_awaited(*pid)).is_some() {}
            let session = opening.stream_of.as_ref().and_then(|name| sessions.get(name));
            let is_ready = opening.pids.is_empty() && !session.is_some_and(Session::is_beginning);
            opening.until_ns <= now_ns || is_ready
        };
        let opened: Vec<Opening> = self.opening.extract_if(.., is_open).collect();
        for Opening { stream_of, open, .. } in opened {
            let session = stream_of.and_then(|name| sessions.get_mut(&name));
            open(session.and_then(Session::take_refused_event));
        }
        let ticks = self.opening.iter().map(|opening| opening.tick_ns(now_ns));
        if let Some(tick_ns) = ticks.min() {
            self.next_tick_ns = self.next_tick_ns.min(now_ns + tick_ns);
        }
    }

    /// Answers a request once what was detached for it is off its target, or it is not known when it will be.
    pub fn answer_when_left<T: Send + 'static>(
        &mut self,
        detached: Detached,
        reply: Reply<T>,
        answer_with: T,
    ) {
        self.leavers.push(Leaver {
            detached,
            answer: Box::new(move || answer(reply, Ok(answer_with))),
        });
    }

    /// Answers all of them, be it too early.
    pub fn answer_all(&mut self) {
        for Leaver { answer, .. } in std::mem::take(&mut self.leavers) {
            answer();
        }
    }

    /// Stays loaded until a time, at least.
    pub fn keep(&mut self, until_ns: u64) {
        self.keep_until_ns = self.keep_until_ns.max(until_ns);
        self.preparations += 1;
    }

    /// Answers those whose probes are off by now. Whether there were any.
    pub fn answer_left(&mut self) -> bool {
        self.engine.settle_leaving();
        let engine = &self.engine;
        let left = self
            .leavers
            .extract_if(.., |leaver| engine.has_left(&leaver.detached));
        let left: Vec<Leaver> = left.collect();
        let is_any = !left.is_empty();
        for Leaver { answer, .. } in left {
            answer();
        }
        is_any
    }

    /// Whether somebody waits for probes to be off the target.
    pub fn has_leavers(&self) -> bool {
        !self.leavers.is_empty()
    }

    /// Number of streams of a session that are not open yet.
    pub fn unopened(&self, session: &SessionName) -> usize {
        let streams = self
            .opening
            .iter()
            .filter_map(|opening| opening.stream_of.as_ref());
        streams.filter(|stream_of| *stream_of == session).count()
    }

    /// Counts how often places are reached, for a moment.
    pub fn measure(&mut self, caller: Caller, files: &[MeasuredFile], reply: Reply<Measured>) {
        match measure::attach(&mut self.engine, files) {
            Ok(attachments) => {
                let now_ns = monotonic_ns();
                let measuring = Measuring::new(&self.engine, caller, attachments, reply, now_ns);
                self.measuring.push(measuring);
                self.end_measuring(now_ns);
            }
            Err(error) => answer(reply, Err(error)),
        }
    }

    /// Ends what is counted of a process that changed, for those who may look at it no more.
    pub fn refuse_measuring(&mut self, change: &Changed) {
        let closed = self.measuring.extract_if(.., |measuring| {
            measuring.pids().any(|pid| pid == change.pid)
                && change.reason_to_leave(measuring.caller()).is_some()
        });
        for measuring in closed.collect::<Vec<_>>() {
            self.admissions.unsettle();
            let leaving = change.reason_to_leave(measuring.caller());
            let reason = leaving.map(|leaving| leaving.reason).unwrap_or_default();
            measuring.refuse(&mut self.engine, SessionError::new(Reason::TargetGone, reason));
        }
    }

    /// Those for whom is counted at places of a process.
    pub fn measuring_callers(&self, pid: u32) -> impl Iterator<Item = Caller> + '_ {
        let counted = self.measuring.iter();
        counted
            .filter(move |measuring| measuring.pids().any(|other| other == pid))
            .map(Measuring::caller)
    }

    /// Ends what was counted for long enough.
    pub fn end_measuring(&mut self, now_ns: u64) {
        let engine = &self.engine;
        let over = self
            .measuring
            .extract_if(.., |measuring| measuring.is_over(engine, now_ns));
        for measuring in over.collect::<Vec<_>>() {
            self.admissions.unsettle();
            let mut ended = None;
            let detached = self
                .engine
                .detached_by(|engine| ended = Some(measuring.end(engine, now_ns)));
            if let Some(Ended { reply, measured }) = ended {
                self.answer_when_left(detached, reply, measured);
            }
        }
        if !self.measuring.is_empty() {
            self.next_tick_ns = self.next_tick_ns.min(now_ns + measure::TICK_NS);
        }
    }

    /// When the ring buffer is to be looked at again, after now.
    pub fn tick_after<'a>(&mut self, sessions: impl Iterator<Item = &'a Session>, now_ns: u64) -> u64 {
        let mut due_ns = u64::MAX;
        for session in sessions {
            if session.is_of_ticks() {
                due_ns = due_ns.min(session.next_flame_ns());
            } else {
                self.pace.disturb(now_ns);
            }
        }
        if now_ns < self.first_records_ns {
            return now_ns + OPENING_TICK_NS;
        }
        // A picture that is due at this very tick is made at its end.
        let due_ns = if due_ns > now_ns { due_ns } else { u64::MAX };
        let tick_ns = self.pace.tick_ns(self.engine.ticks_per_second(), now_ns);
        (now_ns + tick_ns).min(due_ns.max(now_ns + TICK_NS))
    }

    /// Forgets all names and the files that they came from, behind the last session: there may be only so many, and what one
    /// client loaded is not another's. Whether that could be done.
    pub fn renew_names(&mut self) -> bool {
        if !self.has_names {
            return true;
        }
        match Symbols::start(self.engine.allocations(), split_off::finder(self.folder.as_ref())) {
            Ok((symbols, frames)) => {
                self.symbols = symbols;
                self.frames = frames;
                self.has_names = false;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "no thread for names");
                false
            }
        }
    }

    /// Looks at the ring buffer often for a moment, as somebody waits for the first records.
    pub fn expect_records(&mut self, now_ns: u64) {
        self.first_records_ns = now_ns + FIRST_RECORDS_NS;
        self.next_tick_ns = self.next_tick_ns.min(now_ns + OPENING_TICK_NS);
    }

    /// Looks at the ring buffer soon, as something was asked for.
    pub fn hurry(&mut self, now_ns: u64) {
        self.pace.disturb(now_ns);
        self.next_tick_ns = self.next_tick_ns.min(now_ns + TICK_NS);
    }

    /// Moves records from the ring buffer to the symbols thread, so many that commands need not wait for long; whether there may be more.
    pub fn drain(&mut self, now_ns: u64) -> bool {
        let mut records = Vec::new();
        let (following, pace) = (&mut self.following, &mut self.pace);
        let drained = self.engine.drain(MAX_RECORDS, |record| {
            let stack = match &record {
                Record::Sample { tgid, flags, .. } => Some((*tgid, *flags)),
                Record::Hit(hit) => hit.stack.as_ref().map(|stack| (hit.tgid, stack.flags)),
                Record::OffCpu(interval) => {
                    let stack = interval.stack.as_deref();
                    stack.map(|stack| (interval.tgid, stack.user.flags))
                }
                Record::SpanEnd(_) | Record::Weight(_) | Record::SystemCall(_) => None,
            };
            let is_new = stack.is_some_and(|(_, flags)| flags & SampleHeader::USER_NO_TABLE != 0);
            if let Some((tgid, _)) = stack
                && is_new
            {
                following.new_code(tgid, now_ns);
            }
            if is_new || !matches!(record, Record::Sample { event: 0, .. }) {
                pace.disturb(now_ns);
            }
            records.push(record);
        });
        for batch in batches(records) {
            self.symbols.send(batch, self.wanted, now_ns);
        }
        drained == MAX_RECORDS
    }

    /// Moves all records that are in the ring buffer by now; no more than it can hold, where more comes all the time.
    pub fn drain_all(&mut self, now_ns: u64) {
        let most = self.ring_bytes as usize / RECORD_MIN_BYTES / MAX_RECORDS + 1;
        for _ in 0..most {
            if !self.drain(now_ns) {
                return;
            }
        }
    }

    /// Ends the turn of counting system calls, so that all that was counted can be taken; stacks come before what is counted
    /// by them.
    pub fn end_turn(&mut self, now_ns: u64) {
        self.engine.turn_calls(true);
        self.turns.current_ns = now_ns.max(self.turns.current_ns);
        self.turns.open = None;
        self.drain_all(now_ns);
    }

    /// Begins another turn; `is_recorded`: with what had not returned by then.
    pub fn next_turn(&mut self, is_recorded: bool) {
        self.engine.turn_calls(false);
        self.turns.current_ns = monotonic_ns();
        self.turns.open = is_recorded.then(|| open_calls(&self.engine));
    }

    /// Gives sessions what was counted of system calls in earlier turns, and has the stacks named that are new to them.
    pub fn take_calls<'a>(&mut self, sessions: impl Iterator<Item = &'a mut Session>, now_ns: u64) {
        let from_ns = std::mem::replace(&mut self.turns.untaken_ns, self.turns.current_ns);
        let to_ns = self.turns.current_ns;
        let mut open = self.turns.open.take();
        let (counted, is_read) = match self.engine.take_calls() {
            Ok(counted) => (counted, true),
            Err(error) => {
                tracing::warn!(%error, "system calls could not be read");
                (Vec::new(), false)
            }
        };
        let lost = system_calls::losses(&self.engine);
        for session in sessions {
            session.take_calls(&counted);
            if is_read && session.records_calls() {
                session.record_calls(&TakenTurn {
                    counted: &counted,
                    from_ns,
                    to_ns,
                    open: open.get_or_insert_with(|| open_calls(&self.engine)),
                    lost: &lost,
                });
            }
            let (stacks, groupings) = session.unnamed_callers(&self.engine, now_ns);
            for (tgid, stack) in &stacks {
                if stack.user.flags & SampleHeader::USER_NO_TABLE != 0 {
                    self.following.new_code(*tgid, now_ns);
                }
            }
            for part in stacks.chunks(BATCH) {
                if !self.symbols.name_callers(part.to_vec(), groupings, now_ns) {
                    session.ask_again(part);
                }
            }
        }
    }

    /// Hands over what some processes' threads still did off the CPU, as far as these were off it by another account.
    pub fn send_still_off(
        &mut self,
        still_off: &[StillOff],
        off: Option<&OffAtFirst>,
        pids: &[u32],
        now_ns: u64,
    ) {
        let is_as_told = |interval: &Interval| {
            let Interval { tgid, tid, .. } = *interval;
            let could_run = interval.woken_ns < now_ns;
            // Else its return was not seen.
            off.is_none_or(|off| off.threads.contains(&ThreadId { tgid, tid }) != could_run)
        };
        let engine = &mut self.engine;
        let intervals = still_off
            .iter()
            .filter_map(|thread| engine.interval_of(thread, now_ns));
        let own = intervals.filter(|interval| pids.contains(&interval.tgid) && is_as_told(interval));
        let records: Vec<Record> = own.map(Record::OffCpu).collect();
        for batch in batches(records) {
            self.symbols.send(batch, self.wanted, now_ns);
        }
    }

    /// Measures methods that are used, once each.
    pub fn calibrate(&mut self, methods: impl IntoIterator<Item = ExitMethod>) {
        for method in methods {
            if self.call_costs.contains_key(&method) {
                continue;
            }
            let measured: Result<CallCost, KernelError> = calibrate::call_cost(&mut self.engine, method);
            match measured {
                Ok(cost) => {
                    self.call_costs.insert(method, cost);
                }
                // Tried again when it is used again.
                Err(error) => tracing::warn!(%error, "the probes' own cost could not be measured"),
            }
        }
    }

    /// Has a session attach something else, which was prepared: what it has recorded until then is of what was attached before.
    ///
    /// # Errors
    /// Those of attaching.
    pub fn attach_anew<T>(
        &mut self,
        session: &mut Session,
        prepared: Prepared,
        attach: impl FnOnce(&mut Session, &mut Engine, (Dropped, Prepared), u64) -> Result<T, KernelError>,
    ) -> Result<T, KernelError> {
        self.calibrate(prepared.exit_methods());
        let (dropped, now_ns) = (self.symbols.dropped(), monotonic_ns());
        session.flush_records(&self.engine, &self.frames, dropped, now_ns);
        let attached = attach(session, &mut self.engine, (dropped, prepared), now_ns)?;
        self.set_costs(session);
        session.renew_records();
        session.read(&self.engine, now_ns);
        Ok(attached)
    }

    /// Tells a session what its probes cost.
    pub fn set_costs(&mut self, session: &mut Session) {
        let programs_do_ret = self.engine.ability().write_context;
        let has_stepped = session.has_stepped_ends(programs_do_ret);
        session.set_costs(ProbeCosts {
            hits: has_stepped.then(|| self.hit_costs()).flatten(),
            calls: &self.call_costs,
            programs_do_ret,
        });
    }

    /// What it costs to reach a probe, measured once; `None` where that cannot be measured.
    pub fn hit_costs(&mut self) -> Option<HitCosts> {
        *self.hit_costs.get_or_init(|| {
            calibrate::hit_costs_ns(&mut self.engine)
                .inspect_err(|error| tracing::warn!(%error, "what a probe costs could not be measured"))
                .ok()
        })
    }
}

/// Records in batches, none of which takes more memory than its own records do: many may wait.
fn batches(records: Vec<Record>) -> impl Iterator<Item = Vec<Record>> {
    let mut rest = records.into_iter();
    iter::from_fn(move || {
        let mut batch = Vec::with_capacity(rest.len().min(BATCH));
        batch.extend(rest.by_ref().take(BATCH));
        (!batch.is_empty()).then_some(batch)
    })
}

/// System calls that have not returned.
pub fn open_calls(engine: &Engine) -> Vec<OpenSystemCall> {
    engine.open_calls().unwrap_or_else(|error| {
        tracing::warn!(%error, "open system calls could not be read");
        Vec::new()
    })
}

/// Answers a request.
pub fn answer<T>(reply: Reply<T>, result: Result<T, SessionError>) {
    // The client may have left meanwhile.
    let _ = reply.send(result);
}

#[cfg(test)]
mod tests {
    use profiler_common::{probe::ProbeId, record};

    use super::*;

    #[test]
    fn waiting_records_take_no_extra_memory() {
        let end = record::SpanEnd {
            kind: record::SPAN_END,
            flags: 0,
            tgid: 1,
            tid: 1,
            probe: ProbeId(1),
            hits: 0,
            sequence: 0,
            start_ns: 0,
            end_ns: 0,
            parent: 0,
            gates: 0,
            returned: [0; 2],
        };
        let numbered = |sequence| Record::SpanEnd(record::SpanEnd { sequence, ..end });
        let records: Vec<Record> = (0..10 * BATCH as u64 + 7).map(numbered).collect();
        let all: Vec<Vec<Record>> = batches(records.clone()).collect();
        assert_eq!(all.len(), 11);
        let room: usize = all.iter().map(Vec::capacity).sum();
        assert!(room <= records.len() + BATCH, "{room}");
        assert!(all.iter().all(|batch| batch.len() <= BATCH));
        assert!(all.concat() == records);
        assert_eq!(batches(Vec::new()).count(), 0);
    }
}
