//! Counters of threads: the kernel's own, the hardware's, and tracepoints, by perf events (`perf_event_open(2)`).

use std::{fmt, fs, io};

use perf_event::{
    Builder, ReadFormat,
    events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software, Tracepoint},
};
use profiler_aggregate::{ThreadId, timeline::Reading};

use super::{Pace, Tracefs};

/// Descriptors that counters may take at once.
const MAX_EVENTS: usize = 8192;

/// What is counted, by perf's name for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counter {
    /// One that has a name of its own.
    Named(&'static str),
    /// How often a tracepoint is passed.
    Tracepoint {
        /// The subsystem.
        category: String,
        /// Its name in there.
        name: String,
    },
}

/// What a named counter is for the kernel.
#[derive(Clone, Copy)]
enum Source {
    Software(Software),
    Hardware(Hardware),
    /// Reads of a cache.
    Cache(CacheId, CacheResult),
    Tracepoint(&'static str, &'static str),
}

/// All of them; those of any machine first.
const NAMED: [(&str, Source); 29] = [
    ("task-clock", Source::Software(Software::TASK_CLOCK)),
    ("context-switches", Source::Software(Software::CONTEXT_SWITCHES)),
    ("cpu-migrations", Source::Software(Software::CPU_MIGRATIONS)),
    ("page-faults", Source::Software(Software::PAGE_FAULTS)),
    ("minor-faults", Source::Software(Software::PAGE_FAULTS_MIN)),
    ("major-faults", Source::Software(Software::PAGE_FAULTS_MAJ)),
    ("alignment-faults", Source::Software(Software::ALIGNMENT_FAULTS)),
    ("emulation-faults", Source::Software(Software::EMULATION_FAULTS)),
    ("syscalls", Source::Tracepoint("raw_syscalls", "sys_enter")),
    ("cycles", Source::Hardware(Hardware::CPU_CYCLES)),
    ("instructions", Source::Hardware(Hardware::INSTRUCTIONS)),
    ("branches", Source::Hardware(Hardware::BRANCH_INSTRUCTIONS)),
    ("branch-misses", Source::Hardware(Hardware::BRANCH_MISSES)),
    ("cache-references", Source::Hardware(Hardware::CACHE_REFERENCES)),
    ("cache-misses", Source::Hardware(Hardware::CACHE_MISSES)),
    ("ref-cycles", Source::Hardware(Hardware::REF_CPU_CYCLES)),
    ("bus-cycles", Source::Hardware(Hardware::BUS_CYCLES)),
    (
        "stalled-cycles-frontend",
        Source::Hardware(Hardware::STALLED_CYCLES_FRONTEND),
    ),
    (
        "stalled-cycles-backend",
        Source::Hardware(Hardware::STALLED_CYCLES_BACKEND),
    ),
    (
        "L1-dcache-loads",
        Source::Cache(CacheId::L1D, CacheResult::ACCESS),
    ),
    (
        "L1-dcache-load-misses",
        Source::Cache(CacheId::L1D, CacheResult::MISS),
    ),
    (
        "L1-icache-loads",
        Source::Cache(CacheId::L1I, CacheResult::ACCESS),
    ),
    (
        "L1-icache-load-misses",
        Source::Cache(CacheId::L1I, CacheResult::MISS),
    ),
    ("LLC-loads", Source::Cache(CacheId::LL, CacheResult::ACCESS)),
    ("LLC-load-misses", Source::Cache(CacheId::LL, CacheResult::MISS)),
    ("dTLB-loads", Source::Cache(CacheId::DTLB, CacheResult::ACCESS)),
    (
        "dTLB-load-misses",
        Source::Cache(CacheId::DTLB, CacheResult::MISS),
    ),
    ("iTLB-loads", Source::Cache(CacheId::ITLB, CacheResult::ACCESS)),
    (
        "iTLB-load-misses",
        Source::Cache(CacheId::ITLB, CacheResult::MISS),
    ),
];

/// Shorter names for some of them.
const SHORT: [(&str, &str); 4] = [
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
    ("faults", "page-faults"),
    ("cpu-cycles", "cycles"),
];

impl Counter {
    /// Nanoseconds on a CPU: the one that counts time.
    pub const TASK_CLOCK: Self = Self::Named("task-clock");

