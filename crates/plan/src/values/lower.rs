//! Lowers an expression at an address to a plan for the programs, and to the shape of the plan's output.

use std::ops::Range;

use profiler_common::values::{
    Comparison, Instruction, Kind, MAX_BYTES, MAX_INSTRUCTIONS, Operation, ReadPlan,
};
use profiler_scope::expression::{Expression, Number, Root, register_name};

use super::{
    code::{Code, check_stack},
    file::DebugFile,
    functions::Function,
    of_thread,
    path::{Lowering, Reached},
    refusal::{Refusal, unsupported},
    shape::{Budget, Form, Shape},
    structure::in_bits,
    text::{Content, Counted, Text, emit_counted, emit_terminated, emit_tried},
};

/// Where a value is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The instruction, in the file's own address space.
    pub address: u64,
    /// What is added to the file's addresses in the process.
    pub bias: u64,
}

/// What `return` means at a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns<'n> {
    /// What the function returns, at one of its return instructions.
    AtInstruction,
    /// What the function at the site returns, once it has.
    OfFunction,
    /// What a function that is called at the site returns, once it has.
    OfCallee {
        /// Its name.
        name: &'n str,
        /// Its name as it is linked; empty where that is not known.
        symbol: &'n str,
        /// Where it is, if it is in the same file.
        address: Option<u64>,
    },
}

/// How a value is read, and what the bytes mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lowered {
    /// What the programs run.
    pub plan: ReadPlan,
    /// What the expression's type is.
    pub shape: Shape,
    /// How the output is laid out.
    pub layout: Layout,
    /// Bytes of the value that have none.
    pub missing: Vec<Range<u64>>,
}

/// How a plan's output is laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// The value's own bytes, cut to what a plan can read.
    Object,
    /// A register of eight bytes of which nothing says how many of them are the value.
    Register,
    /// A pointer; then, unless it is null, text with its NUL, cut to the bytes given.
    Terminated(usize),
    /// A pointer; then text with its NUL, cut to the bytes given, or nothing where none could be read; then its bytes
    /// with the NUL, a number of two. It may as well be bytes of any meaning.
    MayBeText(usize),
    /// A number of bytes; then as many of them as there is room for, which are text.
    Characters,
    /// A number of elements; then as many of them as there is room for.
    Elements(Box<Shape>),
}

/// Lowers an expression for an address.
///
/// # Errors
/// Says why there is no plan: no such variable (with the nearest names), optimized out, or unsupported, by which
/// operation or type.
pub fn lower(file: &DebugFile<'_>, site: Site, expression: &Expression) -> Result<Lowered, Refusal> {
    lower_with(file, site, Returns::AtInstruction, expression)
}

/// As [`lower`], where `return` means something else. Of the registers, a plan that begins there reads `rax` and `rdx`
/// alone.
///
/// # Errors
/// As for [`lower`].
pub fn lower_with(
    file: &DebugFile<'_>,
    site: Site,
    returns: Returns<'_>,
    expression: &Expression,
) -> Result<Lowered, Refusal> {
    if let Some(part) = of_thread::asked(expression)? {
        return of_thread::lower(part);
    }
    if let (Root::Register(number), []) = (&expression.root, expression.steps.as_slice()) {
        let mut instructions = Code::register(*number, 0).instructions().to_vec();
        instructions.push(Instruction::new(Operation::Store).size(8));
        return finish(
            &instructions,
            Shape::word(register_name(*number)),
            Layout::Object,
            Vec::new(),
        );
    }
    at_reached(file, site, returns, expression, |lowering, reached| {
        lowering.emit(reached)
    })
}

/// What comes of where an expression leads. Without the function there is no telling what a name means.
fn at_reached<'a, T>(
    file: &DebugFile<'a>,
    site: Site,
    returns: Returns<'_>,
    expression: &Expression,
    lowered: impl FnOnce(&Lowering<'_, 'a>, &Reached<'a>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let function = file.function_for(site.address, returns);
    let lowering = Lowering {
        file,
        site,
        returns,
        function: function.as_ref().ok(),
    };
    let reached = lowering
        .reach(expression)
        .map_err(|refusal| match (refusal, &function) {
            (Refusal::NoVariable { .. }, Err(none)) => none.clone(),
            (refusal, _) => refusal,
        })?;
    lowered(&lowering, &reached)
}

