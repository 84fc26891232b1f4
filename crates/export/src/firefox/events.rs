//! Events over time: calls and the like are markers of their threads, which have names and values; counters are counters.
//!
//! Times are milliseconds since the first event, with six digits behind the point: whole nanoseconds.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Value, json};

use super::{Category, NS_PER_MS, Strings, begin, meta, milliseconds};
use crate::{
    json_text::{quoted, string, value},
    list::list,
    timeline::{self, Argument, Counter, Timeline, Value as Argued, Written},
};

/// By number, as [`number_of`] has them.
const CATEGORIES: [Category; 4] = [
    Category {
        name: timeline::Category::Call.name(),
        color: "blue",
    },
    Category {
        name: timeline::Category::Hit.name(),
        color: "green",
    },
    Category {
        name: timeline::Category::Inside.name(),
        color: "lightblue",
    },
    Category {
        name: timeline::Category::Wait.name(),
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
    category: timeline::Category,
    arguments: &'a [Argument],
}

/// Writes events into a file of at most so many bytes, if possible: counters first, one after the other; then from the first marker
/// on that would make it larger, none is written. What is left out is counted.
#[must_use]
pub fn write(timeline: &Timeline, most_bytes: usize) -> Written {
    let first_ns = timeline.first_ns().unwrap_or(0);
    let tracks = tracks(timeline);
    let markers = markers(timeline);
    let head = head(timeline, &markers, first_ns);
    let mut writer = Writer {
        timeline,
        first_ns,
        names: timeline.names().iter().map(|name| quoted(name)).collect(),
        left: most_bytes.saturating_sub(head.len() + tracks.len() * TRACK_BYTES),
        full: false,
        left_out: 0,
    };
    let counters = writer.counters(&tracks);
    let threads = writer.threads(&markers, tracks.len());
    drop(markers);
    let bytes: usize = threads.iter().map(|thread| thread.data.len()).sum();
    let mut text = head;
    text.reserve(bytes + counters.len());
    list(
        &mut text,
        threads.into_iter().zip(&tracks),
        |text, (thread, track)| {
            writer.track(text, track, thread);
        },
    );
    text.push_str(",\"counters\":");
    text.push_str(&counters);
    text.push_str("}\n");
    Written {
        bytes: text.into_bytes(),
        left_out: writer.left_out,
    }
}

/// What stands before the threads.
fn head(timeline: &Timeline, markers: &[(u32, Marker<'_>)], first_ns: u64) -> String {
    // Without a clock, a trace begins in 1970.
    let began_ns = timeline.clocks.map_or(0, |clocks| {
        let before = clocks.monotonic_ns.saturating_sub(first_ns);
        clocks.realtime_ns.saturating_sub(before)
    });
    let mut keys: [BTreeSet<u32>; CATEGORIES.len()] = Default::default();
    for (_, marker) in markers {
        if let Some(keys) = keys.get_mut(number_of(marker.category)) {
            keys.extend(marker.arguments.iter().map(|argument| argument.name));
        }
    }
    let schema = CATEGORIES.iter().zip(&keys);
    let schema = schema.map(|(category, keys)| schema_of(timeline, category.name, keys));
    let facts = timeline.facts.iter();
    let facts: Vec<Value> = facts
        .map(|fact| json!({ "label": fact.key, "format": "string", "value": fact.value }))
        .collect();
    let began_ms = json!(began_ns as f64 / NS_PER_MS as f64);
    let mut meta = meta(&timeline.title, &began_ms, &CATEGORIES);
    meta["markerSchema"] = schema.collect();
    meta["extra"] = json!([{ "label": "Run", "entries": facts }]);
    begin(&meta)
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
            category: slice.category,
            arguments: &slice.arguments,
        };
        (slice.thread, marker)
    });
    let instants = timeline.instants.iter().map(|instant| {
        let marker = Marker {
            at_ns: instant.at_ns,
            end_ns: None,
            name: instant.name,
            category: instant.category,
            arguments: &instant.arguments,
        };
        (instant.thread, marker)
    });
    let mut markers: Vec<_> = slices.chain(instants).collect();
    markers.sort_by_key(|(_, marker)| marker.at_ns);
    markers
}

/// How markers of a kind are shown: with all values that one of them has.
fn schema_of(timeline: &Timeline, name: &str, keys: &BTreeSet<u32>) -> Value {
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

/// The markers of a thread that there is room for.
#[derive(Default)]
struct Thread {
    /// The values of each, with commas between them.
    data: String,
    names: Vec<usize>,
    strings: Strings,
    times: Vec<Times>,
    categories: Vec<usize>,
}

/// When a marker was.
#[derive(Clone, Copy)]
struct Times {
    at_ns: u64,
    end_ns: Option<u64>,
}

struct Writer<'a> {
    timeline: &'a Timeline,
    first_ns: u64,
    /// As JSON.
    names: Vec<String>,
    /// Bytes that there is room for.
    left: usize,
    full: bool,
    left_out: u64,
}

