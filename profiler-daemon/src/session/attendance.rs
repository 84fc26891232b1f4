//! Which processes of sessions are still there, seen by a thread of its own: it waits for their ends, and looks once in a while which
//! programs they run.
//!
//! However many processes a session has, the task that owns it does something only for those of which there is news.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    time::{Duration, Instant},
};

use profiler_target::Process;
use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    pipe::{PipeFlags, pipe_with},
};

/// Time between looks at which programs processes of a session run.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// At least so much for each of its processes: however many there are, looking takes a small part of the time.
const PER_PROCESS: Duration = Duration::from_millis(2);

/// A process that runs another program is looked at again so soon: some run one for a moment, and then their own again.
const DOUBT: Duration = Duration::from_millis(50);

/// The same after a look that failed to wait for ends.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Ends that are taken at once.
const MAX_EVENTS: usize = 256;

/// Of the event that says that there are other processes to watch.
const WAKE: u64 = u64::MAX;

/// The way to the thread. It ends with this.
pub struct Attendance {
    // Dropped before the pipe that tells of it.
    groups: Sender<Group>,
    wake: OwnedFd,
}

/// What is seen of the processes of a session, for as long as this is kept.
#[derive(Clone, Default)]
pub struct Seen(Arc<News>);

/// What there is to tell, by process: the last of each.
#[derive(Default)]
struct News {
    is_any: AtomicBool,
    is_there: Mutex<BTreeMap<u32, bool>>,
}

impl News {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, bool>> {
        self.is_there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, pid: u32, is_there: bool) {
        self.lock().insert(pid, is_there);
        self.is_any.store(true, Ordering::Release);
    }
}

impl Seen {
    /// Processes that have left or come back since this was last asked, and whether each is there: it has not ended, and runs the file
    /// that it did.
    pub fn take(&self) -> BTreeMap<u32, bool> {
        if !self.0.is_any.swap(false, Ordering::Acquire) {
            return BTreeMap::new();
        }
        std::mem::take(&mut *self.0.lock())
    }
}

impl Attendance {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where there can be no more threads or descriptors.
    pub fn start() -> io::Result<Self> {
        let (groups, inbox) = mpsc::channel();
        let (woken, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let ends = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&ends, &woken, EventData::new_u64(WAKE), EventFlags::IN)?;
        let watch = Watch {
            inbox,
            woken,
            ends,
            groups: BTreeMap::new(),
            next: 0,
        };
        std::thread::Builder::new()
            .name("attendance".to_owned())
            .spawn(move || watch.run())?;
        Ok(Self { groups, wake })
    }

    /// Watches processes from now on.
    pub fn watch(&self, processes: &[Arc<Process>]) -> Seen {
        let seen = Seen::default();
        let group = Group {
            members: processes.iter().map(Member::of).collect(),
            news: Arc::downgrade(&seen.0),
            due: Instant::now(),
        };
        // The thread ends after this alone.
        let _ = self.groups.send(group);
        // A full pipe wakes it as well.
        let _ = rustix::io::write(&self.wake, &[0]);
        seen
    }
}

/// What is known of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It runs its own program.
    There,
    /// At the last look it ran another, which is not told yet.
    Doubted,
    /// It runs another, which was told.
    Elsewhere,
    /// It has ended.
    Ended,
}

/// A process that is watched.
struct Member {
    process: Arc<Process>,
    place: Place,
    /// The kernel tells of its end.
    is_waited_for: bool,
}

impl Member {
    fn of(process: &Arc<Process>) -> Self {
        Self {
            process: Arc::clone(process),
            place: Place::There,
            is_waited_for: false,
        }
    }

    /// As it was told last.
    fn is_there(&self) -> bool {
        matches!(self.place, Place::There | Place::Doubted)
    }

    /// Looks what has become of it; whether that is news.
    fn look(&mut self) -> bool {
        if self.place == Place::Ended {
            return false;
        }
        // Where the kernel tells of its end, it is asked once that was told.
        if !self.is_waited_for && !self.process.is_alive() {
            return self.put(Place::Ended);
        }
        self.note_program(self.process.runs_another_file())
    }

    /// Notes whether it runs another program; whether that is news.
    fn note_program(&mut self, is_another: bool) -> bool {
        self.put(match (self.place, is_another) {
            (_, false) => Place::There,
            (Place::There, true) => Place::Doubted,
            (_, true) => Place::Elsewhere,
        })
    }

    /// Notes what is known of it now; whether that is news.
    fn put(&mut self, place: Place) -> bool {
        let was_there = self.is_there();
        self.place = place;
        self.is_there() != was_there
    }
}

/// Processes of a session.
struct Group {
    members: Vec<Member>,
    news: Weak<News>,
    /// When it is looked next which programs they run.
    due: Instant,
}

impl Group {
    fn look(&mut self) {
        let news = self.news.upgrade();
        for member in &mut self.members {
            if member.look()
                && let Some(news) = &news
            {
                news.tell(member.process.pid(), member.is_there());
            }
        }
        let is_any_doubted = self.members.iter().any(|member| member.place == Place::Doubted);
        let pause = if is_any_doubted {
            DOUBT
        } else {
            between_looks(self.members.len())
        };
        self.due = Instant::now() + pause;
    }
}

/// From one look at so many processes to the next.
fn between_looks(processes: usize) -> Duration {
    let count = u32::try_from(processes).unwrap_or(u32::MAX);
    BETWEEN_LOOKS.max(PER_PROCESS.saturating_mul(count))
}

/// What the thread has.
struct Watch {
    inbox: Receiver<Group>,
    /// Readable once there is something in the inbox, or nobody who puts anything into it.
    woken: OwnedFd,
    /// Waits for ends of processes.
    ends: OwnedFd,
    /// By number: there are as many as sessions.
    groups: BTreeMap<u32, Group>,
    next: u32,
}

