//! Who gets pictures of a session, and when.

use std::sync::Arc;

use tokio::sync::watch;

/// Open streams of one view, whatever they carry.
pub trait Streams {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether nobody watches.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets streams that nobody reads any more.
    fn sweep(&mut self);

    /// Whether something is to be given to one.
    fn is_due(&self, now_ns: u64) -> bool;
}

/// One open stream.
struct Watcher<P, V> {
    variant: V,
    interval_ns: u64,
    due_ns: u64,
    seq: u64,
    pictures: watch::Sender<Option<Arc<P>>>,
}

/// The open streams of one kind, whose pictures have variants `V`.
pub struct Watchers<P, V>(Vec<Watcher<P, V>>);

impl<P, V> Default for Watchers<P, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P, V: Copy> Watchers<P, V> {
    /// Opens a stream. Its first picture is due at once.
    pub fn add(&mut self, variant: V, interval_ns: u64, now_ns: u64) -> watch::Receiver<Option<Arc<P>>> {
        let (pictures, receiver) = watch::channel(None);
        self.0.push(Watcher {
            variant,
            interval_ns,
            due_ns: now_ns,
            seq: 0,
            pictures,
        });
        receiver
    }

    /// When the next picture is due; never, if nobody watches.
    pub fn next_due_ns(&self) -> u64 {
        let due = self.0.iter().map(|watcher| watcher.due_ns);
        due.min().unwrap_or(u64::MAX)
    }

    /// A stream of one picture, which is made at once and is the last.
    pub fn single(variant: V, mut make: impl FnMut(V, u64) -> P) -> watch::Receiver<Option<Arc<P>>> {
        let mut watchers = Self::default();
        let receiver = watchers.add(variant, 0, 0);
        watchers.publish(0, true, |variant, seq| Some(make(variant, seq)));
        receiver
    }

    /// What is watched; a variant may come several times.
    pub fn variants(&self) -> impl Iterator<Item = V> {
        self.0.iter().map(|watcher| watcher.variant)
    }

    /// Gives the streams that are due their picture, or all of them if `all`. Those for which none is made stay due.
    pub fn publish(&mut self, now_ns: u64, all: bool, mut make: impl FnMut(V, u64) -> Option<P>) {
        for watcher in self
            .0
            .iter_mut()
            .filter(|watcher| all || watcher.due_ns <= now_ns)
        {
            let Some(picture) = make(watcher.variant, watcher.seq) else {
                continue;
            };
            watcher.seq += 1;
            // From now on, not from when it was due: a late task does not make up for it in a burst.
            watcher.due_ns = now_ns + watcher.interval_ns;
            watcher.pictures.send_replace(Some(Arc::new(picture)));
        }
    }
}

impl<P, V> Streams for Watchers<P, V> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn sweep(&mut self) {
        self.0.retain(|watcher| !watcher.pictures.is_closed());
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.0.iter().any(|watcher| watcher.due_ns <= now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_picture_wins_and_the_gap_shows() {
        let mut watchers: Watchers<u64, ()> = Watchers::default();
        let mut receiver = watchers.add((), 10, 0);
        for now in [0, 5, 10, 20, 30] {
            watchers.publish(now, false, |(), seq| Some(seq));
        }
        assert_eq!(receiver.borrow_and_update().as_deref(), Some(&3));
        drop(receiver);
        watchers.sweep();
        assert!(watchers.is_empty());
    }
}
