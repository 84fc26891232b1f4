//! Names of types, as people write them.

use std::collections::HashMap;

use gimli::AttributeValue;

use super::{
    super::dwarf::{reference, text},
    units::{Entry, Reader, Slice},
};

/// Pointers, qualifiers and the like that are followed to a name.
const MAX_DEPTH: usize = 12;
/// Longest name, in bytes; the rest is left out.
const MAX_BYTES: usize = 256;
/// Entries below one that are looked at.
const MAX_CHILDREN: usize = 32;
/// Stands in a function's type where a pointer to it has its mark.
const DECLARATOR: char = '\u{1}';
/// Names that are made and kept. Types that refer to each other have endlessly many ways through them, of which those
/// that were taken once are not taken again.
const MAX_KEPT: usize = 1 << 14;

/// Names of types by the offset of their entry.
#[derive(Default)]
pub(super) struct Types(HashMap<usize, String>);

impl Types {
    /// The name of what an attribute refers to; `void` where it refers to nothing.
    pub fn name<'a>(
        &mut self,
        reader: &mut Reader<'_, 'a>,
        unit: &gimli::Unit<Slice<'a>>,
        value: Option<AttributeValue<Slice<'a>>>,
    ) -> String {
        let Some(value) = value else {
            return "void".to_owned();
        };
        match reference(unit, value) {
            Some(offset) => self
                .at(reader, offset, 0)
                .replace("(\u{1})", "")
                .replace(DECLARATOR, ""),
            // In a unit of types, or in another file.
            None => "?".to_owned(),
        }
    }

    fn at(&mut self, reader: &mut Reader<'_, '_>, offset: usize, depth: usize) -> String {
        if let Some(name) = self.0.get(&offset) {
            return name.clone();
        }
        if depth == MAX_DEPTH || self.0.len() >= MAX_KEPT {
            return "…".to_owned();
        }
        let Some((unit, entry)) = reader.entry(offset) else {
            return "?".to_owned();
        };
        let mut name = self.made(reader, &unit, &entry, depth);
        if name.len() > MAX_BYTES {
            let end = (0..=MAX_BYTES).rev().find(|at| name.is_char_boundary(*at));
            name.truncate(end.unwrap_or(0));
            name.push('…');
        }
        self.0.insert(offset, name.clone());
        name
    }

    fn parameters<'a>(
        &mut self,
        reader: &mut Reader<'_, 'a>,
        unit: &gimli::Unit<Slice<'a>>,
        function: &Entry<'a>,
        depth: usize,
    ) -> String {
        let values: Vec<_> = children(reader, unit, function)
            .into_iter()
            .filter(|child| child.tag() == gimli::DW_TAG_formal_parameter)
            .map(|child| child.attr_value(gimli::DW_AT_type))
            .collect();
        if values.is_empty() {
            return "void".to_owned();
        }
        let names = values
            .into_iter()
            .map(|value| match value.and_then(|value| reference(unit, value)) {
                Some(offset) => self.at(reader, offset, depth + 1),
                None => "?".to_owned(),
            });
        // The declarator of the whole is the only one that anything is put before.
        names.collect::<Vec<_>>().join(", ").replace(DECLARATOR, "")
    }

    fn made<'a>(
        &mut self,
        reader: &mut Reader<'_, 'a>,
        unit: &gimli::Unit<Slice<'a>>,
        entry: &Entry<'a>,
        depth: usize,
    ) -> String {
        let own = entry
            .attr_value(gimli::DW_AT_name)
            .and_then(|value| text(reader.dwarf, unit, value))
            .map(std::borrow::Cow::into_owned);
        let mut inner = |types: &mut Self| match entry
            .attr_value(gimli::DW_AT_type)
            .and_then(|value| reference(unit, value))
        {
            Some(offset) => types.at(reader, offset, depth + 1),
            None => "void".to_owned(),
        };
        let kind = match entry.tag() {
            // Rust's pointers have names.
            gimli::DW_TAG_pointer_type if own.is_none() => return suffixed(&inner(self), '*'),
            gimli::DW_TAG_reference_type if own.is_none() => return suffixed(&inner(self), '&'),
            gimli::DW_TAG_rvalue_reference_type => return suffixed(&suffixed(&inner(self), '&'), '&'),
            gimli::DW_TAG_const_type => return qualified(&inner(self), "const"),
            gimli::DW_TAG_volatile_type => return qualified(&inner(self), "volatile"),
            gimli::DW_TAG_restrict_type => return qualified(&inner(self), "restrict"),
            gimli::DW_TAG_atomic_type => return qualified(&inner(self), "_Atomic"),
            gimli::DW_TAG_array_type if own.is_none() => {
                let of = inner(self);
                return format!("{of} {}", elements(reader, unit, entry));
            }
            gimli::DW_TAG_subroutine_type => {
                let returned = inner(self);
                let parameters = self.parameters(reader, unit, entry, depth);
                return format!("{returned} ({DECLARATOR})({parameters})");
            }
            gimli::DW_TAG_ptr_to_member_type => return format!("{} ::*", inner(self)),
            gimli::DW_TAG_structure_type => "struct",
            gimli::DW_TAG_class_type => "class",
            gimli::DW_TAG_union_type => "union",
            gimli::DW_TAG_enumeration_type => "enum",
            _ => "?",
        };
        own.unwrap_or_else(|| kind.to_owned())
    }
}

