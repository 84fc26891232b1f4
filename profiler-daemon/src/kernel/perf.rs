//! Probes as one perf event per site: for kernels without multi links.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use aya::{Ebpf, programs::UProbe};
use aya_obj::generated::perf_event_attr;

use super::{
    KernelError,
    attach::Site,
    closing,
    events::{self, EventLink},
    opening::{self, Opened, Opening},
    syscall,
};

/// Where the kernel says how events at instructions of files are asked for.
const EVENT_SOURCE: &str = "/sys/bus/event_source/devices/uprobe";

/// Attached sites of one program. Dropped, they are detached.
#[derive(Default)]
pub struct PerfLinks(Vec<Opened<EventLink>>);

/// Attaches a program to sites of one file, for one process.
pub(super) struct Opener {
    pub(super) program: OwnedFd,
    pub(super) file: CString,
    pub(super) pid: u32,
    /// Where the function returns that begins at a site, in place of the site itself.
    pub(super) at_return: bool,
    /// How long the kernel may take, beside what it may for each site.
    pub(super) patience: Duration,
}

impl Opener {
    /// Attaches the program at each site.
    ///
    /// # Errors
    /// Where the kernel refuses one of them, or takes too long; those before are attached.
    pub(super) fn attach(self, sites: &[Site], attached: &mut PerfLinks) -> Result<(), KernelError> {
        let what = self.file.to_string_lossy().into_owned();
        let failed = |error| opening::refused(format!("attaching at places of {what}"), error);
        let _none_is_closed = closing::hold_events().map_err(failed)?;
        let source = events::source(EVENT_SOURCE)?;
        let patience = opening::patience_at(sites, self.patience);
        let opener = Arc::new(self);
        let open_one = |site: &Site| {
            let (opener, site) = (Arc::clone(&opener), *site);
            move || opener.open(source, site)
        };
        let opening = Opening {
            patience,
            are_events: true,
            opens: sites.iter().map(open_one).collect(),
        };
        let before = attached.0.len();
        opening::open(opening, &mut attached.0).map_err(|error| {
            let is_open = |link: &&Opened<EventLink>| matches!(link, Opened::Open { .. });
            let opened = attached.0.iter().skip(before).filter(is_open).count();
            let site = sites.get(opened);
            let offset = site.map_or(0, |site| site.offset);
            opening::refused(format!("attaching at {offset:#x} of {what}"), error)
        })
    }

    fn open(&self, source: u32, site: Site) -> io::Result<EventLink> {
        let event = open_event(source, &self.file, site.offset, self.pid, self.at_return)?;
        let link = syscall::create_perf_link(self.program.as_fd(), event.as_fd(), site.cookie)?;
        Ok(EventLink::new(link, event))
    }
}

/// An event at an instruction of a file, or where the function returns that begins there.
fn open_event(source: u32, file: &CStr, offset: u64, pid: u32, at_return: bool) -> io::Result<OwnedFd> {
    // SAFETY: the structure is plain numbers, all of which may be 0.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = source;
    attributes.config = if at_return { events::AT_RETURN } else { 0 };
    attributes.__bindgen_anon_3.config1 = file.as_ptr() as u64;
    attributes.__bindgen_anon_4.config2 = offset;
    // The kernel copies the path before the call returns.
    events::open(attributes, Some(pid))
}

/// What is to be closed: links that are open, and those that are still being opened.
pub(super) fn links(attached: Vec<PerfLinks>) -> (Vec<closing::Link>, Vec<closing::Link>) {
    let links = attached.into_iter().flat_map(|PerfLinks(links)| links);
    let (open, late) = links.partition(|link| matches!(link, Opened::Open { .. }));
    (
        closing::links::<Opened<EventLink>>(open),
        closing::links::<Opened<EventLink>>(late),
    )
}

/// Keeps the links at sites whose cookie says that they stay; gives the others, to be closed.
pub(super) fn keep(
    attached: &mut PerfLinks,
    sites: &[Site],
    stays: impl Fn(u64) -> bool,
) -> Vec<closing::Link> {
    let mut at = sites.iter();
    let is_gone = |_: &mut Opened<EventLink>| at.next().is_some_and(|site| !stays(site.cookie));
    closing::links(attached.0.extract_if(.., is_gone).collect())
}

/// Loads a program, which is otherwise done where it is first attached.
///
/// # Errors
/// Where the kernel refuses it.
pub(super) fn load(ebpf: &mut Ebpf, name: &'static str) -> Result<(), KernelError> {
    loaded(ebpf, name).map(|_| ())
}

/// A program, loaded.
///
/// # Errors
/// Where the kernel refuses it.
pub(super) fn program(ebpf: &mut Ebpf, name: &'static str) -> Result<OwnedFd, KernelError> {
    let descriptor: BorrowedFd<'_> = loaded(ebpf, name)?.fd()?.as_fd();
    descriptor
        .try_clone_to_owned()
        .map_err(|error| KernelError::system(format!("attaching {name}"), error))
}

fn loaded<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, KernelError> {
    let uprobe: &mut UProbe = ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()?;
    if uprobe.fd().is_err() {
        uprobe.load()?;
    }
    Ok(uprobe)
}
