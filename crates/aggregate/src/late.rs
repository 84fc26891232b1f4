//! Samples whose weight comes later than they do: a request to a device, which is known only where it ends.
//!
//! A sample waits for its weight, and what its thread has to tell after it waits with it, so that a span's end stays
//! behind its samples. Threads do not wait for each other.

use std::collections::{HashMap, VecDeque};

use profiler_common::record::SpanEnd;

/// Samples, and ends of spans behind them, that may wait at once. Beyond it all samples that have no weight yet are given up.
pub const MAX_LATE: usize = 1 << 16;

/// How long a sample waits. Its weight may have been lost.
pub const MAX_LATE_NS: u64 = 60_000_000_000;

/// What a weight names its sample by: when that was taken, and its key.
pub type LateKey = (u64, u64);

/// What is to be taken now, in the order in which it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready<T> {
    /// A sample, and its weight.
    Sample(T, u64),
    /// The end of a span.
    End(SpanEnd),
}

#[derive(Clone, Debug)]
enum Waiting<T> {
    /// With its number, which tells it from another of the same name.
    Sample(LateKey, u64, T),
    End(SpanEnd),
}

/// A sample that waits.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    number: u64,
    /// As far as it is known.
    weight: Option<u64>,
}

/// Samples that wait for their weights.
#[derive(Clone, Debug)]
pub struct Late<T> {
    /// What each thread has told, oldest first; a sample without a weight is first in each.
    threads: HashMap<u32, VecDeque<Waiting<T>>>,
    /// The samples in these, by name; a sample whose number is another's by now was given up.
    awaited: HashMap<LateKey, Awaited>,
    /// Samples so far.
    numbers: u64,
    /// What is in the queues.
    count: usize,
    /// Samples in them that were given up.
    dead: usize,
    /// None that waits for its weight was taken before.
    oldest_ns: u64,
    max: usize,
    given_up: u64,
}

impl<T> Default for Late<T> {
    fn default() -> Self {
        Self::with_limit(MAX_LATE)
    }
}

impl<T> Late<T> {
    /// Nothing yet, with another bound than [`MAX_LATE`].
    #[must_use]
    pub fn with_limit(max: usize) -> Self {
        Self {
            threads: HashMap::new(),
            awaited: HashMap::new(),
            numbers: 0,
            count: 0,
            dead: 0,
            oldest_ns: u64::MAX,
            max,
            given_up: 0,
        }
    }

    /// Takes a sample of a thread; what need not wait any more is handed out.
    pub fn sample(&mut self, tid: u32, key: LateKey, sample: T) -> Vec<Ready<T>> {
        self.oldest_ns = self.oldest_ns.min(key.0);
        self.numbers += 1;
        let number = self.numbers;
        let awaited = Awaited { number, weight: None };
        // The one before of this name has no end of its own any more.
        let is_again = self.awaited.insert(key, awaited).is_some();
        if is_again {
            self.given_up += 1;
            self.dead += 1;
        }
        self.push(tid, Waiting::Sample(key, number, sample));
        let mut ready = if is_again { self.drain(tid) } else { Vec::new() };
        ready.extend(self.keep_within_limit());
        ready
    }

    /// Takes the end of a span: behind its thread's samples, or at once.
    pub fn end(&mut self, end: &SpanEnd) -> Vec<Ready<T>> {
        if !self.threads.contains_key(&end.tid) {
            return vec![Ready::End(*end)];
        }
        self.push(end.tid, Waiting::End(*end));
        self.keep_within_limit()
    }

    /// Takes the weight of a thread's sample; of one that does not wait, this is nothing.
    pub fn weight(&mut self, tid: u32, key: LateKey, weight: u64) -> Vec<Ready<T>> {
        match self.awaited.get_mut(&key) {
            Some(known) => known.weight = Some(weight),
            None => return Vec::new(),
        }
        self.drain(tid)
    }

