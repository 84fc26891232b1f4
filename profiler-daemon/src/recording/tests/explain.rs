//! What slow calls of recordings that were made up do that others do not.

use profiler_plan::values::{Reading, Value};

use super::*;
use crate::session::{ExplainPicture, RecordedLook};

impl Replay {
    fn explain(&self, scope: &str, begin_ns: u64, end_ns: u64) -> Result<Arc<ExplainPicture>, String> {
        let session = self.session(scope, begin_ns, end_ns)?;
        let watch = self.handle.watch_explain(ROOT, session, 1);
        let pictures = self.runtime.block_on(watch).map_err(|error| error.to_string())?;
        Ok(pictures.borrow().clone().unwrap())
    }
}

fn finding<'a>(picture: &'a ExplainPicture, text: &str) -> &'a crate::session::Explained {
    let mut findings = picture.findings.iter();
    let found = findings.find(|finding| finding.text.contains(text));
    found.unwrap_or_else(|| panic!("no {text}: {:?}", picture.findings))
}

/// A recording of 40 batches, whose slow calls read another value than others; `is_kept` says whose ends were recorded.
fn with_values(path: &Path, is_kept: impl Fn(u64) -> bool) {
    let mut target = more::target();
    let first = target.first();
    let mut batches = vec![more::with_more(&target, first)];
    for _ in 0..40 {
        let batch = more::next(&mut target);
        let number = |record: &Recorded| match record {
            Recorded::Sample(sample) => sample.spans[0].sequence,
            Recorded::SpanEnd(end) | Recorded::Call(end, _) => end.sequence,
            _ => CALLS,
        };
        let records = batch.records.iter().filter(|record| is_kept(number(record)));
        let records = records.cloned().map(|record| match record {
            Recorded::Call(end, look) => {
                let is_slow = end.sequence % CALLS == 0;
                let value = if is_slow { 900 } else { end.sequence % 7 };
                let values = vec![Reading::Ok(Value::Signed(value.into()))];
                Recorded::Call(end, RecordedLook { values, ..look })
            }
            record => record,
        });
        let records = Arc::new(records.collect());
        batches.push(RecordBatch { records, ..batch });
    }
    write(path, &batches);
}

#[test]
fn slow_calls_are_told_from_others_by_values_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_values(&path, |_| true);
    let replay = Replay::of(&path);
    let picture = replay.explain("f[>= p97]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (40, 40 * (CALLS - 1)));
    assert_eq!((picture.calls, picture.looked_at), (40 * CALLS, 40 * CALLS));
    let value = finding(&picture, "n > ");
    assert!(value.difference.low > 0.5, "{value:?}");
    assert_eq!((value.slow.have, value.other.have), (value.slow.of, 0));
    assert!(
        value.next.as_ref().unwrap().starts_with("f[>= p97][n > "),
        "{value:?}"
    );
    let sampled = finding(&picture, "samples in slow");
    assert!(
        sampled.difference.low > 0.5 && sampled.next.is_none(),
        "{sampled:?}"
    );
    let left_out = format!("{:?}", picture.left_out);
    assert!(
        left_out.contains("--calls") && !left_out.contains("--print"),
        "{left_out}"
    );
    // A part has fewer.
    let part = replay.explain("f[>= p97]", 0, 20 * BATCH_NS).unwrap();
    assert_eq!(part.calls, 20 * CALLS);
}

/// Half of the calls are no less numerous for being told by their number alone.
#[test]
fn calls_that_were_only_counted_are_compared_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_values(&path, |number| number % CALLS == 0 || number % 2 == 0);
    let replay = Replay::of(&path);
    let picture = replay.explain("f[>= 5ms]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (40, 40 * (CALLS - 1)));
    let value = finding(&picture, "n > ");
    // Of those, no value is known. The bound is found on every second of the others.
    assert!(value.other.of < 40 * CALLS / 2, "{value:?}");
    assert!(value.difference.low > 0.5, "{value:?}");
}

#[test]
fn a_scope_that_does_not_say_what_is_slow_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    with_values(&path, |_| true);
    let refused = Replay::of(&path).explain("f", 0, u64::MAX).unwrap_err();
    assert!(refused.contains("say which calls are slow"), "{refused}");
}

#[test]
fn time_in_calls_inside_tells_slow_calls_from_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let durations: Vec<u64> = (0..200)
        .map(|number| if number % 10 == 0 { 60 } else { 2 })
        .collect();
    write(&path, &calls_inside("a[>= 0ns]/b", &durations));
    let replay = Replay::of(&path);
    let picture = replay.explain("a[> 10ms]", 0, u64::MAX).unwrap();
    assert_eq!((picture.slow.calls, picture.other.calls), (20, 180));
    let inside = finding(&picture, "b[> ");
    assert!(inside.difference.low > 0.5, "{inside:?}");
    let (slow, other) = inside.means.unwrap();
    assert!(
        (slow - 30e6).abs() < 1.0 && (other - 1e6).abs() < 1.0,
        "{slow} {other}"
    );
    assert!(
        inside.next.as_ref().unwrap().starts_with("a[> 10ms]/b[> "),
        "{inside:?}"
    );
    let with_both = replay.explain("a[> 10ms]/b[> 1ms]", 0, u64::MAX).unwrap_err();
    assert!(with_both.contains("no other step has one"), "{with_both}");
}
