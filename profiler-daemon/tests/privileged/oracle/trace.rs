//! What bpftrace writes down, and which calls follow from it.

use std::{
    collections::HashMap,
    io::Read as _,
    ops::Range,
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{super::bpftrace, lines::Lines};

/// By how much bpftrace sees the begin of a call before or after the engine, which may look an instruction later: the first one is
/// single-stepped then, behind what bpftrace does there.
pub const BEGIN_APART_NS: u64 = 100_000;
/// By how much it sees the end later: the return instruction lies between, and the return probe, and where a sample is taken just then,
/// that.
pub const END_LATER_NS: u64 = 200_000;
/// By how much the two see a thread leave its CPU, or come back, before or after each other: both are programs of the same tracepoint,
/// and ours takes a stack.
pub const SWITCH_APART_NS: u64 = 200_000;
/// How long the two tools take, at most, where a thread leaves its CPU and comes back.
pub const AT_SWITCH_NS: u64 = 100_000;
/// Hundredths by which two percentiles of the same calls may differ: the width of a histogram's bucket.
pub const BUCKET_PERCENT: u64 = 2;

/// What bpftrace writes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Entered {
        argument: u64,
    },
    Returned,
    /// A conditional jump was come to, and is not done yet.
    AtJump {
        flags: u64,
    },
    /// The thread leaves its CPU.
    Left,
    /// It is given one.
    Back,
}

/// One line of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    what: What,
    /// Of the function, or of the jump.
    number: usize,
    tid: u32,
    ts_ns: u64,
    stack_pointer: u64,
}

impl Event {
    /// A jump of a number, as the kernel writes it down.
    pub fn at_jump(number: usize, tid: u32, ts_ns: u64, flags: u64) -> Self {
        Self {
            what: What::AtJump { flags },
            number,
            tid,
            ts_ns,
            stack_pointer: 0,
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse().ok();
        let (of, tid, ts_ns) = (number()?, number()?, number()?);
        let (stack_pointer, last) = (number()?, number()?);
        let what = match kind {
            "entered" => What::Entered { argument: last },
            "returned" => What::Returned,
            "left" => What::Left,
            "back" => What::Back,
            _ => return None,
        };
        Some(Self {
            what,
            number: usize::try_from(of).ok()?,
            tid: u32::try_from(tid).ok()?,
            ts_ns,
            stack_pointer,
        })
    }
}

/// What bpftrace has written so far.
#[derive(Default)]
struct Written {
    events: Vec<Event>,
    is_ready: bool,
    /// Lines that mean neither.
    others: Vec<String>,
}

impl Written {
    fn take(&mut self, line: &str) {
        if let Some(event) = Event::parse(line) {
            self.events.push(event);
        } else if line == "ready" {
            self.is_ready = true;
        } else {
            self.others.push(line.to_owned());
        }
    }
}

/// A run of bpftrace; killed when dropped.
pub struct Bpftrace {
    child: Child,
    written: Lines<Written>,
}

impl Bpftrace {
    /// Waits until its probes are attached, to a process alone: in others that share its libraries a probe can do harm, and costs time.
    pub fn start(pid: u32, script: &str) -> Self {
        // Probes are attached in the order in which they stand.
        let script = format!("{script} interval:ms:100 {{ printf(\"ready\\n\"); }}");
        let mut child = bpftrace::command()
            .args(["-q", "-B", "line", "-p", &pid.to_string(), "-e", &script])
            .env("BPFTRACE_PERF_RB_PAGES", "1024")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let written = Lines::of(child.stdout.take().unwrap(), Written::take);
        let running = Self { child, written };
        if running.written.wait(|written| written.is_ready) {
            return running;
        }
        panic!("bpftrace did not start: {script}: {}", running.end().errors)
    }

    pub fn so_far(&self) -> Vec<Event> {
        self.written.look(|written| written.events.clone())
    }

