//! Names, threads and stacks that have been told since numbers began anew, and the times that the next are told after.

use std::collections::{HashMap, HashSet};

use profiler_proto::v1;
use profiler_symbolize::{FrameId, FrameTable, Grouping, Stacks};

use super::{super::flame_delta::frame, number};
use crate::session::{RecordedSample, Task};

/// Time after which numbers begin anew, so that what came long ago is not needed to understand the rest.
const ANEW_NS: u64 = 60_000_000_000;

/// Nodes after which they do.
const MAX_NODES: usize = 1 << 18;

/// Stacks whose nodes are kept; then all are looked up anew.
const MAX_PLACED: usize = 1 << 13;

/// The nodes of a stack.
#[derive(Clone, Copy, Default)]
pub(super) struct Placed {
    pub(super) function: u32,
    pub(super) line: u32,
}

/// A thread that was told.
#[derive(Clone, Copy)]
struct Thread {
    id: u32,
    task: Option<Task>,
}

/// What has been told since numbers began anew.
#[derive(Default)]
pub(super) struct Told {
    since_ns: u64,
    /// When the record before was taken.
    last_ns: u64,
    /// When the hit before was.
    last_hit_ns: u64,
    /// When the wait before ended.
    last_wait_ns: u64,
    /// When the sample of an event before was taken.
    last_event_ns: u64,
    /// Records of the message before that.
    pub(super) records_at_event: usize,
    threads: HashMap<(u32, u32), Thread>,
    last_thread: u32,
    /// Whether a frame of a number was.
    frames: Vec<bool>,
    /// Whose frames were.
    modules: HashSet<String>,
    /// By parent and frame.
    nodes: HashMap<(u32, u32), u32>,
    /// The nodes of stacks that come again, by where these are.
    placed: HashMap<usize, (Placed, Stacks)>,
}

impl Told {
    /// Nothing yet, from a time on.
    pub(super) fn anew(since_ns: u64) -> Self {
        Self {
            since_ns,
            ..Self::default()
        }
    }

    /// Whether so much has been told by then, or for so long, that numbers are to begin anew.
    pub(super) fn is_to_begin_anew(&self, from_ns: u64) -> bool {
        from_ns >= self.since_ns + ANEW_NS || self.nodes.len() > MAX_NODES
    }

    /// Begins a message of records from a time on.
    pub(super) fn begin(&mut self, from_ns: u64) {
        self.last_ns = from_ns;
        self.last_hit_ns = from_ns;
        self.last_wait_ns = from_ns;
        self.last_event_ns = from_ns;
        self.records_at_event = 0;
    }

    /// A time, in nanoseconds after that of the sample of an event before.
    pub(super) fn after_event(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_event_ns, ns), ns)
    }

    /// A time, in nanoseconds after that of the end of the wait before.
    pub(super) fn after_wait(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_wait_ns, ns), ns)
    }

    /// A time, in nanoseconds after that of the hit before.
    pub(super) fn after_hit(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_hit_ns, ns), ns)
    }

    /// A time, in nanoseconds after that of the record before.
    pub(super) fn after(&mut self, ns: u64) -> i64 {
        after(std::mem::replace(&mut self.last_ns, ns), ns)
    }

    /// The number of a thread as it is called now.
    pub(super) fn sampled_thread(
        &mut self,
        sample: &RecordedSample,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        let (pid, tid) = (sample.tgid, sample.tid);
        match self.threads.get(&(pid, tid)) {
            Some(told) if told.task == sample.task || sample.task.is_none() => told.id,
            _ => self.tell_thread(pid, tid, sample.task, frames, message),
        }
    }

    /// The number of a thread, whatever it is called.
    pub(super) fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        match self.threads.get(&(pid, tid)) {
            Some(told) => told.id,
            None => self.tell_thread(pid, tid, None, frames, message),
        }
    }

    fn tell_thread(
        &mut self,
        pid: u32,
        tid: u32,
        task: Option<Task>,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        self.last_thread += 1;
        let id = self.last_thread;
        let mut tell = |frame: fn(&Task) -> FrameId| {
            let frame = task.as_ref().map(frame);
            frame.map_or(0, |frame| self.tell_frame(frame, frames, message))
        };
        let (thread_frame, process_frame) = (tell(|task| task.thread), tell(|task| task.process));
        message.threads.push(v1::RecordedThread {
            id,
            pid,
            tid,
            thread_frame,
            process_frame,
        });
        self.threads.insert((pid, tid), Thread { id, task });
        id
    }

    /// The number of a frame, which is told if it has not been.
    pub(super) fn tell_frame(
        &mut self,
        id: FrameId,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        let at = id.0 as usize;
        if self.frames.len() <= at {
            self.frames.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.frames[at], true)
            && let Some(told) = frames.get(at)
        {
            message.frames.push(frame((at, told)));
        }
        id.0
    }

    /// Tells which builds the modules are whose frames the stream has been told, behind a message's other frames: the table has the
    /// modules of all sessions, whoever's they are.
    pub(super) fn tell_builds(
        &mut self,
        builds: &[FrameId],
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) {
        let new = message.frames.iter().map(|frame| &frame.module);
        for module in new {
            if !self.modules.contains(module) {
                self.modules.insert(module.clone());
            }
        }
        for build in builds {
            let told = frames.get(build.0 as usize);
            if told.is_some_and(|frame| self.modules.contains(&*frame.module)) {
                self.tell_frame(*build, frames, message);
            }
        }
    }

    /// The nodes of a stack.
    pub(super) fn place(
        &mut self,
        stacks: &Stacks,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> Placed {
        if let Some((placed, _)) = self.placed.get(&stacks.address()) {
            return *placed;
        }
        let of = |by| stacks.of(by).unwrap_or_default();
        let placed = Placed {
            function: self.node(of(Grouping::Function), frames, message),
            line: self.node(of(Grouping::Line), frames, message),
        };
        if stacks.are_shared() {
            if self.placed.len() >= MAX_PLACED {
                self.placed.clear();
            }
            self.placed.insert(stacks.address(), (placed, stacks.clone()));
        }
        placed
    }

    /// The node of a stack, root first.
    pub(super) fn node(
        &mut self,
        stack: &[FrameId],
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        let mut parent = 0;
        for frame_id in stack {
            self.tell_frame(*frame_id, frames, message);
            let next = number(self.nodes.len() + 1);
            parent = *self.nodes.entry((parent, frame_id.0)).or_insert_with(|| {
                message.nodes.push(v1::RecordedNode {
                    id: next,
                    parent,
                    frame: frame_id.0,
                });
                next
            });
        }
        parent
    }

    /// The number of a frame, above 0; 0 of none.
    pub(super) fn tell_some(
        &mut self,
        frame: Option<FrameId>,
        frames: &FrameTable,
        message: &mut v1::WatchRecordsResponse,
    ) -> u32 {
        frame.map_or(0, |frame| self.tell_frame(frame, frames, message))
    }
}

/// A number, as how much larger it is than another: a time in nanoseconds after another.
pub fn after(from_ns: u64, ns: u64) -> i64 {
    i64::try_from(i128::from(ns) - i128::from(from_ns)).unwrap_or(i64::MAX)
}
