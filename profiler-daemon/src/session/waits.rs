//! Who the threads of a session wait for, while somebody watches it.

use std::{collections::HashSet, sync::Arc};

use profiler_aggregate::{
    ThreadId,
    join::Level,
    waits::{Node, Total, Wait, Waits, Waker},
};
use profiler_common::record::SpanRef;
use profiler_symbolize::FrameTable;

use super::{
    ending::Ending,
    flame::Moment,
    picture::{Cost, FlameTimes, Losses},
    records::OffAtFirst,
    sampling::Sampling,
    symbols::NamedWait,
};

/// Who is waited for at one moment, and by whom.
#[derive(Clone, Debug)]
pub struct WaitsPicture {
    /// Canonical text of the scope.
    pub scope: Arc<str>,
    /// Frames by number; only ever appended to.
    pub frames: FrameTable,
    /// The tree, parents first.
    pub nodes: Vec<Node>,
    /// What it comes to.
    pub total: Total,
    /// How long it has been watched.
    pub watched_ns: u64,
    /// Losses by reason.
    pub lost: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

/// The processes of a target.
pub type Pids = HashSet<u32>;

/// A wait, with whether who ended it is one of these processes.
pub fn of_target(wait: &Wait, pids: &Pids) -> Wait {
    let mut wait = wait.clone();
    if let Waker::Thread { thread, is_own, .. } = &mut wait.waker {
        *is_own = pids.contains(&thread.tgid);
    }
    wait
}

/// Waits of a session's threads.
pub struct WatchedWaits {
    waits: Waits,
    /// The spans that they are looked for in; `None` for everywhere.
    inside: Option<Level>,
    /// Since when they are recorded; `None` until they are.
    since_ns: Option<u64>,
    /// Waits that began before came too early to be taken.
    missed_until_ns: u64,
    pids: Pids,
    before: Sampling,
}

impl WatchedWaits {
    /// None yet, inside spans of a level or everywhere.
    pub fn new(inside: Option<Level>, before: Sampling) -> Self {
        Self {
            waits: Waits::default(),
            inside,
            since_ns: None,
            missed_until_ns: 0,
            pids: Pids::new(),
            before,
        }
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.since_ns.is_some()
    }

    /// Begins, once intervals of these processes are recorded and it is known who was off the CPU; goes on if it has begun.
    pub fn begin(&mut self, pids: &[u32], off: &OffAtFirst) {
        if !self.has_begun() {
            self.waits = Waits::new(off.threads.clone());
            self.pids = pids.iter().copied().collect();
            self.since_ns = Some(off.since_ns.max(self.missed_until_ns));
        }
    }

    /// Those of a recording from a time on, of these processes; who of them was off the CPU when it was told first.
    pub fn recorded(
        inside: Option<Level>,
        pids: Pids,
        off_at_first: HashSet<ThreadId>,
        since_ns: u64,
    ) -> Self {
        Self {
            waits: Waits::new(off_at_first),
            inside,
            since_ns: Some(since_ns),
            missed_until_ns: 0,
            pids,
            before: Sampling::default(),
        }
    }

    /// Waits until a time are missing: what threads did before is not known.
    pub fn miss_until(&mut self, ns: u64) {
        self.waits.forget_until(ns);
    }

    /// Takes no more waits of a process.
    pub fn lose(&mut self, pid: u32) {
        self.pids.remove(&pid);
    }

    /// Begins anew with another scope, if that makes a difference.
    pub fn renew(&mut self, inside: Option<Level>, before: Sampling) {
        if self.inside != inside {
            *self = Self::new(inside, before);
        }
    }

    /// Takes a wait.
    pub fn take(&mut self, named: &NamedWait) {
        self.take_of(&named.wait, &named.spans, u64::MAX);
    }

    /// Takes a wait in some spans, which is shown where it ended by a time.
    pub fn take_of(&mut self, wait: &Wait, spans: &[SpanRef], until_ns: u64) {
        let Some(since_ns) = self.since_ns else {
            self.missed_until_ns = self.missed_until_ns.max(wait.times[0].saturating_add(1));
            return;
        };
        if !self.pids.contains(&wait.thread.tgid) {
            return;
        }
        let mut wait = of_target(wait, &self.pids);
        if self.inside.is_some() {
            // A call is held up by its own waits, whatever other threads do.
            wait.still_ns = None;
        }
        let inside = self.inside.as_ref();
        let is_inside = inside.is_none_or(|level| spans.iter().any(|span| level.holds(span)));
        let asked = is_inside && wait.times[0] >= since_ns && wait.times[2] <= until_ns;
        self.waits.take(&wait, asked);
    }

    /// As it stands.
    pub fn picture(&self, moment: &Moment<'_>, now: Sampling) -> WaitsPicture {
        let mut lost = now.since(self.before).losses(FlameTimes::OffCpu);
        lost.extend(&moment.also_lost);
        WaitsPicture {
            scope: Arc::clone(moment.scope),
            frames: moment.frames.clone(),
            nodes: self.waits.nodes(),
            total: self.waits.total(),
            watched_ns: self
                .since_ns
                .map_or(0, |since_ns| moment.now_ns.saturating_sub(since_ns)),
            lost,
            cost: moment.cost,
            ended: moment.ended.cloned(),
        }
    }
}
