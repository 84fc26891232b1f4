//! The events of a session that stacks are taken at, while somebody looks at their flame graphs.
//!
//! See `docs/internals/events.md` for how stacks are taken at events.

use std::collections::BTreeSet;

use super::{
    command::Caller,
    error::{Reason, SessionError},
    picture::FlameTimes,
    quotas::admit_events,
    refusal::kernel_refusal,
};
use crate::kernel::{Engine, Event, EventCounts, EventError, SampledEvent};

/// Those that are sampled.
#[derive(Default)]
pub struct SampledEvents {
    sampled: Vec<SampledEvent>,
    refused: Option<SessionError>,
}

impl SampledEvents {
    /// Takes no more stacks at others than these.
    pub fn keep(&mut self, watched: &BTreeSet<Event>) {
        self.sampled.retain(|sampled| watched.contains(&sampled.event()));
    }

    /// Has room for stacks at these events for who asks for them, before any are taken: whoever waits for that learns that there is none.
    ///
    /// # Errors
    /// Where there is none, or none of their share, when nothing has changed; or the kernel refuses.
    pub fn reserve(
        &mut self,
        engine: &mut Engine,
        caller: Caller,
        wanted: impl IntoIterator<Item = Event>,
    ) -> Result<(), SessionError> {
        // Those of tracepoints are taken of all that is sampled.
        let by_threads = wanted.into_iter().filter(|event| event.of_tracepoint().is_none());
        let new: BTreeSet<Event> = by_threads
            .filter(|event| !self.sampled.iter().any(|sampled| sampled.event() == *event))
            .collect();
        admit_events(caller, &engine.event_holders(), new.len())?;
        let reserved: Result<Vec<SampledEvent>, EventError> = new
            .into_iter()
            .map(|event| engine.sample_event(event, caller.uid))
            .collect();
        self.sampled.extend(reserved.map_err(|error| refused(&error))?);
        Ok(())
    }

    /// Takes stacks of these processes at all of these, unless that is refused.
    pub fn take(&mut self, engine: &mut Engine, caller: Caller, watched: &BTreeSet<Event>, pids: &[u32]) {
        if pids.is_empty() {
            return;
        }
        let taken = self.reserve(engine, caller, watched.iter().copied());
        let taken = taken.and_then(|()| {
            let mut sampled = self.sampled.iter_mut();
            let added = sampled.try_for_each(|sampled| sampled.add(pids));
            added.map_err(|error| refused(&error))
        });
        if let Err(error) = taken {
            tracing::warn!(%error, "no stacks are taken at an event");
            self.refused = Some(error);
        }
    }

    /// Why that was refused, since this was last asked.
    pub fn take_refused(&mut self) -> Option<SessionError> {
        self.refused.take()
    }

    /// Takes no more stacks; what was counted stays.
    pub fn stop(&mut self) {
        self.sampled.iter_mut().for_each(SampledEvent::stop);
    }

    /// Takes no more stacks of a process; what was counted stays.
    pub fn lose(&mut self, pid: u32) {
        self.sampled.iter_mut().for_each(|sampled| sampled.lose(pid));
    }

    /// The event that samples name so.
    pub fn of(&self, id: u32) -> Option<Event> {
        let sampled = self.sampled.iter().find(|sampled| sampled.id() == id);
        sampled.map(SampledEvent::event)
    }

    /// What has become of the samples that this is drawn of; nothing where it is drawn of time.
    pub fn counts(&self, times: FlameTimes, engine: &Engine) -> EventCounts {
        if let Some(number) = times.event().and_then(Event::of_tracepoint) {
            return engine.counts_of(number);
        }
        let is_drawn = |sampled: &&SampledEvent| times.event() == Some(sampled.event());
        let sampled = self.sampled.iter().find(is_drawn);
        sampled.map_or_else(EventCounts::default, |sampled| engine.event_counts(sampled))
    }
}

/// Refuses an event that this machine does not have.
pub fn refuse_missing(event: Event) -> Result<(), SessionError> {
    match event.missing() {
        None => Ok(()),
        Some(why) => Err(with_those_here(&format!("there is no event `{event}`: {why}"))),
    }
}

/// Refuses a name that is no event's, or none that stacks are taken at.
pub fn unknown(name: &str) -> SessionError {
    with_those_here(&match name {
        "task-clock" | "cpu-clock" => {
            format!("`{name}` is time, which flame graphs draw without an event: leave -e out")
        }
        "syscalls" => {
            "system calls are counted and not sampled: `profiler syscalls` shows who makes them".to_owned()
        }
        _ if name.starts_with("tracepoint:") => {
            format!("stacks cannot be sampled at `{name}`: use `profiler trace` with --stack")
        }
        _ => format!("stacks cannot be sampled at `{name}`"),
    })
}

fn with_those_here(what: &str) -> SessionError {
    let here = Event::here();
    let message = format!("{what}. There are: {}", here.join(", "));
    SessionError::new(Reason::CounterNotFound, message).with("nearest", here.join(","))
}

/// Why stacks cannot be taken at an event.
fn refused(error: &EventError) -> SessionError {
    match error {
        EventError::TooManyEvents | EventError::TooManyThreads(_) => {
            SessionError::new(Reason::LimitReached, error.to_string())
        }
        EventError::Refused { source, .. } => match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SessionError::new(
                Reason::CapabilityMissing,
                format!("{error}: sampling at events needs CAP_PERFMON"),
            )
            .with("capability", "CAP_PERFMON"),
            Some(libc::EMFILE | libc::ENFILE) => SessionError::new(
                Reason::LimitReached,
                format!("{error}: each thread needs a file descriptor; raise the limit of open files"),
            ),
            _ => SessionError::new(Reason::Kernel, error.to_string()),
        },
        EventError::Kernel(error) => kernel_refusal(error),
    }
}
