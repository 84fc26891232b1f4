//! Everything that is known of a function, by line.

use std::{
    collections::{BTreeMap, HashMap, hash_map},
    ops::Range,
    rc::Rc,
};

use super::{
    super::functions::ModuleIndex,
    budget::Budget,
    flow::{Flow, Jump, flow, name_at},
    model::{Branch, FunctionSource, Instance, Line, Position, Readable},
    part::{Key, Own, Part},
    ranges::Ranges,
    rows::{Files, md5},
    scopes::{Body, MAX_VARIABLES},
    types::Types,
    units::{Known, Reader},
    variables::{Variable, variable},
    whole::Wholes,
};

/// Places of lines, each with each variable, that are looked at.
const MAX_READINGS: usize = 1 << 20;
/// Ranges of the variables of one function.
const MAX_VARIABLE_RANGES: usize = 1 << 18;

/// What is to be described.
pub(super) struct Subject {
    /// With name, linkage name, address, size and ranges.
    pub shown: FunctionSource,
    pub known: Rc<Known>,
    /// The function, or its inlined instances; none where DWARF does not know it.
    pub bodies: Vec<Body>,
}

/// The lines of a function by where they are shown: its own file's first, then those of others, last what has none.
struct Lines<'f> {
    files: &'f Files,
    budget: &'f Budget,
    own: Own,
    by_key: BTreeMap<(u8, Key), Line>,
}

impl Lines<'_> {
    /// The path of a file that is not the function's own.
    fn other_file(&self, file: usize) -> String {
        if file == self.own.file {
            String::new()
        } else {
            self.budget.text(self.files.path(file))
        }
    }

    fn at(&mut self, key: Key) -> &mut Line {
        let rank = match key {
            (0, _) | (_, 0) => 2,
            (file, _) => u8::from(file != self.own.file),
        };
        let key = if rank == 2 { (0, 0) } else { key };
        if !self.by_key.contains_key(&(rank, key)) {
            let line = Line {
                file: self.other_file(key.0),
                line: key.1,
                ..Line::default()
            };
            self.by_key.insert((rank, key), line);
        }
        self.by_key.entry((rank, key)).or_default()
    }

    fn position(&self, part: Option<&Part>, whole: &Ranges, address: u64) -> Position {
        let (file, line) = match part {
            Some(part) if whole.contains(address) => part.line_of(&self.own, address),
            _ => (0, 0),
        };
        Position {
            address,
            file: if line == 0 {
                String::new()
            } else {
                self.other_file(file)
            },
            line,
        }
    }

    fn add_sites(&mut self, part: &Part) {
        for row in part.rows.iter().filter(|row| row.begins) {
            let key = (row.file, row.line);
            if part.call == Some(key) {
                continue;
            }
            let inlined = part.is_inlined(row.range.start);
            // The lines of what is inlined are its own function's.
            if self.own.has(key) || !inlined {
                self.at(key).sites.push(row.range.start);
            }
        }
    }

    fn add_code(&mut self, part: &Part) {
        for row in &part.rows {
            let code = &mut self.at(part.line_of(&self.own, row.range.start)).code;
            match code.last_mut() {
                Some(last) if last.end == row.range.start => last.end = row.range.end,
                _ => code.push(row.range.clone()),
            }
        }
    }

    fn add_flow(&mut self, part: Option<&Part>, whole: &Ranges, found: Flow) {
        let line_of = |own: &Own, address| part.map_or((0, 0), |part| part.line_of(own, address));
        for Jump {
            address,
            mnemonic,
            target,
            next,
            is_loop,
        } in found.jumps
        {
            let branch = Branch {
                address,
                mnemonic,
                taken: self.position(part, whole, target),
                otherwise: next.map(|next| self.position(part, whole, next)),
                is_loop,
            };
            let key = line_of(&self.own, address);
            self.at(key).branches.push(branch);
        }
        for call in found.calls {
            let key = line_of(&self.own, call.address);
            self.at(key).calls.push(call);
        }
        for case in found.cases {
            let key = line_of(&self.own, case);
            self.at(key).cases.push(case);
        }
    }

    fn add_inlined(&mut self, part: &Part) {
        for (number, scope) in part.body.scopes.iter().enumerate() {
            let Some(inlined) = scope.inlined.as_ref().filter(|_| !scope.ranges.is_empty()) else {
                continue;
            };
            let key = part.shown_at[number].unwrap_or((0, 0));
            let (file, call_line) = part.called_at[number].unwrap_or((0, 0));
            let instance = Instance {
                name: self.budget.text(&inlined.known.name),
                call_file: self.other_file(file),
                call_line,
                ranges: scope.ranges.clone(),
            };
            self.at(key).inlined.push(instance);
        }
    }
}

