//! Looks at many processes of which any may not answer: it has its memory locked, or its files are on a file system that does not
//! answer. Such a process holds up a thread of its own and nothing else, and what is not known of it in time is left out.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use profiler_target::{Life, Listed};

use super::command::Caller;

/// Longest that a request waits for what is not known, and for one process.
const MOST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(250);
/// Threads that look at processes, and how many of them only root's requests have.
const MAX_THREADS: usize = 32;
const THREADS_OF_ROOT: usize = 8;
/// How many processes of one user may hold up one of them each; and of all users but root: other threads are for those who wait, and
/// for root's processes.
const MAX_STUCK_OF_USER: usize = 4;
const MAX_STUCK_OF_USERS: usize = 16;
/// Processes that are kept; with more, all are forgotten.
const MAX_PROCESSES: usize = 65_536;

/// A process that a thread looks at.
struct UnderWay {
    pid: u32,
    uid: u32,
    since: Instant,
}

impl UnderWay {
    /// How long it may still take until it counts as one that does not answer.
    fn patience(&self) -> Duration {
        PATIENCE.saturating_sub(self.since.elapsed())
    }
}

struct Entry<T> {
    life: Life,
    at: Instant,
    known: T,
}

struct State<T> {
    processes: HashMap<u32, Entry<T>>,
    /// By the thread's number.
    under_way: HashMap<u64, UnderWay>,
    threads: usize,
    next_thread: u64,
}

impl<T: Clone> State<T> {
    /// Whether a process is left alone: it does not answer, or too many of its user's do not, or of all users'.
    fn is_left_alone(&self, process: &Asked) -> bool {
        if self.under_way.values().any(|other| other.pid == process.pid) {
            return true;
        }
        let stuck = |is_counted: &dyn Fn(u32) -> bool| {
            let stuck = self.under_way.values().filter(|other| other.patience().is_zero());
            stuck.filter(|other| is_counted(other.uid)).count()
        };
        stuck(&|uid| uid == process.uid) >= MAX_STUCK_OF_USER
            || process.uid != 0 && stuck(&|uid| uid != 0) >= MAX_STUCK_OF_USERS
    }

    /// How long another thread may still take that looks at a process; `None` where none does that answers.
    fn patience_with(&self, pid: u32) -> Option<Duration> {
        let other = self.under_way.values().find(|other| other.pid == pid)?;
        Some(other.patience()).filter(|patience| !patience.is_zero())
    }

    fn fresh(&self, process: &Asked, age: Duration) -> Option<T> {
        let entry = self.processes.get(&process.pid)?;
        let is_fresh = entry.life == process.life && entry.at.elapsed() < age;
        is_fresh.then(|| entry.known.clone())
    }
}

/// A process that is asked for.
#[derive(Clone, Copy)]
struct Asked {
    pid: u32,
    uid: u32,
    life: Life,
}

/// How one process is looked at.
type Look<T> = dyn Fn(u32) -> T + Send + Sync;

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Notified when a look ends.
    ended: Condvar,
    /// How long what is known of a process is not looked at anew.
    fresh: Duration,
    look: Box<Look<T>>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that looks at processes, until it ends in whatever way.
struct Thread<T> {
    number: u64,
    shared: Arc<Shared<T>>,
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.under_way.remove(&self.number);
        state.threads -= 1;
        drop(state);
        self.shared.ended.notify_all();
    }
}

/// What is known of processes by looks at them.
pub struct Looks<T>(Arc<Shared<T>>);

