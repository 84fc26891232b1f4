//! What is attached.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use profiler_common::probe::ProbeId;

use super::{RETURN, links::Links};
use crate::kernel::{
    Engine, KernelError,
    closing::Closing,
    events::EventLink,
    hits::Plans,
    kernel_functions::{FunctionLinks, KernelFunction},
    watched_calls::Call,
};

/// An instruction in a file to which a program is attached.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernel) struct Site {
    /// Where in the file it is.
    pub(in crate::kernel) offset: u64,
    /// What the program is told there: a [`Cookie`](profiler_common::probe::Cookie), or that of an allocator.
    pub(in crate::kernel) cookie: u64,
}

/// Where a program is attached.
pub(in crate::kernel) struct Placed {
    pub(super) program: &'static str,
    pub(super) sites: Vec<Site>,
}

/// Live probes of functions or of single instructions. They stay attached until [`Engine::detach`] takes this back.
pub struct Attachment {
    pub(super) pid: u32,
    pub(super) file: PathBuf,
    /// Where spans begin, or the lines are.
    pub(in crate::kernel) entries: Vec<Placed>,
    /// Where spans end.
    pub(super) exits: Vec<Placed>,
    pub(in crate::kernel) probes: Vec<ProbeId>,
    pub(in crate::kernel) sites: Vec<u32>,
    pub(in crate::kernel) plans: Vec<Plans>,
    pub(in crate::kernel) links: Links,
    /// System calls to be watched, and those that are.
    pub(super) calls: Vec<Call>,
    pub(super) watched: Vec<Call>,
    pub(in crate::kernel) events: Vec<EventLink>,
    /// Functions of the kernel whose calls are to be seen.
    pub(super) functions: Vec<KernelFunction>,
    pub(in crate::kernel) function_links: FunctionLinks,
    /// Links that are being closed: until they are, their programs may still run, and go by what was theirs.
    pub(super) closing: Vec<Closing>,
    /// What is attached in their place once they are closed.
    pub(super) anew: Option<Anew>,
}

/// What is attached once more, as others have to go or to run before.
pub(super) struct Anew {
    /// Not only where spans begin, but also where they end.
    pub(super) exits: bool,
}

impl Attachment {
    /// The probes, in the order of the specifications.
    #[must_use]
    pub fn probes(&self) -> &[ProbeId] {
        &self.probes
    }

    /// How many values are read at them.
    #[must_use]
    pub fn values_read(&self) -> usize {
        self.plans.iter().map(|plans| plans.count()).sum()
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether its probes are on the target, or will be.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        !self.links.is_empty() || self.anew.is_some()
    }

    /// Whether some of its probes will be attached once others are closed ([`Engine::attach_again`]).
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.anew.is_some()
    }

    /// Whether all of its probes that were taken off the target are off it, or it is not known when they will be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let mut closing = self.closing.iter();
        closing.all(|closing| closing.is_over() || closing.is_stuck())
    }

    /// Whether it is not known when some of its probes will be off the target.
    pub(super) fn is_stuck(&self) -> bool {
        self.closing.iter().any(Closing::is_stuck)
    }

    /// Whether a program may still run that was taken off its process.
    #[must_use]
    pub fn may_run_on(&self) -> bool {
        !self.closing.iter().all(Closing::is_over)
    }

    /// How long probes that are off now went on counting until their turn to be taken off came.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let delays = self.closing.iter().map(Closing::delay);
        delays.max().unwrap_or_default()
    }

    /// Waits until it is settled.
    pub fn wait_until_settled(&self) {
        for closing in &self.closing {
            closing.wait();
        }
    }

    /// The file, as the kernel finds it.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Where in the file its spans begin or its lines are.
    pub fn entry_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        offsets(self.entries.iter())
    }

    /// Where in the file its spans end: not those that a return probe sees to end, which is at no instruction of the file.
    pub fn exit_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let placed = self.exits.iter().filter(|placed| placed.program != RETURN);
        offsets(placed)
    }
}

fn offsets<'a>(placed: impl Iterator<Item = &'a Placed>) -> impl Iterator<Item = u64> {
    let sites = placed.flat_map(|placed| &placed.sites);
    sites.map(|site| site.offset)
}

impl Engine {
    /// Gives what was attached; where that failed, nothing stays.
    pub(in crate::kernel) fn attach_all_or_none(
        &mut self,
        pid: u32,
        file: &Path,
        attach: impl FnOnce(&mut Self, &mut Attachment) -> Result<(), KernelError>,
    ) -> Result<Attachment, KernelError> {
        let mut attachment = Attachment {
            pid,
            file: file.to_owned(),
            entries: Vec::new(),
            exits: Vec::new(),
            probes: Vec::new(),
            sites: Vec::new(),
            plans: Vec::new(),
            links: self.no_links(),
            calls: Vec::new(),
            watched: Vec::new(),
            events: Vec::new(),
            functions: Vec::new(),
            function_links: FunctionLinks::default(),
            closing: Vec::new(),
            anew: None,
        };
        match attach(self, &mut attachment) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }
}

/// The programs that are attached somewhere, each with its sites.
pub(in crate::kernel) fn placed<const N: usize>(programs: [(&'static str, Vec<Site>); N]) -> Vec<Placed> {
    let placed = programs.into_iter().filter(|(_, sites)| !sites.is_empty());
    placed.map(|(program, sites)| Placed { program, sites }).collect()
}
