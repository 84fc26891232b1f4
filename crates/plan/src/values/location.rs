//! Where a variable is at an address.

use gimli::{AttributeValue, DwAt, Expression, Operation};

use super::{
    context::{Context, Location, Source},
    entry::Entry,
    entry_value::is_preserved,
    file::{DebugFile, Slice},
    refusal::{Refusal, optimized_out, unsupported},
};

impl<'a> DebugFile<'a> {
    /// The expression that holds at an address, of an attribute that is one or a list of them.
    pub(super) fn expression_at(
        &self,
        entry: &Entry<'a>,
        name: DwAt,
        address: u64,
    ) -> Result<Option<Expression<Slice<'a>>>, Refusal> {
        let value = match entry.value(name) {
            None => return Ok(None),
            Some(AttributeValue::Exprloc(expression)) => return Ok(Some(expression)),
            // Before DWARF 4 an expression is a block.
            Some(AttributeValue::Block(block)) => return Ok(Some(Expression(block))),
            Some(value) => value,
        };
        let Some(mut list) = self.dwarf.attr_locations(&entry.unit, value)? else {
            return unsupported("a location of an unknown form");
        };
        let mut found: Option<Expression<Slice<'a>>> = None;
        while let Some(location) = list.next()? {
            if location.range.begin <= address && address < location.range.end {
                match &found {
                    Some(found) if *found != location.data => {
                        return unsupported("the debug information gives two locations at once");
                    }
                    _ => found = Some(location.data),
                }
            }
        }
        Ok(found)
    }

    /// Where a variable is, `size` bytes of it, or what it always is.
    pub(super) fn location(
        &self,
        context: &Context<'_, 'a>,
        variable: &Entry<'a>,
        size: u64,
        signed: bool,
    ) -> Result<Location, Refusal> {
        let has_location = variable.die.has_attr(gimli::DW_AT_location);
        let located = if has_location {
            Some(variable.clone())
        } else if variable.die.has_attr(gimli::DW_AT_const_value) {
            let passed = self.check_passed(context, variable, None, size)?;
            return passed.map_or_else(|| constant(variable, size, signed), Ok);
        } else {
            self.through(variable, gimli::DW_AT_location)?
        };
        let Some(located) = located else {
            return match self.through(variable, gimli::DW_AT_const_value)? {
                Some(entry) => {
                    let passed = self.check_passed(context, variable, None, size)?;
                    passed.map_or_else(|| constant(&entry, size, signed), Ok)
                }
                None => optimized_out("the debug information has no place for it"),
            };
        };
        let on_entry = match variable.tag() {
            gimli::DW_TAG_formal_parameter => self.expression_on_entry(&located, context.address)?,
            _ => None,
        };
        let is_of_entry = on_entry.is_some();
        let expression = match on_entry {
            Some(expression) => Some(expression),
            None => self.expression_at(&located, gimli::DW_AT_location, context.address)?,
        };
        let Some(expression) = expression else {
            return optimized_out("the debug information has no place for it at this instruction");
        };
        if expression.0.is_empty() {
            return optimized_out("it is no longer kept at this instruction");
        }
        let context = context.in_unit(&located);
        let by_argument_pointer = match variable.tag() {
            gimli::DW_TAG_formal_parameter => self.by_argument_pointer(&context, &located)?,
            _ => None,
        };
        let location = match by_argument_pointer {
            Some(location) => location,
            None => context.lower(expression)?,
        };
        if is_of_entry {
            return Ok(location);
        }
        let passed = self.check_passed(&context, variable, Some((&location, expression)), size)?;
        Ok(passed.unwrap_or(location))
    }

    /// Whether a variable is said to be at one place of the frame in all of its function: then it is not there yet
    /// while the function begins. No argument is in a register that calls preserve: where the stack is aligned anew, such a
    /// one is the frame's base.
    pub(super) fn is_always_in_frame(variable: &Entry<'a>) -> Result<bool, Refusal> {
        let expression = match variable.value(gimli::DW_AT_location) {
            Some(AttributeValue::Exprloc(expression)) => expression,
            Some(AttributeValue::Block(block)) => Expression(block),
            _ => return Ok(false),
        };
        let mut operations = expression.operations(variable.unit.encoding());
        while let Some(operation) = operations.next()? {
            match operation {
                Operation::FrameOffset { .. } | Operation::CallFrameCFA => return Ok(true),
                Operation::RegisterOffset { register, .. }
                    if u8::try_from(register.0).is_ok_and(is_preserved) =>
                {
                    return Ok(true);
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// A constant, in as many bytes as its type has.
fn constant(entry: &Entry<'_>, size: u64, signed: bool) -> Result<Location, Refusal> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let attribute = entry.die.attr(gimli::DW_AT_const_value);
    let raw = attribute.map(gimli::Attribute::raw_value);
    // How many bytes the number was written in; a negative one is ambiguous in fewer than its type has.
    let (word, width) = match raw {
        Some(AttributeValue::Data1(word)) => (i128::from(word), 1),
        Some(AttributeValue::Data2(word)) => (i128::from(word), 2),
        Some(AttributeValue::Data4(word)) => (i128::from(word), 4),
        Some(AttributeValue::Data8(word)) => (i128::from(word), 8),
        Some(AttributeValue::Udata(word)) => (i128::from(word), 16),
        Some(AttributeValue::Sdata(word)) => (i128::from(word), 16),
        Some(AttributeValue::Block(bytes)) => {
            return if bytes.len() == size {
                Ok(Location::Whole(Source::Bytes(bytes.slice().to_vec())))
            } else {
                unsupported("a constant of another size than its type")
            };
        }
        Some(AttributeValue::String(text)) => {
            let mut bytes = text.slice().to_vec();
            bytes.push(0);
            return if bytes.len() == size {
                Ok(Location::Whole(Source::Bytes(bytes)))
            } else {
                unsupported("a constant of another size than its type")
            };
        }
        _ => return unsupported("a constant of an unknown form"),
    };
    if signed && width < size && word >> (8 * width - 1) != 0 && width < 16 {
        return unsupported("a constant whose sign the debug information does not give");
    }
    match word.to_le_bytes().get(..size) {
        Some(bytes) => Ok(Location::Whole(Source::Bytes(bytes.to_vec()))),
        None => unsupported("a constant of another size than its type"),
    }
}