impl Writer<'_> {
    /// Whether there is room for an event of so many bytes, which takes it; once there is none, for no other either.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.full |= bytes > self.left;
        if self.full {
            self.left_out += 1;
        } else {
            self.left -= bytes;
        }
        !self.full
    }

    fn pid(&self, process: u32) -> u32 {
        let process = self.timeline.processes.get(process as usize);
        process.and_then(|process| process.pid).unwrap_or(0)
    }

    /// Markers by the number of their thread, in order.
    fn threads(&mut self, markers: &[(u32, Marker<'_>)], tracks: usize) -> Vec<Thread> {
        let mut threads: Vec<Thread> = Vec::new();
        threads.resize_with(tracks, Thread::default);
        for (thread, marker) in markers {
            let Some(thread) = threads.get_mut(*thread as usize) else {
                continue;
            };
            if self.full {
                self.left_out += 1;
                continue;
            }
            let data = self.data(marker);
            let all = self.timeline.names();
            let name = all.get(marker.name as usize).map_or("", String::as_str);
            let name_bytes = if thread.strings.has(name) {
                0
            } else {
                self.names.get(marker.name as usize).map_or(2, String::len) + 1
            };
            if !self.has_room(data.len() + name_bytes + MARKER_BYTES) {
                continue;
            }
            if !thread.data.is_empty() {
                thread.data.push(',');
            }
            thread.data.push_str(&data);
            thread.names.push(thread.strings.number(name));
            thread.times.push(Times {
                at_ns: marker.at_ns,
                end_ns: marker.end_ns,
            });
            thread.categories.push(number_of(marker.category));
        }
        threads
    }

    fn track(&self, text: &mut String, track: &Track, markers: Thread) {
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
            text,
            "{{\"name\":{},\"processName\":{},\"isMainThread\":{},\"processType\":\"default\",\"pid\":\"{pid}\",\"tid\":{tid},\
             \"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\
             \"markers\":{{\"data\":[",
            quoted(&name),
            quoted(&process_name),
            tid == pid,
        );
        let Thread {
            data,
            names,
            strings,
            times,
            categories,
        } = markers;
        text.push_str(&data);
        text.push_str("],\"name\":");
        list(text, names, push);
        text.push_str(",\"startTime\":");
        list(text, &times, |text, of| {
            milliseconds(text, of.at_ns - self.first_ns);
        });
        text.push_str(",\"endTime\":");
        list(text, &times, |text, of| match of.end_ns {
            Some(end_ns) => milliseconds(text, end_ns - self.first_ns),
            None => text.push_str("null"),
        });
        // Instants, and what has a beginning and an end.
        text.push_str(",\"phase\":");
        list(text, &times, |text, of| push(text, u8::from(of.end_ns.is_some())));
        text.push_str(",\"category\":");
        list(text, categories, push);
        let _ = write!(
            text,
            ",\"length\":{}}},{EMPTY_TABLES},\"stringArray\":",
            times.len()
        );
        strings.write(text);
        text.push('}');
    }

    /// The values of a marker, as texts.
    fn data(&self, marker: &Marker<'_>) -> String {
        let mut data = format!("{{\"type\":\"{}\"", marker.category.name());
        for argument in marker.arguments {
            let _ = write!(data, ",\"{}\":", key_of(argument.name));
            match &argument.value {
                Argued::Unsigned(number) => quote(&mut data, number),
                Argued::Signed(number) => quote(&mut data, number),
                Argued::Bool(value) => quote(&mut data, value),
                Argued::Double(number) => quote(&mut data, format_args!("{number:?}")),
                Argued::Text(_) | Argued::Name(_) => value(&mut data, &argument.value, &self.names),
                // As JSON, which is a text here.
                Argued::List(_) | Argued::Object(_) => {
                    let mut parts = String::new();
                    value(&mut parts, &argument.value, &self.names);
                    string(&mut data, &parts);
                }
            }
        }
        data.push('}');
        data
    }

    /// Values hold until the next one; the format has what was counted since the one before, and draws it per second.
    fn counters(&mut self, tracks: &[Track]) -> String {
        let mut text = String::new();
        let timeline = self.timeline;
        list(&mut text, &timeline.counters, |text, counter| {
            self.counter(text, counter, tracks);
        });
        text
    }

    fn counter(&mut self, text: &mut String, counter: &Counter, tracks: &[Track]) {
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
        let before = text.len();
        let _ = write!(
            text,
            "{{\"name\":{},\"category\":\"counter\",\"description\":{},\"pid\":\"{}\",\"mainThreadIndex\":{main},\
             \"samples\":{{\"time\":",
            quoted(&name),
            quoted(&counter.unit),
            self.pid(counter.process),
        );
        self.left = self.left.saturating_sub(text.len() - before);
        let mut points = counter.in_order();
        points.retain(|_| self.has_room(POINT_BYTES));
        list(text, &points, |text, point| {
            milliseconds(text, point.at_ns - self.first_ns);
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

/// What a marker takes at most beside its values and its name: its times, and numbers.
const MARKER_BYTES: usize = 80;

/// What a thread takes at most beside its markers and its name.
const TRACK_BYTES: usize = 2048;

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

fn quote(text: &mut String, value: impl std::fmt::Display) {
    let _ = write!(text, "\"{value}\"");
}
