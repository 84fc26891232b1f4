//! Events over time: calls and the like are markers of their threads, which have names and values; counters are counters.
//!
//! Times are milliseconds since the first event, with six digits behind the point: whole nanoseconds.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Value, json};

use super::{Category, NS_PER_MS, Strings, meta, milliseconds};
use crate::{
    list::list,
    timeline::{self, Argument, Counter, Timeline, Written},
};

/// By number, as [`number_of`] has them.
const CATEGORIES: [Category; 4] = [
    Category {
        name: "call",
        color: "blue",
    },
    Category {
        name: "hit",
        color: "green",
    },
    Category {
        name: "inside",
        color: "lightblue",
    },
    Category {
        name: "wait",
        color: "grey",
    },
];

/// An index into [`CATEGORIES`].
const fn number_of(category: timeline::Category) -> usize {
    match category {
        timeline::Category::Call => 0,
        timeline::Category::Hit => 1,
        timeline::Category::Inside => 2,
        timeline::Category::Wait => 3,
    }
}

/// A slice or an instant.
struct Marker<'a> {
    at_ns: u64,
    /// `None` of an instant.
    end_ns: Option<u64>,
    name: u32,
    category: usize,
    arguments: &'a [Argument],
}

/// Writes events into a file of about so many bytes at most: those that begin last are left out, and counted.
#[must_use]
pub fn write(timeline: &Timeline, most_bytes: usize) -> Written {
    let first_ns = timeline.first_ns().unwrap_or(0);
    // Without a clock, a trace begins in 1970.
    let began_ns = timeline.clocks.map_or(0, |clocks| {
        let before = clocks.monotonic_ns.saturating_sub(first_ns);
        clocks.realtime_ns.saturating_sub(before)
    });
    let mut threads: Vec<Vec<Marker<'_>>> = Vec::new();
    threads.resize_with(timeline.threads.len(), Vec::new);
    let mut keys: [BTreeSet<u32>; CATEGORIES.len()] = Default::default();
    for (thread, marker) in markers(timeline) {
        if let (Some(of), Some(keys)) = (threads.get_mut(thread as usize), keys.get_mut(marker.category)) {
            keys.extend(marker.arguments.iter().map(|argument| argument.name));
            of.push(marker);
        }
    }
    let began_ms = json!(began_ns as f64 / NS_PER_MS as f64);
    let schema: Vec<Value> = CATEGORIES
        .iter()
        .zip(&keys)
        .map(|(category, keys)| schema(timeline, category.name, keys))
        .collect();
    let mut meta = meta(&timeline.title, &began_ms, &CATEGORIES, &schema);
    let facts = timeline.facts.iter();
    let facts: Vec<Value> = facts
        .map(|fact| json!({ "label": fact.key, "format": "string", "value": fact.value }))
        .collect();
    meta["extra"] = json!([{ "label": "Run", "entries": facts }]);
    let mut writer = Writer {
        timeline,
        first_ns,
        text: format!("{{\"meta\":{meta},\"libs\":[],\"pages\":[],\"threads\":["),
        most_bytes,
        left_out: 0,
    };
    let tracks = tracks(timeline);
    for (number, track) in tracks.iter().enumerate() {
        writer.separate(number);
        let markers = track.thread.and_then(|thread| threads.get(thread as usize));
        writer.thread(track, markers.map_or(&[], Vec::as_slice));
    }
    writer.text.push_str("],\"counters\":[");
    for (number, counter) in timeline.counters.iter().enumerate() {
        writer.separate(number);
        writer.counter(counter, &tracks);
    }
    writer.text.push_str("]}\n");
    Written {
        bytes: writer.text.into_bytes(),
        left_out: writer.left_out,
    }
}

/// A thread as the format has it: one of the timeline's, or that which a process needs that has none.
struct Track {
    process: u32,
    thread: Option<u32>,
}

/// The threads by number, then a track for each process without any.
fn tracks(timeline: &Timeline) -> Vec<Track> {
    let threads = (0..).zip(&timeline.threads).map(|(number, thread)| Track {
        process: thread.process,
        thread: Some(number),
    });
    let mut tracks: Vec<Track> = threads.collect();
    for (process, _) in (0..).zip(&timeline.processes) {
        if tracks.iter().all(|track| track.process != process) {
            tracks.push(Track {
                process,
                thread: None,
            });
        }
    }
    tracks
}

