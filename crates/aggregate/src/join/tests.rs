use super::*;

const PROBE: ProbeId = ProbeId(7);
const OTHER: ProbeId = ProbeId(8);

fn span(probe: ProbeId, sequence: u64, start_ns: u64) -> SpanRef {
    SpanRef {
        probe,
        gates: 0,
        sequence,
        start_ns,
    }
}

fn sample(tid: u32, ts_ns: u64, node: u32, spans: &[SpanRef]) -> Sample<'_> {
    Sample {
        tgid: 1,
        tid,
        ts_ns,
        weight_ns: 10,
        count: 1,
        node: NodeId(node),
        spans,
    }
}

fn end(tid: u32, span: SpanRef, end_ns: u64, flags: u32) -> SpanEnd {
    SpanEnd {
        kind: profiler_common::record::SPAN_END,
        flags,
        tgid: 1,
        tid,
        probe: span.probe,
        hits: 1,
        sequence: span.sequence,
        start_ns: span.start_ns,
        end_ns,
        parent: 0,
        gates: 0,
        returned: [0; 2],
    }
}

fn joiner() -> Joiner {
    Joiner::new(vec![Level::from([PROBE])])
}

#[test]
fn a_sample_counts_for_the_outermost_span_of_the_step() {
    let mut joiner = joiner();
    let [caller, outer, inner] = [span(OTHER, 1, 100), span(PROBE, 2, 200), span(PROBE, 3, 300)];
    joiner.sample(&sample(5, 400, 9, &[caller, outer, inner]));
    joiner.sample(&sample(5, 410, 4, &[caller, outer]));
    joiner.sample(&sample(5, 420, 9, &[caller, outer]));
    assert_eq!(joiner.span_end(&end(5, inner, 500, 0)), None);
    assert_eq!(joiner.span_end(&end(6, outer, 500, 0)), None, "another thread's");
    assert_eq!(joiner.open(), 3);
    let ended = joiner.span_end(&end(5, outer, 1200, SpanEnd::SLOW)).unwrap();
    assert_eq!((ended.end_ns, ended.bucket), (1200, bucket_of(1000)));
    let two = Cell {
        weight: 20,
        samples: 2,
    };
    assert_eq!(
        ended.leaves,
        [
            (
                NodeId(4),
                Cell {
                    weight: 10,
                    samples: 1
                }
            ),
            (NodeId(9), two)
        ]
    );
    assert_eq!((joiner.open(), joiner.take_elsewhere()), (0, [0; 3]));
}

#[test]
fn reasons_to_be_elsewhere() {
    let mut joiner = joiner();
    joiner.sample(&sample(5, 400, 9, &[]));
    joiner.sample(&sample(5, 400, 9, &[span(OTHER, 1, 100)]));
    let jumped_over = span(PROBE, 2, 200);
    joiner.sample(&sample(5, 400, 9, &[jumped_over]));
    assert_eq!(
        joiner.span_end(&end(5, jumped_over, 500, SpanEnd::ABANDONED)),
        None
    );
    assert_eq!(joiner.take_elsewhere(), [2, 1, 0]);
    assert_eq!(joiner.take_elsewhere(), [0; 3]);
}

#[test]
fn expires_what_stays_gone() {
    let mut joiner = joiner();
    let [gone, open] = [span(PROBE, 2, 200), span(PROBE, 3, 300)];
    joiner.sample(&sample(5, 400, 9, &[gone]));
    joiner.sample(&sample(6, 400, 9, &[open]));
    let is_gone = |span: &Awaited| span.sequence == 2;
    joiner.expire(1000, 50, is_gone);
    joiner.expire(1049, 50, is_gone);
    assert_eq!(joiner.open(), 2);
    joiner.expire(1049, 50, |_| false);
    joiner.expire(1060, 50, is_gone);
    assert_eq!(joiner.open(), 2, "seen again in between");
    joiner.expire(1110, 50, is_gone);
    assert_eq!((joiner.open(), joiner.take_elsewhere()), (1, [0, 0, 1]));
    assert_eq!(joiner.span_end(&end(5, gone, 2000, 0)), None, "too late");
    assert_eq!(
        joiner
            .awaited()
            .map(|span| (span.tid, span.sequence))
            .collect::<Vec<_>>(),
        [(6, 3)]
    );
}

#[test]
fn a_reused_thread_number_is_another_span() {
    let mut joiner = joiner();
    let [lost, new] = [span(PROBE, 1, 200), span(PROBE, 1, 9000)];
    joiner.sample(&sample(5, 400, 9, &[lost]));
    assert_eq!(
        joiner.span_end(&end(5, new, 9500, 0)),
        None,
        "of a span that has no samples"
    );
    joiner.sample(&sample(5, 9100, 9, &[new]));
    assert_eq!((joiner.open(), joiner.take_elsewhere()), (1, [0, 0, 1]));
    assert_eq!(
        joiner.span_end(&end(5, new, 9500, 0)).unwrap().bucket,
        bucket_of(500)
    );
}

#[test]
fn gives_up_the_longest_unsampled_when_full() {
    let mut joiner = Joiner::with_limit(vec![Level::from([PROBE])], 16);
    let busy = span(PROBE, 0, 100);
    for number in 0..1000u32 {
        joiner.sample(&sample(1, number.into(), 9, &[busy]));
        joiner.sample(&sample(2, number.into(), 9, &[span(PROBE, number.into(), 100)]));
        assert!(joiner.stacks <= 16);
    }
    let [_, _, expired] = joiner.take_elsewhere();
    assert_eq!(joiner.open() + expired, 2000);
    let ended = joiner.span_end(&end(1, busy, 5000, 0)).unwrap();
    assert_eq!(
        ended.leaves,
        [(
            NodeId(9),
            Cell {
                weight: 10_000,
                samples: 1000
            }
        )]
    );
}

#[test]
fn one_span_beyond_the_bound_is_given_up() {
    let mut joiner = Joiner::with_limit(vec![Level::from([PROBE])], 100);
    let long = span(PROBE, 0, 100);
    for node in 1..=10_000 {
        joiner.sample(&sample(1, node.into(), node, &[long]));
        assert!(joiner.stacks <= 100);
    }
    let [_, _, expired] = joiner.take_elsewhere();
    assert_eq!(joiner.open() + expired, 10_000);
}
