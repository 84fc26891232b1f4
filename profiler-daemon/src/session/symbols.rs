//! The thread that names addresses. All records pass through it, so that a span's end stays behind its
//! samples, and a slow look into debug information never holds up the session task.
//!
//! Records of a process wait behind those of the user who was first to look at it, and of that user alone: root's come first, and users'
//! by turns. So one user's many records hold up and push out nobody else's.
//!
//! | file | idea |
//! |---|---|
//! | `named` | records whose addresses have names |
//! | `naming` | from a record to those |
//! | `stacks` | from addresses to frames |
//! | `wakers` | who made a thread runnable |
//! | `lock` | what it waited for in memory |
//! | `allocated` | where that was allocated |
//! | `dropped` | what is lost where the thread falls behind |

mod allocated;
mod dropped;
mod lock;
mod named;
mod naming;
mod stacks;
mod wakers;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ops::Add,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use profiler_debug_files::{Finder, SideLoaded};
use profiler_symbolize::{Frame, Groupings, Symbolizer};

use self::{
    dropped::{Content, add_hits},
    naming::{RememberedStacks, meet_process, meet_tasks, name, name_caller},
};
pub use self::{
    dropped::{Dropped, DroppedHits},
    named::{Named, NamedBatch, NamedHit, NamedStack, Task, Wanted},
    wakers::{NamedWait, waiting},
};
use super::{
    cost::monotonic_ns,
    inbox::{Inbox, Requests, Room, inbox},
    memory,
    system_calls::UnnamedStacks,
};
use crate::kernel::{Allocations, Record};

/// Batches that are on their way to their names and back, of one user; records beyond are dropped, counted.
const MAX_BATCHES: usize = 512;

/// Memory of records that are on their way to their names and back, in bytes: of root's, and of all others', of one user half of what these
/// leave. Those beyond are dropped, counted.
const MAX_BYTES: usize = 64 << 20;

/// What may wait for the thread.
const ROOM: Room = Room {
    queued: 2 * MAX_BATCHES,
    of_user: MAX_BATCHES,
};

/// What the thread has done: no more than is on its way.
const ALL: Room = Room {
    queued: usize::MAX,
    of_user: usize::MAX,
};

enum Job {
    Name {
        uid: u32,
        records: Vec<Record>,
        wanted: Wanted,
        now_ns: u64,
    },
    NameCallers {
        uid: u32,
        stacks: UnnamedStacks,
        groupings: Groupings,
        now_ns: u64,
    },
    Forget(u32),
    Meet {
        pids: Vec<u32>,
        now_ns: u64,
        then: Then,
    },
    MeetTasks {
        pids: Vec<u32>,
        wanted: Wanted,
        now_ns: u64,
    },
    SideLoad(SideLoaded),
}

/// The way to the thread and back.
pub struct Symbols {
    jobs: Requests<Job>,
    named: Inbox<NamedBatch>,
    /// Frames that are new since they were last taken, in the order of their numbers.
    frames: NewFrames,
    dropped: Dropped,
    /// Since they were last asked for.
    dropped_hits: DroppedHits,
    /// What is in the batches that were handed over and not taken back, oldest first, by user.
    under_way: BTreeMap<u32, VecDeque<Content>>,
}

/// Frames on their way from the thread: they come before the records that have them, whosever these are.
type NewFrames = Arc<Mutex<Vec<Frame>>>;

impl Symbols {
    /// Starts the thread. Also gives the frames that exist from the beginning.
    pub fn start(allocations: Allocations, finder: Finder) -> io::Result<(Self, Vec<Frame>)> {
        let symbolizer = Symbolizer::with(finder);
        let frames = symbolizer.frames().to_vec();
        let (jobs, waiting) = inbox(ROOM);
        let (outbox, named) = inbox(ALL);
        let new_frames = NewFrames::default();
        std::thread::Builder::new().name("symbols".to_owned()).spawn({
            let new_frames = Arc::clone(&new_frames);
            move || {
                run(symbolizer, allocations, &waiting, &Outbox { outbox, new_frames });
                // All that it knew is let go by now, which may be long after the last session has ended.
                memory::give_back_soon();
            }
        })?;
        let symbols = Self {
            jobs,
            named,
            frames: new_frames,
            dropped: Dropped::default(),
            dropped_hits: DroppedHits::new(),
            under_way: BTreeMap::new(),
        };
        Ok((symbols, frames))
    }