    /// Gives up samples that were taken before this.
    pub fn expire(&mut self, before_ns: u64) -> Vec<Ready<T>> {
        // Those that were given up hold up who waits behind them; to go over all takes long, and is done where many are.
        let has_dead = self.dead > 0 && (before_ns == u64::MAX || self.dead > self.count / 2);
        if !has_dead && before_ns <= self.oldest_ns {
            return Vec::new();
        }
        let ready = self.give_up(|(ts_ns, _), weight| ts_ns < before_ns && weight.is_none());
        let waiting = self
            .awaited
            .iter()
            .filter(|(_, awaited)| awaited.weight.is_none());
        self.oldest_ns = waiting.map(|((ts_ns, _), _)| *ts_ns).min().unwrap_or(u64::MAX);
        ready
    }

    /// Samples that were given up so far.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    fn push(&mut self, tid: u32, waiting: Waiting<T>) {
        self.threads.entry(tid).or_default().push_back(waiting);
        self.count += 1;
    }

    fn keep_within_limit(&mut self) -> Vec<Ready<T>> {
        if self.count <= self.max {
            return Vec::new();
        }
        self.give_up(|_, weight| weight.is_none())
    }

    /// Gives up the samples of which this holds, and hands out what has waited for them.
    fn give_up(&mut self, is_given_up: impl Fn(LateKey, Option<u64>) -> bool) -> Vec<Ready<T>> {
        let before = self.awaited.len();
        self.awaited
            .retain(|key, awaited| !is_given_up(*key, awaited.weight));
        self.given_up += (before - self.awaited.len()) as u64;
        let awaited = &self.awaited;
        let is_awaited = |waiting: &Waiting<T>| match waiting {
            Waiting::Sample(key, number, _) => {
                awaited.get(key).is_some_and(|awaited| awaited.number == *number)
            }
            Waiting::End(_) => true,
        };
        for queue in self.threads.values_mut() {
            let before = queue.len();
            queue.retain(is_awaited);
            self.count -= before - queue.len();
        }
        self.dead = 0;
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.into_iter().flat_map(|tid| self.drain(tid)).collect()
    }

    /// Hands out what comes before the first sample of a thread that has no weight.
    fn drain(&mut self, tid: u32) -> Vec<Ready<T>> {
        let mut ready = Vec::new();
        let Some(mut queue) = self.threads.remove(&tid) else {
            return ready;
        };
        while let Some(waiting) = queue.pop_front() {
            let (key, number, sample) = match waiting {
                Waiting::End(end) => {
                    self.count -= 1;
                    ready.push(Ready::End(end));
                    continue;
                }
                Waiting::Sample(key, number, sample) => (key, number, sample),
            };
            let known = self.awaited.get(&key).filter(|awaited| awaited.number == number);
            match known.map(|awaited| awaited.weight) {
                Some(None) => {
                    queue.push_front(Waiting::Sample(key, number, sample));
                    break;
                }
                Some(Some(weight)) => {
                    ready.push(Ready::Sample(sample, weight));
                    self.awaited.remove(&key);
                }
                None => self.dead = self.dead.saturating_sub(1),
            }
            self.count -= 1;
        }
        if !queue.is_empty() {
            self.threads.insert(tid, queue);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::probe::ProbeId;
    use proptest::prelude::*;

    use super::*;

    fn end(tid: u32, sequence: u64) -> SpanEnd {
        SpanEnd {
            kind: profiler_common::record::SPAN_END,
            flags: 0,
            tgid: 1,
            tid,
            probe: ProbeId(0),
            hits: 1,
            sequence,
            start_ns: 0,
            end_ns: 0,
            parent: 0,
            gates: 0,
            returned: [0; 2],
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Sample(u32),
        End(u32),
        /// The weight of the nth sample, be it that it has one already or is not there.
        Weight(usize),
        Expire(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u32..3).prop_map(Step::Sample),
            (0u32..3).prop_map(Step::End),
            (0usize..40).prop_map(Step::Weight),
            (0u64..60).prop_map(Step::Expire),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn each_thread_stays_in_order_and_nothing_is_lost_unsaid(steps in steps(), max in 1usize..20) {
            let mut late = Late::with_limit(max);
            let (mut samples, mut ends) = (Vec::new(), 0);
            let mut ready = Vec::new();
            for (at, step) in steps.iter().enumerate() {
                let ts_ns = at as u64;
                ready.extend(match *step {
                    Step::Sample(tid) => {
                        samples.push((tid, (ts_ns, 7)));
                        late.sample(tid, (ts_ns, 7), (tid, ts_ns))
                    }
                    Step::End(tid) => {
                        ends += 1;
                        late.end(&end(tid, ts_ns))
                    }
                    Step::Weight(number) => match samples.get(number) {
                        Some((tid, key)) => late.weight(*tid, *key, key.0 + 100),
                        None => Vec::new(),
                    },
                    Step::Expire(before_ns) => late.expire(before_ns),
                });
                prop_assert!(late.count <= max + 1);
            }
            ready.extend(late.expire(u64::MAX));
            prop_assert!(late.threads.is_empty() && late.awaited.is_empty() && late.count == 0 && late.dead == 0);
            let mut latest = HashMap::new();
            let (mut delivered, mut ended) = (0, 0);
            for item in &ready {
                let (tid, at) = match item {
                    Ready::Sample((tid, ts_ns), weight) => {
                        prop_assert_eq!(*weight, ts_ns + 100, "its own weight");
                        delivered += 1;
                        (*tid, *ts_ns)
                    }
                    Ready::End(end) => {
                        ended += 1;
                        (end.tid, end.sequence)
                    }
                };
                prop_assert!(latest.insert(tid, at).is_none_or(|before| before < at), "in order");
            }
            prop_assert_eq!(ended, ends);
            prop_assert_eq!(delivered + late.given_up(), samples.len() as u64);
        }
    }

    #[test]
    fn an_end_waits_for_the_samples_before_it_and_for_no_others() {
        let mut late = Late::default();
        assert!(late.sample(1, (10, 0), 'a').is_empty());
        assert!(late.end(&end(1, 5)).is_empty());
        assert_eq!(late.end(&end(2, 6)), [Ready::End(end(2, 6))]);
        assert!(late.sample(1, (11, 0), 'b').is_empty());
        assert!(late.weight(1, (11, 0), 3).is_empty(), "the first has none yet");
        assert!(late.weight(1, (12, 0), 3).is_empty(), "of nobody");
        let ready = [
            Ready::Sample('a', 4),
            Ready::End(end(1, 5)),
            Ready::Sample('b', 3),
        ];
        assert_eq!(late.weight(1, (10, 0), 4), ready);
        assert_eq!(late.given_up(), 0);
    }

    #[test]
    fn a_name_that_comes_again_is_another_request() {
        let mut late = Late::default();
        late.sample(1, (10, 0), 'a');
        assert!(late.sample(1, (10, 0), 'b').is_empty());
        assert_eq!(late.weight(1, (10, 0), 4), [Ready::Sample('b', 4)]);
        assert_eq!(late.given_up(), 1);
    }

    #[test]
    fn who_waits_behind_a_name_that_came_again_elsewhere_is_let_go_in_the_end() {
        let mut late = Late::default();
        late.sample(1, (10, 0), 'a');
        assert!(late.end(&end(1, 5)).is_empty());
        assert!(late.sample(2, (10, 0), 'b').is_empty());
        assert_eq!(late.weight(2, (10, 0), 4), [Ready::Sample('b', 4)]);
        assert_eq!(late.expire(u64::MAX), [Ready::End(end(1, 5))]);
        assert_eq!((late.given_up(), late.count), (1, 0));
    }
}
