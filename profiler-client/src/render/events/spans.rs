//! The slowest calls as slices; what was inside of each, and its longest wait, are within it.

use profiler_export::timeline::{Argument, Category, Flow, Instant, Slice, Timeline, Value};
use profiler_proto::v1;

use super::{Events, fact, missing, values};
use crate::{
    render::waits::of_memory,
    state::spans::{EndedBy, SpansState},
};

/// All of them, of a target of this name.
#[must_use]
pub fn of(state: &SpansState, title: &str) -> Events {
    let mut timeline = Timeline::of(title);
    for span in &state.spans {
        call(&mut timeline, state, span);
    }
    timeline.name_threads(|pid, tid| state.threads.of(pid, tid));
    let counts = [
        ("scope", state.scope.clone()),
        ("calls", state.calls.to_string()),
        ("window_ns", state.window_ns.to_string()),
        ("watched_ns", state.watched_ns.to_string()),
        ("threshold_ns", state.threshold_ns.to_string()),
    ];
    timeline.facts = counts.iter().map(|(key, value)| fact(key, value)).collect();
    timeline.facts.extend(missing("lost", &state.lost));
    Events {
        timeline,
        left_out: 0,
    }
}

fn call(timeline: &mut Timeline, state: &SpansState, span: &v1::Span) {
    let process = timeline.process(span.pid);
    let thread = timeline.thread(process, span.tid);
    let name = span
        .function
        .as_ref()
        .map_or("", |function| function.name.as_str());
    let name = timeline.name(name);
    let arguments = about(timeline, state, span);
    timeline.slices.push(Slice {
        began_ns: span.ts_ns,
        duration_ns: span.duration_ns,
        arguments,
        thread,
        name,
        category: Category::Call,
    });
    for child in &span.children {
        let name = timeline.name(&child.place);
        let at_ns = span.ts_ns.saturating_add(child.offset_ns);
        match child.duration_ns {
            Some(duration_ns) => {
                let Within {
                    began_ns,
                    duration_ns,
                    arguments,
                } = within(timeline, span, at_ns, duration_ns);
                timeline.slices.push(Slice {
                    began_ns,
                    duration_ns,
                    arguments: arguments.into(),
                    thread,
                    name,
                    category: Category::Inside,
                });
            }
            None => timeline.instants.push(Instant {
                at_ns,
                arguments: Box::default(),
                thread,
                name,
                category: Category::Inside,
                flow: None,
            }),
        }
    }
    if let Some(wait) = &span.longest_wait {
        let name = timeline.name(&format!("[{}]", wait.activity));
        let began_ns = span.ts_ns.saturating_add(wait.offset_ns);
        let Within {
            began_ns,
            duration_ns,
            mut arguments,
        } = within(timeline, span, began_ns, wait.time_ns);
        if let Some(lock) = &wait.lock {
            arguments.push(values::argument(
                timeline,
                "[lock]",
                values::text(&of_memory(lock)),
            ));
        }
        if !wait.stack.is_empty() {
            let frames = values::stack(timeline, state.waited(wait), true);
            arguments.push(values::argument(timeline, "[stack]", frames));
        }
        if let Some(by) = state.ended_by(wait) {
            let at_ns = began_ns.saturating_add(duration_ns);
            ended(timeline, (span, thread), at_ns, &by);
        }
        timeline.slices.push(Slice {
            began_ns,
            duration_ns,
            arguments: arguments.into(),
            thread,
            name,
            category: Category::Wait,
        });
    }
}

/// The end of a wait: a moment on the thread that waited; where another thread ended it one on that as well, from which a flow
/// leads there.
fn ended(timeline: &mut Timeline, (span, thread): (&v1::Span, u32), at_ns: u64, by: &EndedBy<'_>) {
    let (woken, flow) = match by {
        EndedBy::Thread {
            pid,
            tid,
            stack,
            name,
        } => {
            let flow = timeline.flow();
            let process = timeline.process(*pid);
            let waker = timeline.thread(process, *tid);
            let frames = values::stack(timeline, stack.iter().copied(), true);
            let arguments = [
                values::argument(timeline, "[thread]", Value::Unsigned(span.tid.into())),
                values::argument(timeline, "[stack]", frames),
            ];
            let name_of_wake = timeline.name("[wakes]");
            timeline.instants.push(Instant {
                at_ns,
                arguments: arguments.into(),
                thread: waker,
                name: name_of_wake,
                category: Category::Wait,
                flow: Some(Flow::Begins(flow)),
            });
            let by = name.map_or_else(|| tid.to_string(), |name| format!("{name} {tid}"));
            (by, Some(Flow::Ends(flow)))
        }
        EndedBy::Interrupt(function) => (format!("interrupt: {}", function.function), None),
    };
    let argument = values::argument(timeline, "[by]", values::text(&woken));
    let name = timeline.name("[woken]");
    timeline.instants.push(Instant {
        at_ns,
        arguments: [argument].into(),
        thread,
        name,
        category: Category::Wait,
        flow,
    });
}

/// A slice within that of its call.
struct Within {
    began_ns: u64,
    duration_ns: u64,
    arguments: Vec<Argument>,
}

/// Draws what was inside of a call within it: the call's duration is less what samples took of it, so that it may seem to have
/// ended before. Where that shortens it, its duration is an argument.
fn within(timeline: &mut Timeline, span: &v1::Span, began_ns: u64, duration_ns: u64) -> Within {
    let end_ns = span.ts_ns.saturating_add(span.duration_ns);
    let began_ns = began_ns.min(end_ns);
    let drawn_ns = duration_ns.min(end_ns - began_ns);
    let mut arguments = Vec::new();
    if drawn_ns < duration_ns {
        let duration = Value::Unsigned(duration_ns);
        arguments.push(values::argument(timeline, "[duration_ns]", duration));
    }
    Within {
        began_ns,
        duration_ns: drawn_ns,
        arguments,
    }
}

