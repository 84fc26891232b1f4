//! The steps of an expression, from its variable to the value that it names.

use std::rc::Rc;

use profiler_scope::expression::{Cast, Expression, Number, Root, Step, register_name};

use super::scope::{THIS, nearest};
use super::{
    context::{Context, Location, Source},
    entry::Entry,
    file::DebugFile,
    functions::Function,
    lower::{Returns, Site},
    place::Place,
    refusal::{Refusal, unsupported},
    shape::Form,
    structure::{Choice, Field},
};

/// References and pointers that a member is looked for behind.
const MAX_BEHIND: usize = 4;
/// Numbers of an enum that a step into one of its variants is decided by.
const MAX_NUMBERS: usize = 4;

/// What an expression has come to so far.
pub(super) struct Reached<'a> {
    pub place: Place,
    pub kind: Option<Entry<'a>>,
    /// The member that it is, where that has some bits only.
    pub bits: Option<Field<'a>>,
    /// Where it is an array of `kind`: elements in each dimension, the outermost first.
    pub counts: Vec<u64>,
    /// What it is instead of `kind`, where that is not the debug information's.
    pub cast: Option<Untold>,
}

/// A type that the debug information has not told.
#[derive(Clone)]
pub(super) struct Untold {
    pub cast: Cast,
    /// The register that it is in, as callers and callees agree on; `None` where somebody has written the type.
    pub register: Option<&'static str>,
}

impl Untold {
    /// Its name as it is shown.
    pub fn name(&self) -> String {
        match self.register {
            Some(register) => format!("{} in {register}", self.cast),
            None => self.cast.to_string(),
        }
    }
}

/// The registers of the first six arguments that are numbers or pointers, by their DWARF numbers (System V ABI for x86-64, 3.2.3).
const ARGUMENTS: [u8; 6] = [5, 4, 1, 2, 8, 9];

/// An expression at a site.
pub(super) struct Lowering<'f, 'a> {
    pub file: &'f DebugFile<'a>,
    pub site: Site,
    pub returns: Returns<'f>,
    pub function: Option<&'f Function<'a>>,
}

/// The number of an argument that is called by it: `arg0`.
fn argument(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("arg")?;
    digits.parse().ok().filter(|_| digits.len() == 1)
}

/// A register's word, of which nothing says what it is.
pub(super) fn word<'a>(register: u8, name: &'static str) -> Result<Reached<'a>, Refusal> {
    Ok(Reached {
        place: Place::new(Location::Whole(Source::Register(register)), 8)?,
        kind: None,
        bits: None,
        counts: Vec::new(),
        cast: Some(Untold {
            cast: Cast::LONG,
            register: Some(name),
        }),
    })
}

