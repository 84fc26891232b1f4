//! Reads that may never come to an end, each waited for a bounded time.
//!
//! Who reads `maps`, `map_files`, `mem`, `pagemap`, `syscall` or `cmdline` of a process waits while it starts another program
//! (`exec_update_lock`; `mm_access` in `kernel/fork.c`) and while it changes its mappings (`mmap_lock`). A file system of the process's
//! user can draw out both for ever, as it can the opening of a file on it, and no signal ends that wait. So another thread reads. One that
//! is given no answer in time is left to itself, and its process is not asked again until it has answered.
//!
//! All who look at processes of others share the bounds: threads that wait, and the part of the time that a user may hold them up.

use std::{
    fs::File,
    io,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    blocked::Blocked,
    open_file::OpenFile,
    time_shares::{TimeShare, TimeShares},
    user::{ROOT, user_of},
};

/// How long an answer is waited for that root's processes or files give, and while another of theirs has not come.
const PATIENCE_WITH_ROOT: Duration = Duration::from_secs(5);
const PATIENCE_BEHIND_ROOT: Duration = Duration::from_millis(100);
/// The same of another user's, where that has held up nobody of late, and where only others' have.
const PATIENCE: Duration = Duration::from_secs(1);
const LEAST_PATIENCE: Duration = Duration::from_millis(50);
/// Answers that would be waited for less long are not asked for.
const NO_PATIENCE: Duration = Duration::from_millis(10);
/// Each user, and all but root together, may hold others up one part in so many of the time; all together so long at once.
const PART: u32 = 4;
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(2);
/// A wait of this length is not counted, nor as much of a longer one: a process that starts a program takes some milliseconds.
const NOT_COUNTED: Duration = Duration::from_millis(5);
/// How long a request waits for what nobody else waits for.
const PATIENCE_OF_REQUEST: Duration = Duration::from_secs(5);
/// Reads that are left to themselves: of root, of another user, and of all those.
const MAX_OF_ROOT: usize = 128;
const MAX_OF_USER: usize = 16;
const MAX_OF_USERS: usize = 128;
/// Threads that stay for the next read.
const MAX_IDLE: usize = 2;

/// Reads something of a process that it may keep from being read.
///
/// # Errors
/// `TimedOut` where the process does not answer, or its user's processes and files have taken their share of the time; `NotFound` where it
/// has ended. Otherwise those of the reading.
pub fn read_of_process<T: Send + 'static>(
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let user = user_of(pid).ok_or(io::ErrorKind::NotFound)?;
    READS.read(user, Some(pid), None, read)
}

/// As [`read_of_process`], where a request waits for it and nobody else: longer, and not counted as time of others.
///
/// # Errors
/// As those of [`read_of_process`].
pub fn read_for_request<T: Send + 'static>(
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let user = user_of(pid).ok_or(io::ErrorKind::NotFound)?;
    READS.read(user, Some(pid), Some(PATIENCE_OF_REQUEST), read)
}

/// Reads something of several processes of a user, one after the other on one thread: on a busy machine, whoever has another thread read
/// waits for a CPU twice, which takes longer than the reading.
///
/// Gives what was read, by process, and `TimedOut` of those that do not answer. Of those that come after the first of these nothing is
/// given: they are to be asked by themselves.
pub fn read_of_processes<T: Send + 'static>(
    user: u32,
    pids: Vec<u32>,
    read: impl Fn(u32) -> io::Result<T> + Send + 'static,
) -> Vec<(u32, io::Result<T>)> {
    READS.read_each(user, pids, read)
}

/// Reads something of a user's files that a file system of theirs may keep from being read.
///
/// # Errors
/// As those of [`read_of_process`].
pub fn read_of_user<T: Send + 'static>(
    user: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    READS.read(user, None, None, read)
}

/// Reads an open file that its file system may keep from being read; at once where that asks nobody else.
///
/// # Errors
/// As those of [`read_of_process`].
pub fn read_file<T: Send + 'static>(
    open: OpenFile,
    read: impl FnOnce(OpenFile) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if open.file.answers() {
        read(open)
    } else {
        read_of_user(open.file.user(), move || read(open))
    }
}

/// Closes a file of a user's, which its file system may keep from coming to an end; nobody waits for that.
pub(crate) fn close_for(user: u32, file: File) {
    READS.leave(user, move || drop(file));
}

