//! The conditions of `--on`: once one holds, the recording goes on for a while, and is over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use profiler_daemon::Trigger;
use profiler_proto::v1;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::Instant,
};

use crate::{
    cli::request::On,
    failure::Failure,
    render::{escape::terminal, units},
    watch::Run,
};

/// The conditions that a recording waits for.
pub struct Awaited {
    triggers: Vec<Trigger>,
    /// Whether the signal has come, where one is waited for.
    signalled: Option<Arc<AtomicBool>>,
    after: Duration,
    deadline: watch::Sender<Option<Instant>>,
    happened: bool,
    /// When the recording begins.
    from_ns: Option<u64>,
}

impl Awaited {
    /// Begins to listen to the signal, if that is waited for.
    ///
    /// # Errors
    /// Where no handler can be installed, or a condition is not understood.
    pub fn listen(on: &[On], after: Duration) -> Result<Self, Failure> {
        let mut triggers = Vec::new();
        let mut signalled = None;
        for on in on {
            match on {
                On::Condition(text) => {
                    let trigger = Trigger::parse(text);
                    triggers.push(trigger.map_err(|error| Failure::usage(format!("--on: {error}.")))?);
                }
                On::Signal => signalled = Some(Arc::new(AtomicBool::new(false))),
            }
        }
        if let Some(signalled) = signalled.clone() {
            let mut signals = signal(SignalKind::user_defined1())
                .map_err(|error| Failure::failed(format!("Cannot wait for SIGUSR1: {error}.")))?;
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    signalled.store(true, Ordering::Relaxed);
                }
            });
        }
        Ok(Self {
            triggers,
            signalled,
            after,
            deadline: watch::Sender::new(None),
            happened: false,
            from_ns: None,
        })
    }

    /// Ends a run some time after a condition holds.
    pub fn is_to_end(&mut self, run: &mut Run) {
        let deadline = *run.deadline.borrow();
        self.deadline.send_replace(deadline);
        run.deadline = self.deadline.subscribe();
    }

    /// Looks whether conditions are of a scope.
    ///
    /// # Errors
    /// Where one is not.
    pub fn check(&self, scope: &str) -> Result<(), Failure> {
        for trigger in &self.triggers {
            let checked = trigger.check(scope);
            checked.map_err(|error| Failure::usage(format!("--on: {}.", terminal(&error.to_string()))))?;
        }
        Ok(())
    }

    /// Takes the next message; a sentence where a condition holds for the first time.
    pub fn take(&mut self, message: &v1::WatchRecordsResponse) -> Option<String> {
        let from_ns = *self.from_ns.get_or_insert(message.from_ns);
        let signalled = self.signalled.as_ref();
        let is_signalled =
            signalled.is_some_and(|signalled| message.signalled || signalled.load(Ordering::Relaxed));
        let mut condition = is_signalled.then(|| "SIGUSR1".to_owned());
        for trigger in &mut self.triggers {
            if trigger.take(message) {
                condition.get_or_insert_with(|| trigger.to_string());
            }
        }
        let condition = condition.filter(|_| !self.happened)?;
        self.happened = true;
        let now = Instant::now();
        let end = now + self.after;
        let end = self.deadline.borrow().map_or(end, |before| before.min(end));
        self.deadline.send_replace(Some(end));
        Some(format!(
            "{} happened {} after the recording began: it goes on for {}.",
            terminal(&condition),
            units::duration(message.to_ns.saturating_sub(from_ns) as f64),
            units::duration(end.saturating_duration_since(now).as_nanos() as f64)
        ))
    }

    /// Whether there are conditions, and none has held.
    pub fn has_not_happened(&self) -> bool {
        !self.happened && (self.signalled.is_some() || !self.triggers.is_empty())
    }
}