impl<'a> Lowering<'_, 'a> {
    fn context(&self, entry: &Entry<'a>) -> Context<'_, 'a> {
        Context {
            file: self.file,
            unit: Rc::clone(&entry.unit),
            function: self.function,
            address: self.site.address,
            bias: self.site.bias,
            caller: None,
            nesting: 0,
        }
    }

    /// Where an expression leads.
    pub fn reach(&self, expression: &Expression) -> Result<Reached<'a>, Refusal> {
        let mut at = self.begin(&expression.root)?;
        self.through_references(&mut at)?;
        for step in &expression.steps {
            if at.bits.is_some() {
                return unsupported("a step into a bit field");
            }
            if !at.counts.is_empty() && !matches!(step, Step::Index(_) | Step::Range(..)) {
                return unsupported("a step from several elements at once");
            }
            match step {
                Step::Cast(cast) => self.cast(&mut at, *cast)?,
                Step::Text => self.cast(&mut at, Cast::TEXT)?,
                Step::Dereference => self.dereference(&mut at)?,
                Step::Member(name) => self.step_to_member(&mut at, name)?,
                Step::Index(index) => self.step_to_elements(&mut at, *index, None)?,
                Step::Range(from, to) => self.step_to_elements(&mut at, *from, Some(to - from))?,
            }
            self.through_references(&mut at)?;
        }
        Ok(at)
    }

    fn begin(&self, root: &Root) -> Result<Reached<'a>, Refusal> {
        let (global, path) = match root {
            Root::Register(number) => return word(*number, register_name(*number)),
            Root::Return => return self.returned(),
            Root::Thread(part) => {
                return unsupported(format!("a part of ${}, which is read as a whole", part.word()));
            }
            Root::Variable { global, path } => (*global, path),
        };
        if let (false, [name], Some(function)) = (global, path.as_slice(), self.function) {
            let address = self.site.address;
            if let Some(variable) = self.file.own_local(function, address, name)? {
                return self.local(function, &variable);
            }
            if let Some(member) = self.member_of_this(function, name)? {
                return Ok(member);
            }
            if let Some(variable) = self.file.local(function, address, name)? {
                return self.local(function, &variable);
            }
        }
        let own = self.function.map(|function| &function.entry.unit);
        match self.file.global(own, path, global)? {
            Some(variable) => self.variable(&variable),
            None => match path.as_slice() {
                [name] if !global && let Some(number) = argument(name) => self.argument(name, number),
                _ => Err(self.file.no_variable(self.function, &path.join("::"))),
            },
        }
    }

    /// An argument by its number, as callers pass numbers and pointers.
    fn argument(&self, name: &str, number: usize) -> Result<Reached<'a>, Refusal> {
        if self.returns == Returns::AtInstruction {
            return unsupported(format!(
                "{name} is known only where a function is entered or called"
            ));
        }
        let Some(register) = ARGUMENTS.get(number) else {
            return unsupported(format!(
                "{name} is not in a register: arg0 to arg{} are",
                ARGUMENTS.len() - 1
            ));
        };
        word(*register, register_name(*register))
    }

    /// The same value as another type: of numbers and pointers the low bytes, or extended by its sign.
    fn cast(&self, at: &mut Reached<'a>, cast: Cast) -> Result<(), Refusal> {
        if let Some(Number::Float { .. }) = cast.number() {
            return unsupported(format!(
                "a cast to {cast}: numbers are not converted; *({cast}*) reads one where a pointer leads to"
            ));
        }
        let (code, shape) = self.scalar(at)?;
        if shape.form == Form::Float {
            return unsupported(format!(
                "a cast of {}: numbers are not converted",
                shape.type_name
            ));
        }
        if u64::from(cast.bytes()) > shape.size && cast.number().is_none() {
            return unsupported(format!(
                "a cast of {} to a pointer, which is larger",
                shape.type_name
            ));
        }
        let location = Location::Whole(Source::Value(code));
        at.place = Place::new(location, cast.bytes().into())?;
        at.bits = None;
        at.kind = None;
        at.cast = Some(Untold { cast, register: None });
        Ok(())
    }

    /// The member of a name of the object that the innermost function is a method of: it hides what is outside of the class.
    fn member_of_this(&self, function: &Function<'a>, name: &str) -> Result<Option<Reached<'a>>, Refusal> {
        let Some(this) = self.file.this(function, self.site.address)? else {
            return Ok(None);
        };
        let Some(class) = self.pointed_to(self.file.type_of(&this.declared)?)? else {
            return Ok(None);
        };
        if class.flag(gimli::DW_AT_declaration) {
            let of = self.file.type_name(Some(&class));
            return unsupported(format!(
                "{of} is only declared here, and {name} may be a member of it: write ::{name} for the one outside"
            ));
        }
        if self.file.member(&class, name)?.is_some() {
            let mut at = self.local(function, &this.known?)?;
            self.step_to_member(&mut at, name)?;
            return Ok(Some(at));
        }
        // What a lambda has captured of the method that it is in.
        if let Some(captured) = self.file.member(&class, THIS)? {
            let outer = self.pointed_to(captured.kind)?;
            if let Some(outer) = outer
                && self.file.member(&outer, name)?.is_some()
            {
                let mut at = self.local(function, &this.known?)?;
                self.step_to_member(&mut at, THIS)?;
                self.step_to_member(&mut at, name)?;
                return Ok(Some(at));
            }
        }
        let Some(path) = self.file.static_member(&class, name)? else {
            return Ok(None);
        };
        match self.file.global(Some(&function.entry.unit), &path, false)? {
            Some(variable) => self.variable(&variable).map(Some),
            None => Err(self.file.no_variable(Some(function), &path.join("::"))),
        }
    }

    /// The structure that a pointer of a type leads to.
    fn pointed_to(&self, kind: Option<Entry<'a>>) -> Result<Option<Entry<'a>>, Refusal> {
        let pointer = self.file.stripped(kind)?;
        match pointer.filter(|kind| kind.tag() == gimli::DW_TAG_pointer_type) {
            Some(pointer) => self.file.stripped(self.file.type_of(&pointer)?),
            None => Ok(None),
        }
    }

    fn local(&self, function: &Function<'a>, variable: &Entry<'a>) -> Result<Reached<'a>, Refusal> {
        let kind = self.file.type_of(variable)?;
        let size = self.file.size_of(kind.as_ref())?;
        let context = self.context(variable);
        match self
            .file
            .before_it_is_stored(&context, function, variable, size)?
        {
            Some(place) => Ok(Reached {
                place,
                kind,
                bits: None,
                counts: Vec::new(),
                cast: None,
            }),
            None => self.variable(variable),
        }
    }

    fn variable(&self, variable: &Entry<'a>) -> Result<Reached<'a>, Refusal> {
        let kind = self.file.type_of(variable)?;
        let size = self.file.size_of(kind.as_ref())?;
        let signed = self.file.is_signed(kind.as_ref());
        let location = self
            .file
            .location(&self.context(variable), variable, size, signed)?;
        Ok(Reached {
            place: Place::new(location, size)?,
            kind,
            bits: None,
            counts: Vec::new(),
            cast: None,
        })
    }

    /// C++ names what a reference leads to by the reference's own name.
    fn through_references(&self, at: &mut Reached<'a>) -> Result<(), Refusal> {
        for _ in 0..MAX_BEHIND {
            match self.file.stripped(at.kind.clone())? {
                Some(kind)
                    if matches!(
                        kind.tag(),
                        gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
                    ) =>
                {
                    self.dereference(at)?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn dereference(&self, at: &mut Reached<'a>) -> Result<(), Refusal> {
        if let Some(untold) = &at.cast {
            let Some(target) = untold.cast.target() else {
                return unsupported(format!("{} is no pointer to something known", untold.name()));
            };
            at.place = Place::Memory(at.place.value(8)?);
            at.cast = Some(Untold {
                cast: target,
                register: None,
            });
            return Ok(());
        }
        let kind = self.file.stripped(at.kind.clone())?;
        let pointer = kind.filter(|kind| {
            matches!(
                kind.tag(),
                gimli::DW_TAG_pointer_type
                    | gimli::DW_TAG_reference_type
                    | gimli::DW_TAG_rvalue_reference_type
            )
        });
        let Some(pointer) = pointer else {
            let name = self.file.type_name(at.kind.as_ref());
            return unsupported(format!("{name} is not a pointer"));
        };
        let target = self.file.type_of(&pointer)?;
        at.place = match at.place.implicit_target() {
            Some((entry, offset)) => self.implicit(entry, offset, target.as_ref())?,
            None => Place::Memory(at.place.value(8)?),
        };
        at.kind = target;
        Ok(())
    }

    /// What a pointer leads to that was optimized out itself.
    fn implicit(&self, entry: usize, offset: i64, target: Option<&Entry<'a>>) -> Result<Place, Refusal> {
        let variable = self.file.entry_at(entry)?;
        let size = self.file.size_of(target)?;
        let Ok(offset) = u64::try_from(offset) else {
            return unsupported("a pointer that was optimized out, to before what it points to");
        };
        if self.file.type_of(&variable)?.is_some() {
            return Ok(self.variable(&variable)?.place.part(offset, size));
        }
        // An entry without a type stands for bytes.
        let whole = offset.saturating_add(size);
        let location = self
            .file
            .location(&self.context(&variable), &variable, whole, false)?;
        Ok(Place::new(location, whole)?.part(offset, size))
    }

    fn step_to_member(&self, at: &mut Reached<'a>, name: &str) -> Result<(), Refusal> {
        if let Some(untold) = &at.cast {
            return unsupported(format!("{} has no members", untold.name()));
        }
        for _ in 0..MAX_BEHIND {
            let kind = self.file.stripped(at.kind.clone())?;
            match kind {
                Some(kind) if kind.tag() == gimli::DW_TAG_pointer_type => self.dereference(at)?,
                Some(kind)
                    if matches!(
                        kind.tag(),
                        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
                    ) =>
                {
                    let Some(field) = self.file.member(&kind, name)? else {
                        return match DebugFile::variant_part(&kind)? {
                            Some(part) => self.step_to_variant(at, &kind, &part, name),
                            None => Err(self.no_member(&kind, name)),
                        };
                    };
                    let offset = field.offset.clone()?;
                    let size = match field.bit_bytes() {
                        Some(size) => size,
                        None => self.file.size_of(field.kind.as_ref())?,
                    };
                    at.place = at.place.part(offset, size);
                    at.kind.clone_from(&field.kind);
                    at.bits = field.bits.is_some().then_some(field);
                    return Ok(());
                }
                _ => break,
            }
        }
        let name = self.file.type_name(at.kind.as_ref());
        unsupported(format!("{name} has no members"))
    }

    /// What a variant holds, by a plan that stops where the value has another.
    fn step_to_variant(
        &self,
        at: &mut Reached<'a>,
        kind: &Entry<'a>,
        part: &Entry<'a>,
        name: &str,
    ) -> Result<(), Refusal> {
        let choices = self.file.choices(part)?;
        let Some(chosen) = choices.iter().find(|choice| choice.name == name) else {
            return Err(Refusal::NoMember {
                of: self.file.type_name(Some(kind)),
                name: name.into(),
                members: nearest(name, choices.into_iter().map(|choice| choice.name).collect()),
            });
        };
        let offset = chosen.field.offset.clone()?;
        let size = self.file.size_of(chosen.field.kind.as_ref())?;
        if let Some((discriminant, width)) = self.file.discriminant(part)? {
            let Place::Memory(code) = &mut at.place else {
                return unsupported(
                    "a step into a variant of a value that is not in memory: read it as a whole",
                );
            };
            // The variant without numbers of its own is the one that all others' do not stand for.
            let is_default = chosen.numbers.is_empty();
            let choices: &[Choice<'_>] = if is_default {
                &choices
            } else {
                std::slice::from_ref(chosen)
            };
            let numbers: Vec<u64> = choices.iter().flat_map(|choice| choice.numbers.clone()).collect();
            if numbers.len() > MAX_NUMBERS {
                return unsupported("a step into a variant with too many discriminant values");
            }
            code.require_number((discriminant, width), &numbers, !is_default);
        }
        at.place = at.place.part(offset, size);
        at.kind.clone_from(&chosen.field.kind);
        Ok(())
    }

    fn no_member(&self, kind: &Entry<'a>, name: &str) -> Refusal {
        let of = self.file.type_name(Some(kind));
        if kind.flag(gimli::DW_AT_declaration) {
            return Refusal::Unsupported(format!("{of} is only declared where the variable is"));
        }
        let fields = self.file.fields(kind).unwrap_or_default();
        let members = fields.into_iter().filter_map(|field| field.name).collect();
        Refusal::NoMember {
            of,
            name: name.into(),
            members: nearest(name, members),
        }
    }

    fn step_to_elements(&self, at: &mut Reached<'a>, first: u64, count: Option<u64>) -> Result<(), Refusal> {
        let name = at
            .cast
            .as_ref()
            .map_or_else(|| self.file.type_name(at.kind.as_ref()), Untold::name);
        let mut counts = std::mem::take(&mut at.counts);
        if counts.is_empty() && at.cast.is_some() {
            self.dereference(at)?;
        } else if counts.is_empty() {
            let kind = self.file.stripped(at.kind.clone())?;
            match kind {
                Some(kind) if kind.tag() == gimli::DW_TAG_pointer_type => self.dereference(at)?,
                Some(kind) if kind.tag() == gimli::DW_TAG_array_type => {
                    let array = self.file.array(&kind)?;
                    at.kind = array.element;
                    counts = array.counts;
                }
                _ => return unsupported(format!("elements of {name}, which is neither pointer nor array")),
            }
        }
        if !counts.is_empty() {
            // Arrays at the end of a structure may be declared with none or one.
            let elements = counts.remove(0);
            let end = first.saturating_add(count.unwrap_or(1));
            if elements > 1 && end > elements {
                return unsupported(format!("{name} has {elements} elements"));
            }
        }
        let mut size = match &at.cast {
            Some(untold) => untold.cast.bytes().into(),
            None => self.file.size_of(at.kind.as_ref())?,
        };
        for inner in &counts {
            size = size.saturating_mul(*inner);
        }
        let whole = size.checked_mul(count.unwrap_or(1));
        let (Some(offset), Some(whole)) = (size.checked_mul(first), whole) else {
            return unsupported("an element beyond all memory");
        };
        at.place = at.place.part(offset, whole);
        counts.splice(0..0, count);
        at.counts = counts;
        Ok(())
    }
}
