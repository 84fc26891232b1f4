//! What calls waited for, and who ended it.

use std::collections::HashMap;

use profiler_aggregate::{
    explain::{Statement, Waited},
    waits::{Lock, Waiting, Waker},
};
use profiler_common::probe::ProbeId;
use profiler_scope::Comparison;
use profiler_symbolize::{FrameId, FrameTable};

use super::{OpenCall, statement::duration};
use crate::session::symbols::NamedWait;

/// Places of waits that are told apart.
const MAX_PLACES: usize = 64;

/// Those who ended waits at a place, that are told apart.
const MAX_WAKERS: usize = 64;

/// Calls that have waited, and not ended.
const MAX_OPEN: usize = 16_384;

/// Who ended so much of the time is who was waited for; who ended this much was so mostly.
const NEARLY_ALL: f64 = 0.9;
const MOST: f64 = 0.5;

/// Where calls wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitPlace {
    /// How; `None` for a CPU.
    waiting: Option<Waiting>,
    /// The function that waited, and its caller.
    functions: [Option<FrameId>; 2],
    /// What for, where that has a name.
    lock: Option<Lock>,
}

impl WaitPlace {
    const CPU: Self = Self {
        waiting: None,
        functions: [None; 2],
        lock: None,
    };
}

/// Who ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    /// Threads of a name, in a function and its caller.
    Thread(FrameId, [Option<FrameId>; 2]),
    Interrupt(FrameId),
}

/// Who ended waits, and of how much of their time.
struct Ended {
    by: By,
    share: f64,
}

/// What is known of a place.
#[derive(Default)]
struct AtPlace {
    feature: usize,
    time_ns: u64,
    by: HashMap<By, u64>,
}

/// How long calls waited, and where.
#[derive(Default)]
pub struct WaitsOfCalls {
    places: HashMap<WaitPlace, AtPlace>,
    /// Of calls that have not ended.
    open: HashMap<OpenCall, Vec<Waited>>,
    /// What calls that began earlier did is not known; `None` where nothing is.
    known_from_ns: Option<u64>,
    /// Calls that began before were forgotten, in part.
    forgotten_until_ns: u64,
    lost: LostWaits,
}

/// What is not known of waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LostWaits {
    /// Waits at places that there was no room for.
    pub full: u64,
    /// Calls whose waits were forgotten before they ended.
    pub forgotten: u64,
    /// Calls whose waits were together longer than they took.
    pub over_duration: u64,
}

impl WaitsOfCalls {
    /// Says since when waits are recorded; `None` where they are not.
    pub fn note_recorded(&mut self, since_ns: Option<u64>) {
        self.known_from_ns = since_ns;
    }

    /// Whether they are.
    pub fn is_recorded(&self) -> bool {
        self.known_from_ns.is_some()
    }

    /// Takes a wait in calls of probes that are looked at. A place that is new becomes a feature.
    pub fn take(
        &mut self,
        named: &NamedWait,
        is_looked_at: impl Fn(ProbeId) -> bool,
        mut feature: impl FnMut(WaitPlace) -> usize,
    ) {
        let calls = || named.spans.iter().filter(|span| is_looked_at(span.probe));
        if named.goes_on || calls().next().is_none() {
            return;
        }
        let wait = &named.wait;
        let [left_ns, woken_ns, back_ns] = wait.times;
        // Where no stack tells where, nothing is told apart.
        let place = wait
            .waiting
            .filter(|_| named.functions[0].is_some())
            .map(|waiting| WaitPlace {
                waiting: Some(waiting),
                functions: named.functions,
                lock: wait.lock.filter(|lock| lock.name.is_some()),
            });
        let by = match &wait.waker {
            Waker::Thread { place, .. } => Some(By::Thread(place.thread, named.waker_functions)),
            Waker::Interrupt(function) => Some(By::Interrupt(*function)),
            Waker::Unseen | Waker::GoesOn(_) => None,
        };
        let parts = [
            (place, woken_ns - left_ns, by),
            (Some(WaitPlace::CPU), back_ns - woken_ns, None),
        ];
        for (place, time_ns, by) in parts {
            let Some(place) = place.filter(|_| time_ns > 0) else {
                continue;
            };
            let Some(feature) = self.add(place, time_ns, by, &mut feature) else {
                continue;
            };
            for call in calls() {
                self.add_to_call(
                    OpenCall::referred(wait.thread.tid, call),
                    feature,
                    time_ns,
                    back_ns,
                );
            }
        }
    }