    /// Hands over records of a user's processes, to be named as they are wanted. Where too many wait already, these are dropped.
    pub fn send(&mut self, uid: u32, records: Vec<Record>, wanted: Wanted, now_ns: u64) {
        let content = Content::of(&records);
        let job = Job::Name {
            uid,
            records,
            wanted,
            now_ns,
        };
        if !self.has_room_for(uid, content.bytes) || self.jobs.put(uid, job).is_err() {
            self.drop_content(&content);
            return;
        }
        self.under_way.entry(uid).or_default().push_back(content);
    }

    /// Whether a user's batch of so many bytes may be on its way, too: one always may.
    fn has_room_for(&self, uid: u32, bytes: usize) -> bool {
        let bytes_of =
            |batches: &VecDeque<Content>| batches.iter().map(|content| content.bytes).sum::<usize>();
        let Some(own) = self.under_way.get(&uid).filter(|own| !own.is_empty()) else {
            return true;
        };
        let others = self
            .under_way
            .iter()
            .filter(|(other, _)| **other != 0 && **other != uid);
        let most = if uid == 0 {
            MAX_BYTES
        } else {
            MAX_BYTES.saturating_sub(others.map(|(_, batches)| bytes_of(batches)).sum()) / 2
        };
        own.len() < MAX_BATCHES && bytes_of(own).saturating_add(bytes) <= most
    }

    /// Counts what is dropped.
    fn drop_content(&mut self, content: &Content) {
        self.dropped = self.dropped + content.counts;
        add_hits(&mut self.dropped_hits, &content.hits);
    }

    /// Hands over stacks that a user's session saw system calls made from, to be named in these groupings; whether there was room for
    /// them.
    pub fn name_callers(
        &mut self,
        uid: u32,
        stacks: UnnamedStacks,
        groupings: Groupings,
        now_ns: u64,
    ) -> bool {
        let job = Job::NameCallers {
            uid,
            stacks,
            groupings,
            now_ns,
        };
        let is_sent = self.has_room_for(uid, 0) && self.jobs.put(uid, job).is_ok();
        if is_sent {
            self.under_way
                .entry(uid)
                .or_default()
                .push_back(Content::default());
        }
        is_sent
    }

    /// Forgets what is known of a process: it ended, or runs another program.
    pub fn forget(&self, pid: u32) {
        // Where the queue is full the cache lives on until it is evicted; nothing depends on this.
        let _ = self.jobs.put_own(Job::Forget(pid));
    }

    /// What has processes met, whose stacks will be named for a user, and goes on then; at once where the thread is too busy.
    pub fn meeting(
        &self,
        uid: u32,
        pids: Vec<u32>,
        then: Box<dyn FnOnce() + Send>,
    ) -> impl FnOnce() + Send + use<> {
        let jobs = self.jobs.clone();
        move || {
            let now_ns = monotonic_ns();
            // Whoever refuses it drops it, and so goes on.
            let _ = jobs.put(
                uid,
                Job::Meet {
                    pids,
                    now_ns,
                    then: Then(Some(then)),
                },
            );
        }
    }

    /// Has processes asked for what they and their threads are called, as far as it is wanted: they may end before their first stack is
    /// named.
    pub fn meet_tasks(&self, uid: u32, pids: Vec<u32>, wanted: Wanted, now_ns: u64) {
        // Where the thread is too busy, they are asked with their first records.
        let _ = self.jobs.put(uid, Job::MeetTasks { pids, wanted, now_ns });
    }

    /// Hands over a user's files with symbols; whether there was room for them.
    pub fn side_load(&self, uid: u32, files: SideLoaded) -> bool {
        self.jobs.put(uid, Job::SideLoad(files)).is_ok()
    }

    /// A batch that is ready.
    pub fn take(&mut self) -> Option<NamedBatch> {
        let batch = self.named.recv_timeout(Duration::ZERO).ok()?;
        Some(self.taken(batch))
    }

