//! A trace as the client knows it: its places and counts. Hits are passed on, not kept.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::v1;

use super::{Malformed, thread_names::ThreadNames};

/// Places that are kept. It is far beyond the probes that a daemon grants.
const MAX_PLACES: usize = 1 << 20;

/// Frames that are kept, as many as a daemon makes.
const MAX_FRAMES: usize = 1 << 20;

/// How long before a run began a hit may have happened that belongs to it: calls that were already open, in nanoseconds.
const EARLIER_NS: u64 = 10_000_000_000;

/// What a stream has said so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceState {
    /// What [`v1::Hit::place`] counts in.
    pub places: Vec<v1::TracedPlace>,
    /// The frames of stacks, by id.
    frames: HashMap<u32, v1::Frame>,
    /// Names of the threads of hits.
    pub threads: ThreadNames,
    /// Hits that have arrived here.
    pub shown: u64,
    /// Hits at the places.
    pub reached: u64,
    /// Hits among them that a condition on values ruled out.
    pub rejected: u64,
    /// Hits among them that are not shown, by reason.
    pub lost: BTreeMap<String, u64>,
    /// What the kernel did not show at its own places, in whichever process, by reason.
    pub unseen: BTreeMap<String, u64>,
    /// A message has arrived.
    pub started: bool,
    /// What streams before this one counted, which was opened in their place.
    before: Counted,
}

/// What a stream has counted since it began.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    reached: u64,
    rejected: u64,
    lost: BTreeMap<String, u64>,
}

impl TraceState {
    /// Applies one message of the stream; its hits, each at one of the places.
    ///
    /// # Errors
    ///
    /// Where the message contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchTraceResponse) -> Result<Vec<v1::Hit>, Malformed> {
        let v1::WatchTraceResponse {
            info,
            places,
            hits,
            reached,
            rejected,
            lost,
            frames,
            unseen,
            thread_names,
        } = message;
        if info.is_none_or(|info| info.seq == 0) {
            // A stream names all anew, and counts from its beginning.
            self.places.clear();
            self.frames.clear();
            self.before = Counted {
                reached: self.reached,
                rejected: self.rejected,
                lost: std::mem::take(&mut self.lost),
            };
        }
        if places.len() > MAX_PLACES - self.places.len() {
            return Err(Malformed("more than a million places"));
        }
        if frames.len() > MAX_FRAMES - self.frames.len() {
            return Err(Malformed("more than a million frames"));
        }
        self.places.extend(places);
        self.threads.take(thread_names);
        self.frames
            .extend(frames.into_iter().map(|frame| (frame.id, frame)));
        if hits.iter().any(|hit| self.place(hit).is_none()) {
            return Err(Malformed("a hit at a place that it has not named"));
        }
        let mut stacks = hits.iter().filter_map(|hit| hit.stack.as_ref());
        if stacks.any(|stack| stack.frames.iter().any(|id| !self.frames.contains_key(id))) {
            return Err(Malformed("a stack with a frame that it has not named"));
        }
        self.started = true;
        self.shown = self.shown.saturating_add(hits.len() as u64);
        self.reached = self.before.reached.saturating_add(reached);
        self.rejected = self.before.rejected.saturating_add(rejected);
        self.lost.clone_from(&self.before.lost);
        for (reason, count) in lost {
            let sum = self.lost.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
        self.unseen = unseen.into_iter().collect();
        Ok(hits)
    }

    /// Where a hit was.
    #[must_use]
    pub fn place(&self, hit: &v1::Hit) -> Option<&v1::TracedPlace> {
        self.places.get(usize::try_from(hit.place).ok()?)
    }

    /// The frames of a stack, root first.
    #[must_use]
    pub fn frames<'a>(&'a self, stack: &'a v1::Stack) -> impl DoubleEndedIterator<Item = &'a v1::Frame> {
        stack.frames.iter().filter_map(|id| self.frames.get(id))
    }
}

/// When a run began on the clock that its hits carry: that of this process, unless the first hit cannot have happened
/// by it (in a container with a time namespace the clock is another than the kernel's). All are nanoseconds.
#[must_use]
pub fn origin_ns(began_ns: u64, now_ns: u64, first_hit_ns: u64) -> u64 {
    if (began_ns.saturating_sub(EARLIER_NS)..=now_ns).contains(&first_hit_ns) {
        began_ns
    } else {
        first_hit_ns.saturating_sub(now_ns.saturating_sub(began_ns))
    }
}

