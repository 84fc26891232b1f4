//! The search for a line's calls, function by function.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use profiler_scope::Name;

use super::{
    super::{
        functions::ModuleIndex,
        goroutines,
        held::{Holder, each_holder, nearest_lines},
        instruction::instruction_at,
        lines::{self, LineCode, LineError, MAX_SITES},
        names::Match,
        source::{Call, budget::Budget, find::entries, ranges::Ranges, scopes::Body, units::Reader},
    },
    CallError, CallSite, FoundCalls, LeftOut, Reason,
    wanted::Wanted,
};

/// Callees that an error lists.
const LISTED: usize = 5;
/// Calls on other lines that are looked at for the nearest.
const MAX_ELSEWHERE: usize = 1_000;

/// What is found of a line's calls.
pub(super) struct Search<'m> {
    module: &'m ModuleIndex,
    file: &'m str,
    line: u64,
    code: Ranges,
    wanted: Wanted<'m>,
    sites: BTreeMap<u64, (Match, CallSite)>,
    left_out: BTreeMap<u64, (Match, LeftOut)>,
    /// What is inlined: where it is declared.
    declared: Option<(String, u64)>,
    others: BTreeSet<String>,
    indirect: BTreeSet<u64>,
    /// Calls of it on other lines.
    elsewhere: Vec<u64>,
    missing: BTreeSet<String>,
}

impl<'m> Search<'m> {
    pub fn new(module: &'m ModuleIndex, code: &'m LineCode, line: u64, callee: &'m Name) -> Self {
        Self {
            module,
            file: &code.file,
            line,
            code: Ranges::new(code.rows.iter().cloned()),
            wanted: Wanted::new(callee),
            sites: BTreeMap::new(),
            left_out: BTreeMap::new(),
            declared: None,
            others: BTreeSet::new(),
            indirect: BTreeSet::new(),
            elsewhere: Vec::new(),
            missing: BTreeSet::new(),
        }
    }

    /// Looks at all functions that hold the line's rows.
    pub fn run(&mut self, reader: &mut Reader<'_, '_>, rows: &[Range<u64>]) {
        each_holder(self.module, reader, rows, |reader, holder| {
            self.missing.extend(holder.flow.notes.iter().cloned());
            for call in &holder.flow.calls {
                self.add(reader.budget, &holder, call);
            }
            if let Some(body) = &holder.body {
                self.add_inlined(reader, body, &holder.name);
            }
        });
        if reader.budget.is_short() {
            self.missing.insert(
                "the file has too much code or debug information for this request: not all of it was read"
                    .to_owned(),
            );
        }
    }

    fn add(&mut self, budget: &Budget, holder: &Holder, call: &Call) {
        let Some(kind) = self.wanted.is_called(self.module, call, budget) else {
            if self.code.contains(call.address) {
                if call.callee.is_empty() {
                    self.indirect.insert(call.address);
                } else if self.others.len() <= LISTED || self.others.contains(&call.callee) {
                    self.others.insert(call.callee.clone());
                }
            }
            return;
        };
        if !self.code.contains(call.address) {
            if call.return_address.is_some() && self.elsewhere.len() < MAX_ELSEWHERE {
                self.elsewhere.push(call.address);
            }
            return;
        }
        if self.sites.len() + self.left_out.len() > MAX_SITES {
            return;
        }
        match self.site(budget, holder, call) {
            Ok(site) => {
                self.sites.insert(call.address, (kind, site));
            }
            Err(reason) => self.leave_out(budget, kind, call.address, &holder.name, reason),
        }
    }

    fn leave_out(&mut self, budget: &Budget, kind: Match, address: u64, function: &str, reason: Reason) {
        let function = budget.text(function);
        let left_out = LeftOut {
            address,
            function,
            reason,
        };
        self.left_out.insert(address, (kind, left_out));
    }

    fn site(&self, budget: &Budget, holder: &Holder, call: &Call) -> Result<CallSite, Reason> {
        let Some(return_address) = call.return_address else {
            return Err(Reason::TailCall(budget.text(&call.callee)));
        };
        if goroutines::run(self.module, call.address) {
            return Err(Reason::Goroutine);
        }
        let end = holder.end_of(call.address).unwrap_or(return_address);
        let (_, instruction) = instruction_at(self.module, call.address, end)?;
        let behind = if return_address < end {
            Some(instruction_at(self.module, return_address, end)?.1)
        } else {
            None
        };
        Ok(CallSite {
            call: instruction,
            behind,
            function: budget.text(&holder.name),
            callee: budget.text(&call.callee),
            symbol: budget.text(&call.symbol),
            callee_address: call.callee_address,
            kind: call.kind,
        })
    }

