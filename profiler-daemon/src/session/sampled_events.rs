//! The events of a session that stacks are taken at, while somebody looks at their flame graphs.
//!
//! See `docs/internals/events.md` for how stacks are taken at events.

use std::{
    collections::BTreeSet,
    mem,
    sync::mpsc::{self, Receiver, Sender, TryRecvError},
};

use super::{
    command::Caller,
    error::{Reason, SessionError},
    picture::FlameTimes,
    quotas::admit_events,
    refusal::kernel_refusal,
    timeline::{Leaves, start_thread},
};
use crate::kernel::{Engine, Event, EventCounts, EventError, EventOpener, OpenedEvents, SampledEvent};

/// Those that are sampled. They are opened on a thread of the session's, as the kernel may let nobody do so for a while.
pub struct SampledEvents {
    /// Leave for that thread.
    leaves: Leaves,
    owner: Caller,
    sampled: Vec<SampledEvent>,
    /// What the thread opens, while there is one.
    opening: Option<Receiver<Opened>>,
    /// Processes that it opens them for next.
    next: Vec<u32>,
    refused: Option<SessionError>,
}

/// What was opened for a process, or why that failed.
type Opened = Result<OpenedEvents, EventError>;

impl SampledEvents {
    /// None yet, of a session of this owner's.
    pub fn new(leaves: Leaves, owner: Caller) -> Self {
        Self {
            leaves,
            owner,
            sampled: Vec::new(),
            opening: None,
            next: Vec::new(),
            refused: None,
        }
    }

    /// Takes no more stacks at others than these.
    pub fn keep(&mut self, watched: &BTreeSet<Event>) {
        self.sampled.retain(|sampled| watched.contains(&sampled.event()));
        if self.sampled.is_empty() {
            self.open_no_more();
        }
    }

    /// Has room for stacks at these events for who asks for them, before any are taken: whoever waits for that learns that there is none.
    ///
    /// # Errors
    /// Where there is none, or none of their share, when nothing has changed; or the kernel refuses.
    pub fn reserve(
        &mut self,
        engine: &mut Engine,
        wanted: impl IntoIterator<Item = Event>,
    ) -> Result<(), SessionError> {
        // Those of tracepoints are taken of all that is sampled.
        let by_threads = wanted.into_iter().filter(|event| event.of_tracepoint().is_none());
        let new: BTreeSet<Event> = by_threads
            .filter(|event| !self.sampled.iter().any(|sampled| sampled.event() == *event))
            .collect();
        admit_events(self.owner, &engine.event_holders(), new.len())?;
        let reserved: Result<Vec<SampledEvent>, EventError> = new
            .into_iter()
            .map(|event| engine.sample_event(event, self.owner.uid))
            .collect();
        self.sampled.extend(reserved.map_err(|error| refused(&error))?);
        Ok(())
    }

    /// Takes stacks of these processes at all of these once that is [opened](Self::take_opened), unless it is refused.
    pub fn take(&mut self, engine: &mut Engine, watched: &BTreeSet<Event>, pids: &[u32]) {
        if pids.is_empty() {
            return;
        }
        let reserved = self.reserve(engine, watched.iter().copied());
        self.note(reserved);
        self.open(pids.to_vec());
    }

    /// Why that was refused, since this was last asked.
    pub fn take_refused(&mut self) -> Option<SessionError> {
        self.refused.take()
    }

    fn note(&mut self, done: Result<(), SessionError>) {
        if let Err(error) = done {
            tracing::warn!(%error, "no stacks are taken at an event");
            self.refused = Some(error);
        }
    }

    /// Has all opened for those of these processes that they are not open for, behind what is being opened.
    fn open(&mut self, pids: Vec<u32>) {
        if self.opening.is_some() {
            self.next = pids;
            return;
        }
        let openers = self.sampled.iter().filter_map(|sampled| sampled.opener(&pids));
        let openers: Vec<EventOpener> = openers.collect();
        if openers.is_empty() {
            return;
        }
        let started = self.start(openers);
        self.note(started);
    }

    fn start(&mut self, openers: Vec<EventOpener>) -> Result<(), SessionError> {
        let leave = self.leaves.take(self.owner)?;
        let (tell, opened) = mpsc::channel();
        start_thread("events", move || {
            open_all(openers, &tell);
            drop(leave);
        })?;
        self.opening = Some(opened);
        Ok(())
    }

    /// Whether some are still being opened.
    pub fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Takes stacks from now on where that was opened by now, of processes that are still the session's.
    pub fn take_opened(&mut self, is_own: impl Fn(u32) -> bool) {
        let Some(opening) = self.opening.take() else {
            return;
        };
        loop {
            match opening.try_recv() {
                Ok(Ok(opened)) => {
                    let sampled = self.sampled.iter_mut().find(|sampled| sampled.is_of(&opened));
                    if let Some(sampled) = sampled.filter(|_| is_own(opened.pid())) {
                        sampled.take(opened);
                    }
                }
                Ok(Err(error)) => self.note(Err(refused(&error))),
                Err(TryRecvError::Empty) => {
                    self.opening = Some(opening);
                    return;
                }
                Err(TryRecvError::Disconnected) => break,
            }
        }
        let next = mem::take(&mut self.next);
        self.open(next);
    }

    /// Takes nothing of what is being opened.
    fn open_no_more(&mut self) {
        self.opening = None;
        self.next.clear();
    }

    /// Takes no more stacks; what was counted stays.
    pub fn stop(&mut self) {
        self.open_no_more();
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

/// Opens events until one is refused, or nobody wants them any more.
fn open_all(openers: Vec<EventOpener>, tell: &Sender<Opened>) {
    for opened in openers.into_iter().flatten() {
        let is_last = opened.is_err();
        if tell.send(opened).is_err() || is_last {
            return;
        }
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
