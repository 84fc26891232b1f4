//! From what is to be probed to the sites of each program.

use profiler_common::probe::{Cookie, ProbeId};

use super::{
    ENTRY, ENTRY_STEP, RET, RET_STEP, RETURN,
    attachment::{Attachment, Placed, Site, placed},
    spec::{Ends, ExitSite, ProbeSpec, SpanKind, can_be_done},
};
use crate::kernel::{Engine, KernelError, kernel_functions::KernelFunction, watched_calls::Call};

/// Sites by the program that is attached there.
#[derive(Default)]
struct Sites {
    entries: Vec<Site>,
    entries_step: Vec<Site>,
    entries_look: Vec<Site>,
    returns: Vec<Site>,
    rets: Vec<Site>,
    rets_step: Vec<Site>,
}

/// A probe that is being opened.
#[derive(Clone, Copy)]
struct Opened {
    probe: ProbeId,
    /// What all of its cookies say.
    flags: u8,
    /// Programs do the instructions that they can do.
    steps: bool,
}

/// A flag if it is to be set.
fn flag(is: bool, flag: u8) -> u8 {
    if is { flag } else { 0 }
}

impl Engine {
    /// Opens the probes and attaches where their spans end.
    pub(super) fn attach_all_ends(
        &mut self,
        pid: u32,
        specs: &[ProbeSpec],
        attachment: &mut Attachment,
    ) -> Result<(), KernelError> {
        let mut sites = Sites::default();
        for spec in specs {
            let probe = self.open_slot()?;
            attachment.probes.push(probe);
            self.counts.set_gates(probe, spec.gates);
            let switch = flag(spec.stacks_switch, Cookie::STACKS_SWITCH);
            let kind = spec.kind.flag();
            match spec.kind {
                SpanKind::KernelFunction { address } => {
                    self.look_in_kernel(pid, probe, spec, attachment)?;
                    let cookie = Cookie::new(probe, 0, kind).0;
                    attachment.functions.push(KernelFunction { address, cookie });
                }
                SpanKind::SystemCall { number, .. } => {
                    self.look_in_kernel(pid, probe, spec, attachment)?;
                    let cookie = Cookie::new(probe, 0, switch | kind).0;
                    attachment.calls.push(Call { pid, number, cookie });
                }
                SpanKind::Function | SpanKind::Call { .. } | SpanKind::Inlined => {
                    let by_return = flag(matches!(spec.ends, Ends::ReturnProbe), Cookie::RETURN_PROBE);
                    let opened = Opened {
                        probe,
                        flags: switch | by_return | kind,
                        steps: spec.done_by_program && self.ability.write_context,
                    };
                    self.open_entry(opened, spec, attachment, &mut sites)?;
                    self.open_ends(opened, spec, attachment, &mut sites)?;
                }
            }
        }
        // Exits first: a call that is seen to begin is then always seen to end.
        attachment.exits = placed([
            (RETURN, sites.returns),
            (RET, sites.rets),
            (RET_STEP, sites.rets_step),
        ]);
        self.attach_exits(attachment)?;
        attachment.entries = placed([
            (ENTRY, sites.entries),
            (ENTRY_STEP, sites.entries_step),
            (self.entry_look_program(), sites.entries_look),
        ]);
        Ok(())
    }

    /// Opens what is looked at where spans begin that are no place of a file.
    fn look_in_kernel(
        &mut self,
        pid: u32,
        probe: ProbeId,
        spec: &ProbeSpec,
        attachment: &mut Attachment,
    ) -> Result<(), KernelError> {
        let look = spec.look.clone().unwrap_or_default();
        self.open_look(probe, 0, None, &look, &mut attachment.plans)?;
        self.hits.set_process(probe, pid);
        Ok(())
    }

    /// Opens where spans begin.
    fn open_entry(
        &mut self,
        opened: Opened,
        spec: &ProbeSpec,
        attachment: &mut Attachment,
        sites: &mut Sites,
    ) -> Result<(), KernelError> {
        let Opened { probe, flags, steps } = opened;
        let looks = spec.look.is_some();
        if let Some(look) = &spec.look {
            self.open_look(probe, spec.entry_offset, None, look, &mut attachment.plans)?;
        }
        let call_length = match spec.kind {
            SpanKind::Call { length } => Some(length),
            SpanKind::Function
            | SpanKind::Inlined
            | SpanKind::SystemCall { .. }
            | SpanKind::KernelFunction { .. } => None,
        };
        let entry_step = steps && !looks && call_length.is_none() && can_be_done(&spec.entry_action);
        let site = if entry_step {
            self.open_site(&spec.entry_action, &mut attachment.sites)?
        } else {
            call_length.map_or(0, u32::from)
        };
        let own = flag(spec.loops, Cookie::LOOPS)
            | flag(spec.ends.elsewhere().next().is_some(), Cookie::GOES_ON_ELSEWHERE);
        let entry = Site {
            offset: spec.entry_offset,
            cookie: Cookie::new(probe, site, flags | own).0,
        };
        match (looks, entry_step) {
            (true, _) => &mut sites.entries_look,
            (false, true) => &mut sites.entries_step,
            (false, false) => &mut sites.entries,
        }
        .push(entry);
        Ok(())
    }

    /// Opens where spans end.
    fn open_ends(
        &mut self,
        opened: Opened,
        spec: &ProbeSpec,
        attachment: &mut Attachment,
        sites: &mut Sites,
    ) -> Result<(), KernelError> {
        match &spec.ends {
            Ends::ReturnProbe => {
                sites.returns.push(Site {
                    offset: spec.entry_offset,
                    cookie: Cookie::new(opened.probe, 0, opened.flags).0,
                });
                Ok(())
            }
            Ends::At(exits) => {
                let mut exits = exits.iter();
                exits.try_for_each(|exit| self.open_exit(opened, exit, attachment, sites))
            }
            Ends::Never => Ok(()),
        }
    }

    fn open_exit(
        &mut self,
        opened: Opened,
        exit: &ExitSite,
        attachment: &mut Attachment,
        sites: &mut Sites,
    ) -> Result<(), KernelError> {
        let exit_step = opened.steps && exit.condition.is_none() && can_be_done(&exit.action);
        let site = match exit.condition {
            Some(condition) => u32::from(condition.number()),
            None if exit_step || exit.way.may_stay_inside() => {
                self.open_site(&exit.action, &mut attachment.sites)?
            }
            None => 0,
        };
        let flags = opened.flags
            | flag(exit.way.may_stay_inside(), Cookie::MAY_STAY_INSIDE)
            | flag(exit.way.is_jump(), Cookie::JUMP)
            | flag(exit.condition.is_some(), Cookie::BRANCH)
            | flag(exit.is_behind_call, Cookie::CALL_SITE)
            | flag(exit.is_elsewhere, Cookie::ELSEWHERE);
        let exit = Site {
            offset: exit.offset,
            cookie: Cookie::new(opened.probe, site, flags).0,
        };
        if exit_step {
            sites.rets_step.push(exit);
        } else {
            sites.rets.push(exit);
        }
        Ok(())
    }

    pub(super) fn attach_exits(&mut self, attachment: &mut Attachment) -> Result<(), KernelError> {
        let Attachment {
            pid,
            file,
            exits,
            links,
            ..
        } = attachment;
        for Placed { program, sites } in &*exits {
            self.attach_program(program, *pid, file, sites, true, links)?;
        }
        Ok(())
    }
}
