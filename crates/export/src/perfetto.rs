//! Perfetto's protobuf, which <https://ui.perfetto.dev> and `trace_processor` read.
//!
//! The messages: <https://github.com/google/perfetto/tree/main/protos/perfetto/trace>. Names of events and arguments are
//! interned: each is written once.

mod messages;
mod names;

use foldhash::HashMap;
use prost::Message as _;

pub use self::messages::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, InternedData, InternedName, ProcessDescriptor,
    ThreadDescriptor, TraceMessage, TracePacket, TrackDescriptor, TrackEvent,
};
use self::names::Names;
use crate::{
    lanes::{Lane, Step, walk},
    timeline::{Argument, Category, Clocks, Flow, Timeline, Written},
};

/// The writer, to readers that tell several in one file apart.
const SEQUENCE: u32 = 0x7072_6f66;

/// `TracePacket.SequenceFlags`: names before this packet are forgotten; names before this packet are needed.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;

/// `BuiltinClock`.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

/// `TrackEvent.Type`.
const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

/// At most so many bytes end a slice.
const END_BYTES: usize = 48;

/// Room for packets is asked for in pieces of this size at least.
const PIECE: usize = 1 << 20;

/// Writes a trace of at most so many bytes, if possible: what would make it larger is left out, from the first event on that
/// does, and counted.
#[must_use]
pub fn write(timeline: &Timeline, most_bytes: usize) -> Written {
    let mut writer = Writer {
        timeline,
        bytes: Vec::new(),
        scratch: Vec::new(),
        most_bytes,
        full: false,
        left_out: 0,
        open: 0,
        next_uuid: 0,
        threads: Vec::new(),
        lanes: HashMap::default(),
        names: Names::of(timeline.names()),
    };
    writer.clocks(timeline.clocks);
    writer.about();
    let processes = writer.tracks();
    writer.counters(&processes);
    walk(timeline, |step| writer.step(step));
    Written {
        bytes: writer.bytes,
        left_out: writer.left_out,
    }
}

struct Writer<'a> {
    timeline: &'a Timeline,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
    most_bytes: usize,
    full: bool,
    left_out: u64,
    /// Slices that have yet to end.
    open: usize,
    next_uuid: u64,
    /// Tracks by thread.
    threads: Vec<u64>,
    /// Tracks of the other lanes.
    lanes: HashMap<Lane, u64>,
    names: Names<'a>,
}

