//! The percentile gate: a flame graph of slow calls holds what made them slow, and nothing else.
//!
//! The fixture's fast calls (94 of 100) compute for 1 ms in `fast_path`, its slow ones for 20 ms in
//! `slow_path`.

use std::sync::Arc;

use profiler_daemon::session::{FlamePicture, SessionInfo};
use tokio::sync::watch;

use super::{
    fixture::{Fixture, small_scale},
    service::{ROOT, Service, Side, share_under},
};

/// Samples that a side is judged by.
fn enough() -> u64 {
    if small_scale() { 200 } else { 1000 }
}

/// A target whose calls take what they compute: where it had to wait for a CPU, a fast call would be slow.
fn target() -> Fixture {
    let target = Fixture::start("slowpath", &[]);
    target.prefer();
    target
}

struct Looking {
    service: Service,
    session: SessionInfo,
    pictures: watch::Receiver<Option<Arc<FlamePicture>>>,
}

impl Looking {
    fn at(target: &mut Fixture, scope: &str) -> Self {
        let service = Service::start();
        let session = service.attach(target.pid(), scope).unwrap();
        let pictures = service.watch_flame(&session);
        target.say("go");
        Self {
            service,
            session,
            pictures,
        }
    }

    fn until(&mut self, condition: impl FnMut(&FlamePicture) -> bool) -> Arc<FlamePicture> {
        self.service.until(&mut self.pictures, condition)
    }

    /// Replaces the scope, and gives the first picture of the new one.
    fn set(&mut self, scope: &str) -> Arc<FlamePicture> {
        let name = self.session.name.clone();
        let set = self.service.handle.set_scope(ROOT, name, scope.to_owned());
        let info = self.service.runtime.block_on(set).unwrap();
        self.until(|picture| *picture.scope == *info.scope)
    }
}

fn consistent(picture: &FlamePicture) {
    let summary = &picture.picture.summary;
    assert_eq!(
        summary.samples,
        summary.inside + summary.outside + summary.elsewhere + summary.open,
        "{summary:?}"
    );
    assert_eq!(
        picture
            .picture
            .weights
            .iter()
            .map(|weight| weight.inside_samples)
            .sum::<u64>(),
        summary.inside
    );
    println!(
        "{}: {} samples, {} inside, {} outside, {} elsewhere, {} open; {:.0} calls, {:.0} inside; from {:?} ns",
        picture.scope,
        summary.samples,
        summary.inside,
        summary.outside,
        summary.elsewhere,
        summary.open,
        summary.calls,
        summary.calls_inside,
        summary.threshold_ns,
    );
}

#[test]
#[ignore = "needs root"]
fn above_the_percentile_there_is_only_the_slow_path() {
    let mut target = target();
    let mut looking = Looking::at(&mut target, "f[>= p95]");
    let picture = looking.until(|picture| {
        let summary = &picture.picture.summary;
        !summary.warming && summary.inside >= enough()
    });
    consistent(&picture);
    let slow = share_under(&picture, Side::Inside, "slow_path");
    assert!(slow >= 0.99, "{slow} of the inside is in slow_path");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_time_between_the_modes_divides_them() {
    let mut target = target();
    let mut looking = Looking::at(&mut target, "f[> 5ms]");
    let picture = looking.until(|picture| {
        let summary = &picture.picture.summary;
        summary.inside >= enough() && summary.outside >= enough()
    });
    consistent(&picture);
    let inside = share_under(&picture, Side::Inside, "slow_path");
    let outside = share_under(&picture, Side::Outside, "slow_path");
    assert!(inside >= 0.99, "{inside} of the inside is in slow_path");
    assert!(outside <= 0.01, "{outside} of the outside is in slow_path");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn moving_the_percentile_redraws_what_is_there() {
    let mut target = target();
    let mut looking = Looking::at(&mut target, "f[>= p95]");
    let above_95 = looking.until(|picture| {
        let summary = &picture.picture.summary;
        !summary.warming && summary.inside >= enough()
    });
    let above_50 = looking.set("f[>= p50]");
    let below_50 = looking.set("f[< p50]");
    let again = looking.set("f[>= p95]");
    let pictures = [&above_95, &above_50, &below_50, &again];
    for picture in pictures {
        consistent(picture);
    }
    for (before, after) in pictures.iter().zip(&pictures[1..]) {
        assert!(
            after.picture.summary.samples >= before.picture.summary.samples,
            "samples were thrown away"
        );
        assert_eq!(before.generation, after.generation, "the picture began anew");
        assert!(before.nodes.len() <= after.nodes.len());
    }
    let slow = |picture| share_under(picture, Side::Inside, "slow_path");
    // Half of the calls at 1 ms, of which some share the bucket of the median, and 6% at 20 ms.
    assert!(slow(&above_95) >= 0.99);
    assert!((0.5..0.9).contains(&slow(&above_50)), "{}", slow(&above_50));
    assert!(slow(&below_50) <= 0.01, "{}", slow(&below_50));
    assert!(slow(&again) >= 0.99, "{}", slow(&again));
    assert!(above_50.picture.summary.inside > above_95.picture.summary.inside);
    assert_eq!(target.finish().status, Some(0));
}
