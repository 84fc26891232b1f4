//! A trace as events: calls are slices, hits of lines instants.

use profiler_export::timeline::{Category, Instant, Slice, Timeline};
use profiler_proto::v1;

use super::{Events, fact, missing, values};
use crate::state::trace::TraceState;

/// Hits that are kept; later ones are counted.
const MOST_HITS: usize = 1 << 20;

/// What their arguments take, at most.
const MOST_BYTES: usize = 256 << 20;

/// The hits of a run, as they come.
#[derive(Debug)]
pub struct Hits {
    timeline: Timeline,
    kept: usize,
    bytes: usize,
    left_out: u64,
}

impl Hits {
    /// Of a target of this name.
    #[must_use]
    pub fn of(title: &str) -> Self {
        Self {
            timeline: Timeline::of(title),
            kept: 0,
            bytes: 0,
            left_out: 0,
        }
    }

    /// Takes hits that a state has just applied.
    pub fn add(&mut self, state: &TraceState, hits: &[v1::Hit]) {
        for hit in hits {
            if self.kept >= MOST_HITS || self.bytes >= MOST_BYTES {
                self.left_out += 1;
            } else if let Some(place) = state.place(hit) {
                self.kept += 1;
                self.keep(state, hit, place);
            }
        }
    }

    fn keep(&mut self, state: &TraceState, hit: &v1::Hit, place: &v1::TracedPlace) {
        let timeline = &mut self.timeline;
        let process = timeline.process(hit.pid);
        let thread = timeline.thread(process, hit.tid);
        let name = timeline.name(&place.site);
        let mut arguments = values::arguments(timeline, &hit.values);
        if place.function != place.site && !place.function.is_empty() {
            arguments.push(values::argument(
                timeline,
                "[function]",
                values::text(&place.function),
            ));
        }
        if let Some(stack) = &hit.stack {
            let frames = values::stack(timeline, state.frames(stack), stack.complete);
            arguments.push(values::argument(timeline, "[stack]", frames));
        }
        self.bytes += arguments.iter().map(values::bytes).sum::<usize>();
        let arguments = arguments.into_boxed_slice();
        match hit.duration_ns {
            Some(duration_ns) => timeline.slices.push(Slice {
                began_ns: hit.ts_ns,
                duration_ns,
                arguments,
                thread,
                name,
                category: Category::Call,
            }),
            None => timeline.instants.push(Instant {
                at_ns: hit.ts_ns,
                arguments,
                thread,
                name,
                category: Category::Hit,
                flow: None,
            }),
        }
    }

    /// All of them, and what is to be said of them.
    #[must_use]
    pub fn finish(mut self, state: &TraceState, scope: &str) -> Events {
        let counts = [
            ("scope", scope.to_owned()),
            ("reached", state.reached.to_string()),
            ("rejected", state.rejected.to_string()),
        ];
        self.timeline.facts = counts.iter().map(|(key, value)| fact(key, value)).collect();
        self.timeline.facts.extend(missing("lost", &state.lost));
        self.timeline.facts.extend(missing("unseen", &state.unseen));
        self.timeline.name_threads(|pid, tid| state.threads.of(pid, tid));
        Events {
            timeline: self.timeline,
            left_out: self.left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_export::timeline::Value;

    use super::*;
    use crate::render::trace::tests::sample;

    #[test]
    fn calls_are_slices_and_hits_of_lines_instants() {
        let (state, seen) = sample();
        let mut hits = Hits::of("server");
        hits.add(&state, &seen);
        let Events { timeline, left_out } = hits.finish(&state, "handle_request");
        let ([slice], [instant], 0) = (&timeline.slices[..], &timeline.instants[..], left_out) else {
            panic!("{timeline:?}")
        };
        let name = |name: u32| timeline.names()[name as usize].as_str();
        assert_eq!(
            (slice.began_ns, slice.duration_ns, name(slice.name)),
            (2_000_000_000, 165_000, "handle_request")
        );
        assert_eq!(timeline.threads[slice.thread as usize].tid, 4632);
        let [stack] = &slice.arguments[..] else {
            panic!("{slice:?}")
        };
        assert_eq!(name(stack.name), "[stack]");
        let Value::List(frames) = &stack.value else {
            panic!("{stack:?}")
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
            ["handle_request (/src/main.cc:40)", "serve\x1b[2J", "[incomplete]"]
        );
        assert_eq!(name(instant.name), "/src/main.cc:1310");
        assert_eq!(
            (name(instant.arguments[0].name), &instant.arguments[0].value),
            ("n", &Value::Unsigned(7))
        );
        let facts: Vec<_> = timeline
            .facts
            .iter()
            .map(|fact| (fact.key.as_str(), fact.value.as_str()))
            .collect();
        assert_eq!(
            facts,
            [
                ("scope", "handle_request"),
                ("reached", "56789"),
                ("rejected", "0"),
                ("lost: rate_limit", "56787")
            ]
        );
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let (state, seen) = sample();
        let mut hits = Hits::of("server");
        hits.add(&state, &seen);
        hits.bytes = MOST_BYTES;
        hits.add(&state, &seen);
        (hits.bytes, hits.kept) = (0, MOST_HITS);
        hits.add(&state, &seen);
        let events = hits.finish(&state, "");
        assert_eq!((events.len(), events.left_out), (2, 4));
    }
}
