//! The order in which steps are attached: the ends of all, then beginnings and lines, the innermost step's first.

use std::{collections::HashSet, path::Path, sync::Arc};

use profiler_common::instruction::Action;
use profiler_scope::Place;
use profiler_target::is_running;

use super::{
    super::{
        functions::key,
        prepare::{PreparedFile, PreparedLines, PreparedSpan, PreparedStep},
        probe_order::Late,
    },
    Steps,
    running::{AttachedLine, AttachedLines, AttachedSpan, AttachedSpans, RunningStep},
};
use crate::kernel::{Engine, Gates, KernelError, LookSpec};

/// What was attached for one step and belongs to nobody yet.
#[derive(Default)]
pub(super) struct Fresh {
    pub(super) spans: Vec<AttachedSpans>,
    pub(super) lines: Vec<AttachedLines>,
}

impl Steps {
    /// Attaches what is not there yet, all or nothing.
    pub(super) fn attach(
        &mut self,
        engine: &mut Engine,
        prepared: &[PreparedStep],
        kept: usize,
        gates: &[Gates],
        records: bool,
    ) -> Result<Vec<Fresh>, KernelError> {
        let mut all: Vec<Fresh> = prepared.iter().map(|_| Fresh::default()).collect();
        let attached = self.attach_in_order(engine, prepared, kept, gates, records, &mut all);
        if let Err(error) = attached {
            for Fresh { spans, lines } in all {
                for spans in spans {
                    engine.detach(spans.attachment);
                }
                for lines in lines {
                    engine.detach(lines.attachment);
                }
            }
            return Err(error);
        }
        Ok(all)
    }

    /// A line may lie where a function begins or ends that it is inside of, and functions may begin at one instruction: so all ends
    /// come first, and then beginnings and lines from the innermost step to the outermost ([`Late`]).
    fn attach_in_order(
        &mut self,
        engine: &mut Engine,
        prepared: &[PreparedStep],
        kept: usize,
        gates: &[Gates],
        records: bool,
        all: &mut [Fresh],
    ) -> Result<(), KernelError> {
        let last = prepared.len().saturating_sub(1);
        let read = read_places(prepared);
        let known = |number: usize| self.list.get(number).filter(|_| number < kept);
        let how = |number: usize| How {
            gates: gates[number],
            records: records && number == last,
            read: &read,
        };
        for (number, step) in prepared.iter().enumerate() {
            attach_ends(engine, step, known(number), &how(number), &mut all[number])?;
        }
        for (number, step) in prepared.iter().enumerate().rev() {
            attach_beginnings(engine, step, known(number), &how(number), &mut all[number])?;
        }
        let mut late = Late::default();
        for (number, fresh) in all.iter().enumerate() {
            for spans in &fresh.spans {
                late.add(number, &spans.attachment);
            }
            for lines in &fresh.lines {
                late.add(number, &lines.attachment);
            }
        }
        let kept = kept.min(self.list.len());
        late.let_pass(engine, &mut self.list[..kept]);
        Ok(())
    }
}

/// A file offset in a process's file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct At<'p> {
    pid: u32,
    path: &'p Path,
    offset: u64,
}

/// Where lines and calls read values or stacks.
fn read_places(prepared: &[PreparedStep]) -> HashSet<At<'_>> {
    let mut found = HashSet::new();
    for step in prepared {
        let calls = step
            .files
            .iter()
            .filter(|_| matches!(step.step.place, Place::Call { .. }));
        for file in calls {
            let reads = |span: &&PreparedSpan| span.spec.look.as_ref().is_some_and(LookSpec::reads);
            let sites = file.sites.iter().filter(reads);
            found.extend(sites.map(|span| At {
                pid: file.pid,
                path: &file.path,
                offset: span.spec.entry_offset,
            }));
        }
        for file in &step.lines {
            let lines = file.lines.iter().filter(|line| line.spec.look.reads());
            found.extend(lines.map(|line| At {
                pid: file.pid,
                path: &file.path,
                offset: line.spec.offset,
            }));
        }
    }
    found
}

/// How a step is attached.
struct How<'p> {
    gates: Gates,
    records: bool,
    /// Where lines and calls read values or stacks: no other program is to have done the instruction before.
    read: &'p HashSet<At<'p>>,
}

/// Attaches where the spans of a step end, of what is not there yet.
fn attach_ends(
    engine: &mut Engine,
    prepared: &PreparedStep,
    known: Option<&RunningStep>,
    how: &How<'_>,
    fresh: &mut Fresh,
) -> Result<(), KernelError> {
    let How { gates, records, read } = *how;
    let is_only = prepared.has_one_process();
    for PreparedFile { pid, path, sites } in &prepared.files {
        let (mut spans, mut specs) = (Vec::new(), Vec::new());
        for PreparedSpan {
            site, spec, shown, ..
        } in sites
        {
            let function = key(&site.function);
            if known.is_some_and(|known| known.sees(&function, *pid)) {
                continue;
            }
            let mut spec = spec.clone();
            spec.gates = gates;
            if let Some(look) = &mut spec.look {
                look.records = records;
            }
            let at = At {
                pid: *pid,
                path,
                offset: spec.entry_offset,
            };
            if read.contains(&at) {
                spec.entry_action = Action::LEAVE;
            }
            spans.push(AttachedSpan {
                function,
                site: site.clone(),
                shown: shown.clone(),
            });
            specs.push(spec);
        }
        if specs.is_empty() {
            continue;
        }
        if let Some(attachment) = unless_ended(engine.attach_ends(*pid, path, &specs), *pid, is_only)? {
            fresh.spans.push(AttachedSpans {
                attachment,
                spans,
                is_given_up: false,
            });
        }
    }
    Ok(())
}

/// Attaches where the spans of a step begin, and its lines.
fn attach_beginnings(
    engine: &mut Engine,
    prepared: &PreparedStep,
    known: Option<&RunningStep>,
    how: &How<'_>,
    fresh: &mut Fresh,
) -> Result<(), KernelError> {
    let is_only = prepared.has_one_process();
    for AttachedSpans { attachment, .. } in &mut fresh.spans {
        let pid = attachment.pid();
        unless_ended(engine.attach_entries(attachment), pid, is_only)?;
    }
    if known.is_some_and(|known| !known.lines.is_empty()) {
        return Ok(());
    }
    for PreparedLines { pid, path, lines } in &prepared.lines {
        let specs: Vec<_> = lines
            .iter()
            .map(|line| {
                let mut spec = line.spec.clone();
                spec.gates = how.gates;
                spec.look.records = how.records;
                spec
            })
            .collect();
        let Some(attachment) = unless_ended(engine.attach_hits(*pid, path, &specs), *pid, is_only)? else {
            continue;
        };
        let lines = lines
            .iter()
            .map(|line| AttachedLine {
                place: Arc::clone(&line.place),
                printed: Arc::clone(&line.printed),
                single_stepped: line.single_stepped.is_some(),
            })
            .collect();
        fresh.lines.push(AttachedLines { attachment, lines });
    }
    Ok(())
}

/// What was attached; `None` where the process has ended and is not the only one of its session, which goes on without it. Not so
/// where it has merely unmapped the file.
fn unless_ended<T>(
    attached: Result<T, KernelError>,
    pid: u32,
    is_only: bool,
) -> Result<Option<T>, KernelError> {
    match attached {
        Err(_) if !is_only && !is_running(pid) => Ok(None),
        attached => attached.map(Some),
    }
}
