//! Reads that may never come to an end, each waited for a bounded time.
//!
//! Who reads `maps`, `map_files`, `mem`, `pagemap`, `syscall` or `cmdline` of a process waits while it starts another program
//! (`exec_update_lock`; `mm_access` in `kernel/fork.c`) and while it changes its mappings (`mmap_lock`). A file system of the process's
//! user can draw out both for ever, as it can the opening of a file on it, and no signal ends that wait. So another thread reads. One that
//! is given no answer in time is left to itself, and its process is not asked again until it has answered.
//!
//! All who look at processes of others share the bounds: threads that wait, and the part of the time that a user may hold them up.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{fstatfs, major};

use super::{
    contents::OpenFile,
    file_systems::answers,
    time_shares::TimeShares,
    user::{ROOT, user_of},
};

/// How long an answer is waited for that root's processes or files give.
const PATIENCE_WITH_ROOT: Duration = Duration::from_secs(5);
/// The same of another user's, where that has held up nobody of late.
const PATIENCE: Duration = Duration::from_secs(1);
/// Users whose answers take longer may take one part in so many of the time.
const PART: u64 = 10;
/// An answer that comes so soon is not counted: reading takes time for everybody's.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Reads that are left to themselves: of one user but root, and of all those.
const MAX_OF_USER: usize = 16;
const MAX_OF_USERS: usize = 128;
/// Threads that stay for the next read.
const MAX_IDLE: usize = 2;

/// Stands for all users but root; no user has this number (`INVALID_UID` of the kernel).
const ALL_USERS: u32 = u32::MAX;

/// Reads something of a process that it may keep from being read.
///
/// # Errors
/// `TimedOut` where the process does not answer, or others of its user's do not so often that it is not asked; `NotFound` where it has
/// ended. Otherwise those of the reading.
pub fn read_of_process<T: Send + 'static>(
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let user = user_of(pid).ok_or(io::ErrorKind::NotFound)?;
    READS.read(user, Some(pid), read)
}

/// Reads something of a user's files that a file system of theirs may keep from being read.
///
/// # Errors
/// As those of [`read_of_process`].
pub fn read_of_user<T: Send + 'static>(
    user: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    READS.read(user, None, read)
}

/// Reads an open file that its file system may keep from being read, for somebody; at once where that asks nobody else.
///
/// # Errors
/// As those of [`read_of_process`].
pub fn read_file<T: Send + 'static>(
    user: u32,
    open: OpenFile,
    read: impl FnOnce(OpenFile) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // Those that ask others have no device of their own.
    if major(open.metadata.dev()) != 0 {
        return read(open);
    }
    let asked = read_of_user(user, move || {
        let answers = answers(fstatfs(&open.file)?.f_type);
        Ok((open, answers))
    });
    let (open, answers) = asked?;
    if answers {
        read(open)
    } else {
        read_of_user(user, move || read(open))
    }
}

static READS: LazyLock<Reads> = LazyLock::new(Reads::default);

/// All reads, and the threads that do them.
#[derive(Clone, Default)]
struct Reads(Arc<Mutex<State>>);

struct State {
    open: Vec<Open>,
    next: u64,
    /// Threads that wait for something to read.
    idle: Vec<SyncSender<Job>>,
    shares: TimeShares,
    began: Instant,
}

type Job = Box<dyn FnOnce() + Send>;

/// A read that has no answer yet.
struct Open {
    number: u64,
    user: u32,
    pid: Option<u32>,
    /// Nobody waits for it any more.
    is_given_up: bool,
}

/// Takes a read off the open ones once it is answered, or has panicked.
struct Question {
    reads: Reads,
    number: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        let number = self.number;
        self.reads.state().open.retain(|open| open.number != number);
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            next: 0,
            idle: Vec::new(),
            shares: TimeShares::one_in(PART),
            began: Instant::now(),
        }
    }
}

impl Reads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T: Send + 'static>(
        &self,
        user: u32,
        pid: Option<u32>,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (number, patience) = self.state().begin(user, pid).ok_or_else(unanswered)?;
        let question = Question {
            reads: self.clone(),
            number,
        };
        let (sender, answers) = mpsc::sync_channel(1);
        let begun = Instant::now();
        self.hand_over(Box::new(move || {
            let answer = read();
            drop(question);
            // Nobody may be waiting any more.
            let _ = sender.send(answer);
        }))?;
        let answer = answers.recv_timeout(patience);
        let mut state = self.state();
        state.count(user, begun.elapsed());
        match answer {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("reading it has failed: please report it"))
            }
            Err(RecvTimeoutError::Timeout) => {
                state.give_up(number);
                Err(unanswered())
            }
        }
    }

    /// Has a thread do it.
    fn hand_over(&self, job: Job) -> io::Result<()> {
        let idle = self.state().idle.pop();
        let job = match idle {
            None => job,
            Some(thread) => match thread.try_send(job) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => job,
            },
        };
        let reads = Arc::downgrade(&self.0);
        let thread = thread::Builder::new().name("process reader".to_owned());
        thread.spawn(move || work(&reads, job)).map(drop)
    }
}

/// Does one thing after another, until there are enough threads.
fn work(reads: &Weak<Mutex<State>>, first: Job) {
    let mut job = first;
    loop {
        job();
        let (thread, inbox) = mpsc::sync_channel(1);
        {
            let Some(reads) = reads.upgrade().map(Reads) else {
                return;
            };
            let mut state = reads.state();
            if state.idle.len() >= MAX_IDLE {
                return;
            }
            state.idle.push(thread);
        }
        let Ok(next) = inbox.recv() else { return };
        job = next;
    }
}

