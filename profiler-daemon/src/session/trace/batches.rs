//! Batches that wait for one client, bounded by their number and size.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use super::{MAX_BATCH, TraceBatch, totals::add};
use crate::session::{
    backlog::{Backlog, StreamBacklog},
    outlet::Outlet,
};

/// Batches that may wait for a client; it misses those beyond, counted.
const MAX_WAITING: usize = 64;

/// Hits that may wait for a client in those batches, if it is more than one.
const MAX_WAITING_HITS: usize = 2 * MAX_BATCH;

/// Batches that wait for a client before they grow rather than get more.
const GROW_FROM: usize = MAX_WAITING / 2;

/// Hits up to which they grow.
pub const GROW_TO: usize = MAX_WAITING_HITS / (MAX_WAITING - GROW_FROM);

/// The sending end of a client's stream.
pub struct Batches {
    outlet: Outlet<TraceBatch>,
    backlog: StreamBacklog,
    /// Hits in each of the batches that were handed over last; those that wait are among them.
    sizes: VecDeque<usize>,
}

impl Batches {
    /// Opens a stream of a session whose clients have this backlog.
    pub fn open(backlog: &Backlog) -> (Self, mpsc::Receiver<TraceBatch>) {
        let (outlet, receiver) = Outlet::open(MAX_WAITING);
        let batches = Self {
            outlet,
            backlog: backlog.stream(),
            sizes: VecDeque::new(),
        };
        (batches, receiver)
    }

    /// Whether so many wait already that they are to be few.
    pub fn are_behind(&self) -> bool {
        self.outlet.waiting() >= GROW_FROM
    }

    /// Hands over a batch that is not the last; whether there was room.
    pub fn offer(&mut self, mut batch: TraceBatch) -> bool {
        let read = self.sizes.len().saturating_sub(self.outlet.waiting());
        self.sizes.drain(..read);
        let waiting: usize = self.sizes.iter().sum();
        let size = batch.hits.len();
        let has_room = self.sizes.is_empty() || waiting + size <= MAX_WAITING_HITS;
        batch.room = has_room.then(|| self.backlog.room(batch.bytes())).flatten();
        let is_sent = batch.room.is_some() && self.outlet.offer(batch);
        if is_sent {
            self.sizes.push_back(size);
        }
        is_sent
    }

    /// Hands over the last batch; without its hits, where there is no room for them.
    pub fn end(&self, mut batch: TraceBatch) {
        batch.room = self.backlog.room(batch.bytes());
        if batch.room.is_none() {
            let hits = std::mem::take(&mut batch.hits);
            add(&mut batch.lost, [("slow_client", hits.len() as u64)]);
        }
        self.outlet.end(batch);
    }

    /// Whether nobody reads them any more.
    pub fn is_closed(&self) -> bool {
        self.outlet.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::session::{
        picture::{Cost, Losses},
        trace::TracedHit,
    };

    fn batch(hits: usize) -> TraceBatch {
        let hit = TracedHit {
            ts_ns: 1,
            pid: 2,
            tid: 3,
            place: 0,
            duration_ns: None,
            values: Vec::new(),
            stack: None,
        };
        TraceBatch {
            seq: 0,
            places: Vec::new(),
            frames: Vec::new(),
            hits: Arc::new(vec![hit; hits]),
            reached: 0,
            rejected: 0,
            lost: Losses::new(),
            unseen: Losses::new(),
            cost: Cost::default(),
            thread_names: None,
            ended: None,
            room: None,
        }
    }

    fn open() -> (Batches, mpsc::Receiver<TraceBatch>) {
        Batches::open(&Backlog::with_limit(1 << 30))
    }

    #[test]
    fn what_takes_too_much_memory_is_refused_until_something_was_read() {
        const HITS: usize = 100;
        let (mut batches, mut read) = Batches::open(&Backlog::with_limit(2 * batch(HITS).bytes()));
        assert!(batches.offer(batch(HITS)));
        assert!(!batches.offer(batch(1)), "half of it is for other streams");
        batches.end(batch(7));
        assert_eq!(read.try_recv().unwrap().hits.len(), HITS);
        let last = read.try_recv().unwrap();
        assert_eq!((last.hits.len(), last.lost["slow_client"]), (0, 7));
        let (mut batches, mut read) = Batches::open(&Backlog::with_limit(2 * batch(HITS).bytes()));
        assert!(batches.offer(batch(HITS)));
        assert!(read.try_recv().is_ok());
        assert!(batches.offer(batch(HITS)), "it was read");
    }

    #[test]
    fn so_many_hits_wait_and_no_more() {
        let (mut batches, mut read) = open();
        assert!(batches.offer(batch(MAX_BATCH)) && batches.offer(batch(MAX_BATCH)));
        assert!(!batches.offer(batch(1)), "they are {MAX_WAITING_HITS} already");
        assert!(read.try_recv().is_ok());
        assert!(batches.offer(batch(MAX_BATCH)), "one was read");
        assert!(!batches.are_behind());
    }

    #[test]
    fn so_many_batches_wait_and_the_last() {
        let (mut batches, mut read) = open();
        let sent = (0..2 * MAX_WAITING).filter(|_| batches.offer(batch(1))).count();
        assert_eq!(sent, MAX_WAITING);
        assert!(batches.are_behind());
        batches.end(batch(7));
        let last = std::iter::from_fn(|| read.try_recv().ok()).last().unwrap();
        assert_eq!(last.hits.len(), 7);
    }
}
