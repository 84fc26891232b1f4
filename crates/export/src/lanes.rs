//! Slices of a thread that follow each other or nest; others lie beside them, in lanes of their own.
//!
//! Readers take the slices of a track as a stack: of two that overlap, the later one has to end first. Calls of a thread do
//! so, but for those that never returned, and what is inside of one and was measured otherwise.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::timeline::{Flow, Instant, Slice, Timeline};

/// A step along the events of all threads. Of one thread they are in order of time, and so of each lane.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A slice begins, in a lane of its thread; 0 is the thread's own.
    Begin { slice: &'a Slice, lane: u32 },
    /// The slice that began last in the lane ends.
    End { slice: &'a Slice, lane: u32 },
    /// Something happens on the thread.
    Instant(&'a Instant),
}

/// Hands all events to `take`, those that begin first before others. What it refuses (by `false`) is in no lane, and does
/// not end.
pub fn walk<'a>(timeline: &'a Timeline, mut take: impl FnMut(Step<'a>) -> bool) {
    let mut threads: Vec<Lanes<'a>> = Vec::new();
    threads.resize_with(timeline.threads.len(), Lanes::default);
    let mut slices: Vec<u32> = numbers(timeline.slices.len());
    let slice = |number: u32| &timeline.slices[number as usize];
    // Of two that begin together the longer one is around the other; of equals, that which came later, as it ended later.
    slices.sort_unstable_by_key(|number| {
        let slice = slice(*number);
        (slice.began_ns, Reverse(slice.end_ns()), Reverse(*number))
    });
    let mut instants: Vec<u32> = numbers(timeline.instants.len());
    let instant = |number: u32| &timeline.instants[number as usize];
    // Readers know of a flow once it has begun.
    instants.sort_by_key(|number| {
        let instant = instant(*number);
        (instant.at_ns, matches!(instant.flow, Some(Flow::Ends(_))))
    });
    let mut instants = instants.into_iter().map(instant).peekable();

    for slice in slices.into_iter().map(slice) {
        while let Some(instant) = instants.next_if(|instant| instant.at_ns < slice.began_ns) {
            happen(&mut threads, instant, &mut take);
        }
        let Some(lanes) = threads.get_mut(slice.thread as usize) else {
            continue;
        };
        lanes.end_until(slice.began_ns, &mut take);
        let lane = lanes.lane_for(slice.end_ns());
        if take(Step::Begin { slice, lane }) {
            lanes.begin(lane, slice);
        }
    }
    for instant in instants {
        happen(&mut threads, instant, &mut take);
    }
    for mut lanes in threads {
        lanes.end_until(u64::MAX, &mut take);
    }
}

fn happen<'a>(threads: &mut [Lanes<'a>], instant: &'a Instant, take: &mut impl FnMut(Step<'a>) -> bool) {
    if let Some(lanes) = threads.get_mut(instant.thread as usize) {
        // What ends at that moment is still around it.
        if let Some(before) = instant.at_ns.checked_sub(1) {
            lanes.end_until(before, take);
        }
        take(Step::Instant(instant));
    }
}

fn numbers(length: usize) -> Vec<u32> {
    (0..u32::try_from(length).unwrap_or(u32::MAX)).collect()
}

/// What is open on a thread.
#[derive(Default)]
struct Lanes<'a> {
    /// Of each lane, the innermost last.
    open: Vec<Vec<&'a Slice>>,
    /// When the innermost slice of a lane ends, and the lane.
    ends: BTreeSet<(u64, u32)>,
    /// Lanes where nothing is open.
    empty: BTreeSet<u32>,
}

impl<'a> Lanes<'a> {
    /// Ends what ends until then, in order.
    fn end_until(&mut self, ns: u64, take: &mut impl FnMut(Step<'a>) -> bool) {
        while let Some((end_ns, lane)) = self.ends.first().copied().filter(|(end_ns, _)| *end_ns <= ns) {
            self.ends.remove(&(end_ns, lane));
            let Some(open) = self.open.get_mut(lane as usize) else {
                continue;
            };
            if let Some(slice) = open.pop() {
                take(Step::End { slice, lane });
            }
            match open.last() {
                Some(outer) => self.ends.insert((outer.end_ns(), lane)),
                None => self.empty.insert(lane),
            };
        }
    }

    /// The lane of a slice that begins now: inside of that which ends next after it; else one of its own.
    fn lane_for(&self, end_ns: u64) -> u32 {
        let around = self.ends.range((end_ns, 0)..).next().map(|(_, lane)| *lane);
        around
            .or_else(|| self.empty.first().copied())
            .unwrap_or_else(|| u32::try_from(self.open.len()).unwrap_or(u32::MAX))
    }

    fn begin(&mut self, lane: u32, slice: &'a Slice) {
        if lane as usize == self.open.len() {
            self.open.push(Vec::new());
        }
        let Some(open) = self.open.get_mut(lane as usize) else {
            return;
        };
        if let Some(outer) = open.last() {
            self.ends.remove(&(outer.end_ns(), lane));
        }
        open.push(slice);
        self.ends.insert((slice.end_ns(), lane));
        self.empty.remove(&lane);
    }
}
