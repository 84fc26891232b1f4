use profiler_common::layout::bucket_of;
use proptest::prelude::*;

use super::*;

const WINDOW_NS: u64 = 1000;

fn spans() -> impl Strategy<Value = Vec<Rank>> {
    // Few different durations, so that many are equal.
    prop::collection::vec((0u64..40, 0u64..3000, 0u32..3), 0..300).prop_map(|spans| {
        let numbered = spans.into_iter().zip(1u64..);
        numbered
            .map(|((duration_ns, end_ns, tid), sequence)| Rank {
                duration_ns,
                end_ns,
                tid,
                sequence,
            })
            .collect()
    })
}

/// The slowest of all, by looking at each.
fn naive(spans: &[Rank], wanted: usize, now_ns: u64) -> Vec<Rank> {
    let mut within: Vec<Rank> = spans
        .iter()
        .filter(|span| span.end_ns + WINDOW_NS > now_ns)
        .copied()
        .collect();
    within.sort_by_key(|span| std::cmp::Reverse((span.duration_ns, span.end_ns, span.tid, span.sequence)));
    within.truncate(wanted);
    within
}

fn shown(slowest: &Slowest<u64>, now_ns: u64) -> Vec<Rank> {
    slowest.top(now_ns).map(|(rank, _)| *rank).collect()
}

proptest! {
    #[test]
    fn the_slowest_of_every_window_are_kept_whatever_the_order(
        spans in spans(), wanted in 1usize..12, later in 0u64..2000,
    ) {
        let mut slowest = Slowest::new(wanted, WINDOW_NS);
        for (taken, span) in spans.iter().enumerate() {
            slowest.take(*span, || span.sequence);
            let seen = &spans[..=taken];
            let latest = seen.iter().map(|span| span.end_ns).max().unwrap_or(0);
            prop_assert_eq!(shown(&slowest, latest), naive(seen, wanted, latest));
        }
        let latest = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        for now_ns in [latest, latest + later / 2, latest + later] {
            slowest.expire(now_ns);
            prop_assert_eq!(shown(&slowest, now_ns), naive(&spans, wanted, now_ns));
            prop_assert!(slowest.top(now_ns).all(|(rank, known)| rank.sequence == *known));
        }
        prop_assert_eq!(slowest.left_out(), 0);
    }

    #[test]
    fn it_stays_within_its_bound_and_knows_the_slowest(spans in spans(), wanted in 1usize..8) {
        let mut slowest = Slowest::with_limit(wanted, WINDOW_NS, 10);
        for span in &spans {
            slowest.take(*span, || span.sequence);
            prop_assert!(slowest.kept.len() <= 10);
        }
        // Nothing has left the window: the slowest are there in any case.
        prop_assert_eq!(shown(&slowest, 0), naive(&spans, wanted, 0));
    }

    #[test]
    fn about_as_many_are_recorded_as_asked_for(
        durations in prop::collection::vec(1u64..1 << 40, 1..500), asked in 1usize..100,
    ) {
        let mut calls = Histogram::<u64>::new();
        for ns in &durations {
            calls.record(*ns);
        }
        let from_ns = record_from_ns(&calls, Band::ALL, asked as f64);
        let recorded = durations.iter().filter(|ns| **ns >= from_ns).count();
        if durations.len() < asked {
            prop_assert_eq!(from_ns, 0);
        } else {
            let near = |ns: &&u64| bucket_of(**ns) == bucket_of(from_ns);
            let in_bucket = durations.iter().filter(near).count();
            prop_assert!(recorded + in_bucket >= asked && recorded <= asked + in_bucket);
        }
    }
}

#[test]
fn only_what_may_still_be_shown_is_kept() {
    let mut slowest = Slowest::new(2, WINDOW_NS);
    let rank = |duration_ns, end_ns| Rank {
        duration_ns,
        end_ns,
        tid: 1,
        sequence: end_ns,
    };
    // Each slower than the one before: two are left.
    for n in 0..100 {
        slowest.take(rank(n, n), || ());
    }
    assert_eq!(slowest.kept.len(), 2);
    // Each faster: all may be shown, when those before have left.
    for n in 0..100 {
        slowest.take(rank(50 - n / 2, 100 + n), || ());
    }
    assert_eq!(slowest.kept.len(), 102);
    assert_eq!(slowest.top(199 + WINDOW_NS).count(), 0);
}

#[test]
fn sets_the_recording_limit_by_the_band_and_the_rate() {
    let mut calls = Histogram::<u64>::new();
    (0..100).for_each(|n| calls.record(n * 1_000_000));
    let from = bucket_of(90_000_000);
    let band = Band { from, to: BUCKETS };
    assert_eq!(record_from_ns(&calls, band, 1000.0), lowest_ns(from));
    let from_ns = record_from_ns(&calls, Band { from: 0, to: from }, 5.0);
    assert!(from_ns > 80_000_000 && from_ns < 90_000_000, "{from_ns}");
    assert_eq!(
        record_from_ns(&calls, Band { from: BUCKETS, to: 0 }, 5.0),
        u64::MAX
    );
    assert_eq!(record_from_ns(&Histogram::<u64>::new(), Band::ALL, 5.0), 0);
}

#[test]
fn calls_of_one_duration_are_not_all_recorded() {
    let mut calls = Histogram::<u64>::new();
    calls.add_bucket(bucket_of(1_000_000), 10_000);
    let from_ns = record_from_ns(&calls, Band::ALL, 200.0);
    let (low, width) = (lowest_ns(bucket_of(1_000_000)), width_ns(bucket_of(1_000_000)));
    assert!(from_ns > low + width / 100 * 97 && from_ns < low + width);
}
