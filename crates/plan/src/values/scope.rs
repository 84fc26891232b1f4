//! Which variable a name means at an address.

use std::{collections::HashSet, rc::Rc};

use profiler_elf::skip::skip_attributes;

use super::{
    entry::Entry,
    file::DebugFile,
    functions::Function,
    refusal::{Refusal, optimized_out, unsupported},
};

const LEFT_OUT: &str = "the compiler left it out of this instance";
/// What C++ calls the object of a method.
pub(super) const THIS: &str = "this";
/// Names that are offered where one is not found.
const MAX_NEAREST: usize = 5;
/// Blocks of an inlined function that are searched for one name.
const MAX_BLOCKS: usize = 4096;

/// The object of a method.
pub(super) struct This<'a> {
    /// Says its type.
    pub declared: Entry<'a>,
    /// Says where it is.
    pub known: Result<Entry<'a>, Refusal>,
}

impl<'a> DebugFile<'a> {
    /// The local variable or argument of a name: in the innermost block, or inlined call, that has one.
    pub(super) fn local(
        &self,
        function: &Function<'a>,
        address: u64,
        name: &str,
    ) -> Result<Option<Entry<'a>>, Refusal> {
        let Some((number, variable)) = self.innermost(function, address, name, 0)? else {
            return Ok(None);
        };
        // Of a caller: not what an inlined call has in another of its blocks, though it is asked for in its text.
        for call in function.blocks.iter().skip(number + 1) {
            if call.tag() == gimli::DW_TAG_inlined_subroutine
                && let Some(other) = self.declared_in(call, name)?
                && !is_called_at(call, address)
            {
                return Err(Refusal::Ambiguous {
                    name: name.into(),
                    candidates: vec![self.declared_at(&other), self.declared_at(&variable)],
                });
            }
        }
        Ok(Some(variable))
    }

    /// As [`Self::local`], of the innermost function's own alone: not of what it is inlined into.
    pub(super) fn own_local(
        &self,
        function: &Function<'a>,
        address: u64,
        name: &str,
    ) -> Result<Option<Entry<'a>>, Refusal> {
        let first = function.blocks.iter().rposition(is_function).unwrap_or(0);
        let found = self.innermost(function, address, name, first)?;
        Ok(found.map(|(_, variable)| variable))
    }

    /// Variables, with a parameter that is described several times taken by its first description. Of a copy that GCC makes for
    /// a constant, but cannot leave the parameter out of (it has an ellipsis), it describes where callers put the parameter,
    /// and after all parameters the constant.
    fn first_descriptions(&self, variables: Vec<Entry<'a>>) -> Result<Vec<Entry<'a>>, Refusal> {
        let mut described = HashSet::new();
        let mut kept = Vec::new();
        for variable in variables {
            let is_parameter = variable.tag() == gimli::DW_TAG_formal_parameter;
            if !is_parameter || described.insert(self.declared_first(&variable)?) {
                kept.push(variable);
            }
        }
        Ok(kept)
    }

    /// The object that the innermost function is a method of, as it is declared, and where it is known. C++ calls it
    /// `this`; what is called so in other languages is a variable like others.
    pub(super) fn this(&self, function: &Function<'a>, address: u64) -> Result<Option<This<'a>>, Refusal> {
        let Some(first) = function.blocks.iter().rposition(is_function) else {
            return Ok(None);
        };
        let mut declared = Self::variables(&function.blocks[first])?;
        if let Some(origin) = self.origin(&function.blocks[first])? {
            declared.append(&mut Self::variables(&origin)?);
        }
        for variable in declared {
            let is_artificial = self.through(&variable, gimli::DW_AT_artificial)?;
            if !is_artificial.is_some_and(|entry| entry.flag(gimli::DW_AT_artificial))
                || self.name(&variable).as_deref() != Some(THIS)
            {
                continue;
            }
            let known = match self.innermost(function, address, THIS, first) {
                Ok(Some((_, variable))) => Ok(variable),
                Ok(None) => optimized_out(LEFT_OUT),
                Err(refusal) => Err(refusal),
            };
            return Ok(Some(This {
                declared: variable,
                known,
            }));
        }
        Ok(None)
    }

    /// That variable, and the number of its block, which is not before the first one to be looked at.
    fn innermost(
        &self,
        function: &Function<'a>,
        address: u64,
        name: &str,
        first: usize,
    ) -> Result<Option<(usize, Entry<'a>)>, Refusal> {
        let blocks = function.blocks.iter().enumerate().rev();
        for (number, block) in blocks.take_while(|(number, _)| *number >= first) {
            // The innermost of its function: of those, what follows is a call.
            let call = function.blocks.get(number + 1);
            if call.is_none_or(is_function) && self.is_left_out_within(function, number, address, name)? {
                return optimized_out(LEFT_OUT);
            }
            let mut found: Vec<Entry<'a>> = Self::variables(block)?;
            let is_hidden = found.iter().any(|variable| self.is_named_elsewhere(variable));
            found.retain(|variable| self.name(variable).as_deref() == Some(name));
            if is_hidden && found.is_empty() {
                return moved(name);
            }
            // Of several of one name in one block, those that are not live here do not count.
            if found.len() > 1 {
                let live = found.iter().filter(|variable| self.is_live(variable, address));
                let live = self.first_descriptions(live.cloned().collect())?;
                match live.len() {
                    0 => {
                        return optimized_out(
                            "the debug information has no place for it at this instruction",
                        );
                    }
                    1 => found = live,
                    _ => {
                        return Err(Refusal::Ambiguous {
                            name: name.into(),
                            candidates: live.iter().map(|variable| self.declared_at(variable)).collect(),
                        });
                    }
                }
            }
            if let Some(variable) = found.pop() {
                return Ok(Some((number, variable)));
            }
            // What is the same in all instances, or optimized out altogether, may be left out of the block, but not of
            // what it is an instance of.
            if let Some(origin) = self.origin(block)? {
                let mut common = Self::variables(&origin)?;
                let is_hidden = common.iter().any(|variable| self.is_named_elsewhere(variable));
                common.retain(|variable| self.name(variable).as_deref() == Some(name));
                match common.as_slice() {
                    [] if is_hidden => return moved(name),
                    [] => {}
                    [variable] if self.is_live(variable, address) => {
                        return Ok(common.pop().map(|variable| (number, variable)));
                    }
                    _ => return optimized_out(LEFT_OUT),
                }
                if self.is_left_out_around(function, number, &origin, name)? {
                    return optimized_out(LEFT_OUT);
                }
            }
        }
        Ok(None)
    }

    /// Whether a variable has a name that is not in this file.
    pub(super) fn is_named_elsewhere(&self, variable: &Entry<'a>) -> bool {
        match self.through(variable, gimli::DW_AT_name) {
            Ok(Some(named)) => matches!(
                named.value(gimli::DW_AT_name),
                Some(gimli::AttributeValue::DebugStrRefSup(_))
            ),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Whether a name is declared in a block that is around an instance's block in the source, but that the instance
    /// was left without: of a block whose variables are all optimized out, compilers keep those within only. What is
    /// further out is another variable.
    fn is_left_out_around(
        &self,
        function: &Function<'a>,
        number: usize,
        origin: &Entry<'a>,
        name: &str,
    ) -> Result<bool, Refusal> {
        if is_function(&function.blocks[number]) {
            return Ok(false);
        }
        for outer in function.blocks[..number].iter().rev() {
            if let Some(outer) = self.origin(outer)? {
                for block in between(&outer, origin)? {
                    let variables = Self::variables(&block)?;
                    if variables
                        .iter()
                        .any(|variable| self.name(variable).as_deref() == Some(name))
                    {
                        return Ok(true);
                    }
                }
                return Ok(false);
            }
            if is_function(outer) {
                break;
            }
        }
        Ok(false)
    }

    /// Whether a name is declared in a block within an instance's block that the instance was left without, though its
    /// code may be that of the address: compilers keep no block whose variables are all optimized out.
    fn is_left_out_within(
        &self,
        function: &Function<'a>,
        number: usize,
        address: u64,
        name: &str,
    ) -> Result<bool, Refusal> {
        let mut outer = function.blocks[..=number].iter().rev();
        let Some(root) = outer.clone().find(|block| is_function(block)) else {
            return Ok(false);
        };
        let Some(innermost) = outer.find_map(|block| self.origin(block).transpose()) else {
            return Ok(false);
        };
        let innermost = innermost?;
        // Blocks within that have none of the name are no matter.
        let mut declared = Vec::new();
        let mut kept = None;
        let mut blocks = vec![innermost];
        let mut looked_at = 0;
        while let Some(block) = blocks.pop() {
            for child in block.children()? {
                if child.tag() != gimli::DW_TAG_lexical_block || looked_at == MAX_BLOCKS {
                    continue;
                }
                looked_at += 1;
                if kept.is_none() {
                    kept = Some(self.origins_of_blocks(root)?);
                }
                if kept.as_ref().is_some_and(|kept| kept.contains(&child.offset())) {
                    continue;
                }
                let mut variables = Self::variables(&child)?;
                variables.retain(|variable| self.name(variable).as_deref() == Some(name));
                declared.append(&mut variables);
                blocks.push(child);
            }
        }
        let call_line = function
            .blocks
            .get(number + 1)
            .map(|call| call.number(gimli::DW_AT_call_line));
        let line = match call_line {
            _ if declared.is_empty() => return Ok(false),
            Some(line) => line,
            None => last_line_at(root, address),
        };
        // In front of it, the name still is another's.
        Ok(declared
            .iter()
            .any(|variable| match (line, variable.number(gimli::DW_AT_decl_line)) {
                (Some(line), Some(declared)) => line >= declared,
                _ => true,
            }))
    }

    /// What the blocks of an instance are instances of, by offset.
    fn origins_of_blocks(&self, root: &Entry<'a>) -> Result<HashSet<usize>, Refusal> {
        let mut origins = HashSet::new();
        let mut blocks = vec![root.clone()];
        while let Some(block) = blocks.pop() {
            for child in block.children()? {
                if child.tag() == gimli::DW_TAG_lexical_block && origins.len() < MAX_BLOCKS {
                    if let Some(origin) = self.origin(&child)? {
                        origins.insert(origin.offset());
                    }
                    blocks.push(child);
                }
            }
        }
        Ok(origins)
    }

    /// The variable of a name that an inlined function declares, in whichever block.
    fn declared_in(&self, call: &Entry<'a>, name: &str) -> Result<Option<Entry<'a>>, Refusal> {
        let Some(origin) = self.origin(call)? else {
            return Ok(None);
        };
        let mut blocks = vec![origin];
        let mut looked_at = 0;
        while let Some(block) = blocks.pop() {
            for child in block.children()? {
                match child.tag() {
                    gimli::DW_TAG_lexical_block if looked_at < MAX_BLOCKS => {
                        looked_at += 1;
                        blocks.push(child);
                    }
                    gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                        if self.is_named_elsewhere(&child) {
                            return moved(name);
                        }
                        if self.name(&child).as_deref() == Some(name) {
                            return Ok(Some(child));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// The variables and arguments that a block declares itself.
    pub(super) fn variables(block: &Entry<'a>) -> Result<Vec<Entry<'a>>, Refusal> {
        let mut variables = block.children()?;
        variables.retain(|child| {
            matches!(
                child.tag(),
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter | gimli::DW_TAG_constant
            )
        });
        Ok(variables)
    }

    fn is_live(&self, variable: &Entry<'a>, address: u64) -> bool {
        variable.die.has_attr(gimli::DW_AT_const_value)
            || matches!(
                self.expression_at(variable, gimli::DW_AT_location, address),
                Ok(Some(expression)) if !expression.0.is_empty()
            )
    }

    fn declared_at(&self, variable: &Entry<'a>) -> String {
        let line = self.through(variable, gimli::DW_AT_decl_line).ok().flatten();
        match line.and_then(|entry| entry.number(gimli::DW_AT_decl_line)) {
            Some(line) => format!("declared in line {line}"),
            None => "declared in an unknown line".into(),
        }
    }

    /// The refusal of a name that nothing has.
    pub(super) fn no_variable(&self, function: Option<&Function<'a>>, name: &str) -> Refusal {
        let mut names = Vec::new();
        for block in function.iter().flat_map(|function| &function.blocks) {
            let variables = Self::variables(block).unwrap_or_default();
            names.extend(variables.iter().filter_map(|variable| self.name(variable)));
        }
        Refusal::NoVariable {
            name: name.into(),
            nearest: nearest(name, names),
        }
    }
}

/// What is known of a name where others are not in this file: one further out may be another variable.
pub(super) fn moved<T>(name: &str) -> Result<T, Refusal> {
    unsupported(format!(
        "names that were moved to a supplementary file: {name} may be one of them"
    ))
}

/// Whether it is a function or an inlined call, and no block of one.
fn is_function(block: &Entry<'_>) -> bool {
    matches!(
        block.tag(),
        gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine
    )
}

/// Whether the line of an inlined call begins at an address, before the call's own.
fn is_called_at(call: &Entry<'_>, address: u64) -> bool {
    let (Some(line), Some(program)) = (
        call.number(gimli::DW_AT_call_line),
        call.unit.line_program.clone(),
    ) else {
        return false;
    };
    let file = call.number(gimli::DW_AT_call_file);
    let mut rows = program.rows();
    while let Ok(Some((_, row))) = rows.next_row() {
        if row.address() == address
            && row.line().is_some_and(|at| at.get() == line)
            && file.is_none_or(|file| file == row.file_index())
        {
            return true;
        }
    }
    false
}

/// The last line that the code at an address is said to be of.
fn last_line_at(function: &Entry<'_>, address: u64) -> Option<u64> {
    let mut rows = function.unit.line_program.clone()?.rows();
    let mut before: Option<Option<u64>> = None;
    let mut last = None;
    while let Ok(Some((_, row))) = rows.next_row() {
        if row.address() > address
            && let Some(line) = before.take()
        {
            last = last.max(line);
        }
        let goes_on = row.address() <= address && !row.end_sequence();
        before = goes_on.then(|| row.line().map(std::num::NonZero::get));
        if row.address() == address {
            last = last.max(before.flatten());
        }
    }
    last
}

/// The blocks that are within one and around another, the outermost first.
fn between<'a>(outer: &Entry<'a>, inner: &Entry<'a>) -> Result<Vec<Entry<'a>>, Refusal> {
    let unit = &outer.unit;
    if !Rc::ptr_eq(unit, &inner.unit) && outer.unit.header != inner.unit.header {
        return Ok(Vec::new());
    }
    let mut entries = unit.entries_raw(Some(outer.die.offset()))?;
    let mut around: Vec<(isize, gimli::UnitOffset)> = Vec::new();
    while !entries.is_empty() {
        let (at, depth) = (entries.next_offset(), entries.next_depth());
        if at >= inner.die.offset() {
            break;
        }
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        skip_attributes(&mut entries, abbreviation.attributes())?;
        around.retain(|(outer, _)| *outer < depth);
        around.push((depth, at));
    }
    around.retain(|(outer, _)| *outer < entries.next_depth());
    let mut around = around.into_iter().map(|(_, at)| at);
    // Else it is behind.
    if around.next() != Some(outer.die.offset()) {
        return Ok(Vec::new());
    }
    around.map(|at| Entry::at(unit, at)).collect()
}

/// Those of the names that are like one, the most alike first.
#[must_use]
pub fn nearest(name: &str, mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names.sort_by_cached_key(|other| distance(name, other));
    names.truncate(MAX_NEAREST);
    names
}

/// Edits between two names, cut to what matters for an order.
fn distance(a: &str, b: &str) -> usize {
    const MAX: usize = 64;
    let b: Vec<char> = b.chars().take(MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x.to_lowercase().ne(y.to_lowercase()));
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
