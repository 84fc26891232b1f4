//! Variables outside of functions, by the names that their users know: in the function's own unit first, then in the
//! others that have one of that name.

use std::rc::Rc;

use gimli::Unit;
use profiler_elf::skip::skip_attributes;

use super::{
    entry::Entry,
    file::{DebugFile, Slice, start_of},
    refusal::Refusal,
};
use crate::outline::Part;

/// Bytes of units that are searched for one name.
const MAX_SEARCHED_BYTES: usize = 1 << 30;
/// Variables of one name that are listed.
const MAX_CANDIDATES: usize = 16;

/// Declarations of one variable that refer to each other.
const MAX_ORIGINS: usize = 8;

/// A variable and its whole name.
struct Candidate<'a> {
    entry: Entry<'a>,
    path: Vec<String>,
}

impl<'a> DebugFile<'a> {
    /// The variable of a path: exactly that where `exact`, else whose name ends so.
    pub(super) fn global(
        &self,
        own: Option<&Rc<Unit<Slice<'a>>>>,
        path: &[String],
        exact: bool,
    ) -> Result<Option<Entry<'a>>, Refusal> {
        if let Some(unit) = own
            && let Some(found) = chosen(self.in_unit(unit, path, exact)?, path)?
        {
            return Ok(Some(found));
        }
        let own = own.and_then(|unit| unit.header.debug_info_offset());
        let mut found = Vec::new();
        let mut left = MAX_SEARCHED_BYTES;
        let headers = self.headers();
        let numbers = match path
            .last()
            .map(|name| self.outline(Part::Names).with_variable(name))
        {
            Some(Some(numbers)) => numbers,
            // Any may have it.
            _ => (0..headers.len()).collect(),
        };
        for header in numbers.into_iter().filter_map(|number| headers.get(number)) {
            if Some(start_of(header)) == own.map(|offset| offset.0) {
                continue;
            }
            left = match left.checked_sub(header.length_including_self()) {
                Some(left) => left,
                None => break,
            };
            // A damaged unit does not hide what others have.
            let Ok(unit) = self.unit_at(start_of(header)) else {
                continue;
            };
            found.extend(self.in_unit(&unit, path, exact).unwrap_or_default());
            if found.len() > MAX_CANDIDATES {
                break;
            }
        }
        chosen(found, path)
    }

    fn in_unit(
        &self,
        unit: &Rc<Unit<Slice<'a>>>,
        path: &[String],
        exact: bool,
    ) -> Result<Vec<Candidate<'a>>, Refusal> {
        let Some(name) = path.last() else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        // What is around the entry: its depth and where it is.
        let mut around: Vec<(isize, gimli::UnitOffset)> = Vec::new();
        let mut function_depth = None;
        while !entries.is_empty() && found.len() <= MAX_CANDIDATES {
            let (at, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let attributes = abbreviation.attributes();
            skip_attributes(&mut entries, attributes)?;
            if function_depth.is_some_and(|function| depth > function) {
                continue;
            }
            function_depth = None;
            around.retain(|(outer, _)| *outer < depth);
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => function_depth = Some(depth),
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => around.push((depth, at)),
                gimli::DW_TAG_variable | gimli::DW_TAG_member | gimli::DW_TAG_constant => {
                    let has = |name| attributes.iter().any(|attribute| attribute.name() == name);
                    if !has(gimli::DW_AT_location) && !has(gimli::DW_AT_const_value) {
                        continue;
                    }
                    let entry = Entry::at(unit, at)?;
                    if self.name(&entry).as_deref() != Some(name) {
                        continue;
                    }
                    let mut full = match self.origin(&entry)? {
                        // A definition outside of what it belongs to: its first declaration knows.
                        Some(origin) => self.path_to(&self.first_origin(origin)?)?,
                        None => around
                            .iter()
                            .filter_map(|(_, outer)| self.name(&Entry::at(unit, *outer).ok()?))
                            .collect(),
                    };
                    full.push(name.clone());
                    let is_meant = if exact { full == path } else { full.ends_with(path) };
                    if is_meant {
                        found.push(Candidate { entry, path: full });
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn first_origin(&self, entry: Entry<'a>) -> Result<Entry<'a>, Refusal> {
        let mut at = entry;
        for _ in 0..MAX_ORIGINS {
            match self.origin(&at)? {
                Some(origin) => at = origin,
                None => break,
            }
        }
        Ok(at)
    }

    /// The names of what is around an entry.
    fn path_to(&self, wanted: &Entry<'a>) -> Result<Vec<String>, Refusal> {
        let unit = &wanted.unit;
        let mut entries = unit.entries_raw(None)?;
        let mut around: Vec<(isize, gimli::UnitOffset)> = Vec::new();
        while !entries.is_empty() {
            let (at, depth) = (entries.next_offset(), entries.next_depth());
            if at > wanted.die.offset() {
                break;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            skip_attributes(&mut entries, abbreviation.attributes())?;
            around.retain(|(outer, _)| *outer < depth);
            if at == wanted.die.offset() {
                let named = around.iter().map(|(_, outer)| Entry::at(unit, *outer));
                return Ok(named.filter_map(|entry| self.name(&entry.ok()?)).collect());
            }
            if matches!(
                abbreviation.tag(),
                gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type
            ) {
                around.push((depth, at));
            }
        }
        Ok(Vec::new())
    }
}

/// The one that is meant: that of exactly the path, or the only one.
fn chosen<'a>(mut found: Vec<Candidate<'a>>, path: &[String]) -> Result<Option<Entry<'a>>, Refusal> {
    if found.iter().any(|candidate| candidate.path == path) {
        found.retain(|candidate| candidate.path == path);
    }
    // One variable may be described by several units.
    found.dedup_by(|a, b| {
        let place = |candidate: &Candidate<'a>| candidate.entry.value(gimli::DW_AT_location);
        a.path == b.path && place(a).is_some() && place(a) == place(b)
    });
    if found.len() > 1 {
        return Err(Refusal::Ambiguous {
            name: path.join("::"),
            candidates: found.iter().map(|candidate| candidate.path.join("::")).collect(),
        });
    }
    Ok(found.pop().map(|candidate| candidate.entry))
}