    /// A batch that has come back, with the frames that are new.
    fn taken(&mut self, mut batch: NamedBatch) -> NamedBatch {
        if let Some(own) = self.under_way.get_mut(&batch.uid) {
            own.pop_front();
            if own.is_empty() {
                self.under_way.remove(&batch.uid);
            }
        }
        batch.frames = std::mem::take(&mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner));
        batch
    }

    /// A batch, waiting for it if one is under way; `None` when all are taken, or it takes too long.
    pub fn take_until(&mut self, until_ns: u64) -> Option<NamedBatch> {
        if self.under_way.is_empty() {
            return None;
        }
        let patience = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        let batch = self.named.recv_timeout(patience).ok()?;
        Some(self.taken(batch))
    }

    /// A user's batches that are being named.
    pub fn under_way(&self, uid: u32) -> usize {
        self.under_way.get(&uid).map_or(0, VecDeque::len)
    }

    /// Records dropped because the thread fell behind.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// The same for a session that ends: what is under way of these users comes too late for it.
    pub fn dropped_at_end(&self, users: impl IntoIterator<Item = u32>) -> Dropped {
        let under_way = self.contents(users).map(|content| content.counts);
        under_way.fold(self.dropped, Add::add)
    }

    fn contents(&self, users: impl IntoIterator<Item = u32>) -> impl Iterator<Item = &Content> {
        let of_them = users.into_iter().filter_map(|uid| self.under_way.get(&uid));
        of_them.flatten()
    }

    /// Hits dropped because the thread fell behind, since they were last asked for.
    pub fn take_dropped_hits(&mut self) -> DroppedHits {
        std::mem::take(&mut self.dropped_hits)
    }

    /// Hits that are under way of these users.
    pub fn hits_under_way(&self, users: impl IntoIterator<Item = u32>) -> DroppedHits {
        let mut hits = DroppedHits::new();
        for content in self.contents(users) {
            add_hits(&mut hits, &content.hits);
        }
        hits
    }
}

