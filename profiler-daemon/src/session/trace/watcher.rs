//! Who gets batches, and what each was given.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use profiler_symbolize::{FrameId, FrameTable};
use tokio::sync::mpsc;

use super::{
    super::{
        backlog::Backlog,
        ending::Ending,
        picture::{Cost, Losses},
    },
    Trace,
    batches::{Batches, GROW_TO},
    hit::TraceBatch,
    totals::{Around, Totals, add},
};
use crate::kernel::Engine;

/// A client, what it has been given, and what is not for it.
pub(super) struct Watcher {
    batches: Batches,
    /// The first of the hits that are handed over next, so many, are not for it.
    skips: usize,
    seq: u64,
    places_sent: usize,
    frames_sent: HashSet<FrameId>,
    /// Hits that it was too slow for.
    slow: u64,
    /// What had been counted at places of earlier scopes when it came.
    earlier: Totals,
}

impl Trace {
    /// Opens a stream of a session whose clients have this backlog.
    pub fn watch(&mut self, backlog: &Backlog) -> mpsc::Receiver<TraceBatch> {
        let (batches, receiver) = Batches::open(backlog);
        self.watchers.push(Watcher {
            batches,
            skips: self.of_earlier,
            seq: 0,
            places_sent: 0,
            frames_sent: HashSet::new(),
            slow: 0,
            earlier: self.earlier.clone(),
        });
        receiver
    }

    /// Number of open streams.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// Forgets streams that nobody reads any more.
    pub fn sweep(&mut self) {
        self.watchers.retain(|watcher| !watcher.batches.is_closed());
    }

    /// Hands over what there is, to those who have not heard of the places yet in any case; `ended` says why it is the
    /// last.
    pub fn publish(
        &mut self,
        engine: &Engine,
        frames: &FrameTable,
        around: Around,
        unseen: &Losses,
        cost: Cost,
        ended: Option<&Ending>,
    ) {
        self.sweep();
        let grows = ended.is_none() && self.hits.len() < GROW_TO;
        if self.watchers.is_empty()
            || grows && self.watchers.iter().all(|watcher| watcher.batches.are_behind())
        {
            return;
        }
        let all_hits = Arc::new(std::mem::take(&mut self.hits));
        self.of_earlier = 0;
        let stacks = all_hits.iter().filter_map(|hit| hit.stack.as_deref());
        let used: BTreeSet<FrameId> = stacks.flat_map(|stack| stack.frames.iter().copied()).collect();
        let mut totals = self.totals(engine, around);
        // They come and go.
        let open = if ended.is_some() {
            self.entered.len() as u64
        } else {
            0
        };
        add(&mut totals.lost, [("open", open)]);
        for watcher in &mut self.watchers {
            let hits = match std::mem::take(&mut watcher.skips) {
                0 => Arc::clone(&all_hits),
                skips => Arc::new(all_hits.get(skips..).unwrap_or_default().to_vec()),
            };
            if hits.is_empty() && ended.is_none() && watcher.batches.are_behind() {
                continue;
            }
            let places = self
                .places
                .get(watcher.places_sent..)
                .unwrap_or_default()
                .to_vec();
            let is_new = |id: &FrameId| !watcher.frames_sent.contains(id);
            let new: Vec<FrameId> = used.iter().copied().filter(is_new).collect();
            let frame = |id: &FrameId| Some((*id, frames.get(id.0 as usize)?.clone()));
            let Totals {
                reached,
                rejected,
                mut lost,
            } = totals.clone().and(&self.earlier, &watcher.earlier);
            if watcher.slow > 0 {
                lost.insert("slow_client", watcher.slow);
            }
            let size = hits.len();
            let batch = TraceBatch {
                seq: watcher.seq,
                places,
                frames: new.iter().filter_map(frame).collect(),
                hits,
                reached,
                rejected,
                lost,
                unseen: unseen.clone(),
                cost,
                thread_names: None,
                ended: ended.cloned(),
                room: None,
            };
            if ended.is_some() {
                watcher.batches.end(batch);
            } else if watcher.batches.offer(batch) {
                watcher.seq += 1;
                watcher.places_sent = self.places.len();
                watcher.frames_sent.extend(new);
            } else {
                watcher.slow += size as u64;
            }
        }
    }
}
