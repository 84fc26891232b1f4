//! The Trace Event Format: JSON, which Perfetto, `chrome://tracing` and many others read.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>: complete events (`X`), instants (`i`),
//! counters (`C`) and metadata (`M`). Times are microseconds with three digits behind the point: whole nanoseconds.

use std::fmt::Write as _;

use foldhash::HashMap;

use crate::{
    json_text::{double, string, value},
    lanes::{Lane, Step, walk},
    timeline::{Argument, Category, FIRST_FREE_ID, Flow, Timeline, Written},
};

/// Room for events is asked for in pieces of this size at least.
const PIECE: usize = 1 << 20;

/// Writes a trace of at most so many bytes, if possible: what would make it larger is left out, from the first event on that
/// does, and counted.
#[must_use]
pub fn write(timeline: &Timeline, most_bytes: usize) -> Written {
    let mut tail = String::from("],\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":");
    string(&mut tail, &timeline.title);
    for fact in &timeline.facts {
        tail.push(',');
        string(&mut tail, &fact.key);
        tail.push(':');
        string(&mut tail, &fact.value);
    }
    tail.push_str("}}\n");
    let quoted = |text: &String| {
        let mut quoted = String::new();
        string(&mut quoted, text);
        quoted
    };
    let mut writer = Writer {
        timeline,
        names: timeline.names().iter().map(quoted).collect(),
        text: String::from("{\"traceEvents\":["),
        scratch: String::new(),
        most_bytes: most_bytes.saturating_sub(tail.len()),
        full: false,
        left_out: 0,
        lanes: HashMap::default(),
        next_id: FIRST_FREE_ID,
        pids: Vec::new(),
    };
    writer.tracks();
    writer.counters();
    walk(timeline, |step| writer.step(step));
    writer.text.push_str(&tail);
    Written {
        bytes: writer.text.into_bytes(),
        left_out: writer.left_out,
    }
}

/// What an event is of.
#[derive(Clone, Copy)]
struct Ids {
    pid: u32,
    /// 0 of a whole process.
    tid: u32,
}

struct Writer<'a> {
    timeline: &'a Timeline,
    /// Names as JSON.
    names: Vec<String>,
    text: String,
    scratch: String,
    most_bytes: usize,
    full: bool,
    left_out: u64,
    /// Numbers of the threads that the other lanes are written as.
    lanes: HashMap<Lane, u32>,
    /// No process and no thread has it, nor those after it.
    next_id: u32,
    /// By process.
    pids: Vec<u32>,
}

