//! One who keeps records: what is recorded for it, and what it missed.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{
    super::{
        backlog::{Backlog, StreamBacklog},
        outlet::Outlet,
        recorded_calls::RecordedTurn,
    },
    batch::{Moment, RecordBatch},
    gathered::OfKinds,
    scope::{MoreRecords, RecordedScope},
};

/// Batches that may wait for one reader; it misses the records of those beyond, counted.
pub(super) const MAX_WAITING: usize = 32;

/// What readers are offered at once.
pub(super) struct Offered<'a> {
    pub(super) batch: &'a RecordBatch,
    /// Memory that it takes.
    pub(super) bytes: usize,
    /// Records that came with it.
    pub(super) came: OfKinds,
}

/// One who keeps records.
pub(super) struct Reader {
    /// What is recorded for it.
    pub(super) scope: Arc<RecordedScope>,
    /// Waits are recorded for it.
    pub(super) waits: bool,
    /// System calls are, from then on.
    calls_from_ns: Option<u64>,
    outlet: Outlet<RecordBatch>,
    backlog: StreamBacklog,
    /// It was given its first batch.
    has_begun: bool,
    /// What it missed as it did not read.
    missed: OfKinds,
    /// System calls of the turns that it missed.
    calls_missed: u64,
}

impl Reader {
    /// One who asks for more than the scope, from now on, of a session whose clients have this backlog.
    pub(super) fn open(
        scope: &RecordedScope,
        more: &MoreRecords,
        backlog: &Backlog,
        now_ns: u64,
    ) -> (Self, mpsc::Receiver<RecordBatch>) {
        let (outlet, receiver) = Outlet::open(MAX_WAITING);
        let reader = Self {
            scope: Arc::new(RecordedScope {
                off_cpu: more.off_cpu,
                events: more.events.iter().copied().collect(),
                ..scope.clone()
            }),
            waits: more.waits,
            calls_from_ns: more.syscalls.then_some(now_ns),
            outlet,
            backlog: backlog.stream(),
            has_begun: false,
            missed: OfKinds::default(),
            calls_missed: 0,
        };
        (reader, receiver)
    }

    /// Goes on with another scope.
    pub(super) fn set_scope(&mut self, scope: &RecordedScope) {
        self.scope = Arc::new(RecordedScope {
            off_cpu: self.scope.off_cpu,
            events: self.scope.events.clone(),
            ..scope.clone()
        });
    }

    /// Whether system calls are recorded for it.
    pub(super) fn has_calls(&self) -> bool {
        self.calls_from_ns.is_some()
    }

    /// Whether nobody reads any more.
    pub(super) fn is_gone(&self) -> bool {
        self.outlet.is_closed()
    }

    /// Hands over what is its own of what is offered. The first and the last batch come in any case, without records where there is no room
    /// for them: counts begin with the one and end with the other.
    pub(super) fn give(&mut self, offered: &Offered<'_>, turns: &[Arc<RecordedTurn>], moment: &Moment<'_>) {
        let Offered { batch, bytes, came } = *offered;
        let is_last = moment.ended.is_some();
        let turns = self.turns(turns);
        let calls: u64 = turns.iter().map(|turn| turn.total()).sum();
        let of_turns: usize = turns.iter().map(|turn| turn.bytes()).sum();
        let room = self.backlog.room(bytes + of_turns);
        let has_room = room.is_some();
        if !has_room {
            self.missed += came;
            self.calls_missed += calls;
            if self.has_begun && !is_last {
                return;
            }
        }
        let batch = RecordBatch {
            turns: if has_room { turns } else { Vec::new() },
            records: if has_room {
                Arc::clone(&batch.records)
            } else {
                Arc::default()
            },
            room,
            scope: Arc::clone(&self.scope),
            calls_dropped: self.calls_missed,
            outside_dropped: batch.outside_dropped + self.missed.outside,
            at_events_dropped: batch.at_events_dropped + self.missed.at_events,
            off_cpu: batch.off_cpu.clone().filter(|_| self.waits),
            dropped: batch.dropped + self.missed.calls,
            waits_dropped: if self.waits {
                batch.waits_dropped + self.missed.waits
            } else {
                0
            },
            ..batch.clone()
        };
        if is_last {
            self.outlet.end(batch);
        } else if self.outlet.offer(batch) {
            self.has_begun = true;
        } else if has_room {
            self.missed += came;
            self.calls_missed += calls;
        }
    }

    /// Those of these turns that are its own.
    fn turns(&self, turns: &[Arc<RecordedTurn>]) -> Vec<Arc<RecordedTurn>> {
        let Some(from_ns) = self.calls_from_ns else {
            return Vec::new();
        };
        let own = turns.iter().filter(|turn| turn.from_ns >= from_ns);
        own.cloned().collect()
    }
}
