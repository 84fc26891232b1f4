//! What was planned, as it is attached: where a function or call begins and ends, and who does the instructions there.

use std::sync::Arc;

use profiler_common::instruction::Action;
use profiler_plan::{
    self as plan, KernelAbility, PlannedFunction,
    calls::CallSite,
    entry::EntryPoint,
    exits::Way,
    hazards::Decision,
    inlined::{InlinedInstance, When},
};
use profiler_scope::Place;

use super::{
    super::{
        files::TargetFile,
        lines::Shown,
        picture::{ExitMethod, FunctionInfo, SiteInfo},
    },
    PreparedCallee, PreparedFile, PreparedSpan, Returning,
};
use crate::kernel::{Ends, ExitSite, Gates, ProbeSpec, SpanKind, can_be_done};

/// One call, and how it is timed; `None` where it never returns.
pub(super) fn call_site(
    file: &TargetFile,
    decision: &Decision,
    kernel: KernelAbility,
    place: &Place,
    call: &CallSite,
) -> Option<PreparedSpan> {
    let behind = call.behind.as_ref()?;
    let behind_action = file.placed(behind.file_offset, behind.action);
    let info = FunctionInfo {
        name: place.to_string(),
        module: file.shown.clone(),
        address: call.call.address,
        size: call.call.length.into(),
        ..FunctionInfo::default()
    };
    let site = SiteInfo {
        function: Arc::new(info),
        entry_offset: 0,
        entry_instruction: call.call.mnemonic.clone(),
        exit_method: ExitMethod::Ret,
        exits: 1,
        entry_single_stepped: call.call.is_single_stepped(kernel),
        exit_single_stepped: behind.is_single_stepped(kernel)
            && !(decision.done_by_program && can_be_done(&behind_action)),
    };
    let spec = ProbeSpec {
        entry_offset: call.call.file_offset,
        entry_action: Action::LEAVE,
        loops: false,
        ends: Ends::At(vec![ExitSite::new(behind.file_offset, behind_action)]),
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
        gates: Gates::default(),
        look: None,
        kind: SpanKind::Call {
            length: call.call.length,
        },
    };
    Some(PreparedSpan {
        site,
        spec,
        shown: Shown::default(),
        returning: Returning::Callee(PreparedCallee {
            name: call.callee.clone(),
            symbol: call.symbol.clone(),
            address: call.callee_address,
        }),
    })
}

/// What is asked of where an inlined instance begins.
pub(super) struct Beginning {
    /// As of [`EntryDecision::of`].
    pub(super) looks: bool,
    /// It is at its first instruction, whatever that costs.
    pub(super) from_first: bool,
}

/// An inlined instance, and how it is timed: from its first instruction, or from where that costs less.
pub(super) fn inlined_site(
    file: &TargetFile,
    decision: &Decision,
    kernel: KernelAbility,
    Beginning { looks, from_first }: Beginning,
    instance: InlinedInstance,
) -> PreparedSpan {
    let mut entry = &instance.entry;
    let mut entry_action = file.placed(entry.file_offset, entry.action);
    let by_program = decision.done_by_program && !looks && can_be_done(&entry_action);
    if !from_first
        && !by_program
        && let Some(cheap) = &instance.cheap_entry
    {
        entry = cheap;
        entry_action = Action::LEAVE;
    }
    let exits: Vec<ExitSite> = instance
        .exits
        .iter()
        .map(|exit| {
            let site = &exit.site;
            ExitSite {
                // The registers hold nothing that is returned.
                way: Way::Jump,
                is_behind_call: exit.when == When::Returned,
                condition: match exit.when {
                    When::If(condition) => Some(condition),
                    When::Always | When::Returned => None,
                },
                ..ExitSite::new(site.file_offset, file.placed(site.file_offset, site.action))
            }
        })
        .collect();
    let mut ends = instance.exits.iter().zip(&exits);
    let exit_single_stepped = ends.any(|(exit, site)| {
        exit.site.is_single_stepped(kernel) && !(decision.done_by_program && can_be_done(&site.action))
    });
    let (declared, line) = instance.declared;
    let info = FunctionInfo {
        name: instance.name,
        linkage_name: instance.linkage_name,
        file: declared,
        line: u32::try_from(line).unwrap_or(0),
        module: file.shown.clone(),
        address: instance.address,
        size: instance.size,
        ..FunctionInfo::default()
    };
    let site = SiteInfo {
        function: Arc::new(info),
        entry_offset: u32::try_from(entry.address - instance.address).unwrap_or(u32::MAX),
        entry_instruction: entry.mnemonic.clone(),
        exit_method: ExitMethod::Ret,
        exits: u32::try_from(exits.len()).unwrap_or(u32::MAX),
        entry_single_stepped: entry.is_single_stepped(kernel) && !by_program,
        exit_single_stepped,
    };
    let spec = ProbeSpec {
        entry_offset: entry.file_offset,
        entry_action: if by_program { entry_action } else { Action::LEAVE },
        loops: false,
        ends: Ends::At(exits),
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
        gates: Gates::default(),
        look: None,
        kind: SpanKind::Inlined,
    };
    PreparedSpan {
        site,
        spec,
        shown: Shown::default(),
        returning: Returning::Unknown,
    }
}