impl State {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The number of a read that begins, and how long it is to be waited for; `None` where it is not to begin.
    fn begin(&mut self, user: u32, pid: Option<u32>) -> Option<(u64, Duration)> {
        let given_up = || self.open.iter().filter(|open| open.is_given_up);
        if pid.is_some() && given_up().any(|open| open.pid == pid) {
            return None;
        }
        let patience = if user == ROOT {
            PATIENCE_WITH_ROOT
        } else {
            let of_user = given_up().filter(|open| open.user == user).count();
            let of_users = given_up().filter(|open| open.user != ROOT).count();
            if of_user >= MAX_OF_USER || of_users >= MAX_OF_USERS {
                return None;
            }
            self.patience_with(user)?
        };
        let number = self.next;
        self.next += 1;
        self.open.push(Open {
            number,
            user,
            pid,
            is_given_up: false,
        });
        Some((number, patience))
    }

    /// How long an answer of a user's may be waited for; `None` where that is no time.
    fn patience_with(&mut self, user: u32) -> Option<Duration> {
        let now_ns = self.now_ns();
        let mut taken_ns = |user| Duration::from_nanos(self.shares.taken_ns(user, now_ns));
        let taken = taken_ns(user).max(taken_ns(ALL_USERS) / 2);
        // So that at least half of what is waited is counted.
        PATIENCE
            .checked_sub(taken)
            .filter(|patience| *patience >= 2 * AT_ONCE)
    }

    /// Counts how long an answer was waited for.
    fn count(&mut self, user: u32, waited: Duration) {
        let took = waited.saturating_sub(AT_ONCE);
        if user == ROOT || took.is_zero() {
            return;
        }
        let (took_ns, now_ns) = (u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), self.now_ns());
        for user in [user, ALL_USERS] {
            self.shares.take(user, took_ns, now_ns);
        }
    }

    fn give_up(&mut self, number: u64) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == number) {
            open.is_given_up = true;
        }
    }
}

fn unanswered() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "its process or file system does not answer: try again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1_234;

    /// Holds reads until it is dropped.
    struct Holding {
        _hold: mpsc::Sender<()>,
        held: Arc<Mutex<mpsc::Receiver<()>>>,
    }

    impl Holding {
        fn new() -> Self {
            let (hold, held) = mpsc::channel();
            Self {
                _hold: hold,
                held: Arc::new(Mutex::new(held)),
            }
        }

        fn read(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
            let held = Arc::clone(&self.held);
            move || {
                // Until the test lets it go on.
                let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
                Ok(())
            }
        }
    }

    fn is_unanswered<T>(answer: &io::Result<T>) -> bool {
        answer
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up_and_asked_again_once_it_has() {
        let (reads, holding) = (Reads::default(), Holding::new());
        let begun = Instant::now();
        assert!(is_unanswered(&reads.read(USER, Some(1), holding.read())));
        assert!(begun.elapsed() >= PATIENCE);
        for _ in 0..1_000 {
            assert!(
                is_unanswered(&reads.read(USER, Some(1), || Ok(()))),
                "it is not asked"
            );
        }
        // Root's are, and those of users who have held up nobody.
        reads.read(ROOT, Some(2), || Ok(())).unwrap();
        reads.read(USER + 1, Some(3), || Ok(())).unwrap();
        drop(holding);
        while reads.state().open.iter().any(|open| open.is_given_up) {
            thread::yield_now();
        }
        while is_unanswered(&reads.read(USER, Some(1), || Ok(()))) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_user_takes_no_more_than_a_share_of_the_time_with_any_number_of_processes() {
        let mut state = State::default();
        let mut waited = Duration::ZERO;
        for pid in 0..10_000 {
            let Some((number, patience)) = state.begin(USER, Some(pid)) else {
                continue;
            };
            state.count(USER, patience);
            waited += patience;
            state.open.retain(|open| open.number != number);
        }
        assert!(waited < PATIENCE * 3, "{waited:?}");
        assert!(state.begin(ROOT, Some(1)).is_some());
        assert!(state.begin(USER + 1, Some(1)).is_some());
        // However many users do the same, some time is left to root.
        for user in USER..2 * USER {
            if let Some((_, patience)) = state.begin(user, Some(user)) {
                state.count(user, patience);
                waited += patience;
            }
        }
        assert!(waited < PATIENCE * 6, "{waited:?}");
    }

    #[test]
    fn threads_that_wait_are_bounded_by_user_and_in_all() {
        let mut state = State::default();
        let mut begin = |user, pid| {
            let begun = state.begin(user, Some(pid));
            if let Some((number, _)) = begun {
                state.give_up(number);
            }
            begun.is_some()
        };
        let of_user = (0..1_000).filter(|pid| begin(USER, *pid)).count();
        assert_eq!(of_user, MAX_OF_USER);
        let of_others = (1_000..9_000).filter(|pid| begin(USER + pid, *pid)).count();
        assert_eq!(of_user + of_others, MAX_OF_USERS);
        assert!(begin(ROOT, 9_999));
    }

    #[test]
    fn a_read_that_panics_is_told_and_leaves_nothing_behind() {
        let reads = Reads::default();
        let failed = reads.read(USER, Some(1), || -> io::Result<()> { panic!("a defect") });
        assert!(failed.is_err_and(|error| error.kind() == io::ErrorKind::Other));
        assert!(reads.state().open.is_empty());
        reads.read(USER, Some(1), || Ok(())).unwrap();
    }

    #[test]
    fn threads_are_used_again() {
        let reads = Reads::default();
        let name = || Ok(thread::current().id());
        let ids: Vec<_> = (0..200)
            .map(|_| {
                let id = reads.read(ROOT, Some(1), name).unwrap();
                while reads.state().idle.is_empty() {
                    thread::yield_now();
                }
                id
            })
            .collect();
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
}
