//! Attaching probes to functions, and detaching them.

use std::{
    collections::HashSet,
    ffi::CString,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use aya::maps::{Array, MapData};
use profiler_common::{
    condition::Condition,
    instruction::{Action, Operation},
    limits::MAX_SITES,
    probe::{Cookie, ProbeId},
};
use profiler_plan::exits::Way;

use super::{
    AttachKind, Engine, KernelError, allocations,
    closing::{self, Closing},
    events::EventLink,
    gates::Gates,
    hits::{HIT, HIT_PAGING, LookSpec, Plans},
    kernel_functions::{FunctionLinks, KernelFunction, Seen},
    leaving::Held,
    perf::{self, PerfLinks},
    watched_calls::Call,
};

/// Bytes of a jump with its distance.
const JUMP_BYTES: u64 = 5;

/// A place where a span ends.
#[derive(Clone, Debug)]
pub struct ExitSite {
    /// File offset of the instruction.
    pub offset: u64,
    /// What the instruction means.
    pub action: Action,
    /// How what is timed is left there.
    pub way: Way,
    /// The way that a conditional jump has to go there; `None` for either.
    pub condition: Option<Condition>,
    /// It is what is behind a call, and ends the span only where that has returned.
    pub is_behind_call: bool,
    /// It is in another function, whose own callers come there too.
    pub is_elsewhere: bool,
}

impl ExitSite {
    /// Bytes of its instruction, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.way {
            Way::Return => 1,
            Way::Jump | Way::ByPointer | Way::ByTable => JUMP_BYTES,
        }
    }

    /// An instruction that ends the span whenever it is reached.
    #[must_use]
    pub fn new(offset: u64, action: Action) -> Self {
        Self {
            offset,
            action,
            way: Way::Return,
            condition: None,
            is_behind_call: false,
            is_elsewhere: false,
        }
    }
}

/// Where a span ends.
#[derive(Clone, Debug)]
pub enum Ends {
    /// At a return probe of the kernel.
    ReturnProbe,
    /// At each of these.
    At(Vec<ExitSite>),
    /// At no place in a file: it is given up once the thread is certainly outside of it.
    Never,
}

impl Ends {
    /// Those in functions that it ends in jumps to: what begins there at its stack pointer does not end it.
    pub fn elsewhere(&self) -> impl Iterator<Item = &ExitSite> {
        let exits = match self {
            Self::At(exits) => exits.as_slice(),
            Self::ReturnProbe | Self::Never => &[],
        };
        exits.iter().filter(|exit| exit.is_elsewhere)
    }
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    /// Calls of a function.
    Function,
    /// One call: what its exits are is behind its instruction, which has this length.
    Call {
        /// In bytes.
        length: u8,
    },
    /// A part of a function, within which the stack pointer stays what it is: what is inlined.
    Inlined,
    /// System calls. What else is said of places in a file is not used.
    SystemCall {
        /// Their number.
        number: u32,
        /// The number of the tracepoint that each passes when it begins.
        tracepoint: u64,
    },
    /// Calls of a function of the kernel. What else is said of places in a file is not used.
    KernelFunction {
        /// Its address.
        address: u64,
    },
}

impl SpanKind {
    /// What its cookies say of it.
    fn flag(self) -> u8 {
        match self {
            Self::Function => 0,
            Self::Call { .. } => Cookie::CALL_SITE,
            Self::Inlined | Self::SystemCall { .. } | Self::KernelFunction { .. } => Cookie::INLINED,
        }
    }
}

/// A function to be probed.
#[derive(Clone, Debug)]
pub struct ProbeSpec {
    /// File offset of the entry probe.
    pub entry_offset: u64,
    /// What the instruction there means.
    pub entry_action: Action,
    /// The entry is reached again within a span, at the same stack pointer.
    pub loops: bool,
    /// Where the span ends.
    pub ends: Ends,
    /// Programs do the probed instructions themselves.
    pub done_by_program: bool,
    /// The target may switch stacks.
    pub stacks_switch: bool,
    /// Its step's place in a scope.
    pub gates: Gates,
    /// What is looked at where it begins.
    pub look: Option<LookSpec>,
    /// What is timed.
    pub kind: SpanKind,
}

