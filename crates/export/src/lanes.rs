//! Slices of a thread that follow each other or nest; others lie beside them, in lanes of their own.
//!
//! Readers take the slices of a track as a stack: of two that overlap, the later one has to end first. Calls of a thread do
//! so, but for those that never returned, and what is inside of one and was measured otherwise.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::timeline::{Flow, Instant, Slice, Timeline};

/// A lane of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    /// An index into [`Timeline::threads`].
    pub thread: u32,
    /// Its number there; 0 is the thread's own.
    pub number: u32,
}

/// A step along the events of all threads. Of one thread they are in order of time, and so of each lane.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A slice begins, in a lane of its thread.
    Begin { slice: &'a Slice, lane: Lane },
    /// The slice that began last in the lane ends.
    End { slice: &'a Slice, lane: Lane },
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
        let number = lanes.lane_for(slice.end_ns());
        let lane = Lane::of(slice, number);
        if take(Step::Begin { slice, lane }) {
            lanes.begin(number, slice);
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
    ends: BTreeSet<End>,
    /// Lanes where nothing is open.
    empty: BTreeSet<u32>,
}

/// When the innermost slice of a lane ends; the earliest is the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    end_ns: u64,
    lane: u32,
}

impl Lane {
    fn of(slice: &Slice, number: u32) -> Self {
        Self {
            thread: slice.thread,
            number,
        }
    }
}

impl<'a> Lanes<'a> {
    /// Ends what ends until then, in order.
    fn end_until(&mut self, ns: u64, take: &mut impl FnMut(Step<'a>) -> bool) {
        while let Some(end) = self.ends.first().copied().filter(|end| end.end_ns <= ns) {
            self.ends.remove(&end);
            let lane = end.lane;
            let Some(open) = self.open.get_mut(lane as usize) else {
                continue;
            };
            if let Some(slice) = open.pop() {
                take(Step::End {
                    slice,
                    lane: Lane::of(slice, lane),
                });
            }
            match open.last() {
                Some(outer) => self.ends.insert(End {
                    end_ns: outer.end_ns(),
                    lane,
                }),
                None => self.empty.insert(lane),
            };
        }
    }

    /// The lane of a slice that begins now: inside of that which ends next after it; else one of its own.
    fn lane_for(&self, end_ns: u64) -> u32 {
        let around = self.ends.range(End { end_ns, lane: 0 }..).next();
        let around = around.map(|end| end.lane);
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
            self.ends.remove(&End {
                end_ns: outer.end_ns(),
                lane,
            });
        }
        open.push(slice);
        self.ends.insert(End {
            end_ns: slice.end_ns(),
            lane,
        });
        self.empty.remove(&lane);
    }
}