impl Writer<'_> {
    /// Says which clock times are of, and what others showed.
    fn clocks(&mut self, clocks: Option<Clocks>) {
        let clock = |clock_id, timestamp| Clock { clock_id, timestamp };
        let clocks = match clocks {
            Some(clocks) => vec![
                clock(MONOTONIC, clocks.monotonic_ns),
                clock(BOOTTIME, clocks.boottime_ns),
                clock(REALTIME, clocks.realtime_ns),
            ],
            None => vec![clock(MONOTONIC, self.timeline.first_ns().unwrap_or(0))],
        };
        self.always(&TracePacket {
            sequence: SEQUENCE,
            sequence_flags: Some(STATE_CLEARED),
            clock_snapshot: Some(ClockSnapshot {
                clocks,
                primary_trace_clock: i32::try_from(MONOTONIC).unwrap_or(0),
            }),
            ..TracePacket::default()
        });
    }

    /// What was looked at, as an event of its own at the beginning.
    fn about(&mut self) {
        let uuid = self.describe(TrackDescriptor {
            name: Some("about".to_owned()),
            ..TrackDescriptor::default()
        });
        let facts = self.timeline.facts.iter().map(|fact| DebugAnnotation {
            name: Some(fact.key.clone()),
            string_value: Some(fact.value.clone()),
            ..DebugAnnotation::default()
        });
        let at_ns = self.timeline.first_ns().unwrap_or(0);
        let event = TrackEvent {
            name: Some(self.timeline.title.clone()),
            debug_annotations: facts.collect(),
            ..event(INSTANT, uuid)
        };
        self.always(&packet(at_ns, event));
    }

    /// The tracks of processes and threads; those of processes.
    fn tracks(&mut self) -> Vec<u64> {
        let timeline = self.timeline;
        let known = |name: &String| (!name.is_empty()).then(|| name.clone());
        let id = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let mut processes = Vec::new();
        for process in &timeline.processes {
            let name = known(&process.name);
            processes.push(self.describe(match process.pid {
                Some(pid) => TrackDescriptor {
                    process: Some(ProcessDescriptor {
                        pid: id(pid),
                        process_name: name,
                    }),
                    ..TrackDescriptor::default()
                },
                None => TrackDescriptor {
                    name,
                    ..TrackDescriptor::default()
                },
            }));
        }
        for thread in &timeline.threads {
            let process = timeline.processes.get(thread.process as usize);
            let parent_uuid = processes.get(thread.process as usize).copied();
            let uuid = self.describe(match process.and_then(|process| process.pid) {
                Some(pid) => TrackDescriptor {
                    parent_uuid,
                    thread: Some(ThreadDescriptor {
                        pid: id(pid),
                        tid: thread.tid.into(),
                        thread_name: known(&thread.name),
                    }),
                    ..TrackDescriptor::default()
                },
                // A thread is one of a process.
                None => TrackDescriptor {
                    parent_uuid,
                    name: Some(thread.label()),
                    ..TrackDescriptor::default()
                },
            });
            self.threads.push(uuid);
        }
        processes
    }

    fn counters(&mut self, processes: &[u64]) {
        let timeline = self.timeline;
        for counter in &timeline.counters {
            let thread = counter.thread.map(|thread| self.threads.get(thread as usize));
            let parent = thread.unwrap_or_else(|| processes.get(counter.process as usize));
            let uuid = self.describe(TrackDescriptor {
                parent_uuid: parent.copied(),
                name: Some(counter.label()),
                counter: Some(CounterDescriptor {
                    unit_name: (!counter.unit.is_empty()).then(|| counter.unit.clone()),
                }),
                ..TrackDescriptor::default()
            });
            for point in counter.in_order() {
                let event = TrackEvent {
                    double_counter_value: Some(point.value),
                    ..event(COUNTER, uuid)
                };
                self.offer(&packet(point.at_ns, event), 0);
            }
        }
    }

    fn step(&mut self, step: Step<'_>) -> bool {
        match step {
            Step::Begin { slice, lane } => {
                if self.full {
                    self.left_out += 1;
                    return false;
                }
                let Some(track) = self.track(lane) else {
                    return false;
                };
                let begin = event(BEGIN, track);
                let names = (slice.name, slice.category);
                let packet = self.named(slice.began_ns, begin, names, &slice.arguments);
                let taken = self.offer(&packet, END_BYTES);
                self.open += usize::from(taken);
                taken
            }
            Step::End { slice, lane } => {
                self.open = self.open.saturating_sub(1);
                if let Some(track) = self.track(lane) {
                    self.always(&packet(slice.end_ns(), event(END, track)));
                }
                true
            }
            Step::Instant(instant) => {
                if self.full {
                    self.left_out += 1;
                    return false;
                }
                let own = Lane {
                    thread: instant.thread,
                    number: 0,
                };
                let Some(track) = self.track(own) else {
                    return false;
                };
                let names = (instant.name, instant.category);
                let mut event = event(INSTANT, track);
                match instant.flow {
                    Some(Flow::Begins(flow)) => event.flow_ids.push(flow.into()),
                    Some(Flow::Ends(flow)) => event.terminating_flow_ids.push(flow.into()),
                    None => {}
                }
                let packet = self.named(instant.at_ns, event, names, &instant.arguments);
                self.offer(&packet, 0)
            }
        }
    }

    /// The track of a thread's lane, which is described the first time; `None` where there is no room for that.
    fn track(&mut self, lane: Lane) -> Option<u64> {
        let own = self.threads.get(lane.thread as usize).copied()?;
        if lane.number == 0 {
            return Some(own);
        }
        if let Some(uuid) = self.lanes.get(&lane) {
            return Some(*uuid);
        }
        let label = self.timeline.threads.get(lane.thread as usize)?.label();
        let descriptor = TrackDescriptor {
            parent_uuid: Some(own),
            // Tracks of one name and parent would become one.
            name: Some(format!("{label}, lane {}", u64::from(lane.number) + 1)),
            ..TrackDescriptor::default()
        };
        let (uuid, packet) = self.described(descriptor);
        self.offer(&packet, 0).then_some(())?;
        self.lanes.insert(lane, uuid);
        Some(uuid)
    }

    /// An event with its names, those with their texts that no packet has had.
    fn named(
        &mut self,
        at_ns: u64,
        mut event: TrackEvent,
        (name, category): (u32, Category),
        arguments: &[Argument],
    ) -> TracePacket {
        let mut interned = InternedData::default();
        event.name_iid = Some(self.names.event(name, &mut interned));
        event.categories.push(category.name().to_owned());
        let arguments = arguments.iter();
        event.debug_annotations = arguments
            .map(|argument| self.names.argument(argument, &mut interned))
            .collect();
        TracePacket {
            sequence_flags: Some(NEEDS_STATE),
            interned_data: (interned != InternedData::default()).then_some(interned),
            ..packet(at_ns, event)
        }
    }

    /// Writes a track; its number.
    fn describe(&mut self, descriptor: TrackDescriptor) -> u64 {
        let (uuid, packet) = self.described(descriptor);
        self.always(&packet);
        uuid
    }

    /// A number for a track, and the packet that describes it.
    fn described(&mut self, descriptor: TrackDescriptor) -> (u64, TracePacket) {
        self.next_uuid += 1;
        let packet = TracePacket {
            sequence: SEQUENCE,
            track_descriptor: Some(TrackDescriptor {
                uuid: self.next_uuid,
                ..descriptor
            }),
            ..TracePacket::default()
        };
        (self.next_uuid, packet)
    }

    /// Writes a packet if there is room for it, and for so much more.
    fn offer(&mut self, packet: &TracePacket, more: usize) -> bool {
        let needed = packet.encoded_len() + 12 + more + self.open * END_BYTES;
        self.full |= self.bytes.len().saturating_add(needed) > self.most_bytes;
        if self.full {
            self.left_out += 1;
            return false;
        }
        self.always(packet);
        true
    }

    fn always(&mut self, packet: &TracePacket) {
        // The field `packet` of `Trace`.
        const FIELD: u8 = 1 << 3 | 2;
        self.scratch.clear();
        self.scratch.push(FIELD);
        // It cannot fail: a list grows.
        let _ = packet.encode_length_delimited(&mut self.scratch);
        if self.bytes.capacity() - self.bytes.len() < self.scratch.len() {
            let more = (self.bytes.len() / 4).max(PIECE).max(self.scratch.len());
            self.bytes.reserve_exact(more);
        }
        self.bytes.extend_from_slice(&self.scratch);
    }
}

fn packet(at_ns: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(at_ns),
        timestamp_clock_id: Some(MONOTONIC),
        sequence: SEQUENCE,
        track_event: Some(event),
        ..TracePacket::default()
    }
}

fn event(r#type: i32, track_uuid: u64) -> TrackEvent {
    TrackEvent {
        r#type,
        track_uuid,
        ..TrackEvent::default()
    }
}