/// An instruction in a file to which a program is attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Where in the file it is.
    pub(super) offset: u64,
    /// What the program is told there: a [`Cookie`], or that of an allocator.
    pub(super) cookie: u64,
}

/// Where a program is attached.
pub(super) struct Placed {
    program: &'static str,
    sites: Vec<Site>,
}

/// Live probes of functions or of single instructions. They stay attached until [`Engine::detach`] takes this back.
pub struct Attachment {
    pid: u32,
    file: PathBuf,
    /// Where spans begin, or the lines are.
    pub(super) entries: Vec<Placed>,
    /// Where spans end.
    exits: Vec<Placed>,
    pub(super) probes: Vec<ProbeId>,
    pub(super) sites: Vec<u32>,
    pub(super) plans: Vec<Plans>,
    pub(super) links: Links,
    /// System calls to be watched, and those that are.
    calls: Vec<Call>,
    watched: Vec<Call>,
    pub(super) events: Vec<EventLink>,
    /// Functions of the kernel whose calls are to be seen.
    functions: Vec<KernelFunction>,
    pub(super) function_links: FunctionLinks,
    /// Links that are being closed: until they are, their programs may still run, and go by what was theirs.
    closing: Vec<Closing>,
    /// What is attached in their place once they are closed.
    anew: Option<Anew>,
}

/// What is attached once more, as others have to go or to run before.
struct Anew {
    /// Not only where spans begin, but also where they end.
    exits: bool,
}

impl Attachment {
    /// The probes, in the order of the specifications.
    #[must_use]
    pub fn probes(&self) -> &[ProbeId] {
        &self.probes
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether its probes are on the target, or will be.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        !self.links.is_empty() || self.anew.is_some()
    }

    /// Whether some of its probes will be attached once others are closed ([`Engine::attach_again`]).
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.anew.is_some()
    }

    /// Whether all of its probes that were taken off the target are off it, or it is not known when they will be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let mut closing = self.closing.iter();
        closing.all(|closing| closing.is_over() || closing.is_stuck())
    }

    fn is_stuck(&self) -> bool {
        self.closing.iter().any(Closing::is_stuck)
    }

    /// Whether a program may still run that was taken off its process.
    #[must_use]
    pub fn may_run_on(&self) -> bool {
        !self.closing.iter().all(Closing::is_over)
    }

    /// How long probes that are off now went on counting until their turn to be taken off came.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let delays = self.closing.iter().map(Closing::delay);
        delays.max().unwrap_or_default()
    }

    /// Waits until it is settled.
    pub fn wait_until_settled(&self) {
        for closing in &self.closing {
            closing.wait();
        }
    }

    /// The file, as the kernel finds it.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Where in the file its spans begin or its lines are.
    pub fn entry_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        offsets(self.entries.iter())
    }

    /// Where in the file its spans end: not those that a return probe sees to end, which is at no instruction of the file.
    pub fn exit_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let placed = self.exits.iter().filter(|placed| placed.program != RETURN);
        offsets(placed)
    }
}

fn offsets<'a>(placed: impl Iterator<Item = &'a Placed>) -> impl Iterator<Item = u64> {
    let sites = placed.flat_map(|placed| &placed.sites);
    sites.map(|site| site.offset)
}

impl Links {
    fn is_empty(&self) -> bool {
        match self {
            Self::Multi { entries, exits } => entries.is_empty() && exits.is_empty(),
            Self::Perf { entries, exits } => entries.is_empty() && exits.is_empty(),
        }
    }
}

/// Links by which probes are attached; within each, entries before exits, the order of detaching.
pub(super) enum Links {
    Multi {
        entries: Vec<OwnedFd>,
        exits: Vec<OwnedFd>,
    },
    Perf {
        entries: Vec<PerfLinks>,
        exits: Vec<PerfLinks>,
    },
}

impl Links {
    /// Where no end is waited for any more: all in one group, which takes half as long.
    fn at_once(self) -> Self {
        match self {
            Self::Multi { mut entries, exits } => {
                entries.extend(exits);
                Self::Multi {
                    entries,
                    exits: Vec::new(),
                }
            }
            links @ Self::Perf { .. } => links,
        }
    }