impl Writer<'_> {
    /// Names of processes and threads.
    fn tracks(&mut self) {
        let timeline = self.timeline;
        for process in &timeline.processes {
            let pid = process.pid.unwrap_or_else(|| self.free_id());
            self.pids.push(pid);
            self.metadata("process_name", Ids { pid, tid: 0 }, &process.name);
        }
        for thread in &timeline.threads {
            let ids = Ids {
                pid: self.pid(thread.process),
                tid: thread.tid,
            };
            self.metadata("thread_name", ids, &thread.name);
        }
    }

    fn counters(&mut self) {
        let timeline = self.timeline;
        for counter in &timeline.counters {
            let thread = counter.thread.and_then(|at| timeline.threads.get(at as usize));
            // Counters are those of processes; they differ by their names.
            let mut name = String::new();
            string(
                &mut name,
                &thread.map_or_else(
                    || counter.label(),
                    |thread| format!("{}, {}", counter.label(), thread.label()),
                ),
            );
            let pid = self.pid(counter.process);
            for point in counter.in_order() {
                let mut event = std::mem::take(&mut self.scratch);
                let _ = write!(event, "{{\"ph\":\"C\",\"pid\":{pid},\"ts\":");
                microseconds(&mut event, point.at_ns);
                let _ = write!(event, ",\"name\":{name},\"args\":{{\"value\":");
                double(&mut event, point.value);
                event.push_str("}}");
                self.offer(event);
            }
        }
    }

    fn step(&mut self, step: Step<'_>) -> bool {
        if self.full && !matches!(step, Step::End { .. }) {
            self.left_out += 1;
            return false;
        }
        match step {
            Step::Begin { slice, lane } => {
                let Some(Ids { pid, tid }) = self.track(lane) else {
                    return false;
                };
                let mut event = std::mem::take(&mut self.scratch);
                let _ = write!(event, "{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":");
                microseconds(&mut event, slice.began_ns);
                event.push_str(",\"dur\":");
                microseconds(&mut event, slice.duration_ns);
                self.named(&mut event, slice.name, slice.category, &slice.arguments);
                self.offer(event)
            }
            Step::End { .. } => true,
            Step::Instant(instant) => {
                let own = Lane {
                    thread: instant.thread,
                    number: 0,
                };
                let Some(Ids { pid, tid }) = self.track(own) else {
                    return false;
                };
                let mut event = std::mem::take(&mut self.scratch);
                // Flows bind complete events alone.
                let phase = if instant.flow.is_some() {
                    "\"X\",\"dur\":0.000"
                } else {
                    "\"i\",\"s\":\"t\""
                };
                let _ = write!(event, "{{\"ph\":{phase},\"pid\":{pid},\"tid\":{tid},\"ts\":");
                microseconds(&mut event, instant.at_ns);
                match instant.flow {
                    Some(Flow::Begins(flow)) => {
                        let _ = write!(event, ",\"bind_id\":\"{flow:#x}\",\"flow_out\":true");
                    }
                    Some(Flow::Ends(flow)) => {
                        let _ = write!(event, ",\"bind_id\":\"{flow:#x}\",\"flow_in\":true");
                    }
                    None => {}
                }
                self.named(&mut event, instant.name, instant.category, &instant.arguments);
                self.offer(event)
            }
        }
    }

    /// The rest of an event.
    fn named(&self, event: &mut String, name: u32, category: Category, arguments: &[Argument]) {
        let text = |name: u32| self.names.get(name as usize).map_or("\"\"", String::as_str);
        let _ = write!(
            event,
            ",\"cat\":\"{}\",\"name\":{},\"args\":{{",
            category.name(),
            text(name)
        );
        for (at, argument) in arguments.iter().enumerate() {
            if at > 0 {
                event.push(',');
            }
            event.push_str(text(argument.name));
            event.push(':');
            value(event, &argument.value, &self.names);
        }
        event.push_str("}}");
    }

    fn pid(&self, process: u32) -> u32 {
        self.pids.get(process as usize).copied().unwrap_or(0)
    }

    fn free_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        id
    }

    /// Process and thread of a lane; another than a thread's own is a thread that there is not. `None` where there is no room
    /// for its name.
    fn track(&mut self, lane: Lane) -> Option<Ids> {
        let of = self.timeline.threads.get(lane.thread as usize)?;
        let pid = self.pid(of.process);
        if lane.number == 0 {
            return Some(Ids { pid, tid: of.tid });
        }
        if let Some(&tid) = self.lanes.get(&lane) {
            return Some(Ids { pid, tid });
        }
        let ids = Ids {
            pid,
            tid: self.free_id(),
        };
        let name = format!("{}, lane {}", of.label(), u64::from(lane.number) + 1);
        self.offer(metadata("thread_name", ids, &name)).then_some(())?;
        self.lanes.insert(lane, ids.tid);
        Some(ids)
    }

    /// Writes a name, if it is one.
    fn metadata(&mut self, what: &str, ids: Ids, name: &str) {
        if !name.is_empty() {
            self.always(&metadata(what, ids, name));
        }
    }

    /// Writes an event if there is room for it.
    fn offer(&mut self, mut event: String) -> bool {
        self.full |= self.text.len().saturating_add(event.len() + 2) > self.most_bytes;
        if self.full {
            self.left_out += 1;
        } else {
            self.always(&event);
        }
        event.clear();
        self.scratch = event;
        !self.full
    }

    fn always(&mut self, event: &str) {
        if self.text.capacity() - self.text.len() < event.len() + 2 {
            let more = (self.text.len() / 4).max(PIECE).max(event.len() + 2);
            self.text.reserve_exact(more);
        }
        // Behind the bracket, or another event.
        self.text
            .push_str(if self.text.ends_with('[') { "\n" } else { ",\n" });
        self.text.push_str(event);
    }
}

/// The event that gives a process or a thread its name.
fn metadata(what: &str, Ids { pid, tid }: Ids, name: &str) -> String {
    let mut event =
        format!("{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{\"name\":");
    string(&mut event, name);
    event.push_str("}}");
    event
}

/// Writes nanoseconds as microseconds, exactly.
fn microseconds(text: &mut String, ns: u64) {
    let _ = write!(text, "{}.{:03}", ns / 1_000, ns % 1_000);
}