/// All events by their thread, those of a thread in order.
fn markers(timeline: &Timeline) -> Vec<(u32, Marker<'_>)> {
    let slices = timeline.slices.iter().map(|slice| {
        let marker = Marker {
            at_ns: slice.began_ns,
            end_ns: Some(slice.end_ns()),
            name: slice.name,
            category: number_of(slice.category),
            arguments: &slice.arguments,
        };
        (slice.thread, marker)
    });
    let instants = timeline.instants.iter().map(|instant| {
        let marker = Marker {
            at_ns: instant.at_ns,
            end_ns: None,
            name: instant.name,
            category: number_of(instant.category),
            arguments: &instant.arguments,
        };
        (instant.thread, marker)
    });
    let mut markers: Vec<_> = slices.chain(instants).collect();
    markers.sort_by_key(|(_, marker)| marker.at_ns);
    markers
}

/// How markers of a kind are shown: with all values that one of them has.
fn schema(timeline: &Timeline, name: &str, keys: &BTreeSet<u32>) -> Value {
    let label = |key: &u32| timeline.names().get(*key as usize).map_or("", String::as_str);
    let keys: Vec<Value> = keys
        .iter()
        .map(
            |key| json!({ "key": key_of(*key), "label": label(key), "format": "string", "searchable": true }),
        )
        .collect();
    json!({
        "name": name,
        "display": ["marker-chart", "marker-table", "timeline-overview"],
        "chartLabel": "{marker.name}",
        "tooltipLabel": "{marker.name}",
        "tableLabel": "{marker.name}",
        "data": keys,
    })
}

/// The key of a value in the data of a marker; names of values could be keys that the format has itself.
fn key_of(name: u32) -> String {
    format!("value{name}")
}

struct Writer<'a> {
    timeline: &'a Timeline,
    first_ns: u64,
    text: String,
    most_bytes: usize,
    left_out: u64,
}

