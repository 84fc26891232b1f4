//! A small function called at a steady rate: what a span costs, with nothing else going on.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use crate::{
    args::Calls,
    error::Error,
    pace::events_due,
    report::{CallsReport, Output},
    stop::{Signals, Stop},
    switches::Switches,
};

/// Calls between two sleeps are those that fell due in this time.
const BATCH: Duration = Duration::from_millis(1);
/// A thread that cannot keep its rate still looks for the end after so many calls.
const BATCH_CALLS_MAX: u64 = 1 << 16;

/// Calls until told to stop, and reports.
pub fn run(calls: Calls, duration: Option<Duration>, signals: &Signals, output: Output) -> Result<(), Error> {
    let Calls { rate, threads } = calls;
    output.ready(&[("function", "tick")])?;
    let (start, stop) = (Instant::now(), Stop::default());
    let deadline = duration.map(|duration| start + duration);
    let rate_of_thread = f64::from(rate) / f64::from(threads);
    let (waited, made) = thread::scope(|scope| {
        let callers: Vec<_> = (0..threads)
            .map(|_| {
                let stop = stop.clone();
                scope.spawn(move || call(rate_of_thread, start, &stop))
            })
            .collect();
        let waited = signals.wait(deadline);
        stop.set();
        (
            waited,
            callers
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>(),
        )
    });
    let mut calls = 0;
    for made in made {
        calls += made.map_err(|_| Error::Panicked("calling"))?;
    }
    output.calls(&CallsReport {
        elapsed: start.elapsed(),
        calls,
        process: Switches::of_process(),
    })?;
    waited.map(|_| ())
}

fn call(rate: f64, start: Instant, stop: &Stop) -> u64 {
    let (mut calls, mut state) = (0, 0);
    while !stop.asked_before(Instant::now() + BATCH) {
        let due = events_due(rate, start.elapsed()).min(calls + BATCH_CALLS_MAX);
        while calls < due {
            state = tick(state);
            calls += 1;
        }
    }
    black_box(state);
    calls
}

/// The function called: as short as one can be.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn tick(state: u64) -> u64 {
    black_box(state)
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .rotate_left(17)
}