/// Describes a function.
pub(super) fn join(
    module: &ModuleIndex,
    reader: &mut Reader<'_, '_>,
    types: &mut Types,
    subject: Subject,
) -> FunctionSource {
    let Subject {
        mut shown,
        known,
        bodies,
    } = subject;
    let declared = &known.declared;
    let file = reader.files.number(&declared.source.file);
    let first = u32::try_from(declared.source.line).unwrap_or(0);
    let mut parts: Vec<Part> = bodies
        .into_iter()
        .filter_map(|body| Part::read(reader, body, &mut shown.missing))
        .collect();
    // Without an entry that says where it is declared, its code begins with its first line.
    let begins = || parts.first().and_then(|part| part.row_at(shown.address));
    let (file, first) = if file == 0 {
        begins().unwrap_or((file, first))
    } else {
        (file, first)
    };
    let last = parts.iter().filter_map(|part| part.last_line(file, first)).max();
    let last = last.unwrap_or(first).max(first);
    reader.files.path(file).clone_into(&mut shown.file);
    shown.line = if file == 0 { 0 } else { first };
    shown.last_line = if file == 0 { 0 } else { last };
    let own = Own { file, first, last };
    for part in &mut parts {
        part.place(&own);
    }
    shown.variables = variables(reader, types, &parts, &mut shown.missing);
    shown.md5 = md5_of(reader, &parts, &shown.file);
    let mut lines = Lines {
        files: &reader.files,
        budget: reader.budget,
        own,
        by_key: BTreeMap::new(),
    };
    if parts.is_empty() {
        let ranges = Ranges::new(shown.ranges.iter().cloned());
        let mut found = flow(module, reader, &ranges, &ranges);
        shown.missing.append(&mut found.notes);
        lines.add_flow(None, &ranges, found);
    } else {
        shown.ranges = Ranges::new(parts.iter().flat_map(|part| part.ranges.iter().cloned())).into_vec();
        shown.instances = parts
            .iter()
            .filter_map(|part| instance(module, &lines, part))
            .collect();
    }
    let mut wholes = Wholes::default();
    for part in &parts {
        let whole = wholes.of(module, &part.ranges, reader.budget);
        let mut found = flow(module, reader, &part.ranges, &whole);
        shown.missing.append(&mut found.notes);
        lines.add_sites(part);
        lines.add_code(part);
        lines.add_flow(Some(part), &whole, found);
        lines.add_inlined(part);
    }
    shown.lines = lines.by_key.into_values().collect();
    if reader.budget.is_short() {
        shown.missing.push(
            "the file has too much code or debug information for this request: not all of it was read"
                .to_owned(),
        );
    }
    finish(&mut shown);
    shown
}

/// The MD5 of a source file by the first unit that has it. Parts of one unit follow each other.
fn md5_of(reader: &mut Reader<'_, '_>, parts: &[Part], path: &str) -> Option<[u8; 16]> {
    let mut units: Vec<usize> = parts.iter().map(|part| part.body.unit).collect();
    units.dedup();
    units.into_iter().find_map(|number| {
        let unit = reader.unit(number)?;
        md5(reader.dwarf, &unit, path, reader.budget)
    })
}

/// What an inlined instance of the function itself is inlined into.
fn instance(module: &ModuleIndex, lines: &Lines<'_>, part: &Part) -> Option<Instance> {
    let call = part.body.call.as_ref()?;
    let start = part.ranges.iter().next()?.start;
    let holder = module
        .function_at(start)
        .map_or_else(|| name_at(module, start), |function| function.name().into_owned());
    let (file, _) = part.call?;
    Some(Instance {
        name: lines.budget.text(&holder),
        call_file: lines.other_file(file),
        call_line: call.call_line,
        ranges: part.ranges.iter().cloned().collect(),
    })
}

fn variables(
    reader: &mut Reader<'_, '_>,
    types: &mut Types,
    parts: &[Part],
    missing: &mut Vec<String>,
) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    let mut known: HashMap<(String, u32, String, Option<String>), usize> = HashMap::new();
    let mut ranges_left = MAX_VARIABLE_RANGES;
    let declarations = parts.iter().flat_map(|part| {
        let of_part = part.body.variables.iter();
        of_part.map(move |declaration| (&part.body, declaration))
    });
    for (body, declaration) in declarations {
        let Some(mut variable) = variable(reader, types, body, declaration) else {
            continue;
        };
        let key = (
            variable.name.clone(),
            variable.line,
            variable.type_name.clone(),
            variable.inlined_from.clone(),
        );
        let count = variable.ranges.len();
        let is_new = !known.contains_key(&key);
        if ranges_left < count || (is_new && variables.len() == MAX_VARIABLES) {
            missing.push("too many variables: some are left out, or shown at some lines only".to_owned());
            continue;
        }
        ranges_left -= count;
        // Each instance has its own; to those who read the source they are one.
        match known.entry(key) {
            hash_map::Entry::Occupied(at) => variables[*at.get()].ranges.append(&mut variable.ranges),
            hash_map::Entry::Vacant(at) => {
                at.insert(variables.len());
                variables.push(variable);
            }
        }
    }
    for variable in &mut variables {
        let ranges: Vec<Range<u64>> = std::mem::take(&mut variable.ranges);
        variable.ranges = Ranges::new(ranges).into_vec();
    }
    missing.dedup();
    variables
}

/// Puts everything in order, and says which variables can be read where.
fn finish(shown: &mut FunctionSource) {
    let sets: Vec<Ranges> = shown
        .variables
        .iter()
        .map(|variable| Ranges::new(variable.ranges.iter().cloned()))
        .collect();
    let mut readings = 0usize;
    for line in &mut shown.lines {
        line.sites.sort_unstable();
        line.sites.dedup();
        line.code = Ranges::new(std::mem::take(&mut line.code)).into_vec();
        line.branches.sort_by_key(|branch| branch.address);
        line.calls.sort_by_key(|call| call.address);
        readings = readings.saturating_add(line.sites.len().saturating_mul(sets.len()));
        if readings > MAX_READINGS {
            continue;
        }
        for (number, set) in sets.iter().enumerate() {
            let readable = line.sites.iter().filter(|site| set.contains(**site)).count();
            if readable > 0 {
                line.variables.push(Readable {
                    variable: number,
                    everywhere: readable == line.sites.len(),
                });
            }
        }
    }
    if readings > MAX_READINGS {
        shown
            .missing
            .push("too many variables and places: not all were compared".to_owned());
    }
    shown.missing.sort();
    shown.missing.dedup();
}
