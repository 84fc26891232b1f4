//! The thread that names addresses. All records pass through it, so that a span's end stays behind its
//! samples, and a slow look into debug information never holds up the session task.
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
    collections::VecDeque,
    io,
    ops::Add,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, Receiver, SyncSender, TrySendError},
    time::Duration,
};

use profiler_debug_files::{Finder, SideLoaded};
use profiler_symbolize::{FrameTable, Groupings, Symbolizer};

use self::{
    dropped::{Content, add_hits},
    naming::{RememberedStacks, meet_process, meet_tasks, name, name_caller},
};
pub use self::{
    dropped::{Dropped, DroppedHits},
    named::{Named, NamedBatch, NamedHit, NamedStack, Task, Wanted},
    wakers::{NamedWait, waiting},
};
use super::{cost::monotonic_ns, memory, system_calls::UnnamedStacks};
use crate::kernel::{Allocations, Record};

/// Batches that may wait to be named; records beyond are dropped, counted.
const MAX_BATCHES: usize = 256;

/// Memory of records that are on their way to their names and back, in bytes; those beyond are dropped, counted.
const MAX_BYTES: usize = 64 << 20;

/// Batches that may wait to be taken; the thread waits where there are more.
const MAX_NAMED: usize = 256;

enum Job {
    Name {
        records: Vec<Record>,
        wanted: Wanted,
        now_ns: u64,
    },
    NameCallers {
        stacks: UnnamedStacks,
        groupings: Groupings,
        now_ns: u64,
    },
    Forget(Vec<u32>),
    Meet {
        pids: Vec<u32>,
        now_ns: u64,
        then: Box<dyn FnOnce() + Send>,
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
    jobs: SyncSender<Job>,
    named: Receiver<NamedBatch>,
    dropped: Dropped,
    /// Since they were last asked for.
    dropped_hits: DroppedHits,
    /// What is in the batches that were handed over and not taken back, oldest first.
    under_way: VecDeque<Content>,
}

impl Symbols {
    /// Starts the thread. Also gives the frames that exist from the beginning.
    pub fn start(allocations: Allocations, finder: Finder) -> io::Result<(Self, FrameTable)> {
        let symbolizer = Symbolizer::with(finder);
        let frames = symbolizer.frames().clone();
        let (jobs, inbox) = mpsc::sync_channel(MAX_BATCHES);
        let (outbox, named) = mpsc::sync_channel(MAX_NAMED);
        std::thread::Builder::new()
            .name("symbols".to_owned())
            .spawn(move || {
                run(symbolizer, allocations, &inbox, &outbox);
                // All that it knew is let go by now, which may be long after the last session has ended.
                memory::give_back_soon();
            })?;
        let symbols = Self {
            jobs,
            named,
            dropped: Dropped::default(),
            dropped_hits: DroppedHits::new(),
            under_way: VecDeque::new(),
        };
        Ok((symbols, frames))
    }

    /// Hands over records, to be named as they are wanted. Where too many wait already, these are dropped.
    pub fn send(&mut self, records: Vec<Record>, wanted: Wanted, now_ns: u64) {
        let content = Content::of(&records);
        let under_way: usize = self.under_way.iter().map(|content| content.bytes).sum();
        if under_way > 0 && under_way.saturating_add(content.bytes) > MAX_BYTES {
            self.drop_content(&content);
            return;
        }
        let job = Job::Name {
            records,
            wanted,
            now_ns,
        };
        match self.jobs.try_send(job) {
            Ok(()) => self.under_way.push_back(content),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.drop_content(&content),
        }
    }

    /// Counts what is dropped.
    fn drop_content(&mut self, content: &Content) {
        self.dropped = self.dropped + content.counts;
        add_hits(&mut self.dropped_hits, &content.hits);
    }

    /// Hands over stacks that system calls were made from, to be named in these groupings; whether there was room for them.
    pub fn name_callers(&mut self, stacks: UnnamedStacks, groupings: Groupings, now_ns: u64) -> bool {
        let job = Job::NameCallers {
            stacks,
            groupings,
            now_ns,
        };
        let is_sent = self.jobs.try_send(job).is_ok();
        if is_sent {
            self.under_way.push_back(Content::default());
        }
        is_sent
    }

