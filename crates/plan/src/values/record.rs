//! Records of the kernel's tracepoints: their fields, and how each is read.
//!
//! The kernel describes a record as text (`events/CATEGORY/NAME/format` of its `tracefs`). A program finds the record at
//! what its plans call register 0. The first eight bytes are not what they are said to be, as the kernel keeps something
//! of its own there: the fields that all records have in common cannot be read.
//!
//! See `docs/internals/kernel-places.md` for how the kernel's own places are seen.

use profiler_common::values::{Comparison, Instruction, Kind, MAX_BYTES, Operation, ReadPlan};
use profiler_scope::expression::{Expression, Root};

use super::scope::nearest;
use super::{
    code::Code,
    context::{Location, Source},
    lower::{Layout, Lowered, finish, plan},
    place::Place,
    refusal::{Refusal, unsupported},
    same_text::{in_array, require_same, terminated},
    shape::{Form, Shape},
    text::emit_terminated,
};

/// Where a program finds the record.
const RECORD: u8 = 0;

/// Bytes at a record's beginning that are not its own.
const IN_COMMON: u64 = 8;

/// Bytes of a pointer.
const WORD: u64 = 8;

/// Fields that one record is read to have.
const MAX_FIELDS: usize = 256;

/// A parameter of a function of the kernel, which is handed over in a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its type, as C has it.
    pub type_name: String,
    /// In bytes.
    pub size: u64,
    /// It may be below zero.
    pub signed: bool,
}

/// What a tracepoint's record holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The tracepoint's number.
    pub id: u64,
    fields: Vec<Field>,
    /// The fields are a system call's arguments: words, whatever their types.
    of_call: bool,
    /// They are a kernel function's parameters.
    of_function: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    name: String,
    /// Its type, as the kernel has it.
    type_name: String,
    offset: u64,
    size: u64,
    signed: bool,
    /// It is an array.
    is_array: bool,
}

/// How a field is read.
enum Reading {
    /// A value in its place.
    Value(Shape),
    /// A pointer to text.
    Text(Place),
}