    /// Looks for instances that stand for a call at the line.
    fn add_inlined(&mut self, reader: &mut Reader<'_, '_>, body: &Body, function: &str) {
        if self.wanted.is_any() {
            return;
        }
        let Some(unit) = reader.unit(body.unit) else {
            return;
        };
        let file = reader.files.number(self.file);
        for scope in &body.scopes {
            let Some(inlined) = scope
                .inlined
                .as_ref()
                .filter(|inlined| u64::from(inlined.call_line) == self.line)
            else {
                continue;
            };
            let (dwarf, budget) = (reader.dwarf, reader.budget);
            let call_file = reader
                .files
                .of_unit(dwarf, &unit, body.unit, inlined.call_file, budget);
            // Without code it was computed by the compiler.
            let (true, Some(start)) = (call_file == file, scope.ranges.first().map(|range| range.start))
            else {
                continue;
            };
            if let Some(kind) = self.wanted.is_inlined(inlined, budget)
                && self.left_out.len() <= MAX_SITES
            {
                let source = &inlined.known.declared.source;
                if self.declared.is_none() && !source.file.is_empty() {
                    self.declared = Some((budget.text(&source.file), source.line));
                }
                let reason = Reason::Inlined(budget.text(&inlined.known.name));
                self.leave_out(budget, kind, start, function, reason);
            }
        }
    }

    /// What was found, or why nothing was.
    pub fn finish(mut self, reader: &mut Reader<'_, '_>) -> Result<FoundCalls, CallError> {
        let (file, line) = (self.file.to_owned(), self.line);
        if self.sites.len() + self.left_out.len() > MAX_SITES {
            return Err(LineError::TooMany { file, line }.into());
        }
        // Those whose whole name it is go before those that only end in it.
        let kinds = self.sites.values().map(|(kind, _)| *kind);
        let best = kinds.chain(self.left_out.values().map(|(kind, _)| *kind)).max();
        if let (Name::Exact(_), Some(best)) = (self.wanted.name(), best) {
            self.sites.retain(|_, (kind, _)| *kind == best);
            self.left_out.retain(|_, (kind, _)| *kind == best);
        }
        let left_out: Vec<LeftOut> = self.left_out.into_values().map(|(_, call)| call).collect();
        if !self.sites.is_empty() {
            return Ok(FoundCalls {
                file,
                sites: self.sites.into_values().map(|(_, site)| site).collect(),
                left_out,
                missing: self.missing.into_iter().collect(),
            });
        }
        // What stands in the way of a call that is there is more telling than that another is inlined.
        let is_inlined = |call: &LeftOut| matches!(call.reason, Reason::Inlined(_));
        if let Some(LeftOut { function, reason, .. }) = left_out
            .into_iter()
            .min_by_key(|call| (is_inlined(call), call.address))
        {
            return Err(match reason {
                Reason::Inlined(callee) => CallError::Inlined {
                    file,
                    line,
                    callee,
                    function,
                    declared: self.declared,
                },
                reason => CallError::Unusable {
                    file,
                    line,
                    function,
                    reason,
                },
            });
        }
        if let Some(reason) = self.missing.into_iter().next() {
            return Err(CallError::Unread { file, line, reason });
        }
        let nearest = nearest_lines(reader, &self.elsewhere, (self.file, line));
        Err(CallError::NotCalled {
            file,
            line,
            callee: self.wanted.name().text().to_owned(),
            others: self.others.into_iter().take(LISTED).collect(),
            indirect: self.indirect.len(),
            nearest,
        })
    }
}

/// Whether what is asked for is inlined at a line that has no code of its own: it is looked for in the functions that
/// hold the nearest lines.
pub(super) fn inlined_nearby(
    module: &ModuleIndex,
    reader: &mut Reader<'_, '_>,
    (file, line): (&str, u64),
    nearest: &[u64],
    callee: &Name,
) -> Option<CallError> {
    let mut starts: BTreeSet<u64> = BTreeSet::new();
    for &other in nearest {
        let code = lines::code(module, file, other);
        starts.extend(code.iter().flat_map(|code| &code.rows).map(|row| row.start));
    }
    let starts: Vec<u64> = starts.into_iter().collect();
    let bodies: BTreeSet<_> = entries(reader, &starts).into_values().collect();
    let code = LineCode {
        file: file.to_owned(),
        rows: Vec::new(),
    };
    let mut search = Search::new(module, &code, line, callee);
    for (number, offset) in bodies {
        let Some(body) = Body::read(reader, number, offset) else {
            continue;
        };
        let start = body.scopes[0].ranges.first().map(|range| range.start);
        let function = start.and_then(|start| module.function_at(start));
        let function = function.map_or_else(String::new, |function| function.name().into_owned());
        search.add_inlined(reader, &body, &function);
    }
    match search.finish(reader) {
        Err(error @ CallError::Inlined { .. }) => Some(error),
        _ => None,
    }
}
