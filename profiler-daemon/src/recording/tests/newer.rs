//! What a newer version has recorded, and this one does not know.

use std::collections::BTreeMap;

use super::*;
use crate::session::Losses;

/// Reasons that no version has so far.
const OF_SAMPLES: &str = "sample_of_the_future";
const OF_WAITS: &str = "off_cpu_of_the_future";
const OF_CALLS: &str = "syscall_of_the_future";

/// A recording with all that can be recorded, whose messages a newer version has changed.
fn recorded(path: &Path, change: impl Fn(&mut v1::WatchRecordsResponse)) {
    let mut target = more::target();
    let first = target.first();
    let mut batches = vec![more::with_more(&target, first)];
    batches.extend((0..4).map(|_| more::next(&mut target)));
    let mut messages = Messages::new(true);
    let mut writer = Writer::begin(Vec::new()).unwrap();
    for batch in &batches {
        let mut message = messages.next(batch);
        if batch.to_ns > batch.from_ns {
            change(&mut message);
        }
        writer
            .write(of_records(&message), &message.encode_length_delimited_to_vec())
            .unwrap();
    }
    fs::write(path, writer.into_inner()).unwrap();
}

impl Replay {
    /// Losses by the view that shows them.
    fn lost(&self) -> BTreeMap<&'static str, Losses> {
        let session = self.session("f[>= p95]", 0, u64::MAX).unwrap();
        let request = SpansRequest {
            number: 10,
            waits: true,
            system_calls: false,
        };
        let spans = self.handle.watch_spans(ROOT, session.clone(), 1, request);
        let spans = self.runtime.block_on(spans).unwrap().borrow().clone().unwrap();
        let explained = self.handle.watch_explain(ROOT, session.clone(), 1);
        let explained = self
            .runtime
            .block_on(explained)
            .unwrap()
            .borrow()
            .clone()
            .unwrap();
        let trace = self.trace(&session);
        let of_all = self.session("f", 0, u64::MAX).unwrap();
        let waits = self.handle.watch_waits(ROOT, of_all.clone(), 1);
        let waits = self.runtime.block_on(waits).unwrap().borrow().clone().unwrap();
        let on_cpu = self.flame_of(
            &session,
            FlameRequest::of(Grouping::Function, Some(FlameTimes::OnCpu)),
        );
        BTreeMap::from([
            ("flame", self.flame(&session).unwrap().lost.clone()),
            ("flame --on-cpu", on_cpu.unwrap().lost.clone()),
            ("latency", self.latency(&session).lost.clone()),
            ("spans", spans.lost.clone()),
            ("explain", explained.lost.clone()),
            ("trace", trace.last().unwrap().lost.clone()),
            ("waits", waits.lost.clone()),
            (
                "syscalls",
                self.syscalls(&of_all, Grouping::Function).unwrap().lost.clone(),
            ),
        ])
    }
}

#[test]
fn losses_of_unknown_reasons_are_shown_as_they_say_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, |message| {
        for (reason, count) in [(OF_SAMPLES, 3), (OF_WAITS, 2), ("packet_attempted", 7)] {
            message.counters.insert(reason.to_owned(), count);
        }
        for turn in &mut message.syscalls {
            turn.lost.insert(OF_CALLS.to_owned(), 5);
        }
    });
    for (view, lost) in Replay::of(&path).lost() {
        let of = |reason| lost.get(reason).copied();
        assert_eq!(of(OF_SAMPLES), Some(4 * 3), "{view}: {lost:?}");
        // Waits are not drawn of time on the CPU alone.
        let of_waits = (view != "flame --on-cpu").then_some(4 * 2);
        assert_eq!(of(OF_WAITS), of_waits, "{view}: {lost:?}");
        let of_calls = (view == "syscalls").then_some(4 * 5);
        assert!(of(OF_CALLS) == of_calls, "{view}: {lost:?}");
        assert_eq!(
            of("packet_attempted"),
            None,
            "{view}: it counts what was not lost, too"
        );
    }

    let replay = Replay::comparing(&path, &path);
    let lost = replay.comparison("f", (0, u64::MAX)).unwrap().lost.clone();
    assert_eq!(lost.get(OF_SAMPLES), Some(&(2 * 4 * 3)), "of both: {lost:?}");
}

#[test]
fn unknown_kinds_of_records_are_counted_wherever_they_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, |message| {
        message.records.push(v1::Record { record: None });
        message.hits.push(v1::RecordedHit {
            records_before: 0,
            ..Default::default()
        });
    });
    let lost = Replay::of(&path).lost();
    let of = |view| lost[view].get("newer_format").copied();
    for view in ["flame", "flame --on-cpu", "latency", "waits"] {
        assert_eq!(of(view), Some(4), "{view}: {lost:?}");
    }
    for view in ["trace", "spans", "explain"] {
        assert_eq!(of(view), Some(2 * 4), "{view}, with hits: {lost:?}");
    }
}

#[test]
fn reasons_that_are_no_names_are_counted_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, |message| {
        for reason in ["", "\u{1b}[2J", "a\nlost: none"] {
            message.counters.insert(reason.to_owned(), 1);
        }
    });
    let lost = &Replay::of(&path).lost()["latency"];
    assert_eq!(*lost, Losses::from([("unknown_reason", 4 * 3)]));
}
