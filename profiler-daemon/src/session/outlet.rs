//! Where a stream's items wait for who reads it.

use tokio::sync::mpsc;

/// The sending end of a bounded stream. The last place is kept for its last item: who is behind misses some, and still
/// learns why the stream ended.
pub struct Outlet<T> {
    items: mpsc::Sender<T>,
    places: usize,
}

impl<T> Outlet<T> {
    /// Opens a stream in which so many items may wait, and its last.
    pub fn open(places: usize) -> (Self, mpsc::Receiver<T>) {
        let (items, receiver) = mpsc::channel(places + 1);
        (Self { items, places }, receiver)
    }

    /// Hands over an item that is not the last; whether there was room.
    pub fn offer(&self, item: T) -> bool {
        self.waiting() < self.places && self.items.try_send(item).is_ok()
    }

    /// Hands over the last item, for which there is always room.
    pub fn end(&self, item: T) {
        // Who has closed the stream does not want it.
        let _ = self.items.try_send(item);
    }

    /// Items that nobody has read yet.
    pub fn waiting(&self) -> usize {
        self.places + 1 - self.items.capacity()
    }

    /// Whether nobody reads it any more.
    pub fn is_closed(&self) -> bool {
        self.items.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_reader_still_receives_the_end() {
        let (outlet, mut items) = Outlet::open(2);
        assert_eq!(
            [1, 2, 3].map(|item| outlet.offer(item)),
            [true, true, false],
            "only so many wait"
        );
        assert_eq!(outlet.waiting(), 2);
        outlet.end(4);
        let read: Vec<i32> = std::iter::from_fn(|| items.try_recv().ok()).collect();
        assert_eq!(read, [1, 2, 4]);
        assert_eq!(outlet.waiting(), 0);
    }
}