    pub fn end(mut self) -> Told {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let mut errors = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut errors).unwrap();
        }
        let Written { events, others, .. } = self.written.end();
        self.child.wait().unwrap();
        Told {
            events,
            others,
            errors,
        }
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All that a run of bpftrace has written.
pub struct Told {
    pub events: Vec<Event>,
    pub others: Vec<String>,
    pub errors: String,
}

/// A call as bpftrace saw it.
#[derive(Clone, Debug)]
pub struct Call {
    pub function: usize,
    pub tid: u32,
    pub begin_ns: u64,
    /// [`Self::OPEN_NS`] where it did not end.
    pub end_ns: u64,
    /// The earliest end that the engine may have seen.
    pub ends_from_ns: u64,
    pub argument: u64,
    /// Numbers of the calls that were open on its thread when it began, outermost first.
    pub around: Vec<usize>,
}

impl Call {
    pub const OPEN_NS: u64 = u64::MAX / 2;

    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// The shortest duration that the engine may have seen.
    pub fn shortest_ns(&self) -> u64 {
        self.ends_from_ns.saturating_sub(self.begin_ns)
    }

    /// Whether it was open at a time; `None` so near to its begin or end that the engine may have seen the other.
    pub fn contains(&self, ts_ns: u64) -> Option<bool> {
        let begins = self.begin_ns.abs_diff(ts_ns) < BEGIN_APART_NS;
        let ends = (self.ends_from_ns..self.end_ns + BEGIN_APART_NS).contains(&ts_ns);
        (!begins && !ends).then_some(self.begin_ns < ts_ns && ts_ns < self.end_ns)
    }

    /// Whether it took so long; `None` where the engine may have seen otherwise. A threshold is an edge of a histogram's bucket.
    pub fn is_slow(&self, than_ns: u64) -> Option<bool> {
        let bucket_ns = than_ns * BUCKET_PERCENT / 100;
        if self.shortest_ns() >= than_ns + bucket_ns {
            Some(true)
        } else if self.duration_ns() + BEGIN_APART_NS < than_ns - bucket_ns {
            Some(false)
        } else {
            None
        }
    }
}

/// A conditional jump that a thread came to.
#[derive(Clone, Debug)]
pub struct AtJump {
    pub jump: usize,
    pub tid: u32,
    pub ts_ns: u64,
    /// The register of flags.
    pub flags: u64,
    /// Numbers of the calls that were open, outermost first.
    pub around: Vec<usize>,
}

/// Time that a thread was off the CPU.
#[derive(Clone, Debug)]
pub struct Away {
    pub tid: u32,
    pub left_ns: u64,
    pub back_ns: u64,
    /// Numbers of the calls that were open, outermost first.
    pub around: Vec<usize>,
}

/// A call of a thread that is open.
struct Open {
    stack_pointer: u64,
    call: usize,
}

/// What follows from all events.
#[derive(Default)]
pub struct Truth {
    /// By the time at which they began.
    calls: Vec<Call>,
    /// In the order in which they were come to.
    jumps: Vec<AtJump>,
    /// By the time at which they ended.
    away: Vec<Away>,
    /// By thread.
    gaps: HashMap<u32, Vec<Gap>>,
}

/// Time that a thread was off the CPU, and what came before it.
struct Gap {
    between: Range<u64>,
    /// For how long the thread had been off the CPU by its end.
    so_far_ns: u64,
}

impl Truth {
    /// The same for each run, in whatever order the CPUs' events were written.
    pub fn of(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.ts_ns);
        let mut threads: HashMap<u32, Vec<Open>> = HashMap::new();
        let mut left: HashMap<u32, u64> = HashMap::new();
        let mut truth = Self::default();
        for event in events {
            let Event { tid, ts_ns, .. } = event;
            let open = threads.entry(tid).or_default();
            match event.what {
                What::Entered { argument } => truth.enter(open, &event, argument),
                What::Returned => truth.leave(open, &event),
                What::AtJump { flags } => truth.jumps.push(AtJump {
                    jump: event.number,
                    tid,
                    ts_ns,
                    flags,
                    around: numbers(open),
                }),
                What::Left => {
                    left.insert(tid, ts_ns);
                }
                What::Back => {
                    let Some(left_ns) = left.remove(&tid) else {
                        continue;
                    };
                    truth.note_gap(tid, left_ns, ts_ns);
                    truth.away.push(Away {
                        tid,
                        left_ns,
                        back_ns: ts_ns,
                        around: numbers(open),
                    });
                }
            }
        }
        truth
    }

    /// What is open below its stack pointer was jumped over.
    fn enter(&mut self, open: &mut Vec<Open>, event: &Event, argument: u64) {
        while open
            .last()
            .is_some_and(|last| last.stack_pointer < event.stack_pointer)
        {
            open.pop();
        }
        let around = numbers(open);
        open.push(Open {
            stack_pointer: event.stack_pointer,
            call: self.calls.len(),
        });
        self.calls.push(Call {
            function: event.number,
            tid: event.tid,
            begin_ns: event.ts_ns,
            end_ns: Call::OPEN_NS,
            ends_from_ns: Call::OPEN_NS,
            argument,
            around,
        });
    }