/// The time that hits are counted from, given when the run began and the first hits that have come: probes of a session of the
/// run's own are reached as soon as they are there, before its stream begins, and so are lines of any session. A call of a
/// session that was there before may have begun at any time before the run, which its time says.
#[must_use]
pub fn zero_ns(began_ns: u64, first_hits: &[v1::Hit], is_own: bool) -> u64 {
    let belongs = |hit: &&v1::Hit| is_own || hit.duration_ns.is_none();
    let first = first_hits.iter().filter(belongs).map(|hit| hit.ts_ns).min();
    first.map_or(began_ns, |first_ns| began_ns.min(first_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message behind the first.
    fn message(places: usize, hits: &[u32]) -> v1::WatchTraceResponse {
        v1::WatchTraceResponse {
            info: Some(v1::StreamInfo {
                seq: 1,
                ..v1::StreamInfo::default()
            }),
            places: vec![v1::TracedPlace::default(); places],
            hits: hits
                .iter()
                .map(|&place| v1::Hit {
                    place,
                    ..Default::default()
                })
                .collect(),
            reached: 9,
            lost: [("rate_limit".to_owned(), 4)].into(),
            ..Default::default()
        }
    }

    #[test]
    fn places_are_added_and_counts_replaced() {
        let mut state = TraceState::default();
        assert_eq!(state.apply(message(1, &[0, 0])).unwrap().len(), 2);
        assert_eq!(state.apply(message(1, &[1, 0])).unwrap().len(), 2);
        assert_eq!((state.places.len(), state.shown, state.reached), (2, 4, 9));
        assert_eq!(state.lost["rate_limit"], 4);
    }

    #[test]
    fn a_stream_that_begins_anew_names_all_places_again() {
        let mut state = TraceState::default();
        let first = v1::WatchTraceResponse {
            info: Some(v1::StreamInfo {
                seq: 0,
                ..v1::StreamInfo::default()
            }),
            ..message(2, &[1])
        };
        state.apply(first.clone()).unwrap();
        state.apply(message(1, &[2])).unwrap();
        state.apply(first).unwrap();
        assert_eq!((state.places.len(), state.shown), (2, 3));
        // What it counts comes to what the one before has counted.
        assert_eq!((state.reached, state.lost["rate_limit"]), (18, 8));
    }

    #[test]
    fn a_hit_at_no_place_is_refused() {
        let mut state = TraceState::default();
        for (places, place) in [(0, 0), (1, 1), (0, u32::MAX)] {
            assert!(state.apply(message(places, &[place])).is_err());
        }
        assert!(!state.started);
    }

    #[test]
    fn a_stack_is_made_of_frames_that_were_named() {
        let mut state = TraceState::default();
        let with_stack = |named: &[u32], frames: &[u32]| {
            let mut message = message(1, &[0]);
            message.frames = named
                .iter()
                .map(|&id| v1::Frame {
                    id,
                    ..Default::default()
                })
                .collect();
            message.hits[0].stack = Some(v1::Stack {
                frames: frames.to_vec(),
                complete: true,
            });
            message
        };
        assert!(state.apply(with_stack(&[3], &[3, 5])).is_err());
        state.apply(with_stack(&[5], &[3])).unwrap();
        let hits = state.apply(with_stack(&[], &[5, 3, 5])).unwrap();
        let stack = hits[0].stack.as_ref().unwrap();
        let ids: Vec<u32> = state.frames(stack).map(|frame| frame.id).collect();
        assert_eq!(ids, [5, 3, 5]);
    }

    #[test]
    fn the_clock_is_ours_unless_it_cannot_be() {
        const S: u64 = 1_000_000_000;
        assert_eq!(origin_ns(100 * S, 102 * S, 101 * S), 100 * S);
        assert_eq!(
            origin_ns(100 * S, 102 * S, 99 * S),
            100 * S,
            "a call that was open"
        );
        assert_eq!(origin_ns(100 * S, 102 * S, 500 * S), 498 * S);
        assert_eq!(origin_ns(100 * S, 102 * S, 1), 0);
    }

    #[test]
    fn no_hit_of_an_own_session_is_before_zero() {
        let hit = |ts_ns, duration_ns| v1::Hit {
            ts_ns,
            duration_ns,
            ..Default::default()
        };
        // Calls come by their ends.
        let calls = [hit(95, Some(2)), hit(90, Some(20)), hit(105, Some(9))];
        assert_eq!(zero_ns(100, &calls, true), 90);
        assert_eq!(
            zero_ns(100, &calls, false),
            100,
            "they may have begun long before"
        );
        let lines = [hit(99, None), hit(98, None)];
        assert_eq!(zero_ns(100, &lines, false), 98);
        assert_eq!(zero_ns(100, &calls[2..], true), 100);
        assert_eq!(zero_ns(100, &[], true), 100);
    }
}