impl<T> Clone for Looks<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + Send + 'static> Looks<T> {
    /// By this look, which gives what is known for so long.
    pub fn new(fresh: Duration, look: impl Fn(u32) -> T + Send + Sync + 'static) -> Self {
        let state = State {
            processes: HashMap::new(),
            under_way: HashMap::new(),
            threads: 0,
            next_thread: 0,
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            ended: Condvar::new(),
            fresh,
            look: Box::new(look),
        }))
    }

    /// What is known of processes, or becomes known in a second. It waits: not to be called where others would wait as well.
    #[must_use]
    pub fn of(&self, caller: Caller, processes: &[Listed]) -> HashMap<u32, T> {
        let mut known = HashMap::with_capacity(processes.len());
        let mut left = Vec::new();
        {
            let state = self.0.lock();
            for process in processes {
                let asked = Asked {
                    pid: process.pid,
                    uid: process.uid,
                    life: process.life,
                };
                match state.fresh(&asked, self.0.fresh) {
                    Some(of_process) => {
                        known.insert(process.pid, of_process);
                    }
                    None => left.push(asked),
                }
            }
        }
        let until = Instant::now() + MOST;
        while !left.is_empty() && Instant::now() < until {
            let (sender, found) = mpsc::channel();
            if !self.begin(caller, left.clone(), sender) {
                break;
            }
            // One that does not answer is left to its thread; another goes on with the others.
            loop {
                match found.recv_timeout(PATIENCE.min(until.saturating_duration_since(Instant::now()))) {
                    Ok((pid, of_process)) => {
                        known.insert(pid, of_process);
                        left.retain(|asked| asked.pid != pid);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => break,
                    // All were looked at, or are left alone.
                    Err(mpsc::RecvTimeoutError::Disconnected) => return known,
                }
            }
        }
        known
    }

    /// Begins to look at processes, on a thread of its own; not where there are too many.
    fn begin(&self, caller: Caller, asked: Vec<Asked>, found: mpsc::Sender<(u32, T)>) -> bool {
        let thread = {
            let mut state = self.0.lock();
            let of_root = if caller.is_root() { 0 } else { THREADS_OF_ROOT };
            if state.threads >= MAX_THREADS - of_root {
                return false;
            }
            state.threads += 1;
            state.next_thread += 1;
            Thread {
                number: state.next_thread,
                shared: Arc::clone(&self.0),
            }
        };
        let work = move || look_at_all(&thread, asked, &found);
        // Where there is no thread, what it would have had is dropped.
        thread::Builder::new().name("looks".into()).spawn(work).is_ok()
    }

    /// Threads that there are.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.0.lock().threads
    }

    /// Threads that there have been.
    #[cfg(test)]
    pub(super) fn threads_so_far(&self) -> u64 {
        self.0.lock().next_thread
    }
}