/// Goes on when it is dropped, done or not.
struct Then(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Then {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}

/// The way back from the thread.
struct Outbox {
    outbox: Requests<NamedBatch>,
    new_frames: NewFrames,
}

impl Outbox {
    /// Sends a user's records, behind the frames that are new; whether somebody takes them.
    fn send(&self, uid: u32, records: Vec<Named>, symbolizer: &Symbolizer, frames_sent: &mut usize) -> bool {
        let all = symbolizer.frames();
        let new = all.get(*frames_sent..).unwrap_or_default();
        *frames_sent = all.len();
        let mut new_frames = self.new_frames.lock().unwrap_or_else(PoisonError::into_inner);
        new_frames.extend_from_slice(new);
        drop(new_frames);
        let batch = NamedBatch {
            uid,
            records,
            frames: Vec::new(),
        };
        self.outbox.put(uid, batch).is_ok()
    }
}

fn run(mut symbolizer: Symbolizer, allocations: Allocations, inbox: &Inbox<Job>, outbox: &Outbox) {
    let mut frames_sent = symbolizer.frames().len();
    let mut remembered = RememberedStacks::new(allocations);
    while let Ok(job) = inbox.recv() {
        match job {
            Job::Forget(pid) => symbolizer.forget(pid),
            Job::Meet { pids, now_ns, then } => {
                for pid in pids {
                    symbolizer.meet(pid, now_ns);
                }
                drop(then);
            }
            Job::MeetTasks { pids, wanted, now_ns } => {
                for pid in pids {
                    meet_process(&mut symbolizer, pid, wanted, now_ns);
                }
            }
            Job::SideLoad(files) => symbolizer.side_load(files),
            Job::Name {
                uid,
                records,
                wanted,
                now_ns,
            } => {
                meet_tasks(&mut symbolizer, &records, wanted, now_ns);
                let mut named = Vec::with_capacity(records.len());
                for record in records {
                    name(
                        &mut symbolizer,
                        &mut remembered,
                        record,
                        wanted,
                        now_ns,
                        &mut named,
                    );
                }
                if !outbox.send(uid, named, &symbolizer, &mut frames_sent) {
                    return;
                }
            }
            Job::NameCallers {
                uid,
                stacks,
                groupings,
                now_ns,
            } => {
                let named = stacks
                    .iter()
                    .map(|(tgid, stack)| name_caller(&mut symbolizer, *tgid, stack, groupings, now_ns))
                    .collect();
                if !outbox.send(uid, named, &symbolizer, &mut frames_sent) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::probe::ProbeId;

    use super::*;
    use crate::kernel::Hit;

    fn hit(probe: u32, is_end: bool) -> Record {
        Record::Hit(Hit {
            tgid: 1,
            tid: 1,
            probe: ProbeId(probe),
            ts_ns: 0,
            parent: 0,
            joined: false,
            is_entry: false,
            is_end,
            values: Vec::new(),
            stack: None,
        })
    }

    /// Records that nobody names before [`Self::name_one`].
    struct Waiting {
        symbols: Symbols,
        jobs: Inbox<Job>,
        done: Requests<NamedBatch>,
    }

    impl Waiting {
        fn new() -> Self {
            let (jobs, waiting) = inbox(ROOM);
            let (done, named) = inbox(ALL);
            let symbols = Symbols {
                jobs,
                named,
                frames: NewFrames::default(),
                dropped: Dropped::default(),
                dropped_hits: DroppedHits::new(),
                under_way: BTreeMap::new(),
            };
            Self {
                symbols,
                jobs: waiting,
                done,
            }
        }

        fn send(&mut self, uid: u32, records: Vec<Record>) {
            self.symbols.send(uid, records, Wanted::default(), 0);
        }

        /// Names the next batch; whose it is.
        fn name_one(&self) -> u32 {
            let Ok(Job::Name { uid, records, .. }) = self.jobs.recv() else {
                panic!("records were sent")
            };
            let batch = NamedBatch {
                uid,
                records: Vec::with_capacity(records.len()),
                frames: Vec::new(),
            };
            self.done.put(uid, batch).unwrap();
            uid
        }
    }

    #[test]
    fn counts_dropped_records_by_kind_and_probe() {
        let mut waiting = Waiting::new();
        waiting.send(1000, vec![hit(5, false)]);
        assert!(waiting.symbols.take_dropped_hits().is_empty());
        let under_way = waiting.symbols.hits_under_way([1000]);
        assert_eq!(under_way, DroppedHits::from([(ProbeId(5), 1)]));
        assert!(waiting.symbols.hits_under_way([0, 1001]).is_empty());
        // Nobody takes these batches.
        for _ in 1..MAX_BATCHES {
            waiting.send(1000, Vec::new());
        }
        waiting.send(1000, vec![hit(5, false), hit(6, false), hit(6, true)]);
        waiting.send(1000, vec![hit(6, false)]);
        let expected = DroppedHits::from([(ProbeId(5), 1), (ProbeId(6), 2)]);
        assert_eq!(waiting.symbols.take_dropped_hits(), expected);
        assert!(waiting.symbols.take_dropped_hits().is_empty(), "each once");
        assert_eq!(waiting.symbols.dropped(), Dropped::default());
    }

    #[test]
    fn many_records_of_one_user_hold_up_and_push_out_nobody_elses() {
        let mut waiting = Waiting::new();
        let large = || (0..8192).map(|_| hit(1, false)).collect::<Vec<_>>();
        for _ in 0..2 * MAX_BATCHES {
            waiting.send(1000, large());
        }
        let (bytes, batches) = (Content::of(&large()).bytes, waiting.symbols.under_way(1000));
        assert!(
            batches * bytes <= MAX_BYTES / 2 && (batches + 1) * bytes > MAX_BYTES / 2,
            "{batches} batches"
        );
        assert!(!waiting.symbols.take_dropped_hits().is_empty());
        for uid in [1001, 0] {
            waiting.send(uid, large());
            assert_eq!(waiting.symbols.under_way(uid), 1, "of user {uid}");
        }
        assert!(waiting.symbols.take_dropped_hits().is_empty());
        assert_eq!([(); 3].map(|()| waiting.name_one()), [0, 1000, 1001]);
        // Root's also come back first.
        let taken: Vec<u32> = std::iter::from_fn(|| Some(waiting.symbols.take()?.uid)).collect();
        assert_eq!(taken, [0, 1000, 1001]);
        assert_eq!(waiting.symbols.under_way(0), 0);
        assert_eq!(waiting.symbols.under_way(1000), batches - 1);
    }

    #[test]
    fn whoever_waits_for_processes_to_be_met_goes_on_though_nobody_meets_them() {
        let (told, tell) = std::sync::mpsc::channel();
        let waiting = Waiting::new();
        let then = || {
            let told = told.clone();
            Box::new(move || told.send(()).unwrap())
        };
        waiting.symbols.meeting(1000, vec![1], then())();
        assert!(tell.try_recv().is_err());
        drop(waiting.jobs);
        assert_eq!(tell.try_recv(), Ok(()));
        waiting.symbols.meeting(1000, vec![1], then())();
        assert_eq!(tell.try_recv(), Ok(()));
    }
}