/// `int *`, `int **`, `int (*)(int)`.
fn suffixed(of: &str, mark: char) -> String {
    if let Some(at) = of.find(DECLARATOR) {
        return format!("{}{mark}{}", &of[..at], &of[at..]);
    }
    let space = if of.ends_with(['*', '&']) { "" } else { " " };
    format!("{of}{space}{mark}")
}

/// What qualifies a pointer comes after it, all else before.
fn qualified(of: &str, qualifier: &str) -> String {
    if of.ends_with('*') {
        format!("{of} {qualifier}")
    } else {
        format!("{qualifier} {of}")
    }
}

/// The numbers of an array's elements, where they are fixed: `[2][3]`.
fn elements<'a>(reader: &Reader<'_, 'a>, unit: &gimli::Unit<Slice<'a>>, array: &Entry<'a>) -> String {
    let ranges = children(reader, unit, array);
    let counts = ranges
        .iter()
        .filter(|child| child.tag() == gimli::DW_TAG_subrange_type)
        .map(|range| {
            let number = |name| range.attr_value(name).and_then(|value| value.udata_value());
            let count = number(gimli::DW_AT_count)
                .or_else(|| number(gimli::DW_AT_upper_bound).and_then(|last| last.checked_add(1)));
            count.map(|count| count.to_string()).unwrap_or_default()
        });
    let counts: Vec<String> = counts.collect();
    format!("[{}]", counts.join("]["))
}

/// The first entries right below another.
fn children<'a>(
    reader: &Reader<'_, 'a>,
    unit: &gimli::Unit<Slice<'a>>,
    parent: &Entry<'a>,
) -> Vec<Entry<'a>> {
    let mut found = Vec::new();
    let Ok(mut entries) = unit.entries_at_offset(parent.offset()) else {
        return found;
    };
    let _ = entries.next_dfs();
    for _ in 0..MAX_CHILDREN {
        match entries.next_dfs() {
            Ok(Some(child)) if !reader.budget.work.take(1 + child.attrs().len()) => break,
            Ok(Some(child)) if child.depth() == 1 => found.push(child.clone()),
            Ok(Some(child)) if child.depth() > 1 => {}
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_together_as_in_c() {
        assert_eq!(suffixed("int", '*'), "int *");
        assert_eq!(suffixed(&suffixed("int", '*'), '*'), "int **");
        assert_eq!(suffixed("int (\u{1})(int)", '*'), "int (*\u{1})(int)");
        assert_eq!(suffixed(&qualified("char", "const"), '*'), "const char *");
        assert_eq!(qualified(&suffixed("char", '*'), "const"), "char * const");
    }
}
