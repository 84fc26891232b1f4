//! Probes that are attached once more, as others have to go or to run before.

use std::io;

use super::{
    attachment::{Anew, Attachment},
    links::Links,
};
use crate::kernel::{Engine, KernelError};

impl Engine {
    /// Has what sees spans begin, or lines, in files attached anew by [`Self::attach_again`], so that it runs before all else at the same
    /// instructions. Calls that begin meanwhile are not seen to.
    pub fn let_pass(&mut self, attachment: &mut Attachment) {
        let mut links = self.no_links();
        match (&mut links, &mut attachment.links) {
            (Links::Multi { entries, .. }, Links::Multi { entries: known, .. }) => {
                std::mem::swap(entries, known);
            }
            (Links::Perf { entries, .. }, Links::Perf { entries: known, .. }) => {
                std::mem::swap(entries, known);
            }
            _ => {}
        }
        self.close_for_others(links, false, attachment);
    }

    /// Closes links that have others in their place next.
    pub(super) fn close_for_others(&mut self, links: Links, exits: bool, attachment: &mut Attachment) {
        self.hold_unmatched(attachment);
        attachment.closing.extend(links.close());
        let anew = attachment.anew.get_or_insert(Anew { exits: false });
        anew.exits |= exits;
    }

    /// Counts no more ends without a beginning from now on: the entries are gone, and these calls did not begin too early.
    pub(super) fn hold_unmatched(&mut self, attachment: &Attachment) {
        for probe in &attachment.probes {
            let unmatched = self.counts.probe(*probe).unmatched;
            self.unmatched_at_end.entry(*probe).or_insert(unmatched);
        }
    }

    /// Counts them again, from what there were before.
    fn count_unmatched(&mut self, attachment: &Attachment) {
        for probe in &attachment.probes {
            if let Some(unmatched) = self.unmatched_at_end.remove(probe) {
                self.counts.set_unmatched(*probe, unmatched);
            }
        }
    }

    /// Attaches what was to be attached anew, once all links that were in its place are closed; whether that was done. Of several
    /// attachments, each is seen to begin before those that stand before it. Not those of processes that have ended.
    ///
    /// # Errors
    /// Where links cannot be closed, or the kernel refuses what it has taken before: nothing is then seen to begin any more.
    pub fn attach_again(
        &mut self,
        attachments: &mut [&mut Attachment],
        is_alive: impl Fn(u32) -> bool,
    ) -> Result<bool, KernelError> {
        let unless_ended = |attachment: &mut Attachment, attached: Result<(), KernelError>| {
            if attached.is_err() && !is_alive(attachment.pid()) {
                attachment.anew = None;
                return Ok(());
            }
            attached
        };
        if attachments.iter().any(|attachment| !attachment.is_settled()) {
            return Ok(false);
        }
        if attachments.iter().any(|attachment| attachment.is_stuck()) {
            return Err(still_runs());
        }
        for attachment in attachments.iter_mut() {
            attachment.closing.clear();
            if attachment.anew.as_ref().is_some_and(|anew| anew.exits) {
                let attached = self.attach_exits(attachment);
                unless_ended(attachment, attached)?;
            }
        }
        for attachment in attachments.iter_mut().rev() {
            if attachment.anew.take().is_some() {
                let attached = self.attach_entries_in_files(attachment);
                unless_ended(attachment, attached)?;
                self.count_unmatched(attachment);
            }
        }
        Ok(true)
    }
}

/// Probes cannot be taken off.
fn still_runs() -> KernelError {
    let error = io::Error::new(
        io::ErrorKind::TimedOut,
        "a program of the kernel's still runs there",
    );
    KernelError::system("taking probes off", error)
}