    /// Closes them, entries before exits.
    pub(super) fn close(self) -> Closing {
        match self {
            Self::Multi { entries, exits } => closing::close(closing::links(entries), closing::links(exits)),
            Self::Perf { entries, exits } => closing::close_events(perf::links(entries), perf::links(exits)),
        }
    }
}

/// The programs' names by role.
pub(super) const ENTRY: &str = "span_entry";
pub(super) const ENTRY_STEP: &str = "span_entry_step";
pub(super) const ENTRY_LOOK: &str = "span_entry_look";
pub(super) const ENTRY_LOOK_PAGING: &str = "span_entry_look_paging";
pub(super) const RETURN: &str = "span_return";
pub(super) const RET: &str = "span_ret";
pub(super) const RET_STEP: &str = "span_ret_step";

impl Engine {
    /// Attaches probes to one file of one process; all or none. When this returns, every call counts.
    ///
    /// # Errors
    /// Where the kernel refuses a site, or slots run out; nothing stays attached.
    pub fn attach(&mut self, pid: u32, file: &Path, specs: &[ProbeSpec]) -> Result<Attachment, KernelError> {
        let mut attachment = self.attach_ends(pid, file, specs)?;
        match self.attach_entries(&mut attachment) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    /// Attaches what sees spans end; none is seen to begin until [`Self::attach_entries`].
    ///
    /// # Errors
    /// As of [`Self::attach`].
    pub fn attach_ends(
        &mut self,
        pid: u32,
        file: &Path,
        specs: &[ProbeSpec],
    ) -> Result<Attachment, KernelError> {
        self.attach_all_or_none(pid, file, |engine, attachment| {
            engine.attach_all_ends(pid, specs, attachment)
        })
    }

    /// What reads values at lines. Multi links came later than programs that may wait for pages.
    pub(super) fn hit_program(&self) -> &'static str {
        match self.ability.attach {
            AttachKind::Multi => HIT_PAGING,
            AttachKind::Perf => HIT,
        }
    }

