//! Who gets pictures of a session, and when.

use std::{ops::Deref, sync::Arc};

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

/// Pictures of one stream: the latest wins.
pub type Pictures<P> = watch::Receiver<Option<Numbered<P>>>;

/// A picture as it is given to one stream. Streams alike are given the same.
#[derive(Debug)]
pub struct Numbered<P> {
    /// Number of the picture within the stream.
    pub seq: u64,
    shared: Arc<P>,
}

impl<P> Numbered<P> {
    /// A picture of one stream.
    pub fn new(seq: u64, picture: P) -> Self {
        Self::shared(seq, Arc::new(picture))
    }

    /// One that other streams are given, too.
    fn shared(seq: u64, shared: Arc<P>) -> Self {
        Self { seq, shared }
    }
}

impl<P> Clone for Numbered<P> {
    fn clone(&self) -> Self {
        Self::shared(self.seq, Arc::clone(&self.shared))
    }
}

impl<P> Deref for Numbered<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.shared
    }
}

/// One open stream.
struct Watcher<P, V> {
    variant: V,
    interval_ns: u64,
    due_ns: u64,
    /// Pictures that it was given.
    given: u64,
    pictures: watch::Sender<Option<Numbered<P>>>,
}

impl<P, V: PartialEq> Watcher<P, V> {
    /// Whether one picture can serve both at all times.
    fn is_like(&self, other: &Self) -> bool {
        self.variant == other.variant && self.interval_ns == other.interval_ns
    }
}

/// The open streams of one kind, whose pictures have variants `V`.
pub struct Watchers<P, V>(Vec<Watcher<P, V>>);

impl<P, V> Default for Watchers<P, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P, V: Copy + PartialEq> Watchers<P, V> {
    /// Opens a stream. Its first picture is due at once.
    pub fn add(&mut self, variant: V, interval_ns: u64, now_ns: u64) -> Pictures<P> {
        let (pictures, receiver) = watch::channel(None);
        self.0.push(Watcher {
            variant,
            interval_ns,
            due_ns: now_ns,
            given: 0,
            pictures,
        });
        receiver
    }

    /// When the next picture is due; never, if nobody watches.
    pub fn next_due_ns(&self) -> u64 {
        let due = self.0.iter().map(|watcher| watcher.due_ns);
        due.min().unwrap_or(u64::MAX)
    }

    /// What is watched; a variant may come several times.
    pub fn variants(&self) -> impl Iterator<Item = V> {
        self.0.iter().map(|watcher| watcher.variant)
    }

    /// Gives the streams that are due their picture, or all of them if `all`: each variant's is made once. Those for which none is
    /// made stay due.
    pub fn publish(&mut self, now_ns: u64, all: bool, mut make: impl FnMut(V) -> Option<P>) {
        let mut made: Vec<(V, Arc<P>)> = Vec::new();
        for at in 0..self.0.len() {
            let watcher = &self.0[at];
            if !(all || watcher.due_ns <= now_ns) {
                continue;
            }
            let variant = watcher.variant;
            let known = made.iter().find(|(of, _)| *of == variant);
            let picture = known.map(|(_, picture)| Arc::clone(picture)).or_else(|| {
                let picture = Arc::new(make(variant)?);
                made.push((variant, Arc::clone(&picture)));
                Some(picture)
            });
            let Some(picture) = picture else { continue };
            let due_ns = self.next_ns(watcher, now_ns);
            let watcher = &mut self.0[at];
            let seq = watcher.given;
            watcher.given += 1;
            watcher.due_ns = due_ns;
            watcher
                .pictures
                .send_replace(Some(Numbered::shared(seq, picture)));
        }
    }

    /// When a stream's next picture is due, which is given one now: with that of a stream alike, so that one is made for both.
    fn next_ns(&self, watcher: &Watcher<P, V>, now_ns: u64) -> u64 {
        // From now on, not from when it was due: a late task does not make up for it in a burst.
        let next_ns = now_ns + watcher.interval_ns;
        let alike = self.0.iter().filter(|other| {
            other.given > 0 && (now_ns + 1..next_ns).contains(&other.due_ns) && other.is_like(watcher)
        });
        alike.map(|other| other.due_ns).min().unwrap_or(next_ns)
    }
}

/// A stream of one picture, which is the last.
pub fn single<P>(picture: P) -> Pictures<P> {
    // What is sent is new to who watches, as a first value would not be.
    let (sender, receiver) = watch::channel(None);
    sender.send_replace(Some(Numbered::new(0, picture)));
    receiver
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
        for now_ns in [0, 5, 10, 20, 30] {
            watchers.publish(now_ns, false, |()| Some(now_ns));
        }
        let latest = receiver.borrow_and_update().clone().unwrap();
        assert_eq!((latest.seq, *latest), (3, 30));
        drop(receiver);
        watchers.sweep();
        assert!(watchers.is_empty());
    }

    #[test]
    fn one_picture_is_made_for_all_streams_of_a_variant() {
        let mut watchers: Watchers<u64, char> = Watchers::default();
        let mut made = Vec::new();
        let mut receivers: Vec<_> = (0..9).map(|begun_ns| watchers.add('a', 10, begun_ns)).collect();
        receivers.push(watchers.add('b', 10, 0));
        for now_ns in 0..40 {
            watchers.publish(now_ns, false, |variant| {
                made.push((variant, now_ns));
                Some(now_ns)
            });
        }
        // Whoever came later has the first picture at once, and the others with those before.
        let of_a: Vec<u64> = made
            .iter()
            .filter(|(of, _)| *of == 'a')
            .map(|(_, at)| *at)
            .collect();
        assert_eq!(of_a, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30]);
        assert_eq!(made.len(), of_a.len() + 4);
        for receiver in receivers {
            let latest = receiver.borrow().clone().unwrap();
            assert_eq!((*latest, latest.seq >= 3), (30, true));
        }
    }
}