/// Lowers a condition: the plan rejects a hit unless the expression, a number, compares to a constant as asked.
/// The constant is of the number's own kind: for floats and doubles, their bits.
///
/// # Errors
/// As for [`lower`]; and where the expression is no number.
pub fn require(
    file: &DebugFile<'_>,
    site: Site,
    expression: &Expression,
    comparison: Comparison,
    constant: impl FnOnce(&Shape, Kind) -> Result<u64, Refusal>,
) -> Result<ReadPlan, Refusal> {
    let returns = Returns::AtInstruction;
    require_with(file, site, returns, expression, comparison, constant)
}

/// As [`require`], where `return` means something else.
///
/// # Errors
/// As for [`require`].
pub fn require_with(
    file: &DebugFile<'_>,
    site: Site,
    returns: Returns<'_>,
    expression: &Expression,
    comparison: Comparison,
    constant: impl FnOnce(&Shape, Kind) -> Result<u64, Refusal>,
) -> Result<ReadPlan, Refusal> {
    let (mut code, shape) = if let Some(part) = of_thread::asked(expression)? {
        of_thread::scalar(part)
    } else if let (Root::Register(number), []) = (&expression.root, expression.steps.as_slice()) {
        (Code::register(*number, 0), Shape::word(register_name(*number)))
    } else {
        at_reached(file, site, returns, expression, |lowering, reached| {
            if let Some(register) = reached.cast.as_ref().and_then(|untold| untold.register) {
                return unsupported(format!(
                    "a comparison with all of {register}, of which {expression} may be a part: say its type, (int){expression} or (long){expression}"
                ));
            }
            lowering.scalar(reached)
        })?
    };
    let kind = match (&shape.form, shape.size) {
        (Form::Integer { signed: true } | Form::Enumeration { signed: true, .. }, 1..=8) => Kind::Signed,
        (
            Form::Integer { signed: false }
            | Form::Enumeration { signed: false, .. }
            | Form::Boolean
            | Form::Character
            | Form::Pointer,
            1..=8,
        ) => Kind::Unsigned,
        (Form::Float, 4) => Kind::Float,
        (Form::Float, 8) => Kind::Double,
        _ => {
            return unsupported(format!(
                "{} is not a number and cannot be compared",
                shape.type_name
            ));
        }
    };
    let constant = constant(&shape, kind)?;
    code.push(Instruction::new(Operation::Constant).immediate(constant));
    let mut require = Instruction::new(Operation::Require).size(kind as u8);
    require.comparison = comparison as u8;
    code.push(require);
    plan(code.instructions())
}

/// As [`require_with`], where the expression is text and is compared as a whole: by [`Comparison::Equal`], or else
/// for not being equal. The text has no NUL in it.
///
/// # Errors
/// As for [`lower`]; and where the expression is no text.
pub fn require_text(
    file: &DebugFile<'_>,
    site: Site,
    returns: Returns<'_>,
    expression: &Expression,
    comparison: Comparison,
    text: &[u8],
) -> Result<ReadPlan, Refusal> {
    if let Some(part) = of_thread::asked(expression)? {
        return plan(&of_thread::require_text(part, comparison, text)?);
    }
    let required = at_reached(file, site, returns, expression, |lowering, reached| {
        lowering.same_text(reached, comparison, text)
    })?;
    plan(&required)
}

impl<'a> DebugFile<'a> {
    /// The function at an address. Where it is only entered, no block within it has begun, though its code may be the first.
    fn function_for(&self, address: u64, returns: Returns<'_>) -> Result<Function<'a>, Refusal> {
        let mut function = self.function(address)?;
        let is_entry = || self.ranges(&function.entry).first().map(|range| range.start) == Some(address);
        if returns == Returns::OfFunction && is_entry() {
            function.blocks.truncate(1);
        }
        Ok(function)
    }
}

impl<'a> Lowering<'_, 'a> {
    /// The plan that reads what was reached.
    fn emit(&self, reached: &Reached<'a>) -> Result<Lowered, Refusal> {
        let mut instructions = Vec::new();
        let mut shape = self.shape_of(reached);
        if let Some(field) = &reached.bits {
            shape = in_bits(shape, field);
        }
        for count in reached.counts.iter().rev() {
            shape = shape.repeated(*count);
        }
        if let Form::Unsupported(reason) = &shape.form {
            return unsupported(reason.clone());
        }
        match self.text_of(reached)? {
            Some(Text::Terminated { may_be_bytes: false }) => {
                let room = emit_terminated(&reached.place, &mut instructions)?;
                finish(&instructions, shape, Layout::Terminated(room), Vec::new())
            }
            Some(Text::Terminated { may_be_bytes: true }) => {
                let room = emit_tried(&reached.place, &mut instructions)?;
                finish(&instructions, shape, Layout::MayBeText(room), Vec::new())
            }
            Some(Text::Counted {
                pointer,
                length,
                size,
                content,
            }) => {
                let counted = Counted {
                    pointer,
                    length,
                    size,
                };
                emit_counted(&reached.place, counted, &mut instructions)?;
                let layout = match content {
                    Content::Characters => Layout::Characters,
                    Content::Elements(element) => {
                        let element = self.file.shape(Some(&element), &mut Budget::default());
                        Layout::Elements(Box::new(element))
                    }
                };
                finish(&instructions, shape, layout, Vec::new())
            }
            None => {
                let size = shape.size.min(MAX_BYTES as u64);
                let missing = reached.place.emit(size, &mut instructions)?;
                let in_register = reached.cast.as_ref().and_then(|untold| untold.register);
                let layout = match in_register {
                    Some(_) => Layout::Register,
                    None => Layout::Object,
                };
                finish(&instructions, shape, layout, missing)
            }
        }
    }

