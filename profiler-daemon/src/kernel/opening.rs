//! Links are opened on threads of their own: the kernel puts a probe into the memory of each process that has mapped the file, whoever's
//! it is, and waits for one that keeps its memory from being changed (`register_for_each_vma` in `kernel/events/uprobes.c`). The engine
//! has others to serve.

use std::{
    io,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use profiler_target::{Blocked, TimeShare};

use super::{KernelError, attach::Site};

/// How long a link is waited for while the kernel has not yet opened another that was given up, as it opens one at a time; and where links
/// have been waited for in vain too often.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);
/// How much longer the kernel may take at one site more.
const PATIENCE_PER_SITE: Duration = Duration::from_millis(20);
/// Longest wait for one, at however many sites.
const MOST_PATIENCE: Duration = Duration::from_secs(20);
/// Links may be waited for in vain one part in so many of the time; what was waited for one is so many times missing to the next.
const PART: u32 = 10;
const IN_VAIN_TIMES: u32 = 4;

/// Links that were given up, and which the kernel has not opened yet; and which of them are perf events.
static LATE: AtomicUsize = AtomicUsize::new(0);
static LATE_EVENTS: AtomicUsize = AtomicUsize::new(0);
/// Time in which links were waited for in vain.
static IN_VAIN: LazyLock<Mutex<InVain>> = LazyLock::new(Mutex::default);

struct InVain {
    share: TimeShare,
    since: Instant,
}

impl Default for InVain {
    fn default() -> Self {
        Self {
            share: TimeShare::one_in(PART),
            since: Instant::now(),
        }
    }
}

fn in_vain() -> MutexGuard<'static, InVain> {
    IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link, which is closed when this is dropped.
pub(super) enum Opened<L> {
    Open { _link: L },
    Late { _link: LateLink<L> },
}

/// Links that are still being opened. Dropping this waits for that, and closes them.
pub(super) struct LateLink<L>(Receiver<Answer<L>>);

impl<L> Drop for LateLink<L> {
    fn drop(&mut self) {
        while let Ok(answer) = self.0.recv() {
            drop(answer);
        }
    }
}

/// What came of opening one.
struct Answer<L> {
    link: io::Result<L>,
    /// How long it was waited for others.
    blocked: Duration,
}

/// What is to be opened.
pub(super) struct Opening<O> {
    /// How long the kernel may take for one, but for the time in which it was waiting for others at those before.
    pub(super) patience: Duration,
    /// They are perf events: while the kernel waits with one, it opens and closes none of anybody's (`event_mutex`).
    pub(super) are_events: bool,
    /// Each opens one.
    pub(super) opens: Vec<O>,
}

/// How far the opening of a link is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    GivenUp,
    Over,
}

/// Opens links, one after the other, which then are among the others: also those that take longer than the patience, and are to be closed
/// with them.
///
/// # Errors
/// That of opening the first that is not opened; `TimedOut` where it takes longer.
pub(super) fn open<L, O>(opening: Opening<O>, links: &mut Vec<Opened<L>>) -> io::Result<()>
where
    L: Send + 'static,
    O: FnOnce() -> io::Result<L> + Send + 'static,
{
    let Opening {
        patience,
        are_events,
        opens,
    } = opening;
    let mut patience = patience_now(patience);
    let number = opens.len();
    let (sender, opened) = mpsc::channel();
    let state = Arc::new(Mutex::new(State::UnderWay));
    let under_way = UnderWay {
        state: Arc::clone(&state),
        are_events,
    };
    let thread = thread::Builder::new().name("opener".to_owned());
    thread.spawn(move || {
        for open in opens {
            let begun = Blocked::begin();
            let link = open();
            let is_refused = link.is_err();
            let blocked = begun.end();
            // Where nobody waits any more, that closes it.
            if sender.send(Answer { link, blocked }).is_err() || is_refused || is_given_up(&under_way.state) {
                break;
            }
        }
    })?;
    for _ in 0..number {
        match opened.recv_timeout(patience) {
            Ok(Answer { link, blocked }) => {
                links.push(Opened::Open { _link: link? });
                patience = patience.saturating_sub(blocked);
            }
            Err(RecvTimeoutError::Timeout) => {
                give_up(&state, patience, are_events);
                links.push(Opened::Late {
                    _link: LateLink(opened),
                });
                return Err(kept_waiting());
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("opening a link has failed: please report it"));
            }
        }
    }
    Ok(())
}

/// Whether the kernel waits with a perf event, and opens and closes no others meanwhile.
pub(super) fn events_are_late() -> bool {
    LATE_EVENTS.load(Ordering::SeqCst) > 0
}