    /// What reads values where spans begin.
    pub(super) fn entry_look_program(&self) -> &'static str {
        match self.ability.attach {
            AttachKind::Multi => ENTRY_LOOK_PAGING,
            AttachKind::Perf => ENTRY_LOOK,
        }
    }

    /// Attaches what sees spans begin. Of the programs at one instruction, the kernel runs the one first that was attached
    /// last.
    ///
    /// # Errors
    /// Where the kernel refuses; the attachment has then to be detached.
    pub fn attach_entries(&mut self, attachment: &mut Attachment) -> Result<(), KernelError> {
        self.attach_entries_in_files(attachment)?;
        for call in &attachment.calls {
            self.watch_call(*call)?;
            attachment.watched.push(*call);
        }
        let Attachment {
            functions,
            function_links,
            ..
        } = attachment;
        self.attach_functions(functions, Seen::Calls, function_links)
    }

    /// Those of them that lie in files.
    pub(super) fn attach_entries_in_files(&mut self, attachment: &mut Attachment) -> Result<(), KernelError> {
        let Attachment {
            pid,
            file,
            entries,
            links,
            probes,
            ..
        } = attachment;
        for Placed { program, sites } in &*entries {
            self.attach_program(program, *pid, file, sites, false, links)?;
        }
        for probe in &*probes {
            self.counts.set_unmatched(*probe, 0);
        }
        Ok(())
    }

    /// Has what sees spans begin, or lines, in files attached anew by [`Self::attach_again`], so that it runs before all else at the same
    /// instructions. Calls that begin meanwhile are not seen to.
    pub fn let_pass(&mut self, attachment: &mut Attachment) {
        let mut links = self.no_links();
        match (&mut links, &mut attachment.links) {
            (Links::Multi { entries, .. }, Links::Multi { entries: known, .. }) => {
                std::mem::swap(entries, known);
            }
            (Links::Perf { entries, .. }, Links::Perf { entries: known, .. }) => {
                std::mem::swap(entries, known);
            }
            _ => {}
        }
        self.close_for_others(links, false, attachment);
    }

    /// Closes links that have others in their place next.
    fn close_for_others(&mut self, links: Links, exits: bool, attachment: &mut Attachment) {
        self.hold_unmatched(attachment);
        attachment.closing.push(links.close());
        let anew = attachment.anew.get_or_insert(Anew { exits: false });
        anew.exits |= exits;
    }

    /// Counts no more ends without a beginning from now on: the entries are gone, and these calls did not begin too early.
    fn hold_unmatched(&mut self, attachment: &Attachment) {
        for probe in &attachment.probes {
            let unmatched = self.counts.probe(*probe).unmatched;
            self.unmatched_at_end.entry(*probe).or_insert(unmatched);
        }
    }

    /// Counts them again, from what there were before.
    fn count_unmatched(&mut self, attachment: &Attachment) {
        for probe in &attachment.probes {
            if let Some(unmatched) = self.unmatched_at_end.remove(probe) {
                self.counts.set_unmatched(*probe, unmatched);
            }
        }
    }

    /// Attaches what was to be attached anew, once all links that were in its place are closed; whether that was done. Of several
    /// attachments, each is seen to begin before those that stand before it. Not those of processes that have ended.
    ///
    /// # Errors
    /// Where links cannot be closed, or the kernel refuses what it has taken before: nothing is then seen to begin any more.
    pub fn attach_again(
        &mut self,
        attachments: &mut [&mut Attachment],
        is_alive: impl Fn(u32) -> bool,
    ) -> Result<bool, KernelError> {
        let unless_ended = |attachment: &mut Attachment, attached: Result<(), KernelError>| {
            if attached.is_err() && !is_alive(attachment.pid()) {
                attachment.anew = None;
                return Ok(());
            }
            attached
        };
        if attachments.iter().any(|attachment| !attachment.is_settled()) {
            return Ok(false);
        }
        if attachments.iter().any(|attachment| attachment.is_stuck()) {
            return Err(still_runs());
        }
        for attachment in attachments.iter_mut() {
            attachment.closing.clear();
            if attachment.anew.as_ref().is_some_and(|anew| anew.exits) {
                let attached = self.attach_exits(attachment);
                unless_ended(attachment, attached)?;
            }
        }
        for attachment in attachments.iter_mut().rev() {
            if attachment.anew.take().is_some() {
                let attached = self.attach_entries_in_files(attachment);
                unless_ended(attachment, attached)?;
                self.count_unmatched(attachment);
            }
        }
        Ok(true)
    }

    /// Gives what was attached; where that failed, nothing stays.
    pub(super) fn attach_all_or_none(
        &mut self,
        pid: u32,
        file: &Path,
        attach: impl FnOnce(&mut Self, &mut Attachment) -> Result<(), KernelError>,
    ) -> Result<Attachment, KernelError> {
        let mut attachment = Attachment {
            pid,
            file: file.to_owned(),
            entries: Vec::new(),
            exits: Vec::new(),
            probes: Vec::new(),
            sites: Vec::new(),
            plans: Vec::new(),
            links: self.no_links(),
            calls: Vec::new(),
            watched: Vec::new(),
            events: Vec::new(),
            functions: Vec::new(),
            function_links: FunctionLinks::default(),
            closing: Vec::new(),
            anew: None,
        };
        match attach(self, &mut attachment) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    /// Opens the probes and attaches where their spans end.
    fn attach_all_ends(
        &mut self,
        pid: u32,
        specs: &[ProbeSpec],
        attachment: &mut Attachment,
    ) -> Result<(), KernelError> {
        // By program.
        let (mut entries, mut entries_step, mut entries_look) = (Vec::new(), Vec::new(), Vec::new());
        let (mut returns, mut rets, mut rets_step) = (Vec::new(), Vec::new(), Vec::new());
        for spec in specs {
            let probe = self.open_slot()?;
            attachment.probes.push(probe);
            self.counts.set_gates(probe, spec.gates);
            let flag = |is: bool, flag: u8| if is { flag } else { 0 };
            let switch = flag(spec.stacks_switch, Cookie::STACKS_SWITCH);
            let by_return = flag(matches!(spec.ends, Ends::ReturnProbe), Cookie::RETURN_PROBE);
            let kind = spec.kind.flag();
            if let SpanKind::KernelFunction { address } = spec.kind {
                let look = spec.look.clone().unwrap_or_default();
                self.open_look(probe, 0, None, &look, &mut attachment.plans)?;
                self.hits.set_process(probe, pid);
                let cookie = Cookie::new(probe, 0, kind).0;
                attachment.functions.push(KernelFunction { address, cookie });
                continue;
            }
            if let SpanKind::SystemCall { number, .. } = spec.kind {
                let look = spec.look.clone().unwrap_or_default();
                self.open_look(probe, 0, None, &look, &mut attachment.plans)?;
                self.hits.set_process(probe, pid);
                let cookie = Cookie::new(probe, 0, switch | kind).0;
                attachment.calls.push(Call { pid, number, cookie });
                continue;
            }
            let flags = switch | by_return | kind;
            let step = spec.done_by_program && self.ability.write_context;
            let looks = spec.look.is_some();
            if let Some(look) = &spec.look {
                self.open_look(probe, spec.entry_offset, None, look, &mut attachment.plans)?;
            }
            let call_length = match spec.kind {
                SpanKind::Call { length } => Some(length),
                SpanKind::Function
                | SpanKind::Inlined
                | SpanKind::SystemCall { .. }
                | SpanKind::KernelFunction { .. } => None,
            };
            let entry_step = step && !looks && call_length.is_none() && can_be_done(&spec.entry_action);
            let site = if entry_step {
                self.open_site(&spec.entry_action, &mut attachment.sites)?
            } else {
                call_length.map_or(0, u32::from)
            };
            let own = flag(spec.loops, Cookie::LOOPS)
                | flag(spec.ends.elsewhere().next().is_some(), Cookie::GOES_ON_ELSEWHERE);
            let entry = Site {
                offset: spec.entry_offset,
                cookie: Cookie::new(probe, site, flags | own).0,
            };
            match (looks, entry_step) {
                (true, _) => &mut entries_look,
                (false, true) => &mut entries_step,
                (false, false) => &mut entries,
            }
            .push(entry);
            let exits = match &spec.ends {
                Ends::ReturnProbe => {
                    returns.push(Site {
                        offset: spec.entry_offset,
                        cookie: Cookie::new(probe, 0, flags).0,
                    });
                    continue;
                }
                Ends::At(exits) => exits,
                Ends::Never => continue,
            };
            for exit in exits {
                let exit_step = step && exit.condition.is_none() && can_be_done(&exit.action);
                let site = match exit.condition {
                    Some(condition) => u32::from(condition.number()),
                    None if exit_step || exit.way.may_stay_inside() => {
                        self.open_site(&exit.action, &mut attachment.sites)?
                    }
                    None => 0,
                };
                let flags = flags
                    | flag(exit.way.may_stay_inside(), Cookie::MAY_STAY_INSIDE)
                    | flag(exit.way.is_jump(), Cookie::JUMP)
                    | flag(exit.condition.is_some(), Cookie::BRANCH)
                    | flag(exit.is_behind_call, Cookie::CALL_SITE)
                    | flag(exit.is_elsewhere, Cookie::ELSEWHERE);
                let exit = Site {
                    offset: exit.offset,
                    cookie: Cookie::new(probe, site, flags).0,
                };
                if exit_step { &mut rets_step } else { &mut rets }.push(exit);
            }
        }
        // Exits first: a call that is seen to begin is then always seen to end.
        attachment.exits = placed([(RETURN, returns), (RET, rets), (RET_STEP, rets_step)]);
        self.attach_exits(attachment)?;
        attachment.entries = placed([
            (ENTRY, entries),
            (ENTRY_STEP, entries_step),
            (self.entry_look_program(), entries_look),
        ]);
        Ok(())
    }

    fn attach_exits(&mut self, attachment: &mut Attachment) -> Result<(), KernelError> {
        let Attachment {
            pid,
            file,
            exits,
            links,
            ..
        } = attachment;
        for Placed { program, sites } in &*exits {
            self.attach_program(program, *pid, file, sites, true, links)?;
        }
        Ok(())
    }

    /// Takes some probes of functions off the target: they count nothing any more, and what they have counted can still be read until
    /// [`Self::detach`]. Where one link holds many places, the others are to be [attached again](Self::attach_again), and calls that begin
    /// meanwhile are not seen. Whether they are.
    pub fn take_off(&mut self, attachment: &mut Attachment, probes: &HashSet<ProbeId>) -> bool {
        self.time_no_more(probes);
        let stays = |cookie: u64| !probes.contains(&Cookie(cookie).probe());
        if let Links::Perf { entries, exits } = &mut attachment.links {
            let [mut first, mut then] = [Vec::new(), Vec::new()];
            for (links, placed) in entries.iter_mut().zip(&attachment.entries) {
                first.extend(perf::keep(links, &placed.sites, stays));
            }
            for (links, placed) in exits.iter_mut().zip(&attachment.exits) {
                then.extend(perf::keep(links, &placed.sites, stays));
            }
            // Links may be closed at present, to be opened again.
            for placed in attachment.entries.iter_mut().chain(&mut attachment.exits) {
                placed.sites.retain(|site| stays(site.cookie));
            }
            attachment.closing.push(closing::close_events(first, then));
            return false;
        }
        let links = std::mem::replace(&mut attachment.links, self.no_links());
        self.close_for_others(links, true, attachment);
        for placed in attachment.entries.iter_mut().chain(&mut attachment.exits) {
            placed.sites.retain(|site| stays(site.cookie));
        }
        attachment.entries.retain(|placed| !placed.sites.is_empty());
        attachment.exits.retain(|placed| !placed.sites.is_empty());
        true
    }

    pub(super) fn attach_program(
        &mut self,
        program: &'static str,
        pid: u32,
        file: &Path,
        sites: &[Site],
        is_exit: bool,
        links: &mut Links,
    ) -> Result<(), KernelError> {
        match links {
            Links::Multi { entries, exits } => {
                let path = CString::new(file.as_os_str().as_bytes())
                    .map_err(|error| KernelError::system(file.display().to_string(), error.into()))?;
                let at_return = [RETURN, allocations::RETURN].contains(&program);
                let link = self.multi.attach(program, &path, sites, pid, at_return)?;
                if is_exit { exits } else { entries }.push(link);
            }
            Links::Perf { entries, exits } => {
                let mut attached = PerfLinks::default();
                let all = perf::attach(&mut self.ebpf, program, file, sites, pid, &mut attached);
                // Where one is refused, the others go with the attachment.
                if is_exit { exits } else { entries }.push(attached);
                all?;
            }
        }
        Ok(())
    }

    /// Takes probes off the target; what they have counted can still be read until [`Self::detach`]. They are off once the attachment
    /// is [settled](Attachment::is_settled).
    pub fn quiesce(&mut self, attachment: &mut Attachment) {
        self.hold_unmatched(attachment);
        attachment.anew = None;
        let links = std::mem::replace(&mut attachment.links, self.no_links());
        let places = self.drop_places(
            std::mem::take(&mut attachment.watched),
            std::mem::take(&mut attachment.events),
            std::mem::take(&mut attachment.function_links),
        );
        attachment.closing.extend([places, links.close()]);
    }

    /// As [`Self::quiesce`], while the session goes on: their spans count no more, and later records do not lie in those that were begun.
    pub fn silence(&mut self, attachment: &mut Attachment, now_ns: impl FnOnce() -> u64) {
        self.quiesce(attachment);
        self.time_no_more(&attachment.probes);
        self.leave_unended(attachment.probes().iter().copied(), now_ns());
    }

    /// As [`Self::silence`], and they are off the target when this returns, unless a program of the kernel's still runs there: they are not
    /// safe any more for the target.
    pub fn silence_now(&mut self, attachment: &mut Attachment, now_ns: impl FnOnce() -> u64) {
        self.hold_unmatched(attachment);
        self.time_no_more(&attachment.probes);
        match std::mem::replace(&mut attachment.links, self.no_links()) {
            Links::Perf { entries, exits } => {
                // Not by turns with those of others. What sees calls end is what is not safe.
                let _none_else_is_closed = closing::hold_events();
                drop(exits);
                drop(entries);
            }
            links @ Links::Multi { .. } => {
                let closing = links.close();
                closing.wait();
                attachment.closing.push(closing);
            }
        }
        self.silence(attachment, now_ns);
    }

    /// Detaches probes: they count nothing any more. Their slots are given back once they are off the target, which others do not
    /// wait for. Spans that are still open are forgotten with them.
    pub fn detach(&mut self, attachment: Attachment) {
        let Attachment {
            probes,
            sites,
            plans,
            links,
            watched,
            events,
            function_links,
            mut closing,
            ..
        } = attachment;
        let places = self.drop_places(watched, events, function_links);
        closing.extend([places, links.at_once().close()]);
        // What they go by is nobody else's as long as their programs may run.
        self.time_no_more(&probes);
        for probe in &probes {
            self.hits.close(*probe);
        }
        let held = Held::Probes { probes, sites, plans };
        self.leave(held, closing);
    }

    /// Has programs begin and end no spans at these probes, where they still run.
    fn time_no_more<'a>(&self, probes: impl IntoIterator<Item = &'a ProbeId>) {
        for probe in probes {
            self.counts.silence(*probe);
        }
    }

    /// As [`Self::detach`], and waits until they are off the target, as long as that is of use.
    pub fn detach_and_wait(&mut self, mut attachment: Attachment) {
        self.quiesce(&mut attachment);
        attachment.wait_until_settled();
        self.detach(attachment);
    }

    /// Detaches from places of the kernel.
    fn drop_places(
        &mut self,
        watched: Vec<Call>,
        events: Vec<EventLink>,
        functions: FunctionLinks,
    ) -> Closing {
        for call in watched {
            self.unwatch_call(call);
        }
        let [mut first, then] = functions.by_order();
        first.extend(closing::links(events));
        closing::close_events(first, then)
    }

    /// Links of the kind that this kernel has: none yet.
    pub(super) fn no_links(&self) -> Links {
        match self.ability.attach {
            AttachKind::Multi => Links::Multi {
                entries: Vec::new(),
                exits: Vec::new(),
            },
            AttachKind::Perf => Links::Perf {
                entries: Vec::new(),
                exits: Vec::new(),
            },
        }
    }

    /// Writes an action and remembers its site in `sites`.
    pub(super) fn open_site(&mut self, action: &Action, sites: &mut Vec<u32>) -> Result<u32, KernelError> {
        if self.free_sites.is_empty() {
            self.settle_leaving();
        }
        let site = self
            .free_sites
            .pop()
            .ok_or(KernelError::TooManySites(MAX_SITES as usize))?;
        sites.push(site);
        let map = self
            .ebpf
            .map_mut("ACTIONS")
            .ok_or(KernelError::Missing("ACTIONS"))?;
        let mut actions: Array<&mut MapData, [u64; 4]> = Array::try_from(map)?;
        actions.set(site, action_words(action), 0)?;
        Ok(site)
    }
}

/// Probes cannot be taken off.
fn still_runs() -> KernelError {
    let error = io::Error::new(
        io::ErrorKind::TimedOut,
        "a program of the kernel's still runs there",
    );
    KernelError::system("taking probes off", error)
}

/// The programs that are attached somewhere, each with its sites.
pub(super) fn placed<const N: usize>(programs: [(&'static str, Vec<Site>); N]) -> Vec<Placed> {
    let placed = programs.into_iter().filter(|(_, sites)| !sites.is_empty());
    placed.map(|(program, sites)| Placed { program, sites }).collect()
}

/// Whether programs can do an instruction.
#[must_use]
pub fn can_be_done(action: &Action) -> bool {
    action.operation != Operation::Leave as u8 && action.address != 0
}

/// An action as the words of its map value.
fn action_words(action: &Action) -> [u64; 4] {
    let Action {
        operation,
        size,
        target,
        source,
        base,
        index,
        scale,
        length,
        immediate,
        function_size,
        function_offset,
        address,
    } = *action;
    [
        u64::from_ne_bytes([operation, size, target, source, base, index, scale, length]),
        immediate.cast_unsigned(),
        u64::from(function_size) | u64::from(function_offset) << 32,
        address,
    ]
}
