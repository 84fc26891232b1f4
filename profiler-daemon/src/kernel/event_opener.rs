//! The perf events that stacks are taken at are opened for a process's threads by whoever may wait: while a process starts another program,
//! the kernel opens none for it.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    vec,
};

use profiler_target::has_thread;

use super::{
    counters::threads,
    sampled_events::{Event, EventError, MAX_THREADS},
};

/// Threads of a process that are looked at anew until none has come meanwhile.
const MAX_LOOKS: usize = 5;

/// Opens an event for the threads of some processes, one process after the other, as long as that takes. It ends with the first that is
/// refused.
pub struct EventOpener {
    /// Which event it is.
    pub(super) event: Event,
    /// What its samples name it by.
    pub(super) id: u32,
    /// What runs at it.
    pub(super) program: Arc<OwnedFd>,
    pub(super) pids: vec::IntoIter<u32>,
    /// Threads that it was opened for.
    pub(super) opened: usize,
}

/// An event that is open for the threads of a process, and switched off.
pub struct OpenedEvents {
    pub(super) event: Event,
    pub(super) id: u32,
    pub(super) pid: u32,
    pub(super) threads: Vec<perf_event::Counter>,
}

impl OpenedEvents {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Iterator for EventOpener {
    type Item = Result<OpenedEvents, EventError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pid = self.pids.next()?;
        let opened = self.open(pid).map(|threads| {
            self.opened += threads.len();
            OpenedEvents {
                event: self.event,
                id: self.id,
                pid,
                threads,
            }
        });
        if opened.is_err() {
            self.pids = Vec::new().into_iter();
        }
        Some(opened)
    }
}

impl EventOpener {
    /// The events of a process's threads, switched off. A thread inherits that of the one that begins it; one that began
    /// before its parent had one is found at another look.
    fn open(&self, pid: u32) -> Result<Vec<perf_event::Counter>, EventError> {
        let mut tids = threads(pid);
        for _ in 1..MAX_LOOKS {
            let opened = self.open_threads(pid, &tids)?;
            let now = threads(pid);
            if now.iter().all(|tid| tids.contains(tid)) {
                return Ok(opened);
            }
            tids = now;
        }
        self.open_threads(pid, &tids)
    }

    fn open_threads(&self, pid: u32, tids: &[u32]) -> Result<Vec<perf_event::Counter>, EventError> {
        let all = self.opened + tids.len();
        if all > MAX_THREADS {
            return Err(EventError::TooManyThreads(all));
        }
        let event = self.event;
        let refused = |tid, source| EventError::Refused { event, tid, source };
        let mut builder = event.sampling().map_err(|source| refused(0, source))?;
        let mut opened = Vec::with_capacity(tids.len());
        for tid in tids {
            let Ok(observed) = i32::try_from(*tid) else {
                continue;
            };
            let thread = builder.observe_pid(observed).build().and_then(|mut thread| {
                thread.set_bpf(self.program.as_raw_fd())?;
                Ok(thread)
            });
            match thread {
                // It may have ended before, and its number be another process's.
                Ok(thread) if has_thread(pid, *tid) => opened.push(thread),
                Ok(_) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(refused(*tid, error)),
            }
        }
        Ok(opened)
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}
