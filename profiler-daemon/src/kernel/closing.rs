//! Links are closed on a thread of their own: the kernel takes a probe off when no program runs any more that may wait, whoever's
//! it is and whatever it waits for, and the engine has others to serve.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

/// How long the engine waits for links to be closed. The kernel takes some 30 ms for each, or for many at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Links that are closed at once: they wait for the same, together.
const AT_ONCE: usize = 16;

/// What is closed by being dropped.
pub(super) type Link = Box<dyn Send>;

/// Links of any one kind.
pub(super) fn links<T: Send + 'static>(links: Vec<T>) -> Vec<Link> {
    links.into_iter().map(|link| Box::new(link) as Link).collect()
}

/// Links in the order of closing, and who is told that they are closed.
type Job = ([Vec<Link>; 2], Sender<()>);

struct Closer {
    jobs: Sender<Job>,
    /// Jobs that are not done.
    open: AtomicUsize,
    /// One of these was not waited for to its end: nor are others, until all are done.
    is_late: AtomicBool,
}

/// Closes links, the first of them before the others; waits for it as long as that is of use. Whether they are closed: until
/// then, their programs may run on.
pub(super) fn close(first: Vec<Link>, then: Vec<Link>) -> bool {
    let number = first.len() + then.len();
    // Where there is no thread, they are dropped, and closed here.
    let Some(closer) = closer().filter(|_| number > 0) else {
        return true;
    };
    let (done, closed) = mpsc::channel();
    if closer.open.fetch_add(1, Ordering::SeqCst) == 0 {
        closer.is_late.store(false, Ordering::SeqCst);
    }
    if closer.jobs.send(([first, then], done)).is_err() {
        return true;
    }
    let patience = if closer.is_late.load(Ordering::SeqCst) {
        Duration::ZERO
    } else {
        PATIENCE
    };
    let are_closed = closed.recv_timeout(patience).is_ok();
    if !are_closed {
        closer.is_late.store(true, Ordering::SeqCst);
        tracing::warn!(
            number,
            "links are not closed yet: a program waits for memory of its thread"
        );
    }
    are_closed
}

fn closer() -> Option<&'static Closer> {
    static CLOSER: OnceLock<Option<Closer>> = OnceLock::new();
    CLOSER
        .get_or_init(|| {
            let (jobs, work) = mpsc::channel::<Job>();
            let closing = move || {
                for (groups, done) in work {
                    groups.into_iter().for_each(close_all);
                    if let Some(closer) = closer() {
                        closer.open.fetch_sub(1, Ordering::SeqCst);
                    }
                    // Nobody need wait any more.
                    let _ = done.send(());
                }
            };
            let started = thread::Builder::new().name("closer".into()).spawn(closing);
            started.ok().map(|_| Closer {
                jobs,
                open: AtomicUsize::new(0),
                is_late: AtomicBool::new(false),
            })
        })
        .as_ref()
}

fn close_all(mut links: Vec<Link>) {
    while !links.is_empty() {
        let some = links.split_off(links.len().saturating_sub(AT_ONCE));
        thread::scope(|scope| {
            for link in some {
                // Where there is no thread, the link is dropped, and closed here.
                let _ = thread::Builder::new().spawn_scoped(scope, move || drop(link));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use super::*;

    /// Tells when it is dropped, once it may be.
    struct Slow(Option<mpsc::Receiver<()>>, Sender<&'static str>, &'static str);

    impl Drop for Slow {
        fn drop(&mut self) {
            if let Some(may) = &self.0 {
                let _ = may.recv();
            }
            let _ = self.1.send(self.2);
        }
    }

    #[test]
    fn in_their_order_and_not_waited_for_without_end() {
        let (told, tell) = mpsc::channel();
        let link = |may, name| -> Link { Box::new(Slow(may, told.clone(), name)) };
        assert!(close(Vec::new(), Vec::new()));
        assert!(close(vec![link(None, "first")], vec![link(None, "then")]));
        assert_eq!([tell.recv(), tell.recv()], [Ok("first"), Ok("then")]);

        let (release, may) = mpsc::channel();
        let begun = Instant::now();
        assert!(!close(vec![link(Some(may), "stuck")], Vec::new()));
        assert!(begun.elapsed() >= PATIENCE);
        // Those behind it are not waited for either.
        let behind = Arc::new(());
        assert!(!close(vec![Box::new(Arc::clone(&behind))], Vec::new()));
        assert!(begun.elapsed() < 2 * PATIENCE);
        assert_eq!(Arc::strong_count(&behind), 2);
        release.send(()).unwrap();
        assert_eq!(tell.recv(), Ok("stuck"));
        // Once both are closed, all is as before.
        while closer().unwrap().open.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        assert!(close(vec![link(None, "last")], Vec::new()));
        assert_eq!(Arc::strong_count(&behind), 1);
    }
}