/// Who does the instruction that a call's entry is probed at, and so what that costs.
struct EntryDecision {
    /// The instruction, if the program does it.
    action: Action,
    /// The kernel has to single-step it.
    single_stepped: bool,
}

impl EntryDecision {
    /// `looks` says that more is done there than to take the time: the program leaves the instruction to the kernel then.
    fn of(entry: &EntryPoint, action: Action, done_by_program: bool, looks: bool) -> Self {
        let by_program = done_by_program && !looks && can_be_done(&action);
        Self {
            action: if by_program { action } else { Action::LEAVE },
            single_stepped: entry.single_stepped && !by_program,
        }
    }
}

/// Groups planned functions by the file that they are in.
pub(super) fn by_file<'f>(
    pid: u32,
    files: &'f [TargetFile],
    decision: &Decision,
    looks: bool,
    functions: Vec<PlannedFunction>,
) -> impl Iterator<Item = (&'f TargetFile, PreparedFile)> {
    let mut prepared: Vec<PreparedFile> = files
        .iter()
        .map(|file| PreparedFile {
            pid,
            path: file.path.clone(),
            sites: Vec::new(),
        })
        .collect();
    for function in functions {
        let (Some(file), Some(into)) = (files.get(function.module), prepared.get_mut(function.module)) else {
            continue;
        };
        into.sites.push(site(file, decision, looks, function));
    }
    files
        .iter()
        .zip(prepared)
        .filter(|(_, prepared)| !prepared.sites.is_empty())
}

fn site(file: &TargetFile, decision: &Decision, looks: bool, function: PlannedFunction) -> PreparedSpan {
    let (exit_method, exits) = match &function.ends {
        plan::Ends::ReturnProbe => (ExitMethod::Return, 1),
        plan::Ends::At(exits) => (ExitMethod::Ret, exits.len()),
        plan::Ends::Never => (ExitMethod::Never, 0),
    };
    let action = file.placed(function.entry_offset, function.entry.action);
    let entry = EntryDecision::of(&function.entry, action, decision.done_by_program, looks);
    let info = FunctionInfo {
        name: function.name,
        linkage_name: function.linkage_name,
        module: file.shown.clone(),
        address: function.address,
        size: function.size,
        inlined: u32::try_from(function.debugged.inlined).unwrap_or(u32::MAX),
        same_code: function.same_code,
        is_async: function.debugged.is_async,
        ..FunctionInfo::default()
    };
    let site = SiteInfo {
        function: Arc::new(info),
        entry_offset: u32::try_from(function.entry.delta).unwrap_or(u32::MAX),
        entry_instruction: function.entry.mnemonic,
        exit_method,
        exits: u32::try_from(exits).unwrap_or(u32::MAX),
        entry_single_stepped: entry.single_stepped,
        exit_single_stepped: exit_method == ExitMethod::Ret && !decision.done_by_program,
    };
    let placed = |exit: &plan::ExitSite| ExitSite {
        way: exit.way,
        condition: exit.condition,
        is_elsewhere: exit.is_elsewhere,
        ..ExitSite::new(exit.file_offset, file.placed(exit.file_offset, exit.action))
    };
    let ends = match &function.ends {
        plan::Ends::ReturnProbe => Ends::ReturnProbe,
        plan::Ends::At(exits) => Ends::At(exits.iter().map(placed).collect()),
        plan::Ends::Never => Ends::Never,
    };
    let spec = ProbeSpec {
        entry_offset: function.entry_offset,
        entry_action: entry.action,
        loops: function.loops,
        ends,
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
        gates: Gates::default(),
        look: None,
        kind: SpanKind::Function,
    };
    PreparedSpan {
        site,
        spec,
        shown: Shown::default(),
        returning: Returning::Function,
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::instruction::Operation;

    use super::*;

    fn entry(single_stepped: bool) -> EntryPoint {
        EntryPoint {
            delta: 0,
            mnemonic: "mov".into(),
            single_stepped,
            action: skip(0),
        }
    }

    fn skip(address: u64) -> Action {
        Action {
            operation: Operation::Skip as u8,
            address,
            ..Action::LEAVE
        }
    }

    #[test]
    fn an_entry_costs_what_is_attached_there() {
        let cost = |stepped, action, by_program, looks| {
            let decision = EntryDecision::of(&entry(stepped), action, by_program, looks);
            (decision.action == action, decision.single_stepped)
        };
        let known = skip(0x1000);
        assert_eq!(cost(true, known, true, false), (true, false));
        assert_eq!(cost(true, known, false, false), (false, true));
        // What is read or recorded there leaves the instruction to the kernel.
        assert_eq!(cost(true, known, true, true), (false, true));
        assert_eq!(cost(false, known, true, true), (false, false));
        // So does a file that is mapped twice.
        assert_eq!(cost(true, skip(0), true, false), (false, true));
        assert_eq!(cost(true, Action::LEAVE, true, false), (true, true));
    }
}
