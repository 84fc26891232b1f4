//! A fixture that is sampled for its stacks.

use profiler_daemon::session::{ExitMethod, FlamePicture, Pictures, SessionInfo};

use super::{
    fixture::{Fixture, small_scale},
    service::{Service, ended},
    stacks_truth::{Judged, Truth},
};

/// Share of stacks that are complete.
pub const COMPLETE: f64 = 0.995;

/// Samples that are judged.
pub fn enough() -> u64 {
    if small_scale() { 100 } else { 4000 }
}

/// More where the machine can bear it: a deep stack takes an emulated one some milliseconds.
pub fn frequency_hz() -> u32 {
    if small_scale() { 199 } else { 3999 }
}

/// Why a test is left to the host: an emulated machine takes half a minute to name its first stacks, and emulates other
/// things less than well.
pub const EMULATED: &str = "not in an emulated machine";

/// A fixture that is sampled.
pub struct Target {
    pub service: Service,
    pub process: Fixture,
    pictures: Pictures<FlamePicture>,
    sessions: Vec<SessionInfo>,
}

impl Target {
    /// Starts it, with spans of these scopes.
    pub fn start(name: &str, args: &[String], probes: &[&str], method: ExitMethod) -> Self {
        Self::start_on(Service::start(), name, args, probes, method)
    }

    /// The same, sampled by a session task that serves others, too.
    pub fn start_on(
        service: Service,
        name: &str,
        args: &[String],
        probes: &[&str],
        method: ExitMethod,
    ) -> Self {
        let process = Fixture::start(name, args);
        let all = service.attach_at(process.pid(), "", frequency_hz()).unwrap();
        let pictures = service.watch_flame(&all);
        let mut target = Self {
            service,
            process,
            pictures,
            sessions: Vec::new(),
        };
        for scope in probes {
            target.attach(scope, method);
        }
        target.process.say("go");
        target
    }

    /// Has spans of a scope.
    pub fn attach(&mut self, scope: &str, method: ExitMethod) {
        let pid = self.process.pid();
        let session = self.service.attach_by(pid, scope, Some(method)).unwrap();
        assert!(session.sites.iter().all(|site| site.exit_method == method));
        self.sessions.push(session);
    }

    /// Waits for so many more samples, and judges these.
    pub fn judge(&mut self, truth: &Truth, samples: u64, what: &str) -> Judged {
        let mut before = None;
        let picture = self.service.until(&mut self.pictures, |picture| {
            let before = before.get_or_insert_with(|| truth.judge(picture));
            picture.picture.summary.samples >= before.samples(|_| true) + samples
        });
        let judged = truth.judge(&picture).since(&before.unwrap_or_default());
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