    /// What was reached, if it is text, or something else that is shown so; a part of a value is not.
    pub(super) fn text_of(&self, reached: &Reached<'a>) -> Result<Option<Text<'a>>, Refusal> {
        if reached.bits.is_some() || !reached.counts.is_empty() {
            return Ok(None);
        }
        if let Some(untold) = &reached.cast {
            let text = Text::Terminated { may_be_bytes: false };
            return Ok(untold.cast.is_text().then_some(text));
        }
        match self.file.stripped(reached.kind.clone())? {
            Some(kind) => self.file.text(&kind),
            None => Ok(None),
        }
    }

    /// What it is that was reached, of arrays their element.
    pub(super) fn shape_of(&self, reached: &Reached<'a>) -> Shape {
        let Some(untold) = &reached.cast else {
            return self.file.shape(reached.kind.as_ref(), &mut Budget::default());
        };
        let form = match untold.cast.number() {
            None => Form::Pointer,
            Some(Number::Integer { signed, .. }) => Form::Integer { signed },
            Some(Number::Character) => Form::Integer { signed: true },
            Some(Number::Boolean) => Form::Boolean,
            Some(Number::Float { .. }) => Form::Float,
        };
        Shape {
            type_name: untold.name(),
            size: untold.cast.bytes().into(),
            form,
        }
    }

    /// Code that leaves a number, extended by its sign, and what it is.
    pub(super) fn scalar(&self, reached: &Reached<'a>) -> Result<(Code, Shape), Refusal> {
        let shape = self.shape_of(reached);
        if let Form::Unsupported(reason) = &shape.form {
            return unsupported(reason.clone());
        }
        if !reached.counts.is_empty() {
            return unsupported("several elements cannot be compared with a number");
        }
        let signed = matches!(
            shape.form,
            Form::Integer { signed: true } | Form::Enumeration { signed: true, .. }
        );
        let Some((field, (shift, bits))) = reached.bits.as_ref().and_then(|field| Some((field, field.bits?)))
        else {
            let mut code = reached.place.value(shape.size)?;
            if signed {
                code.extend(shape.size * 8, true);
            }
            return Ok((code, shape));
        };
        // A load takes 1, 2, 4 or 8 bytes: more than the bits' own, where these are an odd number.
        let size = field.bit_bytes().unwrap_or(0).next_power_of_two();
        if field.bit_bytes() != Some(size) || size > 8 {
            return unsupported("a comparison with a bit field across bytes");
        }
        let mut code = reached.place.value(size)?;
        code.shift_right(shift.into());
        code.extend(bits.into(), signed);
        Ok((code, shape))
    }
}

pub(super) fn finish(
    instructions: &[Instruction],
    shape: Shape,
    layout: Layout,
    missing: Vec<Range<u64>>,
) -> Result<Lowered, Refusal> {
    Ok(Lowered {
        plan: plan(instructions)?,
        shape,
        layout,
        missing,
    })
}

pub(super) fn plan(instructions: &[Instruction]) -> Result<ReadPlan, Refusal> {
    check_stack(instructions)?;
    ReadPlan::new(instructions).ok_or_else(|| {
        Refusal::Unsupported(format!(
            "reading it takes {} instructions, more than the limit of {MAX_INSTRUCTIONS}",
            instructions.len()
        ))
    })
}
