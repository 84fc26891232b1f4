//! Hits and ended calls on their way to their watchers, each once and in order.
//!
//! See `docs/internals/values.md` for how a hit gets its values.
//!
//! | file | idea |
//! |---|---|
//! | `places` | the probes, and where they are |
//! | `values` | from what the programs read to values |
//! | `calls` | calls that began, until they end |
//! | `limit` | how many of a second are shown |
//! | `hit` | a hit with its values, and a batch of these |
//! | `totals` | what is counted of hits and calls |
//! | `losses` | what is not shown, or was lost before it could be recorded |
//! | `watcher` | who gets batches |
//! | `batches` | batches that wait for one client |

mod batches;
mod calls;
mod hit;
mod limit;
mod losses;
mod places;
mod totals;
mod values;
mod watcher;

use std::{collections::HashMap, sync::Arc};

use profiler_aggregate::gone::GoneThreads;
use profiler_common::probe::ProbeId;

use self::{
    calls::Entered,
    losses::LeftOut,
    places::{Call, Line},
    values::look,
    watcher::Watcher,
};
pub use self::{
    calls::Entry,
    hit::{ThreadName, TraceBatch, TracedHit, TracedValue},
    losses::TraceLosses,
    totals::{Around, Totals},
    values::{read, returned},
};
use super::{lines::TracedPlace, records::RecordedLook, symbols::NamedHit};

/// Hits in one batch; those beyond are counted as `batch_full`.
const MAX_BATCH: usize = 65_536;

/// What a session records, and who gets it.
#[derive(Default)]
pub struct Trace {
    places: Vec<Arc<TracedPlace>>,
    lines: HashMap<ProbeId, Line>,
    calls: HashMap<ProbeId, Call>,
    /// What was read where calls began that have not ended, by thread and number.
    entered: HashMap<(u32, u64), Entered>,
    gone: GoneThreads,
    /// What was counted at places of earlier scopes.
    earlier: Totals,
    hits: Vec<TracedHit>,
    /// Those that came faster than they were named.
    missed: HashMap<ProbeId, u64>,
    /// What was lost before it was recorded, of a recording.
    before: TraceLosses,
    /// Hits and calls of the present probes that are not shown.
    left_out: LeftOut,
    watchers: Vec<Watcher>,
    /// The first of the hits, so many, are of an earlier scope, which who comes later is not told.
    of_earlier: usize,
}

impl Trace {
    /// Whether a probe is of one of its lines.
    pub fn has_line(&self, probe: ProbeId) -> bool {
        self.lines.contains_key(&probe)
    }

    /// Counts hits that came faster than they were named, or beginnings of calls, if they are of one of its probes.
    pub fn miss(&mut self, probe: ProbeId, count: u64) {
        if self.lines.contains_key(&probe) || self.calls.contains_key(&probe) {
            *self.missed.entry(probe).or_default() += count;
        }
    }

    /// What is recorded of a hit, if it is of one of its lines.
    pub fn look(&self, NamedHit { hit, stack }: &NamedHit) -> Option<RecordedLook> {
        let line = self.lines.get(&hit.probe)?;
        Some(look(&read(&line.printed, hit), stack.clone()))
    }

    /// Takes a hit, if it is of one of its lines.
    pub fn take_hit(&mut self, NamedHit { hit, stack }: &NamedHit) {
        self.take_reached(hit.probe, hit.ts_ns, |line| TracedHit {
            ts_ns: hit.ts_ns,
            pid: hit.tgid,
            tid: hit.tid,
            place: line.place,
            duration_ns: None,
            values: read(&line.printed, hit),
            stack: stack.clone(),
        });
    }

    /// Takes a hit that was recorded with its values, if it is of one of its lines.
    pub fn take_recorded(&mut self, probe: ProbeId, hit: TracedHit) {
        self.take_reached(probe, hit.ts_ns, |line| TracedHit {
            place: line.place,
            ..hit
        });
    }

    fn take_reached(&mut self, probe: ProbeId, ts_ns: u64, hit: impl FnOnce(&Line) -> TracedHit) {
        let Some(line) = self.lines.get_mut(&probe) else {
            return;
        };
        if !line.limit.lets(ts_ns) {
            self.left_out.limited += 1;
            return;
        }
        let hit = hit(line);
        let is_shown = self.push(hit);
        if let Some(line) = self.lines.get_mut(&probe) {
            line.handed_over += u64::from(is_shown);
        }
    }

    /// The hits that have come since they were taken last.
    pub fn take_hits(&mut self) -> Vec<TracedHit> {
        std::mem::take(&mut self.hits)
    }

    /// Adds a hit to those that are handed over; whether there was room.
    fn push(&mut self, hit: TracedHit) -> bool {
        let has_room = self.hits.len() < MAX_BATCH;
        if has_room {
            self.hits.push(hit);
        } else {
            self.left_out.batch_full += 1;
        }
        has_room
    }
}
