//! A recorded sample as the thread that names addresses gives one.

use super::super::{records::RecordedSample, symbols::Named};
use crate::kernel::Key;

/// A sample as the thread that names addresses gives it.
pub fn named(sample: RecordedSample) -> Named {
    named_at(sample, Key::default())
}

/// The same of what it was about.
pub fn named_at(sample: RecordedSample, key: Key) -> Named {
    Named::Sample {
        event: 0,
        tgid: sample.tgid,
        tid: sample.tid,
        ts_ns: sample.ts_ns,
        until_ns: sample.ts_ns,
        weight: sample.weight_ns,
        key,
        activity: sample.activity,
        count: u64::from(!sample.continues),
        spans: sample.spans,
        stacks: sample.stacks,
        complete: sample.complete,
        goes_on: false,
        lock: None,
        system_call: sample.system_call,
        task: sample.task,
    }
}