/// What else there is to know of a call.
fn about(timeline: &mut Timeline, state: &SpansState, span: &v1::Span) -> Box<[Argument]> {
    let mut arguments = values::arguments(timeline, &span.values);
    let mut add = |name: &str, value| arguments.push(values::argument(timeline, name, value));
    if span.values_missing {
        add("[values]", values::text("<not read>"));
    }
    let inside = span.children.len() as u64 + span.children_left_out;
    if inside > 0 {
        add("[inside]", Value::Unsigned(inside));
    }
    if span.children_left_out > 0 {
        add("[inside, left out]", Value::Unsigned(span.children_left_out));
    }
    if let Some(times) = &span.times {
        for (name, ns) in [
            ("[on_cpu_ns]", times.on_cpu_ns),
            ("[sleeping_ns]", times.sleeping_ns),
            ("[uninterruptible_ns]", times.uninterruptible_ns),
            ("[stopped_ns]", times.stopped_ns),
            ("[runnable_ns]", times.runnable_ns),
        ] {
            add(name, Value::Unsigned(ns));
        }
        add("[waits]", Value::Unsigned(span.waits));
    }
    if !span.not_sampled {
        add("[samples]", Value::Unsigned(span.samples));
    }
    if !span.stack.is_empty() {
        add("[stack_samples]", Value::Unsigned(span.stack_samples));
        let frames = values::stack(timeline, state.stack(span), true);
        arguments.push(values::argument(timeline, "[stack]", frames));
    }
    arguments.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::spans::tests::sample;

    /// The call's duration is less what samples took of it.
    #[test]
    fn what_seems_to_end_after_its_call_is_drawn_within_it() {
        let mut timeline = Timeline::default();
        let span = v1::Span {
            ts_ns: 1_000,
            duration_ns: 100,
            ..v1::Span::default()
        };
        for (began_ns, duration_ns, drawn) in [
            (1_010, 90, (1_010, 90)),
            (1_010, 95, (1_010, 90)),
            (1_200, 5, (1_100, 0)),
        ] {
            let within = within(&mut timeline, &span, began_ns, duration_ns);
            assert_eq!((within.began_ns, within.duration_ns), drawn);
            let is_shorter = drawn.1 < duration_ns;
            let said = within.arguments.first().map(|argument| &argument.value);
            assert_eq!(said, is_shorter.then_some(&Value::Unsigned(duration_ns)));
        }
    }

    #[test]
    fn a_call_has_what_was_inside_within_it() {
        let Events { timeline, left_out } = of(&sample(), "server");
        let name = |name: u32| timeline.names()[name as usize].as_str();
        let slices: Vec<_> = timeline
            .slices
            .iter()
            .map(|slice| {
                (
                    name(slice.name),
                    slice.category,
                    slice.began_ns,
                    slice.duration_ns,
                )
            })
            .collect();
        assert_eq!(
            slices,
            [
                ("handle_request", Category::Call, 5_041_337_000, 31_000_000),
                ("recv@main.cc:1312", Category::Inside, 5_042_537_000, 3_100_000),
                ("[sleeping]", Category::Wait, 5_042_837_000, 20_000_000),
                ("handle_request", Category::Call, 2_000_000_000, 900_000),
            ]
        );
        let [hit, wakes, woken] = &timeline.instants[..] else {
            panic!("{timeline:?}")
        };
        let thread = |instant: &Instant| timeline.threads[instant.thread as usize].label();
        assert_eq!(
            [wakes, woken].map(|instant| (name(instant.name), thread(instant), instant.at_ns)),
            [
                ("[wakes]", "flusher 4640".to_owned(), 5_062_837_000),
                ("[woken]", "worker-1 4631".to_owned(), 5_062_837_000)
            ]
        );
        assert_eq!(
            (wakes.flow, woken.flow),
            (Some(Flow::Begins(1)), Some(Flow::Ends(1)))
        );
        assert_eq!((name(hit.name), hit.at_ns), ("main.cc:1310", 5_041_349_000));
        let argument = |slice: usize, wanted: &str| {
            let arguments = timeline.slices[slice].arguments.iter();
            let mut found = arguments.filter(|argument| name(argument.name) == wanted);
            found.next().map(|argument| argument.value.clone())
        };
        assert_eq!(argument(0, "n"), Some(Value::Unsigned(7)));
        assert_eq!(argument(0, "[sleeping_ns]"), Some(Value::Unsigned(25_000_000)));
        assert_eq!(argument(0, "[waits]"), Some(Value::Unsigned(3)));
        let Some(Value::List(frames)) = argument(0, "[stack]") else {
            panic!("no stack")
        };
        let frames: Vec<&str> = frames
            .iter()
            .map(|frame| match frame {
                Value::Name(frame) => name(*frame),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            frames,
            [
                "compress\x1b[2J (/src/zlib.c:210)",
                "handle_request (/src/server.c:55)",
                "main"
            ]
        );
        assert_eq!(
            argument(2, "[lock]"),
            Some(values::text("[lock 0x7f00 in [heap]]"))
        );
        assert_eq!(argument(3, "[values]"), Some(values::text("<not read>")));
        assert_eq!(argument(3, "[inside, left out]"), Some(Value::Unsigned(3)));
        assert_eq!((argument(3, "[samples]"), left_out), (None, 0));
        let lost = timeline.facts.last().unwrap();
        assert_eq!(
            (lost.key.as_str(), lost.value.as_str()),
            ("lost: slow_end_yielded", "1024")
        );
    }
}
