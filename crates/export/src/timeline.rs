//! What happened when: calls and the like on tracks of threads, moments, and counters.

use foldhash::HashMap;

/// Numbers that no process and no thread of Linux has begin here (`PID_MAX_LIMIT`).
pub const FIRST_FREE_ID: u32 = 1 << 22;

/// Events over time. All times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// What was looked at, for people.
    pub title: String,
    /// What else there is to know of it.
    pub facts: Vec<Fact>,
    /// What other clocks showed at one moment; `None` where that is not known.
    pub clocks: Option<Clocks>,
    /// What threads and counters belong to.
    pub processes: Vec<Process>,
    /// Each with a track.
    pub threads: Vec<Thread>,
    /// What took time, in any order.
    pub slices: Vec<Slice>,
    /// What took none, in any order.
    pub instants: Vec<Instant>,
    /// Values over time.
    pub counters: Vec<Counter>,
    flows: u32,
    names: Vec<String>,
    name_numbers: HashMap<String, u32>,
    process_numbers: HashMap<u32, u32>,
    thread_numbers: HashMap<ThreadKey, u32>,
}

/// What tells threads apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ThreadKey {
    /// An index into [`Timeline::processes`].
    process: u32,
    tid: u32,
}

/// A text with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name, which no other has: `scope`.
    pub key: String,
    /// The text.
    pub value: String,
}

/// One moment on several clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`, which goes on while the machine sleeps.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME`: since 1970.
    pub realtime_ns: u64,
}

/// A process, or several that are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number; `None` of several.
    pub pid: Option<u32>,
    /// Its name; empty where it is not known.
    pub name: String,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// An index into [`Timeline::processes`].
    pub process: u32,
    /// Its number.
    pub tid: u32,
    /// Its name; empty where it is not known.
    pub name: String,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// A call that was asked for.
    Call,
    /// A place that was reached.
    Hit,
    /// A call or a hit inside of another call.
    Inside,
    /// A thread was off the CPU.
    Wait,
}

/// What took time on a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// When it began.
    pub began_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// What else there is to know of it.
    pub arguments: Box<[Argument]>,
    /// An index into [`Timeline::threads`].
    pub thread: u32,
    /// By [`Timeline::name`].
    pub name: u32,
    /// What it is.
    pub category: Category,
}

/// What happened on a thread in no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Instant {
    /// When.
    pub at_ns: u64,
    /// What else there is to know of it.
    pub arguments: Box<[Argument]>,
    /// An index into [`Timeline::threads`].
    pub thread: u32,
    /// By [`Timeline::name`].
    pub name: u32,
    /// What it is.
    pub category: Category,
    /// What it led to, or what led to it.
    pub flow: Option<Flow>,
}

/// That one moment led to another, on whichever threads they are. Numbers are those of [`Timeline::flow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It led to that in which the flow of this number ends.
    Begins(u32),
    /// That in which the flow of this number begins led to it.
    Ends(u32),
}

/// A value with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// By [`Timeline::name`].
    pub name: u32,
    /// The value.
    pub value: Value,
}

/// What an argument is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number that is not negative.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A floating-point number.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(Box<str>),
    /// A text that many have, by [`Timeline::name`].
    Name(u32),
    /// Values in order, at most 32 deep.
    List(Vec<Value>),
    /// Values by name, at most 32 deep.
    Object(Vec<Member>),
}

/// A value of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: Box<str>,
    /// The value.
    pub value: Value,
}

/// Values over time of a process or a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// An index into [`Timeline::processes`].
    pub process: u32,
    /// An index into [`Timeline::threads`]; `None` of all threads.
    pub thread: Option<u32>,
    /// What is counted.
    pub name: String,
    /// What values are numbers of; empty of a number alone.
    pub unit: String,
    /// Values, each until the next.
    pub points: Vec<Point>,
}

/// A value from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The moment.
    pub at_ns: u64,
    /// The value.
    pub value: f64,
}

/// What was made of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub bytes: Vec<u8>,
    /// Slices, instants and points of counters that had no room in it.
    pub left_out: u64,
}

impl Timeline {
    /// One of nothing yet.
    #[must_use]
    pub fn of(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// The number of a name that events and arguments have.
    pub fn name(&mut self, text: &str) -> u32 {
        if let Some(number) = self.name_numbers.get(text) {
            return *number;
        }
        let number = index(self.names.len());
        self.names.push(text.to_owned());
        self.name_numbers.insert(text.to_owned(), number);
        number
    }

    /// The names by their numbers.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of a process in the list; the first time it is added, without a name.
    pub fn process(&mut self, pid: u32) -> u32 {
        let next = index(self.processes.len());
        let number = *self.process_numbers.entry(pid).or_insert(next);
        if number == next {
            self.processes.push(Process {
                pid: Some(pid),
                name: String::new(),
            });
        }
        number
    }

    /// The number of a thread in the list, by that of its process and its own; the first time it is added, without a name.
    pub fn thread(&mut self, process: u32, tid: u32) -> u32 {
        let next = index(self.threads.len());
        let key = ThreadKey { process, tid };
        let number = *self.thread_numbers.entry(key).or_insert(next);
        if number == next {
            self.threads.push(Thread {
                process,
                tid,
                name: String::new(),
            });
        }
        number
    }

    /// A number for a flow that none has yet, from 1 on.
    pub fn flow(&mut self) -> u32 {
        self.flows = self.flows.saturating_add(1);
        self.flows
    }

    /// Gives threads the names that they have by the numbers of their process and their own.
    pub fn name_threads<'n>(&mut self, name: impl Fn(u32, u32) -> Option<&'n str>) {
        for thread in &mut self.threads {
            let process = self.processes.get(thread.process as usize);
            if let Some(name) = process
                .and_then(|process| process.pid)
                .and_then(|pid| name(pid, thread.tid))
            {
                name.clone_into(&mut thread.name);
            }
        }
    }

    /// When the first event was; `None` without events.
    #[must_use]
    pub fn first_ns(&self) -> Option<u64> {
        self.moments().min()
    }

    /// When the last event began; `None` without events.
    #[must_use]
    pub fn last_ns(&self) -> Option<u64> {
        self.moments().max()
    }

    fn moments(&self) -> impl Iterator<Item = u64> {
        let slices = self.slices.iter().map(|slice| slice.began_ns);
        let instants = self.instants.iter().map(|instant| instant.at_ns);
        let points = self.counters.iter().flat_map(|counter| &counter.points);
        slices.chain(instants).chain(points.map(|point| point.at_ns))
    }
}

impl Thread {
    /// Its name, or its number where it has none.
    #[must_use]
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            format!("thread {}", self.tid)
        } else {
            format!("{} {}", self.name, self.tid)
        }
    }
}

impl Slice {
    /// When it ended.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.began_ns.saturating_add(self.duration_ns)
    }
}

impl Category {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Hit => "hit",
            Self::Inside => "inside",
            Self::Wait => "wait",
        }
    }
}

impl Counter {
    /// Its name with its unit.
    #[must_use]
    pub fn label(&self) -> String {
        if self.unit.is_empty() {
            self.name.clone()
        } else {
            format!("{} ({})", self.name, self.unit)
        }
    }

    /// Its points, the earliest first.
    #[must_use]
    pub fn in_order(&self) -> Vec<Point> {
        let mut points = self.points.clone();
        points.sort_by_key(|point| point.at_ns);
        points
    }
}

/// A place in a list as its number.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
