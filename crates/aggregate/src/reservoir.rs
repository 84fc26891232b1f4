//! Bounded, fair selections of ended spans, for views that need single spans.

use super::{calltree::NodeId, slots::WindowConfig};
use std::{collections::VecDeque, sync::Arc};

/// Spans kept of a whole run, and in all slots of an age together.
pub const MAX_SPANS: usize = 32_768;

/// (Span, stack) pairs kept in one selection: spans of minutes have thousands.
pub const MAX_LEAVES: usize = 1 << 18;

/// A span that samples hit, after its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledSpan {
    /// When it ended.
    pub end_ns: u64,
    /// The bucket of its duration.
    pub bucket: usize,
    /// Samples taken in it.
    pub samples: u64,
    /// Sampled time by stack; each stack once.
    pub leaves: Box<[(NodeId, u64)]>,
}

impl SampledSpan {
    /// All its sampled time.
    #[must_use]
    pub fn weight_ns(&self) -> u64 {
        self.leaves.iter().map(|&(_, ns)| ns).sum()
    }
}

/// A small generator of random numbers (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014: `SplitMix64`). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// How often what has this chance, between 0 and 1, fails before it happens.
    pub fn failures(&mut self, chance: f64) -> u64 {
        let uniform = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and beyond the largest number it is that"
        )]
        let failures = ((1.0 - uniform).ln() / (-chance).ln_1p()) as u64;
        failures
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}

/// A uniform random selection of all spans shown to it (Vitter's algorithm R, "Random Sampling with
/// a Reservoir", 1985).
#[derive(Clone, Debug)]
pub struct Reservoir {
    spans: Vec<Arc<SampledSpan>>,
    seen: u64,
    max_spans: usize,
    leaves: usize,
    max_leaves: usize,
    random: Random,
}

impl Reservoir {
    /// An empty selection of at most so many spans, with at most so many stacks altogether.
    #[must_use]
    pub fn new(max_spans: usize, max_leaves: usize, seed: u64) -> Self {
        Self {
            spans: Vec::new(),
            seen: 0,
            max_spans,
            leaves: 0,
            max_leaves,
            random: Random::new(seed),
        }
    }

    /// Shows it a span.
    pub fn add(&mut self, span: Arc<SampledSpan>) {
        self.seen += 1;
        let leaves = span.leaves.len();
        if self.spans.len() < self.max_spans {
            self.spans.push(span);
        } else {
            let place = usize::try_from(self.random.below(self.seen)).unwrap_or(usize::MAX);
            let Some(kept) = self.spans.get_mut(place) else {
                return;
            };
            self.leaves -= kept.leaves.len();
            *kept = span;
        }
        self.leaves += leaves;
        // What is left after random ones are gone is a uniform selection too, only smaller.
        while self.leaves > self.max_leaves && self.spans.len() > 1 {
            let place = self.random.index(self.spans.len());
            self.leaves -= self.spans.swap_remove(place).leaves.len();
            self.max_spans = self.spans.len();
        }
    }

    /// The spans selected.
    pub fn spans(&self) -> impl Iterator<Item = &SampledSpan> {
        self.spans.iter().map(Arc::as_ref)
    }

    /// How many spans each of the selected stands for.
    #[must_use]
    pub fn stands_for(&self) -> f64 {
        self.seen as f64 / self.spans.len().max(1) as f64
    }
}

/// A selection for each slot of time, so that old ones can leave.
#[derive(Clone, Debug)]
pub struct RecentSpans {
    config: WindowConfig,
    slots: VecDeque<(u64, Reservoir)>,
    seed: u64,
}

impl RecentSpans {
    /// Empty.
    #[must_use]
    pub fn new(config: WindowConfig, seed: u64) -> Self {
        Self {
            config,
            slots: VecDeque::new(),
            seed,
        }
    }

    /// Shows it a span that has just ended.
    pub fn add(&mut self, span: Arc<SampledSpan>) {
        let slot = self.config.slot_of(span.end_ns);
        let first = self.config.first_slot(span.end_ns);
        while self.slots.pop_front_if(|(old, _)| *old < first).is_some() {}
        if self.slots.back().is_none_or(|(newest, _)| *newest < slot) {
            let slots = self.config.slots.max(1) as usize;
            let seed = self.seed ^ slot.rotate_left(32);
            self.slots.push_back((
                slot,
                Reservoir::new(MAX_SPANS / slots + 1, MAX_LEAVES / slots + 1, seed),
            ));
        }
        // A span that ended a little before the newest slot began counts there.
        if let Some((_, newest)) = self.slots.back_mut() {
            newest.add(span);
        }
    }

    /// The spans at `now_ns`, each with the number that it stands for.
    pub fn spans(&self, now_ns: u64) -> impl Iterator<Item = (f64, &SampledSpan)> {
        let first = self.config.first_slot(now_ns);
        let live = self.slots.iter().skip_while(move |(slot, _)| *slot < first);
        live.flat_map(|(_, slot)| slot.spans().map(|span| (slot.stands_for(), span)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(number: u64, leaves: usize) -> Arc<SampledSpan> {
        let leaves = vec![(NodeId(1), 1); leaves].into_boxed_slice();
        Arc::new(SampledSpan {
            end_ns: number,
            bucket: 0,
            samples: 1,
            leaves,
        })
    }

    #[test]
    fn every_span_is_as_likely() {
        let mut kept = [0u32; 50];
        for seed in 0..4000 {
            let mut reservoir = Reservoir::new(10, 1000, seed);
            (0..50).for_each(|number| reservoir.add(span(number, 1)));
            assert_eq!((reservoir.spans().count(), reservoir.stands_for()), (10, 5.0));
            reservoir
                .spans()
                .for_each(|span| kept[usize::try_from(span.end_ns).unwrap()] += 1);
        }
        // Binomial of 4000 times 1/5: a standard deviation of 25.
        assert!(kept.iter().all(|&times| times.abs_diff(800) < 5 * 25), "{kept:?}");
    }

    #[test]
    fn long_spans_do_not_break_the_bound() {
        let mut reservoir = Reservoir::new(100, 1000, 1);
        for number in 0..1000 {
            reservoir.add(span(number, 90));
            assert!(reservoir.spans().map(|span| span.leaves.len()).sum::<usize>() <= 1000);
        }
        assert_eq!(reservoir.spans().count(), 11);
    }

    #[test]
    fn recent_spans_leave_with_their_slot() {
        let mut recent = RecentSpans::new(
            WindowConfig {
                window_ns: 100,
                slots: 10,
            },
            1,
        );
        (0..300).for_each(|number| recent.add(span(number, 1)));
        assert_eq!(recent.spans(299).count(), 100);
        assert_eq!(recent.spans(300).count(), 90);
        assert_eq!(recent.spans(400).count(), 0);
    }
}