    /// Understands a name; `None` where it is none. Whether the machine has it is another question.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("tracepoint:") {
            let (category, name) = path.split_once(':')?;
            // They become a part of a path.
            let is_name = |text: &str| {
                let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
                !text.is_empty() && text.chars().all(allowed)
            };
            return (is_name(category) && is_name(name)).then(|| Self::Tracepoint {
                category: category.to_owned(),
                name: name.to_owned(),
            });
        }
        let text = SHORT
            .iter()
            .find_map(|(short, name)| (*short == text).then_some(*name))
            .unwrap_or(text);
        let known = NAMED.iter().map(|(name, _)| *name);
        known.into_iter().find(|name| *name == text).map(Self::Named)
    }

    /// Those that have names of their own and that this machine has.
    #[must_use]
    pub fn here() -> Vec<Self> {
        let named = NAMED.iter().map(|(name, _)| Self::Named(name));
        named.filter(|counter| counter.missing().is_none()).collect()
    }

    /// Why this machine does not have it; `None` where it does.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let opened = self
            .builder()
            .and_then(|mut builder| builder.observe_self().build());
        let error = opened.err()?;
        Some(match self {
            Self::Tracepoint { .. } | Self::Named("syscalls") if error.kind() == io::ErrorKind::NotFound => {
                "this kernel has no such tracepoint".to_owned()
            }
            _ if is_absent(&error) => "this machine does not count it".to_owned(),
            _ => error.to_string(),
        })
    }

    /// What is counted, in the plural, where stacks can be taken at it; `None` of time and of tracepoints.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let Self::Named(name) = self else { return None };
        Some(match *name {
            "context-switches" => "switches",
            "cpu-migrations" => "migrations",
            "instructions" => "instructions",
            "branches" => "branches",
            "cache-references" => "references",
            "task-clock" | "syscalls" => return None,
            name if name.ends_with("-faults") => "faults",
            name if name.ends_with("-misses") => "misses",
            name if name.ends_with("-loads") => "loads",
            _ => "cycles",
        })
    }

    /// Whether it is the hardware that counts.
    #[must_use]
    pub fn is_of_hardware(&self) -> bool {
        let Self::Named(name) = self else { return false };
        let known = NAMED.iter().find(|(known, _)| known == name);
        known.is_some_and(|(_, source)| matches!(source, Source::Hardware(_) | Source::Cache(..)))
    }

    /// An event of a thread and those that it begins, switched off, that is sampled at this pace.
    pub(super) fn sampling(&self, pace: Pace) -> io::Result<Builder<'static>> {
        let mut builder = self.builder()?;
        builder.enabled(false).inherit(true).inherit_thread(true);
        match pace {
            Pace::Period(period) => builder.sample_period(period),
            Pace::Frequency(frequency) => builder.sample_frequency(frequency.into()),
        };
        Ok(builder)
    }

    /// An event that counts it from when it is made, of kernel and user space.
    fn builder(&self) -> io::Result<Builder<'static>> {
        let source = match self {
            Self::Named(name) => {
                let known = NAMED.iter().find(|(known, _)| known == name);
                known.map(|(_, source)| *source).ok_or(io::ErrorKind::NotFound)?
            }
            Self::Tracepoint { category, name } => {
                let number = tracepoint_number(category, name)?;
                return Ok(counting(Builder::new(Tracepoint::with_id(number))));
            }
        };
        Ok(counting(match source {
            Source::Software(event) => Builder::new(event),
            Source::Hardware(event) => Builder::new(event),
            Source::Cache(which, result) => Builder::new(Cache {
                which,
                operation: CacheOp::READ,
                result,
            }),
            Source::Tracepoint(category, name) => {
                Builder::new(Tracepoint::with_id(tracepoint_number(category, name)?))
            }
        }))
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Tracepoint { category, name } => write!(f, "tracepoint:{category}:{name}"),
        }
    }
}

pub(super) fn tracepoint_number(category: &str, name: &str) -> io::Result<u64> {
    Tracefs::open().map_err(io::Error::other)?.number(category, name)
}

/// Makes an event count all, whoever is on a CPU, and say how long it did.
fn counting(mut builder: Builder<'static>) -> Builder<'static> {
    builder
        .include_kernel()
        .include_hv()
        .any_cpu()
        .enabled(true)
        .read_format(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING);
    builder
}

/// Whether an event is one that the machine does not have.
pub(super) fn is_absent(error: &io::Error) -> bool {
    let absent = [
        libc::ENOENT,
        libc::EOPNOTSUPP,
        libc::ENODEV,
        libc::EINVAL,
        libc::ENXIO,
    ];
    error
        .raw_os_error()
        .is_some_and(|number| absent.contains(&number))
}

/// The threads of a process; none where it has ended.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Why threads cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// More descriptors than there may be.
    #[error("{events} counters of {threads} threads would be {}, more than {MAX_EVENTS}: ask for fewer", events * threads)]
    TooMany {
        /// Counters.
        events: usize,
        /// Threads.
        threads: usize,
    },
    /// The kernel refused one.
    #[error("counting {counter} of thread {tid}: {source}")]
    Refused {
        /// The counter.
        counter: Counter,
        /// The thread.
        tid: u32,
        /// Why.
        source: io::Error,
    },
}