    /// Forgets what is known of processes: nobody looks at them any more.
    pub fn forget(&self, pids: Vec<u32>) {
        // Where the queue is full the cache lives on until it is evicted; nothing depends on this.
        let _ = self.jobs.try_send(Job::Forget(pids));
    }

    /// What has processes met, whose stacks will be named, and goes on then; at once where the thread is too busy.
    pub fn meeting(&self, pids: Vec<u32>, then: Box<dyn FnOnce() + Send>) -> impl FnOnce() + Send + use<> {
        let jobs = self.jobs.clone();
        move || {
            let now_ns = monotonic_ns();
            let refused = jobs.try_send(Job::Meet { pids, now_ns, then });
            if let Err(
                TrySendError::Full(Job::Meet { then, .. })
                | TrySendError::Disconnected(Job::Meet { then, .. }),
            ) = refused
            {
                then();
            }
        }
    }

    /// Has processes asked for what they and their threads are called, as far as it is wanted: they may end before their first stack is
    /// named.
    pub fn meet_tasks(&self, pids: Vec<u32>, wanted: Wanted, now_ns: u64) {
        // Where the thread is too busy, they are asked with their first records.
        let _ = self.jobs.try_send(Job::MeetTasks { pids, wanted, now_ns });
    }

    /// Hands over files with symbols; whether there was room for them.
    pub fn side_load(&self, files: SideLoaded) -> bool {
        self.jobs.try_send(Job::SideLoad(files)).is_ok()
    }

    /// A batch that is ready.
    pub fn take(&mut self) -> Option<NamedBatch> {
        let batch = self.named.try_recv().ok()?;
        self.taken(&batch);
        Some(batch)
    }

    fn taken(&mut self, batch: &NamedBatch) {
        self.under_way.pop_front();
        self.drop_content(&batch.lost);
    }

    /// A batch, waiting for it if one is under way; `None` when all are taken, or it takes too long.
    pub fn take_until(&mut self, until_ns: u64) -> Option<NamedBatch> {
        if self.under_way.is_empty() {
            return None;
        }
        let patience = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        let batch = self.named.recv_timeout(patience).ok()?;
        self.taken(&batch);
        Some(batch)
    }

    /// Batches that are being named.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Records dropped because the thread fell behind.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// The same for a session that ends: what is under way comes too late for it.
    pub fn dropped_at_end(&self) -> Dropped {
        let under_way = self.under_way.iter().map(|content| content.counts);
        under_way.fold(self.dropped, Add::add)
    }

    /// Hits dropped because the thread fell behind, since they were last asked for.
    pub fn take_dropped_hits(&mut self) -> DroppedHits {
        std::mem::take(&mut self.dropped_hits)
    }

    /// Hits that are under way.
    pub fn hits_under_way(&self) -> DroppedHits {
        let mut hits = DroppedHits::new();
        for content in &self.under_way {
            add_hits(&mut hits, &content.hits);
        }
        hits
    }
}

fn run(
    mut symbolizer: Symbolizer,
    allocations: Allocations,
    inbox: &Receiver<Job>,
    outbox: &SyncSender<NamedBatch>,
) {
    let mut remembered = RememberedStacks::new(allocations);
    while let Ok(job) = inbox.recv() {
        match job {
            Job::Forget(pids) => pids.into_iter().for_each(|pid| symbolizer.forget(pid)),
            Job::Meet { pids, now_ns, then } => {
                if outlive(|| symbolizer.meet_all(&pids, now_ns)).is_none() {
                    for pid in pids {
                        outlive(|| symbolizer.meet(pid, now_ns));
                    }
                }
                then();
            }
            Job::MeetTasks { pids, wanted, now_ns } => {
                for pid in pids {
                    outlive(|| meet_process(&mut symbolizer, pid, wanted, now_ns));
                }
            }
            Job::SideLoad(files) => symbolizer.side_load(files),
            Job::Name {
                records,
                wanted,
                now_ns,
            } => {
                let processes = records.iter().filter_map(Record::process_of_stack);
                outlive(|| symbolizer.look_at(processes, now_ns));
                outlive(|| meet_tasks(&mut symbolizer, &records, wanted, now_ns));
                let each = name_each(records, |record, named| {
                    name(&mut symbolizer, &mut remembered, record, wanted, now_ns, named);
                });
                if outbox.send(batch(&symbolizer, each)).is_err() {
                    return;
                }
            }
            Job::NameCallers {
                stacks,
                groupings,
                now_ns,
            } => {
                let named = stacks.iter().filter_map(|(tgid, stack)| {
                    outlive(|| name_caller(&mut symbolizer, *tgid, stack, groupings, now_ns))
                });
                let named = NamedRecords {
                    named: named.collect(),
                    lost: Content::default(),
                };
                if outbox.send(batch(&symbolizer, named)).is_err() {
                    return;
                }
            }
        }
    }
}

/// What comes of records.
struct NamedRecords {
    named: Vec<Named>,
    lost: Content,
}

/// Names records one by one; one that fails costs none of the others.
fn name_each(records: Vec<Record>, mut name: impl FnMut(Record, &mut Vec<Named>)) -> NamedRecords {
    let mut named = Vec::with_capacity(records.len());
    let mut lost = Content::default();
    for record in records {
        let content = Content::of(std::slice::from_ref(&record));
        let before = named.len();
        if outlive(|| name(record, &mut named)).is_none() {
            named.truncate(before);
            lost += content;
        }
    }
    NamedRecords { named, lost }
}

/// Does something with files that anybody may have made; `None` where that panics, which is a defect, and is not to end the names of
/// all. What is known stays in use: each step of it leaves what it had.
fn outlive<T>(work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        tracing::error!("naming a stack has failed, which is counted as lost: please report it");
    }
    done.ok()
}