    /// A return belongs to the call that began one word lower on the stack; what is open above was jumped over.
    fn leave(&mut self, open: &mut Vec<Open>, event: &Event) {
        let began = event.stack_pointer.wrapping_sub(8);
        let is_its =
            |open: &Open| open.stack_pointer == began && self.calls[open.call].function == event.number;
        if let Some(place) = open.iter().rposition(is_its) {
            let ended = open.remove(place);
            let ends_from_ns = self.ends_from_ns(event, self.calls[ended.call].begin_ns);
            let call = &mut self.calls[ended.call];
            (call.end_ns, call.ends_from_ns) = (event.ts_ns, ends_from_ns);
            open.retain(|open| open.stack_pointer >= began);
        }
    }

    fn note_gap(&mut self, tid: u32, left_ns: u64, back_ns: u64) {
        let gaps = self.gaps.entry(tid).or_default();
        let before_ns = gaps.last().map_or(0, |gap| gap.so_far_ns);
        gaps.push(Gap {
            between: left_ns..back_ns,
            so_far_ns: before_ns + back_ns - left_ns,
        });
    }

    /// A time by a clock that stands still while the thread is off the CPU: however long that is between the engine's program and
    /// bpftrace's at one place, by this clock they are as far apart as ever.
    pub fn on_cpu_ns(&self, tid: u32, ts_ns: u64) -> u64 {
        let gaps = self.gaps.get(&tid).map_or(&[][..], Vec::as_slice);
        let after = gaps.partition_point(|gap| gap.between.end <= ts_ns);
        let so_far_ns = after.checked_sub(1).map_or(0, |last| gaps[last].so_far_ns);
        let inside_ns = gaps
            .get(after)
            .map_or(0, |gap| ts_ns.saturating_sub(gap.between.start));
        ts_ns - so_far_ns - inside_ns
    }

    /// How often a thread was off the CPU in a time.
    pub fn times_away(&self, tid: u32, within: Range<u64>) -> u64 {
        let gaps = self.gaps.get(&tid).map_or(&[][..], Vec::as_slice);
        let before = |ns: u64| gaps.partition_point(|gap| gap.between.start < ns);
        before(within.end).saturating_sub(before(within.start)) as u64
    }

    /// When the engine may have seen the end that bpftrace tells of here, of a call that began then: a thread can lose its CPU between
    /// the two programs, as one that has just woken another often does.
    fn ends_from_ns(&self, end: &Event, begin_ns: u64) -> u64 {
        let mut from_ns = end.ts_ns;
        for away in self.away.iter().rev() {
            if away.back_ns + END_LATER_NS < from_ns || away.back_ns < begin_ns {
                break;
            }
            if away.tid == end.tid {
                from_ns = away.left_ns;
            }
        }
        from_ns - END_LATER_NS
    }

    /// The times that jumps of these numbers were come to.
    pub fn at_jumps(&self, numbers: Range<usize>) -> impl Iterator<Item = &AtJump> {
        self.jumps.iter().filter(move |at| numbers.contains(&at.jump))
    }

    /// The times that threads were off the CPU.
    pub fn away(&self) -> impl Iterator<Item = &Away> {
        self.away.iter()
    }

    pub fn calls_of(&self, function: usize) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.function == function)
    }

    /// Those of some calls, by their numbers, that are of a function: those that were open on a thread, outermost first.
    pub fn around<'a>(&'a self, numbers: &'a [usize], function: usize) -> impl Iterator<Item = &'a Call> {
        let calls = numbers.iter().map(|call| &self.calls[*call]);
        calls.filter(move |call| call.function == function)
    }

    /// How many calls of a function were made inside of calls of another.
    pub fn nested(&self, outer: usize, inner: usize) -> usize {
        let is_inside = |call: &&Call| self.around(&call.around, outer).next().is_some();
        self.calls_of(inner).filter(is_inside).count()
    }

    /// Whether a function calls itself, be it through others.
    pub fn is_recursive(&self, function: usize) -> bool {
        self.nested(function, function) > 0
    }
}

fn numbers(open: &[Open]) -> Vec<usize> {
    open.iter().map(|open| open.call).collect()
}