impl Record {
    /// Reads a description; `None` where it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.lines().find_map(|line| line.strip_prefix("name: "))?;
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?;
        let fields = text.lines().filter_map(Field::parse).take(MAX_FIELDS);
        Some(Self {
            id: id.trim().parse().ok()?,
            fields: fields.filter(|field| field.offset >= IN_COMMON).collect(),
            of_call: name.starts_with("sys_enter_"),
            of_function: false,
        })
    }

    /// The parameters of a function of the kernel, where the program is handed the registers that it was entered with. Where they are
    /// not known, the registers as they are.
    #[must_use]
    pub fn of_function(parameters: Option<Vec<Parameter>>) -> Self {
        // In the order of the arguments: rdi, rsi, rdx, rcx, r8, r9.
        const ARGUMENTS: [u64; 6] = [112, 104, 96, 88, 72, 64];
        let parameters = parameters.unwrap_or_else(|| {
            let all = 0..ARGUMENTS.len();
            let register = |number| Parameter {
                name: format!("arg{number}"),
                type_name: "long".to_owned(),
                size: WORD,
                signed: true,
            };
            all.map(register).collect()
        });
        let fields = parameters.into_iter().zip(ARGUMENTS);
        Self {
            id: 0,
            fields: fields
                .map(|(parameter, offset)| Field {
                    name: parameter.name,
                    type_name: parameter.type_name,
                    offset,
                    size: parameter.size,
                    signed: parameter.signed,
                    is_array: false,
                })
                .collect(),
            of_call: false,
            of_function: true,
        }
    }

    /// The same, where the program is handed the registers that a system call was made with (`struct pt_regs`), and not
    /// the record.
    #[must_use]
    pub fn of_registers(mut self) -> Self {
        // In the order of the arguments: rdi, rsi, rdx, r10, r8, r9.
        const ARGUMENTS: [u64; 6] = [112, 104, 96, 56, 72, 64];
        const NUMBER: u64 = 120;
        const FIRST: u64 = 16;
        for field in &mut self.fields {
            let argument = field.offset.checked_sub(FIRST).map(|offset| offset / WORD);
            let register = argument.and_then(|number| ARGUMENTS.get(usize::try_from(number).ok()?));
            field.offset = register.copied().unwrap_or(NUMBER);
        }
        self
    }

    /// The fields' names; of a system call also the numbers of its arguments.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// How a field is read.
    ///
    /// # Errors
    /// Where there is no such field, or it cannot be read.
    pub fn lower(&self, expression: &Expression) -> Result<Lowered, Refusal> {
        let field = self.field(expression)?;
        let mut instructions = Vec::new();
        match self.reading(field)? {
            Reading::Value(shape) => {
                let size = shape.size.min(MAX_BYTES as u64);
                field.place().emit(size, &mut instructions)?;
                finish(&instructions, shape, Layout::Object, Vec::new())
            }
            Reading::Text(pointer) => {
                let room = emit_terminated(&pointer, &mut instructions)?;
                let shape = shape(&field.type_name, WORD, Form::Pointer);
                finish(&instructions, shape, Layout::Terminated(room), Vec::new())
            }
        }
    }

    /// A plan that rejects a hit unless a field, a number, compares to a constant as asked.
    ///
    /// # Errors
    /// As of [`Self::lower`]; and where the field is no number.
    pub fn require(
        &self,
        expression: &Expression,
        comparison: Comparison,
        constant: impl FnOnce(&Shape, Kind) -> Result<u64, Refusal>,
    ) -> Result<ReadPlan, Refusal> {
        let field = self.field(expression)?;
        let shape = match self.reading(field)? {
            Reading::Value(shape) => shape,
            Reading::Text(_) => shape(&field.type_name, WORD, Form::Pointer),
        };
        let kind = match shape.form {
            Form::Integer { signed: true } => Kind::Signed,
            Form::Integer { signed: false } | Form::Boolean | Form::Pointer => Kind::Unsigned,
            _ => {
                return unsupported(format!(
                    "{} is not a number and cannot be compared",
                    shape.type_name
                ));
            }
        };
        let mut code = field.place().value(shape.size)?;
        if kind == Kind::Signed {
            code.extend(shape.size * 8, true);
        }
        code.push(Instruction::new(Operation::Constant).immediate(constant(&shape, kind)?));
        let mut require = Instruction::new(Operation::Require).size(kind as u8);
        require.comparison = comparison as u8;
        code.push(require);
        plan(code.instructions())
    }

    /// A plan that rejects a hit unless a field is a text, or is not.
    ///
    /// # Errors
    /// As of [`Self::lower`]; and where the field is no text.
    pub fn require_text(
        &self,
        expression: &Expression,
        comparison: Comparison,
        text: &[u8],
    ) -> Result<ReadPlan, Refusal> {
        let field = self.field(expression)?;
        let compared = match self.reading(field)? {
            Reading::Text(pointer) => terminated(&pointer, text)?,
            Reading::Value(shape) => match shape.form {
                Form::Characters { count, .. } => in_array(&field.place(), &shape, count, text)?,
                _ => return unsupported(format!("{} is not text and cannot be compared", shape.type_name)),
            },
        };
        plan(&require_same(compared, comparison, text)?)
    }

    /// The field that an expression names.
    fn field(&self, expression: &Expression) -> Result<&Field, Refusal> {
        let name = match &expression.root {
            Root::Variable { global: false, path } if path.len() == 1 => &path[0],
            Root::Variable { .. } => return unsupported("a name of several parts: a record has fields"),
            Root::Register(_) => return unsupported("registers: a record has fields"),
            Root::Return => return unsupported("a return value: a record has fields"),
            Root::Thread(_) => return unsupported("the thread: a record has fields"),
        };
        if !expression.steps.is_empty() {
            return unsupported(format!("a part of {name}: fields are read as a whole"));
        }
        let number = name
            .strip_prefix("arg")
            .and_then(|number| number.parse::<usize>().ok());
        let argument = number
            .filter(|_| self.of_call || self.of_function)
            .and_then(|number| {
                let mut arguments = self.fields.iter().filter(|field| field.name != "__syscall_nr");
                arguments.nth(number)
            });
        let found = self.fields.iter().find(|field| field.name == *name).or(argument);
        found.ok_or_else(|| Refusal::NoVariable {
            name: name.clone(),
            nearest: nearest(name, self.names().map(str::to_owned).collect()),
        })
    }

    fn reading(&self, field: &Field) -> Result<Reading, Refusal> {
        let Field {
            type_name,
            size,
            is_array,
            ..
        } = field;
        let is_text = type_name.contains("char");
        if let Some(relative) = field.located() {
            if !is_text {
                return unsupported(format!("a field of type {type_name}"));
            }
            return Ok(Reading::Text(field.located_text(relative)?));
        }
        if *is_array {
            let element = type_name.split('[').next().unwrap_or_default().trim();
            if element == "char" {
                let form = Form::Characters {
                    count: *size,
                    may_be_bytes: false,
                };
                return Ok(Reading::Value(shape(type_name, *size, form)));
            }
            return field.array(element).map(Reading::Value);
        }
        if type_name.ends_with('*') && *size == WORD {
            // Others are the kernel's own, of which nothing but the record is read.
            if self.of_call && is_text && type_name.matches('*').count() == 1 {
                return Ok(Reading::Text(field.place()));
            }
            return Ok(Reading::Value(shape(type_name, WORD, Form::Pointer)));
        }
        if type_name.starts_with("struct ") || type_name.starts_with("union ") {
            return unsupported(format!("a field of type {type_name}"));
        }
        let (size, signed) = if self.of_call && *size == WORD {
            argument(type_name)
        } else {
            (*size, field.signed)
        };
        if !matches!(size, 1 | 2 | 4 | 8) {
            return unsupported(format!("a field of type {type_name} of {size} bytes"));
        }
        let form = if type_name == "bool" {
            Form::Boolean
        } else {
            Form::Integer { signed }
        };
        Ok(Reading::Value(shape(type_name, size, form)))
    }
}

