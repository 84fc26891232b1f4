//! Attaching probes to functions, and detaching them.
//!
//! | file | idea |
//! |---|---|
//! | `spec` | what is to be probed |
//! | `ends` | from that to the sites of each program |
//! | `attachment` | what is attached |
//! | `links` | by what it is attached |
//! | `action` | what programs are told of the instructions that they do themselves |
//! | `again` | probes that are attached once more, as others have to go or to run before |
//! | `detach` | taking probes off the target |

mod action;
mod again;
mod attachment;
mod detach;
mod ends;
mod links;
mod spec;

use std::{ffi::CString, os::unix::ffi::OsStrExt as _, path::Path};

pub use self::{
    attachment::Attachment,
    spec::{Ends, ExitSite, ProbeSpec, SpanKind, can_be_done},
};
pub(super) use self::{
    attachment::{Placed, Site, placed},
    links::Links,
};
use super::{
    AttachKind, Engine, KernelError, allocations,
    hits::{HIT, HIT_PAGING},
    kernel_functions::Seen,
    perf::{self, PerfLinks},
};

/// The programs' names by role.
pub(super) const ENTRY: &str = "span_entry";
pub(super) const ENTRY_STEP: &str = "span_entry_step";
pub(super) const ENTRY_LOOK: &str = "span_entry_look";
pub(super) const ENTRY_LOOK_PAGING: &str = "span_entry_look_paging";
pub(super) const RETURN: &str = "span_return";
pub(super) const RET: &str = "span_ret";
pub(super) const RET_STEP: &str = "span_ret_step";

impl Engine {
    /// Attaches probes to one file of one process; all or none. When this returns, every call counts.
    ///
    /// # Errors
    /// Where the kernel refuses a site, or slots run out; nothing stays attached.
    pub fn attach(&mut self, pid: u32, file: &Path, specs: &[ProbeSpec]) -> Result<Attachment, KernelError> {
        let mut attachment = self.attach_ends(pid, file, specs)?;
        match self.attach_entries(&mut attachment) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    /// Attaches what sees spans end; none is seen to begin until [`Self::attach_entries`].
    ///
    /// # Errors
    /// As of [`Self::attach`].
    pub fn attach_ends(
        &mut self,
        pid: u32,
        file: &Path,
        specs: &[ProbeSpec],
    ) -> Result<Attachment, KernelError> {
        self.attach_all_or_none(pid, file, |engine, attachment| {
            engine.attach_all_ends(pid, specs, attachment)
        })
    }

    /// What reads values at lines. Multi links came later than programs that may wait for pages.
    pub(super) fn hit_program(&self) -> &'static str {
        match self.ability.attach {
            AttachKind::Multi => HIT_PAGING,
            AttachKind::Perf => HIT,
        }
    }

    /// What reads values where spans begin.
    pub(super) fn entry_look_program(&self) -> &'static str {
        match self.ability.attach {
            AttachKind::Multi => ENTRY_LOOK_PAGING,
            AttachKind::Perf => ENTRY_LOOK,
        }
    }

    /// Attaches what sees spans begin. Of the programs at one instruction, the kernel runs the one first that was attached
    /// last.
    ///
    /// # Errors
    /// Where the kernel refuses; the attachment has then to be detached.
    pub fn attach_entries(&mut self, attachment: &mut Attachment) -> Result<(), KernelError> {
        self.attach_entries_in_files(attachment)?;
        for call in &attachment.calls {
            self.watch_call(*call)?;
            attachment.watched.push(*call);
        }
        let Attachment {
            functions,
            function_links,
            ..
        } = attachment;
        self.attach_functions(functions, Seen::Calls, function_links)
    }

    /// Those of them that lie in files.
    pub(super) fn attach_entries_in_files(&mut self, attachment: &mut Attachment) -> Result<(), KernelError> {
        let Attachment {
            pid,
            file,
            entries,
            links,
            probes,
            ..
        } = attachment;
        for Placed { program, sites } in &*entries {
            self.attach_program(program, *pid, file, sites, false, links)?;
        }
        for probe in &*probes {
            self.counts.set_unmatched(*probe, 0);
        }
        Ok(())
    }

    pub(super) fn attach_program(
        &mut self,
        program: &'static str,
        pid: u32,
        file: &Path,
        sites: &[Site],
        is_exit: bool,
        links: &mut Links,
    ) -> Result<(), KernelError> {
        let path = CString::new(file.as_os_str().as_bytes())
            .map_err(|error| KernelError::system(file.display().to_string(), error.into()))?;
        let at_return = [RETURN, allocations::RETURN].contains(&program);
        match links {
            Links::Multi { entries, exits } => {
                let links = if is_exit { exits } else { entries };
                self.multi.attach(program, &path, sites, pid, at_return, links)?;
            }
            Links::Perf { entries, exits } => {
                let mut attached = PerfLinks::default();
                let opener = perf::Opener {
                    program: perf::program(&mut self.ebpf, program)?,
                    file: path,
                    pid,
                    at_return,
                    patience: self.multi.patience,
                };
                let all = opener.attach(sites, &mut attached);
                // Where one is refused, the others go with the attachment.
                if is_exit { exits } else { entries }.push(attached);
                all?;
            }
        }
        Ok(())
    }
}
