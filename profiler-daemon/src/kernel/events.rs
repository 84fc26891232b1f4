//! Programs on the kernel's own tracepoints: a perf event each, which has a cookie and no samples.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    path::Path,
};

use aya_obj::generated::{perf_event_attr, perf_type_id::PERF_TYPE_TRACEPOINT};

use super::{Engine, KernelError, closing, syscall};

/// The bit of a probe's configuration that asks for the return of the function, as its source has it in `format/retprobe`.
pub(super) const AT_RETURN: u64 = 1;

/// The program's name.
pub(super) const HIT: &str = "place_hit";

/// A program at a tracepoint. Dropped, it is detached.
pub(super) struct EventLink {
    /// Goes before the event.
    _link: OwnedFd,
    _event: OwnedFd,
}

impl EventLink {
    pub(super) fn new(link: OwnedFd, event: OwnedFd) -> Self {
        Self {
            _link: link,
            _event: event,
        }
    }
}

/// Copies of the programs, loaded as they are needed: to one tracepoint, the kernel attaches a program once.
#[derive(Default)]
pub(super) struct EventPrograms {
    copies: HashMap<&'static str, Vec<OwnedFd>>,
}

impl EventPrograms {
    pub(super) fn programs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.copies.values().flatten().map(OwnedFd::as_fd)
    }
}

impl Engine {
    /// Attaches a program to a tracepoint, by its number in `tracefs`.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(super) fn attach_event(
        &mut self,
        name: &'static str,
        tracepoint: u64,
        cookie: u64,
    ) -> Result<EventLink, KernelError> {
        let what = || format!("attaching {name} to tracepoint {tracepoint}");
        let _none_is_closed = closing::hold_events().map_err(|error| KernelError::system(what(), error))?;
        let event = open_tracepoint(tracepoint).map_err(|error| KernelError::system(what(), error))?;
        let copies = self.event_programs.copies.entry(name).or_default();
        for number in 0.. {
            if number == copies.len() {
                copies.push(self.multi.load_for_tracepoint(name)?);
            }
            match syscall::create_perf_link(copies[number].as_fd(), event.as_fd(), cookie) {
                Ok(link) => {
                    return Ok(EventLink::new(link, event));
                }
                // This copy is there already, for another probe.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) => return Err(KernelError::system(what(), error)),
            }
        }
        Err(KernelError::Missing(name))
    }
}

/// The number of a source of events, by its folder, as [`open`] is told it.
///
/// # Errors
/// Where this kernel has none.
pub(super) fn source(folder: &str) -> Result<u32, KernelError> {
    let text = fs::read_to_string(Path::new(folder).join("type"));
    text.and_then(|text| text.trim().parse().map_err(io::Error::other))
        .map_err(|error| KernelError::system(format!("reading {folder}/type"), error))
}

/// The event of a tracepoint.
fn open_tracepoint(tracepoint: u64) -> io::Result<OwnedFd> {
    // SAFETY: the structure is plain numbers, all of which may be 0.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = PERF_TYPE_TRACEPOINT as u32;
    attributes.config = tracepoint;
    open(attributes, None)
}

/// An event of a place of the kernel, or of a process's code. The kernel runs its programs wherever the place is passed; the event
/// itself, which would count on one CPU or in one thread, stays off.
pub(super) fn open(mut attributes: perf_event_attr, process: Option<u32>) -> io::Result<OwnedFd> {
    const EVERY_PROCESS: i32 = -1;
    const EVERY_CPU: i32 = -1;
    const FIRST_CPU: i32 = 0;
    const NO_GROUP: i32 = -1;
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    attributes.size = u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0);
    attributes.set_disabled(1);
    let process =
        process.map(|pid| i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH)));
    let (pid, cpu) = match process {
        Some(pid) => (pid?, EVERY_CPU),
        None => (EVERY_PROCESS, FIRST_CPU),
    };
    // SAFETY: the attributes are initialised, and live over the call.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            pid,
            cpu,
            NO_GROUP,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = i32::try_from(event).map_err(|_| io::Error::other("descriptor out of range"))?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(event) })
}