/// Looks at processes one after another, as long as somebody waits for it.
fn look_at_all<T: Clone>(thread: &Thread<T>, asked: Vec<Asked>, found: &mpsc::Sender<(u32, T)>) {
    let shared = &*thread.shared;
    for process in asked {
        let mut state = shared.lock();
        // What another thread is about to know need not be found twice.
        while let Some(patience) = state.patience_with(process.pid) {
            let waited = shared.ended.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(known) = state.fresh(&process, shared.fresh) {
            drop(state);
            if found.send((process.pid, known)).is_err() {
                return;
            }
            continue;
        }
        if state.is_left_alone(&process) {
            continue;
        }
        let under_way = UnderWay {
            pid: process.pid,
            uid: process.uid,
            since: Instant::now(),
        };
        state.under_way.insert(thread.number, under_way);
        drop(state);
        let known = (shared.look)(process.pid);
        let mut state = shared.lock();
        state.under_way.remove(&thread.number);
        if !shared.fresh.is_zero() {
            if state.processes.len() >= MAX_PROCESSES {
                state.processes.clear();
            }
            let entry = Entry {
                life: process.life,
                at: Instant::now(),
                known: known.clone(),
            };
            state.processes.insert(process.pid, entry);
        }
        drop(state);
        shared.ended.notify_all();
        if found.send((process.pid, known)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Caller = Caller { uid: 0, gid: 0 };
    const USER: Caller = Caller { uid: 1000, gid: 1000 };

    fn listed(pid: u32, uid: u32) -> Listed {
        Listed {
            pid,
            uid,
            threads: 1,
            name: String::new(),
            executable: None,
            life: Life::default(),
        }
    }

    /// Processes of numbers from 2 on do not answer.
    fn stuck_from_two() -> Looks<&'static str> {
        Looks::new(Duration::from_secs(100), |pid| {
            if pid > 1 {
                loop {
                    thread::park();
                }
            }
            "known"
        })
    }

    #[test]
    fn a_process_that_does_not_answer_holds_up_no_other() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let opens = Arc::clone(&gate);
        let looks = Looks::new(Duration::from_secs(100), move |pid| {
            if pid == 2 {
                let (open, changed) = &*opens;
                let guard = changed.wait_while(open.lock().unwrap(), |open| !*open);
                drop(guard.unwrap());
            }
        });
        let asked = [listed(1, 0), listed(2, 1000), listed(3, 0)];
        // Others may keep this machine busy for longer than a look is waited for.
        let mut known = looks.of(ROOT, &asked);
        let until = Instant::now() + 30 * MOST;
        while known.len() < 2 {
            assert!(Instant::now() < until);
            known = looks.of(ROOT, &asked);
        }
        let mut pids: Vec<_> = known.keys().copied().collect();
        pids.sort_unstable();
        assert_eq!(pids, [1, 3]);
        // No other thread looks at it.
        assert!(!looks.of(ROOT, &asked).contains_key(&2));
        let of_process = |looks: &Looks<()>| {
            let state = looks.0.lock();
            state.under_way.values().filter(|one| one.pid == 2).count()
        };
        assert_eq!(of_process(&looks), 1);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        while !looks.of(ROOT, &asked).contains_key(&2) {
            assert!(Instant::now() < until);
        }
    }

    #[test]
    fn requests_at_once_for_one_process_that_does_not_answer_hold_up_one_thread() {
        let looks = stuck_from_two();
        thread::scope(|scope| {
            for _ in 0..MAX_THREADS {
                scope.spawn(|| looks.of(USER, &[listed(2, 1000)]));
            }
        });
        let until = Instant::now() + 30 * MOST;
        // Others that wait for it give it up.
        while looks.threads() > 1 {
            assert!(Instant::now() < until, "{}", looks.threads());
            thread::yield_now();
        }
        while !looks.of(ROOT, &[listed(1, 0)]).contains_key(&1) {
            assert!(Instant::now() < until);
        }
    }

    #[test]
    fn some_threads_are_for_requests_of_root() {
        let looks = stuck_from_two();
        looks.0.lock().threads = MAX_THREADS - THREADS_OF_ROOT;
        assert!(looks.of(USER, &[listed(1, 1000)]).is_empty());
        let until = Instant::now() + 30 * MOST;
        while !looks.of(ROOT, &[listed(1, 1000)]).contains_key(&1) {
            assert!(Instant::now() < until);
        }
        looks.0.lock().threads -= MAX_THREADS - THREADS_OF_ROOT;
    }

    #[test]
    fn many_processes_that_do_not_answer_are_bounded_for_their_user() {
        let looks = stuck_from_two();
        let mut asked: Vec<_> = (2..100).map(|pid| listed(pid, 1000)).collect();
        asked.push(listed(1, 0));
        let until = Instant::now() + 30 * MOST;
        while !looks.of(ROOT, &asked).contains_key(&1) {
            assert!(Instant::now() < until);
        }
        let stuck = looks.0.lock().under_way.len();
        assert_eq!(stuck, MAX_STUCK_OF_USER);
    }

    #[test]
    fn processes_of_many_users_leave_threads_to_those_of_root() {
        let looks = stuck_from_two();
        let mut asked: Vec<_> = (2..200).map(|pid| listed(pid, 1000 + pid)).collect();
        asked.push(listed(1, 0));
        let until = Instant::now() + 60 * MOST;
        while !looks.of(ROOT, &asked).contains_key(&1) {
            assert!(Instant::now() < until);
        }
        assert_eq!(looks.0.lock().under_way.len(), MAX_STUCK_OF_USERS);
    }
}
