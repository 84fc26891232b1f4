//! Links are closed on a thread of their own: the kernel takes a probe off when no program runs any more that may wait, whoever's
//! it is and whatever it waits for, and the engine has others to serve.

use std::{
    iter,
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

/// How long the first links of a caller are waited for until the others are closed as well. Since Linux 6.13 a probe is taken off
/// once no call is open any more that a return probe sees the end of, or its thread has called nothing with a return probe for a tenth of
/// a second: in a thread that calls a probed function all the while from within such a call, that is only when the return probes go, too.
/// By then nothing begins any more at the first links.
const IN_ORDER: Duration = Duration::from_secs(1);

/// Links that are closed at once: they wait for the same, together.
const AT_ONCE: usize = 16;

/// What is closed by being dropped.
pub(super) type Link = Box<dyn Send>;

/// Links of any one kind.
pub(super) fn links<T: Send + 'static>(links: Vec<T>) -> Vec<Link> {
    links.into_iter().map(|link| Box::new(link) as Link).collect()
}

/// Links that are closed for one caller.
struct Job {
    /// In the order of closing.
    groups: [Vec<Link>; 2],
    /// Is told that they are closed.
    done: Sender<()>,
}

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
    let groups = [first, then];
    if closer.jobs.send(Job { groups, done }).is_err() {
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
                while let Ok(job) = work.recv() {
                    // Behind a late one, jobs pile up that nobody waits for. All wait for the same, so they are closed together:
                    // in each, the first links go before the others still.
                    let jobs: Vec<Job> = iter::once(job).chain(work.try_iter()).collect();
                    let (mut first, mut then, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
                    for job in jobs {
                        let [of_first, of_then] = job.groups;
                        first.extend(of_first);
                        then.extend(of_then);
                        waiting.push(job.done);
                    }
                    close_in_order(first, then);
                    if let Some(closer) = closer() {
                        closer.open.fetch_sub(waiting.len(), Ordering::SeqCst);
                    }
                    for done in waiting {
                        // Nobody need wait any more.
                        let _ = done.send(());
                    }
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

/// Closes links before others, if that does not take too long.
fn close_in_order(first: Vec<Link>, then: Vec<Link>) {
    thread::scope(|scope| {
        let (done, closed) = mpsc::channel();
        let closing = move || {
            close_all(first);
            let _ = done.send(());
        };
        // Where there is no thread, they are dropped, and closed here.
        let _ = thread::Builder::new().spawn_scoped(scope, closing);
        let _ = closed.recv_timeout(IN_ORDER);
        close_all(then);
    });
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
    use std::{
        sync::{Arc, Condvar, Mutex},
        time::Instant,
    };

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

    /// Lets another one be dropped.
    struct Release(Sender<()>);

    impl Drop for Release {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// Links that are being closed at the same time.
    #[derive(Default)]
    struct Together {
        numbers: Mutex<Numbers>,
        changed: Condvar,
    }

    /// How many there are, and were at most.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Numbers {
        now: usize,
        most: usize,
    }

    struct One(Arc<Together>);

    impl Drop for One {
        /// Waits for the others, but not without end.
        fn drop(&mut self) {
            let mut numbers = self.0.numbers.lock().unwrap();
            numbers.now += 1;
            numbers.most = numbers.most.max(numbers.now);
            self.0.changed.notify_all();
            let are_missing = |numbers: &mut Numbers| numbers.most < AT_ONCE - 1;
            let waited = self
                .0
                .changed
                .wait_timeout_while(numbers, PATIENCE / 5, are_missing);
            waited.unwrap().0.now -= 1;
        }
    }

    #[test]
    fn in_their_order_and_not_waited_for_without_end() {
        let (told, tell) = mpsc::channel();
        let link = |may, name| -> Link { Box::new(Slow(may, told.clone(), name)) };
        assert!(close(Vec::new(), Vec::new()));
        assert!(close(vec![link(None, "first")], vec![link(None, "then")]));
        assert_eq!([tell.recv(), tell.recv()], [Ok("first"), Ok("then")]);
        // Of these, the first are closed once the others are.
        let (release, may) = mpsc::channel();
        assert!(close(
            vec![link(Some(may), "first")],
            vec![Box::new(Release(release))]
        ));
        assert_eq!(tell.recv(), Ok("first"));

        let (release, may) = mpsc::channel();
        let begun = Instant::now();
        assert!(!close(vec![link(Some(may), "stuck")], Vec::new()));
        assert!(begun.elapsed() >= PATIENCE);
        // Those behind it are not waited for either.
        let behind = Arc::new(());
        assert!(!close(vec![Box::new(Arc::clone(&behind))], Vec::new()));
        assert!(begun.elapsed() < 2 * PATIENCE);
        assert_eq!(Arc::strong_count(&behind), 2);
        // Nor is one of these closed after the other: with that, as many as are closed at once.
        let together = Arc::new(Together::default());
        for _ in 0..AT_ONCE - 1 {
            assert!(!close(vec![Box::new(One(Arc::clone(&together)))], Vec::new()));
        }
        release.send(()).unwrap();
        assert_eq!(tell.recv(), Ok("stuck"));
        // Once both are closed, all is as before.
        while closer().unwrap().open.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        assert_eq!(together.numbers.lock().unwrap().most, AT_ONCE - 1);
        assert!(close(vec![link(None, "last")], Vec::new()));
        assert_eq!(Arc::strong_count(&behind), 1);
    }
}
