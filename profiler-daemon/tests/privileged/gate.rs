//! The percentile gate: a flame graph of slow calls holds what made them slow, and nothing else.
//!
//! The fixture's fast calls (94 of 100) compute for 1 ms in `fast_path`, its slow ones for 20 ms in
//! `slow_path`.

use profiler_daemon::session::{FlamePicture, Numbered, Pictures, SessionInfo};

use super::{
    fixture::{Fixture, small_scale},
    service::{ROOT, Service, Side, time_under},
};

/// How much of a side may be wrong.
const TOLERANCE: f64 = 0.01;

/// Samples that a side is judged by.
fn enough() -> u64 {
    if small_scale() { 200 } else { 1000 }
}

/// A target whose calls take what they compute, as far as this machine can do that.
fn target() -> Fixture {
    let target = Fixture::start("slowpath", &[]);
    target.prefer();
    target
}

struct Looking {
    service: Service,
    session: SessionInfo,
    pictures: Pictures<FlamePicture>,
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

    fn until(&mut self, condition: impl FnMut(&FlamePicture) -> bool) -> Numbered<FlamePicture> {
        self.service.until(&mut self.pictures, condition)
    }

    /// Replaces the scope, and gives the first picture of the new one.
    fn set(&mut self, scope: &str) -> Numbered<FlamePicture> {
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

/// Lets it end; gives the time of its fast calls that had to wait for a CPU, and so were slow.
fn delayed_ns(target: Fixture) -> u64 {
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    let delayed = ended
        .output
        .lines()
        .find_map(|line| line.strip_prefix("delayed "));
    delayed.expect("delayed").parse().unwrap()
}

/// The inside is the slow path, the calls that waited, and next to nothing else.
fn only_slow(picture: &FlamePicture, delayed_ns: u64) {
    let (slow_ns, all_ns) = time_under(picture, Side::Inside, "slow_path");
    let allowed_ns = all_ns as f64 * TOLERANCE + delayed_ns as f64;
    println!("inside: {slow_ns} of {all_ns} ns in slow_path, {delayed_ns} ns of fast calls delayed");
    assert!(
        (all_ns - slow_ns) as f64 <= allowed_ns,
        "{slow_ns} of {all_ns} ns"
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
    only_slow(&picture, delayed_ns(target));
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
    only_slow(&picture, delayed_ns(target));
    let outside = share(&picture, Side::Outside);
    assert!(outside <= TOLERANCE, "{outside} of the outside is in slow_path");
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
    let delayed_ns = delayed_ns(target);
    only_slow(&above_95, delayed_ns);
    only_slow(&again, delayed_ns);
    // The slow calls, and the longer half of the fast ones: the slow path has a larger share of their time than of all
    // calls' time. On which side of the median a call of just 1 ms falls depends on how well it is known what a sample took
    // of it, so that most may be missing.
    let [inside, outside] =
        [Side::Inside, Side::Outside].map(|side| time_under(&above_50, side, "slow_path"));
    let of_all = (inside.0 + outside.0) as f64 / (inside.1 + outside.1) as f64;
    let of_inside = share(&above_50, Side::Inside);
    println!("slow_path: {of_inside} above the median, {of_all} of all");
    assert!(of_inside > of_all && of_inside < 0.99, "{of_inside} {of_all}");
    let inside = share(&below_50, Side::Inside);
    assert!(inside <= TOLERANCE, "{inside}");
    assert!(above_50.picture.summary.inside > above_95.picture.summary.inside);
}

/// How much of a side is in the slow path.
fn share(picture: &FlamePicture, side: Side) -> f64 {
    let (slow_ns, all_ns) = time_under(picture, side, "slow_path");
    slow_ns as f64 / all_ns as f64
}
