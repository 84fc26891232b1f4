//! A fixture that is sampled for its stacks.

use std::sync::Arc;

use profiler_daemon::session::{ExitMethod, FlamePicture, SessionInfo};
use tokio::sync::watch;

use super::{
    fixture::{Fixture, small_scale},
    service::{Service, ended},
    stacks_truth::{Judged, Truth},
};

/// Share of stacks that are complete.
pub const COMPLETE: f64 = 0.995;

/// Samples that are judged.
pub fn enough() -> u64 {
    if small_scale() { 150 } else { 4000 }
}

/// More on a machine that can bear it: the tests take as long as there are too few samples.
pub fn frequency_hz() -> u32 {
    if small_scale() { 999 } else { 3999 }
}

/// A fixture that is sampled.
pub struct Target {
    pub service: Service,
    pub process: Fixture,
    pictures: watch::Receiver<Option<Arc<FlamePicture>>>,
    sessions: Vec<SessionInfo>,
}

impl Target {
    /// Starts it, with spans of these scopes.
    pub fn start(name: &str, args: &[String], probes: &[&str], method: ExitMethod) -> Self {
        let service = Service::start();
        let mut process = Fixture::start(name, args);
        let sessions = probes
            .iter()
            .map(|scope| {
                let session = service.attach_by(process.pid(), scope, Some(method)).unwrap();
                assert!(session.sites.iter().all(|site| site.exit_method == method));
                session
            })
            .collect();
        let all = service.attach_at(process.pid(), "", frequency_hz()).unwrap();
        let pictures = service.watch_flame(&all);
        process.say("go");
        Self {
            service,
            process,
            pictures,
            sessions,
        }
    }

    /// Waits for so many samples, and judges them.
    pub fn judge(&mut self, truth: &Truth, samples: u64, what: &str) -> Judged {
        let picture = self.service.until(&mut self.pictures, |picture| {
            picture.picture.summary.samples >= samples
        });
        let judged = truth.judge(&picture);
        judged.print(what);
        println!("  lost: {:?}", picture.lost);
        judged
    }

    /// Ends everything; calls that were timed.
    pub fn finish(self) -> u64 {
        let Self {
            service,
            process,
            pictures: _,
            sessions,
        } = self;
        let calls = sessions
            .iter()
            .map(|session| {
                let last = service.last_latency(session);
                last.functions.iter().map(ended).sum::<u64>()
            })
            .sum();
        assert_eq!(process.finish().status, Some(0), "the target came to harm");
        calls
    }
}
