//! The variables of a function: name, type, and where they have a location.

use std::ops::Range;

use gimli::AttributeValue;

use super::{
    super::dwarf::{global, reference},
    ranges::Ranges,
    scopes::{Body, Declaration},
    types::Types,
    units::{Entry, Reader, Slice},
};

/// Location ranges that are read of one variable.
const MAX_LOCATIONS: usize = 4_096;

/// A variable or parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its type's name.
    pub type_name: String,
    /// Whether it is a parameter.
    pub parameter: bool,
    /// The line of its declaration; 0 where unknown.
    pub line: u32,
    /// The inlined function that it belongs to, where it does not belong to the function itself.
    pub inlined_from: Option<String>,
    /// Addresses in its block at which it has a location or is a known constant, in order and apart; none where it is optimised
    /// out.
    pub ranges: Vec<Range<u64>>,
}

/// Reads a variable, its ranges as they are in the file; `None` of one without a name.
pub(super) fn variable(
    reader: &mut Reader<'_, '_>,
    types: &mut Types,
    body: &Body,
    declaration: &Declaration,
) -> Option<Variable> {
    let unit = reader.unit(body.unit)?;
    let entry = unit.entry(declaration.offset).ok()?;
    let known = reader.known(global(&unit, &entry)?);
    let name = known.declared.name.as_deref()?;
    // Of an instance, the type is that of what it is an instance of.
    let origin = entry
        .attr_value(gimli::DW_AT_abstract_origin)
        .or_else(|| entry.attr_value(gimli::DW_AT_specification))
        .and_then(|value| reference(&unit, value))
        .and_then(|offset| reader.entry(offset));
    let type_name = match (entry.attr_value(gimli::DW_AT_type), &origin) {
        (None, Some((other, origin))) => {
            let value = origin.attr_value(gimli::DW_AT_type);
            types.name(reader, other, value)
        }
        (value, _) => types.name(reader, &unit, value),
    };
    let around = || -> Vec<Range<u64>> {
        let ranges = body.ranges_of(declaration.scope);
        let fits = reader.budget.ranges.take(ranges.len());
        if fits { ranges.to_vec() } else { Vec::new() }
    };
    let inlined_from = body
        .chain_of(Some(declaration.scope))
        .next()
        .map(|(_, inlined)| reader.budget.text(&inlined.known.name));
    let has_constant = entry.has_attr(gimli::DW_AT_const_value)
        || origin.is_some_and(|(_, origin)| origin.has_attr(gimli::DW_AT_const_value));
    let ranges = match located(reader, &unit, &entry) {
        Located::Everywhere => around(),
        Located::Nowhere if has_constant => around(),
        Located::Nowhere => Vec::new(),
        // Compilers let a location go on behind the block, where the name means nothing, or something else.
        Located::In(ranges) => Ranges::new(ranges).within(&Ranges::new(around())).into_vec(),
    };
    Some(Variable {
        name: reader.budget.text(name),
        type_name: reader.budget.text(&type_name),
        parameter: entry.tag() == gimli::DW_TAG_formal_parameter,
        line: u32::try_from(known.declared.source.line).unwrap_or(0),
        inlined_from,
        ranges,
    })
}

enum Located {
    Everywhere,
    Nowhere,
    In(Vec<Range<u64>>),
}

fn located<'a>(reader: &Reader<'_, 'a>, unit: &gimli::Unit<Slice<'a>>, entry: &Entry<'a>) -> Located {
    let Some(value) = entry.attr_value(gimli::DW_AT_location) else {
        return Located::Nowhere;
    };
    if let AttributeValue::Exprloc(expression) = value {
        return if expression.0.is_empty() {
            Located::Nowhere
        } else {
            Located::Everywhere
        };
    }
    let offset = reader.dwarf.attr_locations_offset(unit, value).ok().flatten();
    let Some(mut locations) = offset.and_then(|offset| reader.dwarf.locations(unit, offset).ok()) else {
        return Located::Nowhere;
    };
    let mut ranges = Vec::new();
    // Entries of the list that are no locations count too: there can be as many.
    while ranges.len() < MAX_LOCATIONS
        && reader.budget.ranges.take(1)
        && let Ok(Some(raw)) = locations.next_raw()
        && let Ok(location) = locations.convert_raw(raw)
    {
        // An empty expression says that it is optimised out there.
        if let Some(location) = location.filter(|location| !location.data.0.is_empty()) {
            ranges.push(location.range.begin..location.range.end);
        }
    }
    Located::In(ranges)
}