/// Why perf events are not opened at present: [`events_are_late`], or one that is being closed takes as long.
pub(super) fn kept_waiting() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "another process that has this file mapped keeps the kernel from placing the probe: it is starting a program, or its memory is \
         locked while a file system does not answer. Try again, or end that process",
    )
}

fn count_late(are_events: bool, count: impl Fn(&AtomicUsize) -> usize) {
    if are_events {
        count(&LATE_EVENTS);
    }
    count(&LATE);
}

/// What a thread has that opens links: with its end, none of them is late any more.
struct UnderWay {
    state: Arc<Mutex<State>>,
    are_events: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if enter(&self.state, State::Over) == State::GivenUp {
            count_late(self.are_events, |late| late.fetch_sub(1, Ordering::SeqCst));
        }
    }
}

fn is_given_up(state: &Mutex<State>) -> bool {
    *state.lock().unwrap_or_else(PoisonError::into_inner) == State::GivenUp
}

/// How long the kernel may take to open links at so many sites.
pub(super) fn patience_at(sites: &[Site], patience: Duration) -> Duration {
    let number = u32::try_from(sites.len()).unwrap_or(u32::MAX);
    patience + PATIENCE_PER_SITE.saturating_mul(number)
}

fn patience_now(patience: Duration) -> Duration {
    if LATE.load(Ordering::SeqCst) > 0 {
        return patience.min(LEAST_PATIENCE);
    }
    let mut in_vain = in_vain();
    let now = in_vain.since.elapsed();
    let taken = in_vain.share.taken(now);
    let most = MOST_PATIENCE.saturating_sub(taken).max(LEAST_PATIENCE);
    patience.min(most)
}

fn give_up(state: &Mutex<State>, waited: Duration, are_events: bool) {
    count_late(are_events, |late| late.fetch_add(1, Ordering::SeqCst));
    if enter(state, State::GivenUp) == State::Over {
        count_late(are_events, |late| late.fetch_sub(1, Ordering::SeqCst));
    }
    let mut in_vain = in_vain();
    let now = in_vain.since.elapsed();
    in_vain.share.take(waited * IN_VAIN_TIMES, now);
}

/// The state that it was in before.
fn enter(state: &Mutex<State>, next: State) -> State {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if *state == State::Over {
        return State::Over;
    }
    std::mem::replace(&mut *state, next)
}

/// Why a link of a process was not opened.
pub(super) fn refused(what: String, error: io::Error) -> KernelError {
    let error = match error.raw_os_error() {
        Some(libc::ESRCH) => io::Error::new(io::ErrorKind::NotFound, "the process is gone"),
        _ => error,
    };
    KernelError::system(what, error)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd};

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    type Open = dyn FnOnce() -> io::Result<OwnedFd> + Send;

    fn descriptor() -> io::Result<OwnedFd> {
        Ok(File::open("/dev/null")?.into())
    }

    /// In one test, as those that are late are counted for all.
    #[test]
    fn a_link_that_takes_too_long_is_refused_and_closed_once_it_is_open() {
        let mut links = Vec::new();
        let opening = |patience, opens| Opening {
            patience,
            are_events: true,
            opens,
        };
        let boxed = |open: Box<Open>| vec![open];
        open(opening(PATIENCE, boxed(Box::new(descriptor))), &mut links).unwrap();
        let none = || Err(io::Error::from_raw_os_error(libc::ESRCH));
        let refused = open(
            opening(PATIENCE, vec![Box::new(none) as Box<Open>, Box::new(descriptor)]),
            &mut links,
        );
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(matches!(links[..], [Opened::Open { .. }]));
        let (go_on, held) = mpsc::channel::<()>();
        let (read, mut write) = io::pipe().unwrap();
        let held_one = move || {
            // Until the test lets it go on.
            let _ = held.recv();
            Ok(read.into())
        };
        // What would come behind one that was given up is not opened any more.
        let never = || -> io::Result<OwnedFd> { panic!("nobody waits for it") };
        let late = open(
            opening(
                Duration::ZERO,
                vec![Box::new(held_one) as Box<Open>, Box::new(never)],
            ),
            &mut links,
        );
        assert!(events_are_late());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(matches!(links[..], [_, Opened::Late { .. }]));
        // Another that is as long in coming is not waited for as long.
        let (hold, held) = mpsc::channel::<()>();
        let other = move || {
            let _ = held.recv();
            descriptor()
        };
        let other = open(opening(PATIENCE, boxed(Box::new(other))), &mut links);
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(LATE.load(Ordering::SeqCst), 2);
        drop((go_on, hold));
        while LATE.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        assert!(!events_are_late());
        drop(links);
        let closed = io::Write::write(&mut write, &[0]).unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);
    }
}
