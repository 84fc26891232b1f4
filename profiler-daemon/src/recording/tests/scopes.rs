//! Which scopes were recorded is read as if all were.

use super::*;
use crate::recording::{Part, Wanted};

/// When each message is, and the steps of the scope that it tells.
type Told = Vec<(u64, Option<Vec<String>>)>;

fn steps(scope: &RecordedScope) -> Vec<String> {
    scope.steps.iter().map(|step| step.text.clone()).collect()
}

fn by_all(recording: &mut Recording, from_ns: u64) -> Told {
    let wanted = Wanted {
        from_ns,
        by: None,
        also: None,
        answers: None,
    };
    let mut told = Told::new();
    let take = |part: Part, _: &Frames| {
        if let Part::Batch(batch) = part {
            let scope = batch.scope.as_ref().map(|(scope, _)| steps(scope));
            told.push((batch.from_ns, scope));
        }
        true
    };
    recording.read(wanted, &mut Frames::default(), take).unwrap();
    told
}

fn by_heads(recording: &mut Recording, from_ns: u64) -> Told {
    let mut told = Told::new();
    let take = |head: crate::recording::scopes::Told| {
        told.push((head.from_ns, head.scope.as_ref().map(steps)));
        true
    };
    recording.read_scopes(from_ns, take).unwrap();
    told
}

#[test]
fn scopes_are_those_of_all_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let mut batches = vec![target.first(), target.next(), target.next()];
    for text in ["f", "f[n > 1]"] {
        target.scope = Arc::new(scope(text));
        batches.extend([target.next(), target.next()]);
    }
    write(&path, &batches);
    let whole = fs::read(&path).unwrap();
    let times = (0..8).map(|number| BEGIN_NS + number * BATCH_NS / 2);
    let times: Vec<u64> = [0].into_iter().chain(times).collect();
    let mut compared = 0;
    let mut compare = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let Ok(mut recording) = Recording::open(&path) else {
            return;
        };
        for from_ns in &times {
            let all = by_all(&mut recording, *from_ns);
            assert_eq!(by_heads(&mut recording, *from_ns), all, "from {from_ns}");
            compared += all.len();
        }
    };
    compare(&whole);
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        compare(&damaged);
        compare(&whole[..at]);
    }
    assert!(compared > 1000, "{compared}");
}
