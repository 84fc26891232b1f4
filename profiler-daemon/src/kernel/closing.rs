//! Links are closed on threads of their own: the kernel takes a probe off when no program runs any more that may wait, whoever's
//! it is and whatever it waits for, and the engine has others to serve.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::opening;

/// How long a link is waited for that is being closed. The kernel takes some 30 ms for each, or for many at once; for a perf event 100.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long links are waited for altogether: until it is known that one of them takes too long.
const LONGEST_WAIT: Duration = PATIENCE.saturating_add(Duration::from_millis(200));

/// How long the turn of a caller's links is waited for while those of others are closed.
const PATIENCE_FOR_TURN: Duration = Duration::from_secs(20);

/// How long the next of a caller's first links is waited for until the others are closed as well. Since Linux 6.13 a probe is taken off
/// once no call is open any more that a return probe sees the end of, or its thread has called nothing with a return probe for a tenth of
/// a second: in a thread that calls a probed function all the while from within such a call, that is only when the return probes go, too.
/// By then nothing begins any more at the first links.
const IN_ORDER: Duration = Duration::from_secs(1);

/// Links that a thread closes at once: they wait for the same, together.
const AT_ONCE: usize = 16;

/// Callers whose links a thread closes at once.
const JOBS_AT_ONCE: usize = 16;

/// Threads that close links.
const MAX_THREADS: usize = 4;

/// Time between looks whether perf events are being opened.
const PAUSE: Duration = Duration::from_millis(1);

/// What is closed by being dropped.
pub(super) type Link = Box<dyn Send>;

/// Links of any one kind.
pub(super) fn links<T: Send + 'static>(links: Vec<T>) -> Vec<Link> {
    links.into_iter().map(|link| Box::new(link) as Link).collect()
}

/// Closes links, the first of them before the others; those of several callers together.
pub(super) fn close(first: Vec<Link>, then: Vec<Link>) -> Closing {
    TOGETHER.close(first, then)
}

/// Closes perf events, and links that hold them, one after the other: the kernel closes one at a time, and opens none meanwhile.
pub(super) fn close_events(first: Vec<Link>, then: Vec<Link>) -> Closing {
    ONE_BY_ONE.close(first, then)
}

/// Closes perf events on a thread of their own, before those of all others, and waits as long as that goes on.
pub(super) fn close_events_at_once(first: Vec<Link>, then: Vec<Link>) -> Closing {
    let closing = Closing::of(&ONE_BY_ONE, first.len() + then.len());
    let links = closing.counted(first).into_iter().chain(closing.counted(then));
    let links: Vec<Counted> = links.collect();
    let none_else = NoneIsClosed::begin();
    // Where there is no thread, they are dropped, and closed here.
    let _ = thread::Builder::new().name("closer".into()).spawn(move || {
        let _none_else = none_else;
        for link in links {
            close_in_turn(link, &turn());
        }
    });
    closing.wait_while_it_goes_on();
    closing
}

