//! What a recording waits for: then it goes on for a while, and is over.

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
    cli::{exit::Failure, request::On},
    render::{escape::terminal, units},
    watch::Run,
};

/// What is waited for.
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

    /// Ends a run once it has happened.
    pub fn is_to_end(&mut self, run: &mut Run) {
        let deadline = *run.deadline.borrow();
        self.deadline.send_replace(deadline);
        run.deadline = self.deadline.subscribe();
    }

    /// Takes the next message; what is to be said where it happens.
    ///
    /// # Errors
    /// Where a condition is of a step that is not recorded.
    pub fn take(&mut self, message: &v1::WatchRecordsResponse) -> Result<Option<String>, Failure> {
        let from_ns = *self.from_ns.get_or_insert(message.from_ns);
        let signalled = self.signalled.as_ref();
        let mut what = (signalled.is_some_and(|signalled| signalled.load(Ordering::Relaxed)))
            .then(|| "SIGUSR1".to_owned());
        for trigger in &mut self.triggers {
            let happens = trigger.take(message);
            if happens.map_err(|error| Failure::usage(format!("--on: {}.", terminal(&error.to_string()))))? {
                what.get_or_insert_with(|| trigger.to_string());
            }
        }
        let Some(what) = what.filter(|_| !self.happened) else {
            return Ok(None);
        };
        self.happened = true;
        let end = Instant::now() + self.after;
        self.deadline.send_modify(|deadline| {
            *deadline = Some(deadline.map_or(end, |before| before.min(end)));
        });
        Ok(Some(format!(
            "{} happened {} after the recording began: it goes on for {}.",
            terminal(&what),
            units::duration(message.to_ns.saturating_sub(from_ns) as f64),
            units::duration(self.after.as_nanos() as f64)
        )))
    }

    /// Whether something is waited for that has not happened.
    pub fn has_not_happened(&self) -> bool {
        !self.happened && (self.signalled.is_some() || !self.triggers.is_empty())
    }
}