/// Counters of some threads that are counting.
pub struct Counting {
    /// By counter, then by thread.
    events: Vec<Vec<OfThread>>,
}

/// A counter of one thread, and of those that it has begun.
struct OfThread {
    pid: u32,
    tid: u32,
    /// Gone where nothing may be counted of its process any more.
    event: Option<perf_event::Counter>,
}

impl Counting {
    /// Counts for these threads, `with_new_threads` also for those that they begin; threads that are gone are left out. While a process
    /// starts another program, this waits.
    ///
    /// # Errors
    /// Where the kernel refuses an event, or there would be too many.
    pub fn start(
        counters: &[Counter],
        ids: &[ThreadId],
        with_new_threads: bool,
    ) -> Result<Self, CountersError> {
        if counters.len() * ids.len() > MAX_EVENTS {
            return Err(CountersError::TooMany {
                events: counters.len(),
                threads: ids.len(),
            });
        }
        let mut events = Vec::with_capacity(counters.len());
        for counter in counters {
            let refused = |tid, source| CountersError::Refused {
                counter: counter.clone(),
                tid,
                source,
            };
            let mut builder = counter.builder().map_err(|source| refused(0, source))?;
            // Of children that are processes nothing is counted.
            builder.inherit(with_new_threads).inherit_thread(with_new_threads);
            // Others open and close events meanwhile: this may wait for as long as a process likes.
            let mut of_threads = Vec::with_capacity(ids.len());
            for ThreadId { tgid: pid, tid } in ids {
                let Ok(observed) = i32::try_from(*tid) else {
                    continue;
                };
                match builder.observe_pid(observed).build() {
                    Ok(event) => of_threads.push(OfThread {
                        pid: *pid,
                        tid: *tid,
                        event: Some(event),
                    }),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(refused(*tid, error)),
                }
            }
            events.push(of_threads);
        }
        Ok(Self { events })
    }

    /// Counts no more for the threads of a process.
    pub fn lose(&mut self, pid: u32) {
        for thread in self
            .events
            .iter_mut()
            .flatten()
            .filter(|thread| thread.pid == pid)
        {
            thread.event = None;
        }
    }

    /// Counts for no others than these threads: the number of one that ended before it was counted for may be another process's.
    pub fn keep(&mut self, is_there: impl Fn(ThreadId) -> bool) {
        for thread in self.events.iter_mut().flatten() {
            let id = ThreadId {
                tgid: thread.pid,
                tid: thread.tid,
            };
            if !is_there(id) {
                thread.event = None;
            }
        }
    }

    /// What each has counted, by counter, then by thread. One that cannot be read, or that ended, has counted nothing.
    pub fn read(&mut self) -> Vec<Vec<Reading>> {
        let reading = |thread: &mut OfThread| {
            let data = thread.event.as_mut()?.read_full().ok()?;
            let ns = |time: Option<std::time::Duration>| {
                time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            };
            Some(Reading {
                count: data.count(),
                enabled_ns: ns(data.time_enabled()),
                running_ns: ns(data.time_running()),
            })
        };
        self.events
            .iter_mut()
            .map(|threads| {
                threads
                    .iter_mut()
                    .map(|thread| reading(thread).unwrap_or_default())
                    .collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_and_said_as_perf_does() {
        for (name, _) in NAMED {
            assert_eq!(Counter::parse(name).unwrap().to_string(), name);
        }
        for (short, name) in SHORT {
            assert_eq!(Counter::parse(short), Some(Counter::Named(name)));
        }
        let tracepoint = "tracepoint:block:block_rq_issue";
        assert_eq!(Counter::parse(tracepoint).unwrap().to_string(), tracepoint);
        for wrong in [
            "",
            "Task-clock",
            "tracepoint:",
            "tracepoint:a",
            "tracepoint:a:",
            "tracepoint:..:a/b",
        ] {
            assert_eq!(Counter::parse(wrong), None, "{wrong}");
        }
    }
}
