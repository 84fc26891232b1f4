use super::*;
use proptest::prelude::*;

const SLOW: Band = Band {
    from: 100,
    to: usize::MAX,
};

fn probe(step: usize) -> ProbeId {
    ProbeId::new(u16::try_from(step).unwrap(), 1)
}

fn end(step: usize, sequence: u64, parent: u32, duration_ns: u64) -> SpanEnd {
    SpanEnd {
        kind: profiler_common::record::SPAN_END,
        flags: 0,
        tgid: 1,
        tid: 2,
        probe: probe(step),
        hits: 1,
        sequence,
        start_ns: 1000,
        end_ns: 1000 + duration_ns,
        parent,
        gates: 0,
        returned: [0; 2],
    }
}

fn path(asks: &[bool]) -> Path<u64> {
    let steps = asks
        .iter()
        .enumerate()
        .map(|(step, asks)| (vec![probe(step)], *asks));
    let mut path = Path::new(steps, |_| 1);
    for step in 0..asks.len() {
        path.set_band(step, SLOW);
    }
    path
}

#[test]
fn releases_records_inside_a_slow_span_at_its_end() {
    let mut path = path(&[true, false]);
    assert!(!path.is_joined(probe(0)) && path.is_joined(probe(1)));
    path.wait(1, 2, 7, 0, 1);
    path.wait(1, 2, 7, 0, 2);
    path.wait(1, 2, 8, 0, 3);
    assert_eq!(path.waiting(), 3);
    assert_eq!(path.span_end(&end(0, 7, 0, 200)), [1, 2]);
    assert!(path.span_end(&end(0, 8, 0, 99)).is_empty());
    assert_eq!(path.take_dropped().outside, 1);
    assert_eq!(path.waiting(), 0);
}

#[test]
fn a_span_between_hands_its_records_to_the_outer_span() {
    let mut path = path(&[true, false, false]);
    path.wait(1, 2, 8, 0, 1);
    assert!(path.span_end(&end(1, 8, 7, 5)).is_empty());
    assert_eq!(path.waiting(), 1);
    assert_eq!(path.span_end(&end(0, 7, 0, 200)), [1]);
}

#[test]
fn what_waits_longest_is_given_up_where_the_memory_of_all_would_be_too_much() {
    let mut path = path(&[true]).with_room(100, |bytes| usize::try_from(*bytes).unwrap());
    path.wait(1, 2, 7, 0, 60);
    path.wait(1, 2, 8, 1, 30);
    // There is no room beside the first.
    path.wait(1, 2, 9, 2, 20);
    assert_eq!((path.waiting(), path.take_dropped().join_full), (2, 1));
    // None at all for this one.
    path.wait(1, 2, 10, 3, 101);
    assert_eq!(path.take_dropped().join_full, 3);
    path.wait(1, 2, 11, 4, 100);
    assert_eq!(path.span_end(&end(0, 11, 0, 200)), [100]);
    path.wait(1, 2, 12, 5, 100);
    path.expire(6, 0, |_| true);
    path.wait(1, 2, 13, 7, 100);
    assert_eq!(path.span_end(&end(0, 13, 0, 200)), [100]);
}

#[test]
fn nothing_is_admitted_before_the_band_is_known() {
    let mut path: Path<u64> = Path::new([(vec![probe(0)], true)], |_| 1);
    path.wait(1, 2, 7, 0, 1);
    assert!(path.span_end(&end(0, 7, 0, 200)).is_empty());
}

#[test]
fn an_abandoned_span_drops_its_records() {
    let mut path = path(&[true]);
    path.wait(1, 2, 7, 0, 1);
    let abandoned = SpanEnd {
        flags: SpanEnd::ABANDONED,
        ..end(0, 7, 0, 200)
    };
    assert!(path.span_end(&abandoned).is_empty());
    assert_eq!(path.take_dropped().abandoned, 1);
}

#[test]
fn a_thread_that_is_gone_waits_no_longer() {
    let mut path = path(&[true]);
    path.wait(1, 2, 7, 100, 1);
    path.wait(1, 3, 7, 100, 2);
    path.expire(150, 100, |_| true);
    assert_eq!(path.waiting(), 2);
    path.expire(200, 100, |thread| thread.tid == 2);
    path.expire(299, 100, |thread| thread.tid == 2);
    assert_eq!((path.waiting(), path.take_dropped().expired), (2, 0));
    path.expire(300, 100, |thread| thread.tid == 2);
    assert_eq!((path.waiting(), path.take_dropped().expired), (1, 1));
}

#[test]
fn the_last_end_of_a_thread_may_come_after_it_is_gone() {
    let mut path = path(&[true]);
    path.wait(1, 2, 7, 0, 1);
    // A call that took long, and its thread went right after it.
    path.expire(1_000_000, 100, |_| true);
    assert_eq!(path.span_end(&end(0, 7, 0, 200)), [1]);
    assert_eq!(path.take_dropped(), Dropped::default());
}

#[test]
fn no_more_waits_than_may() {
    let mut path = path(&[true]);
    path.max_waiting = 80;
    for item in 0..85 {
        path.wait(1, 2, 7, 0, item);
    }
    assert_eq!((path.waiting(), path.take_dropped().join_full), (80, 5));
}

#[test]
fn records_of_lost_ends_make_room_for_new_ones() {
    let mut path = path(&[true]);
    path.max_waiting = 80;
    for sequence in 0..1000 {
        path.wait(1, 2, sequence, sequence, sequence);
        assert!(path.waiting() <= 80);
    }
    assert_eq!(path.waiting() + path.take_dropped().join_full, 1000);
    assert_eq!(path.span_end(&end(0, 999, 0, 200)), [999]);
    assert!(path.span_end(&end(0, 1, 0, 200)).is_empty());
}

proptest! {
    /// A tree of spans three steps deep: what is given out is what lies in slow spans only, each once.
    #[test]
    fn given_out_is_what_all_spans_around_admit(
        asks in prop::array::uniform3(any::<bool>()),
        tree in prop::collection::vec(
            (0u64..200, prop::collection::vec(
                (0u64..200, prop::collection::vec((0u64..200, 0usize..4), 0..4)), 0..4)), 0..4),
    ) {
        let mut path = path(&asks);
        let (mut sequence, mut item) = (0, 0);
        let (mut given, mut expected) = (Vec::new(), Vec::new());
        let admits = |step: usize, duration_ns: u64| !asks[step] || SLOW.contains(bucket_of(duration_ns));
        for (outer_ns, middles) in tree {
            sequence += 1;
            let outer = sequence;
            for (middle_ns, inners) in middles {
                sequence += 1;
                let middle = sequence;
                for (inner_ns, items) in inners {
                    sequence += 1;
                    let inner = sequence;
                    for _ in 0..items {
                        item += 1;
                        path.wait(1, 2, inner, 0, item);
                        if admits(0, outer_ns) && admits(1, middle_ns) && admits(2, inner_ns) {
                            expected.push(item);
                        }
                    }
                    given.extend(path.span_end(&end(2, inner, u32::try_from(middle).unwrap(), inner_ns)));
                }
                given.extend(path.span_end(&end(1, middle, u32::try_from(outer).unwrap(), middle_ns)));
            }
            given.extend(path.span_end(&end(0, outer, 0, outer_ns)));
        }
        prop_assert_eq!(given, expected);
        prop_assert_eq!(path.waiting(), 0);
    }
}