/// Closes a perf event, for whoever has the turn.
fn close_in_turn<T>(event: T, _turn: &MutexGuard<'_, ()>) {
    *being_closed() = Some(Instant::now());
    drop(event);
    *being_closed() = None;
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has no perf event closed until this is dropped: each that is opened would wait for one.
///
/// # Errors
/// `TimedOut` where the kernel waits with one that is being opened or closed, and would wait with others as well.
pub(super) fn hold_events() -> io::Result<OpeningEvents> {
    let none_is_closed = NoneIsClosed::begin();
    let begun = Instant::now();
    loop {
        if opening::events_are_late() {
            return Err(opening::kept_waiting());
        }
        let turn = match TURN.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(turn) = turn {
            return Ok(OpeningEvents {
                _turn: turn,
                _none_is_closed: none_is_closed,
            });
        }
        let since = being_closed().unwrap_or(begun);
        if since.elapsed() >= PATIENCE || begun.elapsed() >= PATIENCE_FOR_TURN {
            return Err(opening::kept_waiting());
        }
        thread::sleep(PAUSE);
    }
}

/// Perf events are being opened.
pub(super) struct OpeningEvents {
    _turn: MutexGuard<'static, ()>,
    _none_is_closed: NoneIsClosed,
}

/// Those of others are not closed meanwhile.
struct NoneIsClosed(());

impl NoneIsClosed {
    fn begin() -> Self {
        OPENING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for OpeningEvents {
    fn drop(&mut self) {
        // Others have waited for this, and nothing is stuck.
        *ONE_BY_ONE.last() = Some(Instant::now());
    }
}

impl Drop for NoneIsClosed {
    fn drop(&mut self) {
        OPENING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Who opens perf events, or waits for that.
static OPENING: AtomicUsize = AtomicUsize::new(0);

/// Whoever opens or closes perf events has it.
static TURN: Mutex<()> = Mutex::new(());

/// Since when one is being closed.
static BEING_CLOSED: Mutex<Option<Instant>> = Mutex::new(None);

fn being_closed() -> MutexGuard<'static, Option<Instant>> {
    BEING_CLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Links that are being closed: until they are, their programs may run on.
#[derive(Clone)]
pub(super) struct Closing(Arc<Shared>);

struct Shared {
    closer: &'static Closer,
    queued: Instant,
    left: Mutex<Left>,
    changed: Condvar,
}

/// What is not closed yet.
struct Left {
    links: usize,
    /// Those whose turn it is.
    in_turn: usize,
    /// When the turn of the first came.
    begun: Option<Instant>,
    /// When one was closed last, or its turn came.
    since: Instant,
}

impl Closing {
    fn of(closer: &'static Closer, links: usize) -> Self {
        let queued = Instant::now();
        let left = Left {
            links,
            in_turn: 0,
            begun: None,
            since: queued,
        };
        Self(Arc::new(Shared {
            closer,
            queued,
            left: Mutex::new(left),
            changed: Condvar::new(),
        }))
    }

    fn counted(&self, links: Vec<Link>) -> Vec<Counted> {
        let links = links.into_iter().map(|link| Counted {
            link: Some(link),
            closing: self.clone(),
        });
        links.collect()
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all are closed.
    pub fn is_over(&self) -> bool {
        self.left().links == 0
    }

    /// How long the first had to wait for its turn: until then, all of them counted.
    pub fn delay(&self) -> Duration {
        let begun = self.left().begun;
        begun.map_or(Duration::ZERO, |begun| begun.duration_since(self.0.queued))
    }

    /// Whether it is not known when they will be closed: one of them takes too long, or those before it do.
    pub fn is_stuck(&self) -> bool {
        let left = self.left();
        let since = left.since.elapsed();
        if left.links == 0 || since < PATIENCE {
            return false;
        }
        // One that waits for its turn is stuck only where nothing goes on, or where its turn does not come.
        let last = *self.0.closer.last();
        let is_passed_over = || self.0.closer.patience.is_some_and(|patience| since >= patience);
        left.in_turn > 0 || last.is_none_or(|last| last.elapsed() >= PATIENCE) || is_passed_over()
    }

    /// Waits until all are closed, for some seconds at most. Whether they are.
    pub fn wait(&self) -> bool {
        let begin = Instant::now();
        let is_late = &self.0.closer.is_late;
        let mut left = self.left();
        while left.links > 0 {
            let patience = LONGEST_WAIT.saturating_sub(begin.elapsed());
            if patience.is_zero() || is_late.load(Ordering::SeqCst) {
                let number = left.links;
                drop(left);
                if self.is_stuck() {
                    is_late.store(true, Ordering::SeqCst);
                    tracing::warn!(
                        number,
                        "links are not closed: a program waits for memory of its thread, or a link is still being opened"
                    );
                }
                return false;
            }
            let waited = self.0.changed.wait_timeout(left, patience);
            left = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits until all are closed, as long as one after the other is.
    fn wait_while_it_goes_on(&self) {
        let mut left = self.left();
        while left.links > 0 {
            let patience = PATIENCE.saturating_sub(left.since.elapsed());
            if patience.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(left, patience);
            left = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn note_turn(&self) {
        let mut left = self.left();
        left.in_turn += 1;
        let now = Instant::now();
        left.since = now;
        left.begun.get_or_insert(now);
    }

    fn note_closed(&self) {
        let mut left = self.left();
        left.links -= 1;
        left.in_turn -= 1;
        left.since = Instant::now();
        *self.0.closer.last() = Some(left.since);
        self.0.changed.notify_all();
    }
}

/// A link, which is closed when this is dropped.
struct Counted {
    link: Option<Link>,
    closing: Closing,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.closing.note_turn();
        drop(self.link.take());
        self.closing.note_closed();
    }
}

/// Links that are closed for one caller.
struct Job {
    first: Vec<Counted>,
    /// Behind them.
    then: Vec<Counted>,
}

/// Closes links of a kind.
struct Closer {
    queue: Mutex<Queue>,
    max_threads: usize,
    jobs_at_once: usize,
    /// Closes of what a thread takes at once some or all; gives what is left for a later turn.
    close: fn(Job) -> Option<Job>,
    /// When a link was closed last.
    last: Mutex<Option<Instant>>,
    /// How long the turn of a caller's links is waited for, where it may never come.
    patience: Option<Duration>,
    /// Links were not waited for to their end: nor are others, until all are closed.
    is_late: AtomicBool,
}

/// Jobs that wait, and threads that do them.
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
}

const fn no_jobs() -> Mutex<Queue> {
    Mutex::new(Queue {
        jobs: VecDeque::new(),
        threads: 0,
    })
}

static TOGETHER: Closer = Closer {
    queue: no_jobs(),
    max_threads: MAX_THREADS,
    jobs_at_once: JOBS_AT_ONCE,
    close: close_together,
    last: Mutex::new(None),
    patience: Some(PATIENCE_FOR_TURN),
    is_late: AtomicBool::new(false),
};

static ONE_BY_ONE: Closer = Closer {
    queue: no_jobs(),
    max_threads: 1,
    jobs_at_once: 1,
    close: close_one,
    last: Mutex::new(None),
    patience: None,
    is_late: AtomicBool::new(false),
};

impl Closer {
    fn close(&'static self, first: Vec<Link>, then: Vec<Link>) -> Closing {
        let closing = Closing::of(self, first.len() + then.len());
        if closing.is_over() {
            return closing;
        }
        let mut queue = self.queue();
        queue.jobs.push_back(Job {
            first: closing.counted(first),
            then: closing.counted(then),
        });
        if queue.threads < self.max_threads {
            let started = thread::Builder::new().name("closer".into()).spawn(|| self.work());
            queue.threads += usize::from(started.is_ok());
        }
        let left_alone = if queue.threads == 0 {
            queue.jobs.pop_back()
        } else {
            None
        };
        drop(queue);
        // Where there is no thread, they are dropped, and closed here.
        drop(left_alone);
        closing
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what waits, until nothing does.
    fn work(&self) {
        loop {
            let mut queue = self.queue();
            let number = queue.jobs.len().min(self.jobs_at_once);
            let jobs: Vec<Job> = queue.jobs.drain(..number).collect();
            if jobs.is_empty() {
                queue.threads -= 1;
                if queue.threads == 0 {
                    self.is_late.store(false, Ordering::SeqCst);
                }
                return;
            }
            drop(queue);
            // In each, the first links go before the others still.
            let (mut first, mut then) = (Vec::new(), Vec::new());
            for job in jobs {
                first.extend(job.first);
                then.extend(job.then);
            }
            if let Some(rest) = (self.close)(Job { first, then }) {
                self.queue().jobs.push_back(rest);
            }
        }
    }
}

/// Closes links before others, if that does not take too long.
fn close_together(Job { first, then }: Job) -> Option<Job> {
    thread::scope(|scope| {
        let (closed, is_closed) = mpsc::channel();
        let closing = move || close_all(first, &closed);
        // Where there is no thread, they are dropped, and closed here.
        let _ = thread::Builder::new().spawn_scoped(scope, closing);
        while is_closed.recv_timeout(IN_ORDER) == Ok(()) {}
        let (closed, _) = mpsc::channel();
        close_all(then, &closed);
    });
    None
}

/// Closes links, some at once, and tells of each.
fn close_all(mut links: Vec<Counted>, closed: &mpsc::Sender<()>) {
    while !links.is_empty() {
        let some = links.split_off(links.len().saturating_sub(AT_ONCE));
        thread::scope(|scope| {
            for link in some {
                // Where there is no thread, the link is dropped, and closed here.
                let _ = thread::Builder::new().spawn_scoped(scope, || {
                    drop(link);
                    let _ = closed.send(());
                });
            }
        });
    }
}

/// Closes a perf event while none is being opened; those of other callers have their turn before the next.
fn close_one(mut job: Job) -> Option<Job> {
    let event = job.first.pop().or_else(|| job.then.pop());
    let turn = loop {
        while OPENING.load(Ordering::SeqCst) > 0 || opening::events_are_late() {
            thread::sleep(PAUSE);
        }
        let turn = turn();
        // Who had it before may have given one up.
        if !opening::events_are_late() {
            break turn;
        }
    };
    close_in_turn(event, &turn);
    drop(turn);
    (!job.first.is_empty() || !job.then.is_empty()).then_some(job)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

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
            let are_missing = |numbers: &mut Numbers| numbers.most < AT_ONCE;
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
        assert!(close(Vec::new(), Vec::new()).is_over());
        assert!(close(vec![link(None, "first")], vec![link(None, "then")]).wait());
        assert_eq!([tell.recv(), tell.recv()], [Ok("first"), Ok("then")]);
        // Of these, the first are closed once the others are.
        let (release, may) = mpsc::channel();
        let closing = close(vec![link(Some(may), "first")], vec![Box::new(Release(release))]);
        assert!(closing.wait());
        assert_eq!(tell.recv(), Ok("first"));
        let together = Arc::new(Together::default());
        let all = (0..AT_ONCE).map(|_| Box::new(One(Arc::clone(&together))) as Link);
        assert!(close(all.collect(), Vec::new()).wait());
        assert_eq!(together.numbers.lock().unwrap().most, AT_ONCE);

        let (release, may) = mpsc::channel();
        let begun = Instant::now();
        let stuck = close(vec![link(Some(may), "stuck")], Vec::new());
        assert!(!stuck.is_over() && !stuck.is_stuck());
        assert!(!stuck.wait());
        // Its turn came a little later.
        while !stuck.is_stuck() {
            thread::yield_now();
        }
        assert!(begun.elapsed() >= PATIENCE);
        // Those of others are closed meanwhile, and not waited for where they have to wait, too.
        let (other, may_other) = mpsc::channel();
        assert!(!close(vec![link(Some(may_other), "other")], Vec::new()).wait());
        assert!(begun.elapsed() < 2 * PATIENCE);
        let _behind: Vec<Closing> = (0..2 * JOBS_AT_ONCE)
            .map(|_| close(vec![link(None, "behind")], Vec::new()))
            .collect();
        let behind = tell.iter().take(2 * JOBS_AT_ONCE);
        assert!(behind.into_iter().all(|name| name == "behind"));
        assert!(!stuck.is_over());
        other.send(()).unwrap();
        release.send(()).unwrap();
        // Once all are closed, all is as before.
        while TOGETHER.queue().threads > 0 {
            thread::yield_now();
        }
        assert!(stuck.is_over() && !stuck.is_stuck());
        assert!(close(vec![link(None, "last")], Vec::new()).wait());
    }
}
