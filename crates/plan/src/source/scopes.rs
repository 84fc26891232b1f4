//! The blocks of a function: its inlined calls, and the blocks that its variables live in.

use std::{collections::BTreeSet, ops::Range, rc::Rc};

use gimli::{AttributeValue, UnitOffset};

use super::{
    super::{
        demangle::display_name,
        dwarf::{Declared, global, origin},
    },
    units::{Entry, Known, Reader},
};

/// Blocks and inlined instances that are read of one function.
const MAX_SCOPES: usize = 20_000;
/// Variables that are read of one function.
pub(super) const MAX_VARIABLES: usize = 4_096;
/// Entries that are looked at in one function.
const MAX_ENTRIES: usize = 1 << 20;

/// Blocks and instances within each other. What is deeper is left out: code generators come to some dozens.
const MAX_NESTING: usize = 256;

/// A block of code in a function.
pub(crate) struct Scope {
    /// The number of the one around it; the function itself is its own.
    pub parent: usize,
    /// None of one that is as long as what is around it.
    pub ranges: Vec<Range<u64>>,
    /// What is inlined here, where something is.
    pub inlined: Option<Inlined>,
}

/// An inlined call.
pub(crate) struct Inlined {
    pub known: Rc<Known>,
    /// The entry of this instance.
    pub offset: UnitOffset,
    /// The number of the file with the call in the unit's table; 0 where unknown.
    pub call_file: u64,
    /// The line of the call; 0 where unknown.
    pub call_line: u32,
}

/// The name that is shown of what DWARF declares.
pub(crate) fn shown_name(declared: &Declared) -> String {
    let linkage = declared
        .linkage_name
        .as_deref()
        .map(|name| display_name(name).into_owned());
    linkage.or_else(|| declared.name.clone()).unwrap_or_default()
}

/// A variable or parameter, and the block that it belongs to.
pub(crate) struct Declaration {
    pub offset: UnitOffset,
    pub scope: usize,
}

/// A function, or an inlined instance of one, with everything inside.
pub(crate) struct Body {
    /// The number of the unit.
    pub unit: usize,
    /// The body itself first; what is around comes before what is inside.
    pub scopes: Vec<Scope>,
    pub variables: Vec<Declaration>,
    /// The call that it is, where it is an inlined instance.
    pub call: Option<Inlined>,
    /// There was more than is read.
    pub cut: bool,
    /// Where the innermost scope changes, and to which; `None` outside. By address.
    innermost: Vec<(u64, Option<usize>)>,
}

impl Body {
    /// A function that has lines in a unit, and no entry there.
    pub fn of_lines(unit: usize, ranges: Vec<Range<u64>>) -> Self {
        let scopes = vec![Scope {
            parent: 0,
            ranges,
            inlined: None,
        }];
        Self {
            unit,
            innermost: innermost(&scopes),
            scopes,
            variables: Vec::new(),
            call: None,
            cut: false,
        }
    }

    /// Reads what is below an entry.
    pub fn read(reader: &mut Reader<'_, '_>, number: usize, offset: UnitOffset) -> Option<Self> {
        let unit = reader.unit(number)?;
        let mut body = Self {
            unit: number,
            scopes: Vec::new(),
            variables: Vec::new(),
            call: None,
            cut: false,
            innermost: Vec::new(),
        };
        // The scopes that are open, each with its depth.
        let mut open: Vec<(isize, usize)> = Vec::new();
        // What is below an entry at this depth belongs to another function or to a type.
        let mut passed: Option<isize> = None;
        let mut entries = unit.entries_at_offset(offset).ok()?;
        for count in 0.. {
            let Ok(Some(entry)) = entries.next_dfs() else {
                break;
            };
            let depth = entry.depth();
            if count > 0 && depth <= 0 {
                break;
            }
            if count == MAX_ENTRIES || !reader.budget.work.take(1 + entry.attrs().len()) {
                body.cut = true;
                break;
            }
            if passed.is_some_and(|passed| depth > passed) {
                continue;
            }
            passed = None;
            while open.pop_if(|&mut (around, _)| around >= depth).is_some() {}
            let parent = open.last().map_or(0, |&(_, scope)| scope);
            match entry.tag() {
                _ if count == 0 => {
                    let ranges = reader.ranges(&unit, entry);
                    let inlined = None;
                    body.scopes.push(Scope {
                        parent,
                        ranges,
                        inlined,
                    });
                    open.push((depth, 0));
                    if entry.tag() == gimli::DW_TAG_inlined_subroutine {
                        body.call = Some(self::inlined(reader, &unit, entry));
                    }
                }
                gimli::DW_TAG_lexical_block
                | gimli::DW_TAG_try_block
                | gimli::DW_TAG_catch_block
                | gimli::DW_TAG_inlined_subroutine
                    if body.scopes.len() == MAX_SCOPES || open.len() == MAX_NESTING =>
                {
                    body.cut = true;
                    passed = Some(depth);
                }
                gimli::DW_TAG_lexical_block | gimli::DW_TAG_try_block | gimli::DW_TAG_catch_block => {
                    let ranges = reader.ranges(&unit, entry);
                    open.push((depth, body.scopes.len()));
                    let inlined = None;
                    body.scopes.push(Scope {
                        parent,
                        ranges,
                        inlined,
                    });
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let ranges = reader.ranges(&unit, entry);
                    open.push((depth, body.scopes.len()));
                    let inlined = Some(inlined(reader, &unit, entry));
                    body.scopes.push(Scope {
                        parent,
                        ranges,
                        inlined,
                    });
                }
                gimli::DW_TAG_formal_parameter | gimli::DW_TAG_variable => {
                    if body.variables.len() == MAX_VARIABLES {
                        body.cut = true;
                    } else if entry.attr_value(gimli::DW_AT_declaration).is_none() {
                        let offset = entry.offset();
                        body.variables.push(Declaration {
                            offset,
                            scope: parent,
                        });
                    }
                    passed = Some(depth);
                }
                // Parameters of a variadic template are those of its function.
                gimli::DW_TAG_GNU_formal_parameter_pack => {}
                _ => passed = Some(depth),
            }
        }
        if body.scopes.is_empty() {
            return None;
        }
        body.cut |= reader.budget.ranges.is_short();
        body.innermost = innermost(&body.scopes);
        Some(body)
    }