/// A batch of records with the frames by then.
fn batch(symbolizer: &Symbolizer, records: NamedRecords) -> NamedBatch {
    let NamedRecords { named, lost } = records;
    NamedBatch {
        records: named,
        lost,
        frames: symbolizer.frames().clone(),
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

    #[test]
    fn a_record_that_cannot_be_named_is_counted_and_costs_no_other() {
        let records = vec![hit(5, false), hit(6, false), hit(7, false), hit(6, true)];
        let NamedRecords { named, lost } = name_each(records, |record, named| {
            let Record::Hit(hit) = record else { return };
            let fails = hit.probe == ProbeId(6) && !hit.is_end;
            named.push(Named::Hit(NamedHit { hit, stack: None }));
            assert!(!fails, "a damaged file");
        });
        let probes = named.iter().map(|named| match named {
            Named::Hit(named) => named.hit.probe,
            _ => panic!("a hit"),
        });
        assert_eq!(probes.collect::<Vec<_>>(), [5, 7, 6].map(ProbeId));
        let (jobs, _inbox) = mpsc::sync_channel(1);
        let (outbox, named) = mpsc::sync_channel(1);
        let mut symbols = Symbols {
            jobs,
            named,
            dropped: Dropped::default(),
            dropped_hits: DroppedHits::new(),
            under_way: VecDeque::from([Content::default()]),
        };
        let batch = NamedBatch {
            records: Vec::new(),
            lost,
            frames: FrameTable::default(),
        };
        outbox.send(batch).unwrap();
        symbols.take().unwrap();
        assert_eq!(symbols.take_dropped_hits(), DroppedHits::from([(ProbeId(6), 1)]));
    }

    #[test]
    fn counts_dropped_records_by_kind_and_probe() {
        let (jobs, inbox) = mpsc::sync_channel(1);
        let (_outbox, named) = mpsc::sync_channel(1);
        let mut symbols = Symbols {
            jobs,
            named,
            dropped: Dropped::default(),
            dropped_hits: DroppedHits::new(),
            under_way: VecDeque::new(),
        };
        let send = |symbols: &mut Symbols, records| symbols.send(records, Wanted::default(), 0);
        send(&mut symbols, vec![hit(5, false)]);
        assert!(symbols.take_dropped_hits().is_empty());
        assert_eq!(symbols.hits_under_way(), DroppedHits::from([(ProbeId(5), 1)]));
        // Nobody takes the first batch.
        send(&mut symbols, vec![hit(5, false), hit(6, false), hit(6, true)]);
        send(&mut symbols, vec![hit(6, false)]);
        let expected = DroppedHits::from([(ProbeId(5), 1), (ProbeId(6), 2)]);
        assert_eq!(symbols.take_dropped_hits(), expected);
        assert!(symbols.take_dropped_hits().is_empty(), "each once");
        assert_eq!(symbols.dropped(), Dropped::default());
        drop(inbox);
    }
}