fn shape(type_name: &str, size: u64, form: Form) -> Shape {
    Shape {
        type_name: type_name.to_owned(),
        size,
        form,
    }
}

/// Size and sign of a system call's argument, which the kernel describes as a word.
fn argument(type_name: &str) -> (u64, bool) {
    match type_name.trim_start_matches("const ").trim() {
        "int" | "pid_t" | "key_t" | "key_serial_t" | "timer_t" | "clockid_t" | "mqd_t" | "rwf_t"
        | "qid_t" | "s32" | "__s32" => (4, true),
        "unsigned int" | "unsigned" | "u32" | "__u32" | "uid_t" | "gid_t" | "umode_t" => (4, false),
        "long" | "loff_t" | "off_t" | "ssize_t" | "s64" | "__s64" | "time_t" => (8, true),
        _ => (8, false),
    }
}

impl Field {
    /// Reads a line of a description: `field:char comm[16]; offset:8; size:16; signed:0;`.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.trim().split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", number)) => offset = number.parse().ok(),
                Some(("size", number)) => size = number.parse().ok(),
                Some(("signed", number)) => signed = number == "1",
                _ => {}
            }
        }
        let at = declared.rfind(|c: char| c.is_whitespace() || c == '*')? + 1;
        let (type_name, name) = declared.split_at_checked(at)?;
        let type_name = type_name.trim();
        let (name, length) = match name.find('[') {
            Some(at) => name.split_at(at),
            None => (name, ""),
        };
        Some(Self {
            name: name.to_owned(),
            is_array: !length.is_empty(),
            type_name: format!("{type_name}{length}"),
            offset: offset?,
            size: size?,
            signed,
        })
    }

    /// Where it lies.
    fn place(&self) -> Place {
        Place::Memory(Code::register(RECORD, self.offset.cast_signed()))
    }

    /// Whether it says where in the record it is: from behind itself, or from the record's beginning.
    fn located(&self) -> Option<bool> {
        let relative = self.type_name.starts_with("__rel_loc ");
        (relative || self.type_name.starts_with("__data_loc ")).then_some(relative)
    }

    /// The text that it says the place of: in its lower half, as bytes from where that is counted.
    fn located_text(&self, relative: bool) -> Result<Place, Refusal> {
        const OFFSET_BITS: u64 = 16;
        let mut code = self.place().value(4)?;
        code.extend(OFFSET_BITS, false);
        let from = if relative { self.offset + 4 } else { 0 };
        code.append(&Code::register(RECORD, from.cast_signed()));
        code.operation(Operation::Add);
        Place::new(Location::Whole(Source::Value(code)), WORD)
    }

    /// An array of numbers.
    fn array(&self, element: &str) -> Result<Shape, Refusal> {
        let count = self.type_name.split(['[', ']']).nth(1);
        let count: u64 = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        let size = self.size.checked_div(count).unwrap_or(0);
        if !matches!(size, 1 | 2 | 4 | 8) || size * count != self.size || element.starts_with("struct ") {
            return unsupported(format!("a field of type {}", self.type_name));
        }
        let signed = self.signed;
        Ok(shape(element, size, Form::Integer { signed }).repeated(count))
    }
}

#[cfg(test)]
mod tests;