    /// Where the code of a scope is.
    pub fn ranges_of(&self, scope: usize) -> &[Range<u64>] {
        let found = self.around(scope).find(|&scope| {
            let Scope { ranges, inlined, .. } = &self.scopes[scope];
            !ranges.is_empty() || inlined.is_some()
        });
        &self.scopes[found.unwrap_or(0)].ranges
    }

    /// A scope, and those around it.
    fn around(&self, scope: usize) -> impl Iterator<Item = usize> {
        let parent = |&scope: &usize| Some(self.scopes[scope].parent).filter(|&parent| parent != scope);
        std::iter::successors(Some(scope), parent)
    }

    /// The number of the innermost scope at an address.
    pub fn scope_at(&self, address: u64) -> Option<usize> {
        let after = self.innermost.partition_point(|(start, _)| *start <= address);
        self.innermost[after.checked_sub(1)?].1
    }

    /// The inlined calls at an address, innermost first, each with the number of its scope.
    pub fn chain_at(&self, address: u64) -> impl Iterator<Item = (usize, &Inlined)> {
        self.chain_of(self.scope_at(address))
    }

    /// The inlined calls that a scope is in, innermost first.
    pub fn chain_of(&self, scope: Option<usize>) -> impl Iterator<Item = (usize, &Inlined)> {
        let scopes = scope.into_iter().flat_map(|scope| self.around(scope));
        scopes.filter_map(|scope| Some((scope, self.scopes[scope].inlined.as_ref()?)))
    }
}

fn inlined<'a>(
    reader: &mut Reader<'_, 'a>,
    unit: &gimli::Unit<super::units::Slice<'a>>,
    entry: &Entry<'a>,
) -> Inlined {
    let origin = origin(unit, entry).or_else(|| global(unit, entry));
    let (call_file, call_line) = call_of(entry);
    Inlined {
        known: origin.map(|origin| reader.known(origin)).unwrap_or_default(),
        offset: entry.offset(),
        call_file,
        call_line,
    }
}

/// The number of the file in the unit's table, and the line, that an instance is called at; 0 where unknown.
pub(crate) fn call_of(entry: &Entry<'_>) -> (u64, u32) {
    let line = entry
        .attr_value(gimli::DW_AT_call_line)
        .and_then(|value| value.udata_value())
        .and_then(|line| u32::try_from(line).ok());
    let file = match entry.attr_value(gimli::DW_AT_call_file) {
        Some(AttributeValue::FileIndex(file)) => file,
        _ => 0,
    };
    (file, line.unwrap_or(0))
}

/// Where the innermost of overlapping scopes changes. Scopes inside others come after them.
fn innermost(scopes: &[Scope]) -> Vec<(u64, Option<usize>)> {
    let mut edges: Vec<(u64, bool, usize)> = Vec::new();
    for (number, scope) in scopes.iter().enumerate() {
        for range in &scope.ranges {
            edges.push((range.start, true, number));
            edges.push((range.end, false, number));
        }
    }
    // Ends before begins, so that a range that follows another of the same scope counts.
    edges.sort_unstable();
    let mut open = BTreeSet::new();
    let mut changes: Vec<(u64, Option<usize>)> = Vec::new();
    for (address, begins, number) in edges {
        if begins {
            open.insert(number);
        } else {
            open.remove(&number);
        }
        let now = open.last().copied();
        match changes.last_mut() {
            Some((last, scope)) if *last == address => *scope = now,
            _ => changes.push((address, now)),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
    fn the_innermost_scope_is_found() {
        let scope = |parent, ranges: &[Range<u64>]| Scope {
            parent,
            ranges: ranges.to_vec(),
            inlined: None,
        };
        let scopes = [
            scope(0, &[10..50]),
            scope(0, &[20..30, 30..35]),
            scope(1, &[22..24]),
        ];
        let changes = innermost(&scopes);
        let at = |address: u64| {
            let after = changes.partition_point(|(start, _)| *start <= address);
            after.checked_sub(1).and_then(|at| changes[at].1)
        };
        let found: Vec<Option<usize>> = [9, 10, 20, 22, 24, 30, 34, 35, 49, 50].map(at).to_vec();
        let expected = [
            None,
            Some(0),
            Some(1),
            Some(2),
            Some(1),
            Some(1),
            Some(1),
            Some(0),
            Some(0),
            None,
        ];
        assert_eq!(found, expected);
    }
}