    /// Adds time to a place; its feature, where there is room for it.
    fn add(
        &mut self,
        place: WaitPlace,
        time_ns: u64,
        by: Option<By>,
        feature: &mut impl FnMut(WaitPlace) -> usize,
    ) -> Option<usize> {
        if self.places.len() >= MAX_PLACES && !self.places.contains_key(&place) {
            self.lost.full += 1;
            return None;
        }
        let known = self.places.entry(place).or_insert_with(|| AtPlace {
            feature: feature(place),
            ..AtPlace::default()
        });
        // Times of a recording that somebody made up have any sum.
        known.time_ns = known.time_ns.saturating_add(time_ns);
        if let Some(by) = by
            && (known.by.len() < MAX_WAKERS || known.by.contains_key(&by))
        {
            let sum = known.by.entry(by).or_default();
            *sum = sum.saturating_add(time_ns);
        }
        Some(known.feature)
    }

    fn add_to_call(&mut self, call: OpenCall, feature: usize, time_ns: u64, now_ns: u64) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&call) {
            self.lost.forgotten += self.open.len() as u64;
            self.open.clear();
            self.forgotten_until_ns = now_ns;
        }
        let times = self.open.entry(call).or_default();
        let time_ns = time_ns as f64;
        match times.iter_mut().find(|known| known.feature == feature) {
            Some(known) => known.time_ns += time_ns,
            None => times.push(Waited { feature, time_ns }),
        }
    }

    /// How long a call waited that has ended, from `start_ns` to `end_ns`, by feature; `None` where that is not known.
    pub fn of_call(&mut self, call: OpenCall, [start_ns, end_ns]: [u64; 2]) -> Option<Box<[Waited]>> {
        let times = self.open.remove(&call).unwrap_or_default();
        let is_known = self.known_from_ns.is_some_and(|from_ns| start_ns >= from_ns)
            && start_ns >= self.forgotten_until_ns;
        if !is_known {
            return None;
        }
        let waited_ns: f64 = times.iter().map(|waited| waited.time_ns).sum();
        if waited_ns > end_ns.saturating_sub(start_ns) as f64 {
            self.lost.over_duration += 1;
            return None;
        }
        Some(times.into())
    }

    /// What is not known.
    pub fn lost(&self) -> LostWaits {
        self.lost
    }

    /// A statement about a place in words.
    pub fn text(&self, place: WaitPlace, statement: Statement, frames: &FrameTable) -> String {
        let name = |frame: FrameId| {
            frames
                .get(frame.0 as usize)
                .map_or_else(String::new, |frame| frame.function.to_string())
        };
        let bound = match statement {
            Statement::Above(bound_ns) if bound_ns > 0.0 => Some(duration(Comparison::Greater, bound_ns)),
            Statement::AtMost(bound_ns) if bound_ns > 0.0 => {
                Some(duration(Comparison::LessOrEqual, bound_ns))
            }
            _ => None,
        };
        let bound = bound.map_or_else(String::new, |bound| bound.to_string());
        let verb = match (matches!(statement, Statement::AtMost(0.0)), place.waiting) {
            (true, Some(Waiting::Stopped)) => "is never stopped",
            (true, Some(Waiting::Uninterruptible)) => "never waits uninterruptible",
            (true, _) => "never waits",
            (false, Some(Waiting::Stopped)) => "is stopped",
            (false, Some(Waiting::Uninterruptible)) => "waits uninterruptible",
            (false, _) => "waits",
        };
        if place.waiting.is_none() {
            return format!("{verb}{bound} for a CPU");
        }
        let names = |functions: [Option<FrameId>; 2]| {
            let names: Vec<String> = functions.into_iter().flatten().map(name).collect();
            names.join(" < ")
        };
        let functions = names(place.functions);
        let lock = place.lock.and_then(|lock| lock.name);
        let lock = lock.map_or_else(String::new, |lock| format!(" [lock {}]", name(lock)));
        let by = self
            .mostly_by(place)
            .map_or_else(String::new, |Ended { by, share }| {
                let mostly = if share < NEARLY_ALL { " mostly" } else { "" };
                match by {
                    By::Thread(thread, [None, _]) => format!("{mostly} for {}", name(thread)),
                    By::Thread(thread, at) => format!("{mostly} for {} at {}", name(thread), names(at)),
                    By::Interrupt(function) => format!(",{mostly} ended by [interrupt] {}", name(function)),
                }
            });
        format!("{verb}{bound} in {functions}{lock}{by}")
    }

    /// Who ended most of the waits at a place.
    fn mostly_by(&self, place: WaitPlace) -> Option<Ended> {
        let known = self.places.get(&place)?;
        let (by, time_ns) = known.by.iter().max_by_key(|(_, time_ns)| **time_ns)?;
        let share = *time_ns as f64 / known.time_ns.max(1) as f64;
        (share >= MOST).then_some(Ended { by: *by, share })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_aggregate::{
        ThreadId,
        waits::{Place, Wait},
    };
    use profiler_common::record::SpanRef;
    use profiler_symbolize::Frame;

    use super::*;

    const PROBE: ProbeId = ProbeId(3);

    fn call(tid: u32, number: u32) -> OpenCall {
        OpenCall { tid, number }
    }

    fn waited(feature: usize, time_ns: f64) -> Waited {
        Waited { feature, time_ns }
    }

    /// A wait of a thread in a call, which a thread of this name ended.
    fn wait(sequence: u64, times: [u64; 3], waker: u32) -> NamedWait {
        let place = |thread| Place {
            thread: FrameId(thread),
            stack: Arc::new([]),
        };
        NamedWait {
            wait: Wait {
                still_ns: None,
                thread: ThreadId { tgid: 1, tid: 2 },
                place: place(0),
                waiting: Some(Waiting::Sleeping),
                lock: Some(Lock {
                    memory: None,
                    process: 1,
                    address: 0x1000,
                    name: Some(FrameId(3)),
                    allocated: None,
                }),
                times,
                waker: Waker::Thread {
                    thread: ThreadId { tgid: 1, tid: 9 },
                    place: place(waker),
                    is_own: true,
                },
            },
            spans: vec![SpanRef {
                probe: PROBE,
                gates: 0,
                sequence,
                start_ns: 0,
            }],
            functions: [Some(FrameId(1)), Some(FrameId(2))],
            waker_functions: [Some(FrameId(4)), Some(FrameId(7))],
            goes_on: false,
        }
    }

    fn frames() -> FrameTable {
        let frame = |name: &&str| Frame {
            function: (*name).into(),
            file: "".into(),
            line: 0,
            module: "".into(),
            inlined: false,
            kernel: false,
            unresolved: None,
            nameable: None,
        };
        [
            "",
            "mutex_lock",
            "enter",
            "table",
            "unlock",
            "keeper",
            "clerk-*",
            "keep",
        ]
        .iter()
        .map(frame)
        .collect()
    }

    #[test]
    fn waits_are_those_of_their_call() {
        let mut places = Vec::new();
        let mut waits = WaitsOfCalls::default();
        let mut take = |waits: &mut WaitsOfCalls, wait: &NamedWait| {
            waits.take(
                wait,
                |probe| probe == PROBE,
                |place| {
                    places.push(place);
                    places.len() - 1
                },
            );
        };
        waits.note_recorded(Some(10));
        take(&mut waits, &wait(7, [20, 50, 54], 5));
        take(&mut waits, &wait(7, [60, 70, 70], 6));
        take(&mut waits, &wait(8, [80, 130, 130], 5));
        let elsewhere = NamedWait {
            spans: Vec::new(),
            ..wait(7, [20, 50, 54], 5)
        };
        take(&mut waits, &elsewhere);
        // The second part is without a CPU.
        assert_eq!(
            waits.of_call(call(2, 7), [15, 59]).as_deref(),
            Some(&[waited(0, 40.0), waited(1, 4.0)][..]),
            "it waited from its beginning to its end"
        );
        assert_eq!(
            waits.of_call(call(2, 7), [15, 70]).as_deref(),
            Some(&[][..]),
            "it has ended"
        );
        assert_eq!(waits.of_call(call(2, 8), [9, 130]), None, "it began before");
        let text = |place: usize, statement| waits.text(places[place], statement, &frames());
        assert_eq!(
            text(0, Statement::Above(2_100_000.0)),
            "waits[> 2.1ms] in mutex_lock < enter [lock table] mostly for keeper at unlock < keep"
        );
        assert_eq!(text(1, Statement::Above(0.0)), "waits for a CPU");
        assert_eq!(text(1, Statement::AtMost(0.0)), "never waits for a CPU");
        assert_eq!(waits.lost(), LostWaits::default());
    }

    #[test]
    fn of_a_call_that_waited_longer_than_it_took_it_is_not_known_how_long() {
        let mut waits = WaitsOfCalls::default();
        waits.note_recorded(Some(0));
        for sequence in 1..3 {
            waits.take(&wait(sequence, [20, 60, 63], 5), |_| true, |_| 0);
        }
        assert_eq!(waits.of_call(call(2, 1), [20, 62]), None);
        assert_eq!(
            waits.of_call(call(2, 2), [20, 63]).as_deref(),
            Some(&[waited(0, 43.0)][..])
        );
        let lost = LostWaits {
            over_duration: 1,
            ..LostWaits::default()
        };
        assert_eq!(waits.lost(), lost);
    }

    #[test]
    fn times_that_were_made_up_have_a_sum() {
        let mut waits = WaitsOfCalls::default();
        waits.note_recorded(Some(0));
        for sequence in 1..3 {
            waits.take(&wait(sequence, [0, u64::MAX, u64::MAX], 5), |_| true, |_| 0);
        }
        assert!(waits.of_call(call(2, 2), [0, u64::MAX]).is_some());
    }

    #[test]
    fn counts_places_and_calls_beyond_the_limits() {
        let mut waits = WaitsOfCalls::default();
        waits.note_recorded(Some(0));
        for function in (0..).take(MAX_PLACES + 5) {
            let elsewhere = NamedWait {
                functions: [Some(FrameId(100 + function)), None],
                ..wait(1, [0, 10, 10], 5)
            };
            waits.take(&elsewhere, |probe| probe == PROBE, |_| 0);
        }
        let mut lost = LostWaits {
            full: 5,
            ..LostWaits::default()
        };
        assert_eq!(waits.lost(), lost);
        for sequence in 2..=MAX_OPEN as u64 {
            let mut other = wait(sequence, [0, 10, 10], 5);
            other.functions = [Some(FrameId(100)), None];
            waits.take(&other, |probe| probe == PROBE, |_| 0);
        }
        let mut last = wait(u64::from(u32::MAX), [20, 30, 30], 5);
        last.functions = [Some(FrameId(100)), None];
        waits.take(&last, |probe| probe == PROBE, |_| 0);
        lost.forgotten = MAX_OPEN as u64;
        assert_eq!(waits.lost(), lost);
        // What earlier calls did is not known any more.
        assert_eq!(waits.of_call(call(2, 5), [29, 40]), None);
        assert!(waits.of_call(call(2, 5), [30, 40]).is_some());
    }
}