impl Writer<'_> {
    fn separate(&mut self, number: usize) {
        if number > 0 {
            self.text.push(',');
        }
    }

    fn pid(&self, process: u32) -> u32 {
        let process = self.timeline.processes.get(process as usize);
        process.and_then(|process| process.pid).unwrap_or(0)
    }

    fn thread(&mut self, track: &Track, markers: &[Marker<'_>]) {
        let thread = track.thread.and_then(|at| self.timeline.threads.get(at as usize));
        let process = self.timeline.processes.get(track.process as usize);
        let pid = self.pid(track.process);
        let process_name = match process {
            Some(process) if !process.name.is_empty() => process.name.clone(),
            _ => format!("process {pid}"),
        };
        let (name, tid) = match thread {
            Some(thread) => (thread.label(), thread.tid),
            None => (process_name.clone(), pid),
        };
        let _ = write!(
            self.text,
            "{{\"name\":{},\"processName\":{},\"isMainThread\":{},\"processType\":\"default\",\"pid\":\"{}\",\"tid\":{},\
             \"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\
             \"markers\":{{\"data\":[",
            Value::from(name),
            Value::from(process_name),
            tid == pid,
            pid,
            tid,
        );
        let mut kept = 0;
        for marker in markers {
            let data = self.data(marker);
            // The rest of a marker takes less than a hundred bytes.
            if self.text.len().saturating_add(data.len() + (kept + 1) * 100) > self.most_bytes {
                break;
            }
            self.separate(kept);
            self.text.push_str(&data);
            kept += 1;
        }
        let (markers, left_out) = markers.split_at_checked(kept).unwrap_or((markers, &[]));
        self.left_out += left_out.len() as u64;
        let mut strings = Strings::default();
        let names = self.timeline.names();
        let names: Vec<usize> = markers
            .iter()
            .map(|marker| strings.number(names.get(marker.name as usize).map_or("", String::as_str)))
            .collect();
        let (text, first_ns) = (&mut self.text, self.first_ns);
        text.push_str("],\"name\":");
        list(text, names, push);
        text.push_str(",\"startTime\":");
        list(text, markers, |text, marker| {
            milliseconds(text, marker.at_ns - first_ns);
        });
        text.push_str(",\"endTime\":");
        list(text, markers, |text, marker| match marker.end_ns {
            Some(end_ns) => milliseconds(text, end_ns - first_ns),
            None => text.push_str("null"),
        });
        // Instants, and what has a beginning and an end.
        text.push_str(",\"phase\":");
        list(text, markers, |text, marker| {
            push(text, u8::from(marker.end_ns.is_some()));
        });
        text.push_str(",\"category\":");
        list(text, markers, |text, marker| push(text, marker.category));
        let _ = write!(
            text,
            ",\"length\":{}}},{EMPTY_TABLES},\"stringArray\":",
            markers.len()
        );
        list(text, &strings.all, |text, string| {
            push(text, Value::from(string.as_str()));
        });
        text.push('}');
    }

    /// The values of a marker.
    fn data(&self, marker: &Marker<'_>) -> String {
        let kind = CATEGORIES
            .get(marker.category)
            .map_or("call", |category| category.name);
        let mut data = format!("{{\"type\":\"{kind}\"");
        for argument in marker.arguments {
            let value = self.timeline.text_of(&argument.value);
            let _ = write!(data, ",\"{}\":{}", key_of(argument.name), Value::from(value));
        }
        data.push('}');
        data
    }

    /// Values hold until the next one; the format has what was counted since the one before, and draws it per second.
    fn counter(&mut self, counter: &Counter, tracks: &[Track]) {
        let thread = counter
            .thread
            .and_then(|at| self.timeline.threads.get(at as usize));
        let name = match thread {
            Some(thread) => format!("{}, {}", counter.name, thread.label()),
            None => counter.name.clone(),
        };
        let is_its = |track: &Track| match counter.thread {
            Some(_) => track.thread == counter.thread,
            None => track.process == counter.process,
        };
        let main = tracks.iter().position(is_its).unwrap_or(0);
        let _ = write!(
            self.text,
            "{{\"name\":{},\"category\":\"counter\",\"description\":{},\"pid\":\"{}\",\"mainThreadIndex\":{main},\
             \"samples\":{{\"time\":",
            Value::from(name),
            Value::from(counter.unit.as_str()),
            self.pid(counter.process),
        );
        let mut points = counter.in_order();
        let room = self.most_bytes.saturating_sub(self.text.len()) / POINT_BYTES;
        self.left_out += points.len().saturating_sub(room) as u64;
        points.truncate(room);
        let (text, first_ns) = (&mut self.text, self.first_ns);
        list(text, &points, |text, point| {
            milliseconds(text, point.at_ns - first_ns);
        });
        text.push_str(",\"count\":");
        let befores = std::iter::once(None).chain(points.iter().map(Some));
        list(text, befores.zip(&points), |text, (before, point)| {
            let counted = before.map_or(0.0, |before| {
                before.value * (point.at_ns - before.at_ns) as f64 / NS_PER_S
            });
            push(text, json!(counted));
        });
        let _ = write!(text, ",\"length\":{}}}}}", points.len());
    }
}

const NS_PER_S: f64 = 1e9;

/// What a point of a counter takes at most.
const POINT_BYTES: usize = 64;

/// A thread without samples.
const EMPTY_TABLES: &str = concat!(
    r#""nativeSymbols":{"libIndex":[],"address":[],"name":[],"functionSize":[],"length":0},"#,
    r#""samples":{"weightType":"samples","length":0,"stack":[],"time":[],"weight":[]},"#,
    r#""frameTable":{"length":0,"address":[],"inlineDepth":[],"category":[],"subcategory":[],"func":[],"line":[],"#,
    r#""nativeSymbol":[],"innerWindowID":[],"implementation":[],"column":[]},"#,
    r#""funcTable":{"length":0,"name":[],"isJS":[],"relevantForJS":[],"resource":[],"fileName":[],"lineNumber":[],"#,
    r#""columnNumber":[]},"resourceTable":{"length":0,"name":[],"lib":[],"host":[],"type":[]},"#,
    r#""stackTable":{"length":0,"frame":[],"prefix":[],"category":[],"subcategory":[]}"#,
);

fn push(text: &mut String, value: impl std::fmt::Display) {
    let _ = write!(text, "{value}");
}