/// Whether something of a user's was asked for, and given up, that has no answer yet.
#[must_use]
pub fn has_unanswered(user: u32) -> bool {
    READS.state().given_up().any(|open| open.user == user)
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
    /// Time that was waited, by user, and for all but root.
    by_user: TimeShares,
    by_all: TimeShare,
    began: Instant,
}

type Job = Box<dyn FnOnce() + Send>;

/// A read that has no answer yet.
struct Open {
    number: u64,
    user: u32,
    pid: Option<u32>,
    since: Instant,
    waited_for_by: WaitedForBy,
}

/// Who waits for a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitedForBy {
    /// A thread that serves all.
    All,
    /// A request.
    OneRequest,
    /// Nobody any more: it is left to itself.
    Nobody,
}

/// Takes a read off the open ones once it is answered, or has panicked.
struct Question {
    reads: Reads,
    number: u64,
}

impl Question {
    /// What is read is of this process from now on.
    fn turn_to(&self, pid: u32) {
        let mut state = self.reads.state();
        if let Some(open) = state.open.iter_mut().find(|open| open.number == self.number) {
            open.pid = Some(pid);
        }
    }
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
            by_user: TimeShares::one_in(PART),
            by_all: TimeShare::one_in(PART),
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
        own_patience: Option<Duration>,
        read: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (number, patience) = self.state().begin(user, pid, own_patience)?;
        let question = self.question(number);
        let (sender, answers) = mpsc::sync_channel(1);
        self.hand_over(Box::new(move || {
            let begun = Blocked::begin();
            let answer = read();
            let blocked = begun.end();
            drop(question);
            // Nobody may be waiting any more.
            let _ = sender.send((answer, blocked));
        }))?;
        let answer = answers.recv_timeout(patience);
        let waited = match &answer {
            Ok((_, blocked)) => *blocked,
            Err(RecvTimeoutError::Timeout) => patience,
            Err(RecvTimeoutError::Disconnected) => Duration::ZERO,
        };
        if own_patience.is_none() {
            self.state().end(user, waited);
        }
        match answer {
            Ok((answer, _)) => answer,
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("reading it has failed: please report it"))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.state().give_up(number);
                Err(unanswered())
            }
        }
    }

    fn read_each<T: Send + 'static>(
        &self,
        user: u32,
        pids: Vec<u32>,
        read: impl Fn(u32) -> io::Result<T> + Send + 'static,
    ) -> Vec<(u32, io::Result<T>)> {
        let mut state = self.state();
        let (silent, asked): (Vec<u32>, Vec<u32>) = pids.into_iter().partition(|pid| state.is_silent(*pid));
        let begun = state.begin(user, None, None);
        drop(state);
        let mut answered: Vec<_> = silent.into_iter().map(|pid| (pid, Err(unanswered()))).collect();
        let Ok((number, patience)) = begun else {
            return answered;
        };
        let mut question = Some(self.question(number));
        let (sender, answers) = mpsc::sync_channel(asked.len());
        let pids = asked.clone();
        let handed_over = self.hand_over(Box::new(move || {
            let last = pids.len().saturating_sub(1);
            for (at, pid) in pids.into_iter().enumerate() {
                if let Some(question) = &question {
                    question.turn_to(pid);
                }
                let begun = Blocked::begin();
                let answer = read(pid);
                let blocked = begun.end();
                if at == last {
                    question = None;
                }
                // Where nobody waits any more, nobody asks for the others here.
                if sender.send((answer, blocked)).is_err() {
                    break;
                }
            }
        }));
        if handed_over.is_err() {
            return answered;
        }
        // For each so long, but for the time in which those before it kept this waiting.
        let mut patience = patience;
        for pid in asked {
            match answers.recv_timeout(patience) {
                Ok((answer, blocked)) => {
                    self.state().end(user, blocked);
                    patience = patience.saturating_sub(blocked);
                    answered.push((pid, answer));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let mut state = self.state();
                    state.end(user, patience);
                    state.give_up(number);
                    answered.push((pid, Err(unanswered())));
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        answered
    }

    /// Does something for a user that nobody waits for.
    fn leave(&self, user: u32, work: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        let number = state.open(user, None, WaitedForBy::Nobody);
        drop(state);
        let question = self.question(number);
        let handed_over = self.hand_over(Box::new(move || {
            work();
            drop(question);
        }));
        if let Err(error) = handed_over {
            tracing::warn!(%error, "no thread closes a file");
        }
    }

    fn question(&self, number: u64) -> Question {
        Question {
            reads: self.clone(),
            number,
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
    /// The number of a read that begins, and how long it is to be waited for.
    ///
    /// # Errors
    /// `TimedOut` where it is not to begin.
    fn begin(
        &mut self,
        user: u32,
        pid: Option<u32>,
        own_patience: Option<Duration>,
    ) -> io::Result<(u64, Duration)> {
        if pid.is_some_and(|pid| self.is_silent(pid)) {
            return Err(unanswered());
        }
        let of_user = self.given_up().filter(|open| open.user == user).count();
        let of_users = self.given_up().filter(|open| open.user != ROOT).count();
        let is_full = if user == ROOT {
            of_user >= MAX_OF_ROOT
        } else {
            of_user >= MAX_OF_USER || of_users >= MAX_OF_USERS
        };
        if is_full {
            return Err(too_many());
        }
        if let Some(patience) = own_patience {
            return Ok((self.open(user, pid, WaitedForBy::OneRequest), patience));
        }
        let patience = match (user, of_user) {
            (ROOT, 0) => PATIENCE_WITH_ROOT,
            (ROOT, _) => PATIENCE_BEHIND_ROOT,
            _ => self.patience_with(user).ok_or_else(too_many)?,
        };
        Ok((self.open(user, pid, WaitedForBy::All), patience))
    }

    /// Whether a process has not answered yet.
    fn is_silent(&self, pid: u32) -> bool {
        self.given_up().any(|open| open.pid == Some(pid))
    }

    /// Those that are left to themselves.
    fn given_up(&self) -> impl Iterator<Item = &Open> {
        let given_up = |open: &&Open| open.waited_for_by == WaitedForBy::Nobody;
        self.open.iter().filter(given_up)
    }

    fn open(&mut self, user: u32, pid: Option<u32>, waited_for_by: WaitedForBy) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.push(Open {
            number,
            user,
            pid,
            since: Instant::now(),
            waited_for_by,
        });
        number
    }

    /// How long an answer of a user's may be waited for; `None` where that is no time. Others who were waited for leave some to each.
    fn patience_with(&mut self, user: u32) -> Option<Duration> {
        let now = self.began.elapsed();
        // Those that are waited for meanwhile are counted when they are over.
        let waited_for = |is_counted: &dyn Fn(&Open) -> bool| {
            let of_all = |open: &&Open| open.waited_for_by == WaitedForBy::All && is_counted(open);
            let open = self.open.iter().filter(of_all);
            open.map(|open| open.since.elapsed()).sum::<Duration>()
        };
        let of_user = waited_for(&|open| open.user == user);
        let of_all = waited_for(&|open| open.user != ROOT);
        let of_user = of_user + self.by_user.taken(user, now);
        let of_all = of_all + self.by_all.taken(now);
        let left = PATIENCE_WITH_ALL.saturating_sub(of_all).max(LEAST_PATIENCE);
        let patience = PATIENCE.saturating_sub(of_user).min(left);
        (patience >= NO_PATIENCE).then_some(patience)
    }

    /// Counts how long an answer was waited for.
    fn end(&mut self, user: u32, waited: Duration) {
        if user == ROOT {
            return;
        }
        let counted = waited.saturating_sub(NOT_COUNTED);
        let now = self.began.elapsed();
        self.by_user.take(user, counted, now);
        self.by_all.take(counted, now);
    }

    fn give_up(&mut self, number: u64) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == number) {
            open.waited_for_by = WaitedForBy::Nobody;
        }
    }
}

fn unanswered() -> io::Error {
    let text = "the process or its file system does not answer: try again";
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn too_many() -> io::Error {
    let text = "other processes of the same user do not answer: try again in some seconds";
    io::Error::new(io::ErrorKind::TimedOut, text)
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
    fn processes_are_read_together_up_to_the_one_that_does_not_answer() {
        const SILENT: u32 = 3;
        let (reads, holding) = (Reads::default(), Holding::new());
        let held = holding.read();
        let held = Mutex::new(Some(held));
        let all = reads.read_each(USER, vec![1, 2, SILENT, 4], move |pid| {
            if pid == SILENT
                && let Some(held) = held.lock().unwrap().take()
            {
                held()?;
            }
            Ok(pid)
        });
        let pids: Vec<u32> = all.iter().map(|(pid, _)| *pid).collect();
        assert_eq!(pids, [1, 2, SILENT], "who comes behind it is asked by itself");
        assert!(all[..2].iter().all(|(pid, read)| read.as_ref().ok() == Some(pid)));
        assert!(is_unanswered(&all[2].1));
        // Its user has taken its share of the time.
        let read = |pids: Vec<u32>| reads.read_each(USER + 1, pids, Ok);
        let again = read(vec![SILENT, 4]);
        assert!(again[0].0 == SILENT && is_unanswered(&again[0].1));
        assert!(matches!(again[1], (4, Ok(4))), "others are read meanwhile");
        drop(holding);
        while reads.state().is_silent(SILENT) {
            thread::yield_now();
        }
        assert!(matches!(read(vec![SILENT])[..], [(SILENT, Ok(SILENT))]));
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up_and_asked_again_once_it_has() {
        let (reads, holding) = (Reads::default(), Holding::new());
        let begun = Instant::now();
        assert!(is_unanswered(&reads.read(USER, Some(1), None, holding.read())));
        assert!(begun.elapsed() >= PATIENCE);
        for _ in 0..1_000 {
            assert!(
                is_unanswered(&reads.read(USER, Some(1), None, || Ok(()))),
                "it is not asked"
            );
        }
        // Root's are, and those of users who have held up nobody.
        reads.read(ROOT, Some(2), None, || Ok(())).unwrap();
        reads.read(USER + 1, Some(3), None, || Ok(())).unwrap();
        drop(holding);
        while !reads.state().open.is_empty() {
            thread::yield_now();
        }
        while is_unanswered(&reads.read(USER, Some(1), None, || Ok(()))) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_user_takes_no_more_than_a_share_of_the_time_with_any_number_of_processes() {
        let mut state = State::default();
        let mut waited = Duration::ZERO;
        for pid in 0..10_000 {
            let Ok((number, patience)) = state.begin(USER, Some(pid), None) else {
                continue;
            };
            state.end(USER, patience);
            waited += patience;
            state.open.retain(|open| open.number != number);
        }
        assert!(waited < PATIENCE * 3, "{waited:?}");
        assert!(state.begin(ROOT, Some(1), None).is_ok());
        assert!(state.begin(USER + 1, Some(1), None).is_ok());
    }

    #[test]
    fn a_request_waits_for_a_process_whose_user_has_no_time_left() {
        let mut state = State::default();
        state.end(USER, PATIENCE + NOT_COUNTED);
        assert!(state.begin(USER, Some(1), None).is_err());
        assert!(state.begin(USER, Some(1), Some(PATIENCE_OF_REQUEST)).is_ok());
    }

    #[test]
    fn processes_of_a_user_are_waited_for_at_the_same_time() {
        let mut state = State::default();
        for pid in 0..8 {
            let (_, patience) = state.begin(USER, Some(pid), None).unwrap();
            assert!(patience > PATIENCE / 2, "{patience:?}");
        }
    }

    #[test]
    fn others_who_were_waited_for_leave_some_time_to_each_user() {
        let mut state = State::default();
        for user in 0..100 {
            state.end(USER + user, PATIENCE + NOT_COUNTED);
        }
        let (_, patience) = state.begin(USER + 100, Some(1), None).unwrap();
        assert_eq!(patience, LEAST_PATIENCE);
        assert!(state.begin(USER, Some(1), None).is_err());
    }

    #[test]
    fn threads_that_wait_are_bounded_by_user_and_in_all() {
        let mut state = State::default();
        let mut begin = |user, pid| {
            let begun = state.begin(user, Some(pid), None);
            if let Ok((number, _)) = begun {
                state.give_up(number);
            }
            begun.is_ok()
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
        let failed = reads.read(USER, Some(1), None, || -> io::Result<()> { panic!("a defect") });
        assert!(failed.is_err_and(|error| error.kind() == io::ErrorKind::Other));
        assert!(reads.state().open.is_empty());
        reads.read(USER, Some(1), None, || Ok(())).unwrap();
    }

    #[test]
    fn threads_are_used_again() {
        let reads = Reads::default();
        let name = || Ok(thread::current().id());
        let ids: Vec<_> = (0..200)
            .map(|_| {
                let id = reads.read(ROOT, Some(1), None, name).unwrap();
                while reads.state().idle.is_empty() {
                    thread::yield_now();
                }
                id
            })
            .collect();
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
}