impl Watch {
    fn run(mut self) {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        loop {
            events.clear();
            let now = Instant::now();
            let due = self.groups.values().map(|group| group.due).min();
            let timeout = due.and_then(|due| Timespec::try_from(due.saturating_duration_since(now)).ok());
            match epoll::wait(&self.ends, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "ends of processes are not waited for");
                    std::thread::sleep(AFTER_FAILURE);
                }
            }
            if !self.take_in() {
                return;
            }
            self.forget_unwanted();
            for event in &events {
                let data = event.data;
                self.note_end(data.u64());
            }
            let now = Instant::now();
            for group in self.groups.values_mut().filter(|group| group.due <= now) {
                group.look();
            }
        }
    }

    /// Takes groups in that are new. Whether anybody may bring others.
    fn take_in(&mut self) -> bool {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.woken, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
        loop {
            match self.inbox.try_recv() {
                Ok(group) => self.add(group),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn add(&mut self, mut group: Group) {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        for (index, member) in (0_u32..).zip(&mut group.members) {
            let data = EventData::new_u64(u64::from(number) << 32 | u64::from(index));
            let added = epoll::add(&self.ends, &*member.process, data, EventFlags::IN);
            member.is_waited_for = added
                .inspect_err(|error| tracing::debug!(%error, "the end of a process is looked for"))
                .is_ok();
        }
        self.groups.insert(number, group);
    }

    /// Watches no more processes of sessions that have ended.
    fn forget_unwanted(&mut self) {
        let ends = &self.ends;
        let unwanted = self
            .groups
            .extract_if(.., |_, group| group.news.strong_count() == 0);
        for member in unwanted.flat_map(|(_, group)| group.members) {
            if member.is_waited_for {
                // Others may hold its descriptor.
                let _ = epoll::delete(ends, &*member.process);
            }
        }
    }

    /// A process has ended, by the number of its event.
    fn note_end(&mut self, event: u64) {
        let [number, index] = [event >> 32, event & u64::from(u32::MAX)];
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        let Some(member) = usize::try_from(index)
            .ok()
            .and_then(|index| group.members.get_mut(index))
        else {
            return;
        };
        // It is told once.
        let _ = epoll::delete(&self.ends, &*member.process);
        member.is_waited_for = false;
        if member.put(Place::Ended)
            && let Some(news) = group.news.upgrade()
        {
            news.tell(member.process.pid(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// A shell that runs the lines that it is told.
    fn shell() -> Child {
        Command::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn open(child: &Child) -> Arc<Process> {
        // Until it has become the shell it is this test.
        loop {
            let process = Process::open(child.id()).unwrap();
            if process.executable() != std::env::current_exe().unwrap() {
                return Arc::new(process);
            }
            std::thread::yield_now();
        }
    }

    /// Waits for news.
    fn next(seen: &Seen) -> BTreeMap<u32, bool> {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            let news = seen.take();
            if !news.is_empty() {
                return news;
            }
            assert!(Instant::now() < until, "nothing is seen");
            std::thread::yield_now();
        }
    }

    #[test]
    fn ends_and_other_programs_are_seen_and_who_comes_back() {
        let attendance = Attendance::start().unwrap();
        let mut children = [shell(), shell(), shell()];
        let processes: Vec<_> = children.iter().map(open).collect();
        let seen = attendance.watch(&processes);
        let [ends, becomes, _] = &mut children;
        ends.kill().unwrap();
        ends.wait().unwrap();
        assert_eq!(next(&seen), BTreeMap::from([(ends.id(), false)]));
        let mut say = becomes.stdin.take().unwrap();
        // The other program is a shell as well.
        writeln!(say, "exec dash").unwrap();
        assert_eq!(next(&seen), BTreeMap::from([(becomes.id(), false)]));
        writeln!(say, "exec bash").unwrap();
        assert_eq!(next(&seen), BTreeMap::from([(becomes.id(), true)]));
        drop(say);
        becomes.wait().unwrap();
        assert_eq!(next(&seen), BTreeMap::from([(becomes.id(), false)]));
        assert!(seen.take().is_empty(), "each once");
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn processes_are_let_go_of_with_their_session_and_the_thread_with_all() {
        let attendance = Attendance::start().unwrap();
        let mut child = shell();
        let process = open(&child);
        let seen = attendance.watch(std::slice::from_ref(&process));
        let others = attendance.watch(std::slice::from_ref(&process));
        drop(seen);
        let until = Instant::now() + Duration::from_mins(1);
        while Arc::strong_count(&process) > 2 {
            assert!(Instant::now() < until, "it is held");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(next(&others), BTreeMap::from([(child.id(), false)]));
        drop(attendance);
        while Arc::strong_count(&process) > 1 {
            assert!(Instant::now() < until, "it is held");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_runs_another_program_for_a_moment_stays() {
        let child = shell();
        let mut member = Member::of(&open(&child));
        let told =
            |member: &mut Member, is_another| member.note_program(is_another).then_some(member.is_there());
        for (is_another, expected) in [
            (false, None),
            (true, None),
            (false, None),
            (true, None),
            (true, Some(false)),
            (true, None),
            (false, Some(true)),
            (true, None),
        ] {
            assert_eq!(told(&mut member, is_another), expected);
        }
        let mut child = child;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(member.look() && !member.is_there() && !member.look());
    }

    #[test]
    fn many_processes_are_looked_at_less_often() {
        assert_eq!(between_looks(1), Duration::from_millis(200));
        assert_eq!(between_looks(100), Duration::from_millis(200));
        assert_eq!(between_looks(500), Duration::from_secs(1));
    }
}
