//! DWARF expressions to bytecode.

use gimli::{AttributeValue, DwAte, Expression, Operation as Dwarf, UnitOffset};
use profiler_common::values::{Instruction, Operation};

use super::{
    code::Code,
    context::{Context, Location, Piece, Source},
    entry::Entry,
    file::Slice,
    frame::general,
    refusal::{Refusal, optimized_out, unsupported},
};

/// Pieces of one variable.
const MAX_PIECES: usize = 64;

/// What a word on the stack is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    /// An address or an integer of 64 bits.
    Generic,
    /// An integer type of so many bits, extended to the whole word by its sign.
    Integer { bits: u8, signed: bool },
}

impl<'a> Context<'_, 'a> {
    /// Lowers an expression.
    pub fn lower(&self, expression: Expression<Slice<'a>>) -> Result<Location, Refusal> {
        let mut lowering = Lowering {
            context: self,
            code: Code::default(),
            stack: Vec::new(),
            source: None,
            pieces: Vec::new(),
        };
        let mut operations = expression.operations(self.unit.encoding());
        while let Some(operation) = operations.next()? {
            lowering.operation(operation)?;
            lowering.code.check_length()?;
        }
        lowering.finish()
    }
}

struct Lowering<'c, 'f, 'a> {
    context: &'c Context<'f, 'a>,
    code: Code,
    stack: Vec<Word>,
    /// What the expression says it is, other than an address.
    source: Option<Source>,
    pieces: Vec<Piece>,
}

impl<'a> Lowering<'_, '_, 'a> {
    fn finish(mut self) -> Result<Location, Refusal> {
        if self.pieces.is_empty() {
            return Ok(Location::Whole(self.take_source()));
        }
        if self.source.is_some() || !self.stack.is_empty() {
            return Err(Refusal::Damaged(
                "a location continues after its last piece".into(),
            ));
        }
        Ok(Location::Pieces(self.pieces))
    }

    /// What the expression came to so far, which the next piece does not see.
    fn take_source(&mut self) -> Source {
        let code = std::mem::take(&mut self.code);
        let depth = std::mem::take(&mut self.stack).len();
        match self.source.take() {
            // The words beneath the topmost one stay on the interpreter's stack, where they do no harm.
            Some(source) => source,
            None if depth > 0 => Source::Memory(code),
            None => Source::Missing,
        }
    }

    fn push(&mut self, instruction: Instruction, word: Word) {
        self.code.push(instruction);
        self.stack.push(word);
    }

    fn pop(&mut self) -> Result<Word, Refusal> {
        self.stack
            .pop()
            .ok_or_else(|| Refusal::Damaged("a location pops more values than it pushed".into()))
    }

    fn top(&self) -> Result<Word, Refusal> {
        self.stack
            .last()
            .copied()
            .ok_or_else(|| Refusal::Damaged("a location pops more values than it pushed".into()))
    }

    #[expect(clippy::too_many_lines, reason = "a location that uses an unsupported table")]
    fn operation(&mut self, operation: Dwarf<Slice<'a>>) -> Result<(), Refusal> {
        if self.source.is_some()
            && !matches!(operation, Dwarf::Piece { .. } | Dwarf::Nop | Dwarf::Uninitialized)
        {
            return unsupported("a location that continues after its value");
        }
        if self.context.caller.is_some() && matches!(operation, Dwarf::EntryValue { .. }) {
            return optimized_out("it is an argument of the caller's own call, which is not kept");
        }
        match operation {
            Dwarf::Nop => {}
            Dwarf::UnsignedConstant { value } => {
                self.push(
                    Instruction::new(Operation::Constant).immediate(value),
                    Word::Generic,
                );
            }
            Dwarf::SignedConstant { value } => {
                let constant = Instruction::new(Operation::Constant).immediate(value.cast_unsigned());
                self.push(constant, Word::Generic);
            }
            Dwarf::Address { address } => self.address(address)?,
            Dwarf::AddressIndex { index } => {
                let address = self.context.file.dwarf.address(&self.context.unit, index)?;
                self.address(address)?;
            }
            Dwarf::ConstantIndex { index } => {
                let word = self.context.file.dwarf.address(&self.context.unit, index)?;
                self.push(
                    Instruction::new(Operation::Constant).immediate(word),
                    Word::Generic,
                );
            }
            Dwarf::TypedLiteral { base_type, value } => {
                let word = self.base_type(base_type)?;
                let mut bytes = [0; 8];
                let Some(into) = bytes.get_mut(..value.len()) else {
                    return unsupported("a constant wider than 64 bits");
                };
                into.copy_from_slice(value.slice());
                let constant = Instruction::new(Operation::Constant).immediate(u64::from_le_bytes(bytes));
                self.push(constant, word);
                self.extend(word);
            }
            Dwarf::Register { register } => self.source = Some(Source::Register(general(register)?)),
            Dwarf::RegisterOffset {
                register,
                offset,
                base_type,
            } => {
                let number = general(register)?;
                let word = self.base_type(base_type)?;
                let mut code = if self.context.caller.is_some() {
                    self.context.file.callers_register(self.context, number)?
                } else {
                    Code::register(number, 0)
                };
                code.add(offset.cast_unsigned());
                self.code.append(&code);
                self.stack.push(word);
                self.extend(word);
            }
            Dwarf::FrameOffset { offset } => {
                let mut code = self.context.frame_base()?;
                code.add(offset.cast_unsigned());
                self.code.append(&code);
                self.stack.push(Word::Generic);
            }
            Dwarf::CallFrameCFA => {
                let code = match self.context.caller {
                    Some(returns_to) => self.context.file.callers_cfa(self.context, returns_to)?,
                    None => self.context.file.cfa(self.context)?,
                };
                self.code.append(&code);
                self.stack.push(Word::Generic);
            }
            Dwarf::TLS => self.thread_local()?,
            Dwarf::Deref {
                base_type,
                size,
                space,
            } => {
                if space || !matches!(size, 1 | 2 | 4 | 8) {
                    return unsupported("memory that is read in an unusual size or space");
                }
                self.pop()?;
                let word = self.base_type(base_type)?;
                self.code.load(size);
                self.stack.push(word);
                self.extend(word);
            }
            Dwarf::Drop => {
                self.pop()?;
                self.code.operation(Operation::Drop);
            }
            Dwarf::Pick { index } => {
                let under = self.stack.len().checked_sub(1 + usize::from(index));
                let Some(word) = under.and_then(|at| self.stack.get(at)).copied() else {
                    return Err(Refusal::Damaged(
                        "a location pops more values than it pushed".into(),
                    ));
                };
                self.push(Instruction::new(Operation::Pick).length(index.into()), word);
            }
            Dwarf::Swap => {
                let (top, below) = (self.pop()?, self.pop()?);
                self.stack.extend([top, below]);
                self.code.operation(Operation::Swap);
            }
            Dwarf::Rot => {
                let (first, second, third) = (self.pop()?, self.pop()?, self.pop()?);
                self.stack.extend([first, third, second]);
                self.code.operation(Operation::Rotate);
            }
            Dwarf::PlusConstant { value } => {
                let word = self.top()?;
                self.code.add(value);
                self.extend(word);
            }
            Dwarf::Plus => {
                if self.top()? == Word::Generic
                    && let Some(word) = self.code.take_constant()
                {
                    self.pop()?;
                    let below = self.top()?;
                    self.code.add(word);
                    self.extend(below);
                } else {
                    self.arithmetic(Operation::Add)?;
                }
            }
            Dwarf::Minus => self.arithmetic(Operation::Subtract)?,
            Dwarf::Mul => self.arithmetic(Operation::Multiply)?,
            Dwarf::And => self.arithmetic(Operation::And)?,
            Dwarf::Or => self.arithmetic(Operation::Or)?,
            Dwarf::Xor => self.arithmetic(Operation::ExclusiveOr)?,
            Dwarf::Div => {
                if self.top()?
                    == (Word::Integer {
                        bits: 64,
                        signed: false,
                    })
                {
                    return unsupported("an unsigned 64-bit division");
                }
                self.arithmetic(Operation::Divide)?;
            }
            Dwarf::Mod => {
                if let Word::Integer { signed: true, .. } = self.top()? {
                    return unsupported("the remainder of a signed division");
                }
                self.arithmetic(Operation::Remainder)?;
            }
            Dwarf::Shl => self.shift(Operation::ShiftLeft)?,
            Dwarf::Shr => self.shift(Operation::ShiftRight)?,
            Dwarf::Shra => self.shift(Operation::ShiftRightSigned)?,
            Dwarf::Neg => self.unary(Operation::Negate)?,
            Dwarf::Not => self.unary(Operation::Not)?,
            Dwarf::Abs => self.unary(Operation::Absolute)?,
            Dwarf::Eq => self.comparison(Operation::Equal, false, false)?,
            Dwarf::Ne => self.comparison(Operation::Equal, false, true)?,
            Dwarf::Lt => self.comparison(Operation::Less, false, false)?,
            Dwarf::Ge => self.comparison(Operation::Less, false, true)?,
            Dwarf::Gt => self.comparison(Operation::Less, true, false)?,
            Dwarf::Le => self.comparison(Operation::LessOrEqual, false, false)?,
            Dwarf::Convert { base_type } => {
                let to = self.base_type(base_type)?;
                self.pop()?;
                self.stack.push(to);
                self.extend(to);
            }
            Dwarf::Reinterpret { base_type } => {
                let to = self.base_type(base_type)?;
                if bits(self.pop()?) != bits(to) {
                    return unsupported("a number that is reinterpreted at another size");
                }
                self.stack.push(to);
                self.extend(to);
            }
            Dwarf::StackValue => {
                self.pop()?;
                self.source = Some(Source::Value(std::mem::take(&mut self.code)));
            }
            Dwarf::ImplicitValue { data } => self.source = Some(Source::Bytes(data.slice().to_vec())),
            Dwarf::ImplicitPointer { value, byte_offset } => {
                self.source = Some(Source::Pointer {
                    target: value.0,
                    offset: byte_offset,
                });
            }
            Dwarf::Piece {
                size_in_bits,
                bit_offset,
            } => {
                if self.pieces.len() == MAX_PIECES {
                    return unsupported("a variable in too many pieces");
                }
                let source = self.take_source();
                self.pieces.push(Piece {
                    source,
                    bits: size_in_bits,
                    skipped_bits: bit_offset.unwrap_or(0),
                });
            }
            Dwarf::EntryValue { expression } => {
                let code = self.context.inner()?.entry_value(Expression(expression))?;
                self.code.append(&code);
                self.stack.push(Word::Generic);
            }
            Dwarf::Uninitialized => return optimized_out("it is not initialized yet"),
            Dwarf::Bra { .. } | Dwarf::Skip { .. } => return unsupported("a location with branches"),
            Dwarf::Call { .. } => return unsupported("a location that calls another (DW_OP_call)"),
            Dwarf::PushObjectAddress => return unsupported("a location by DW_OP_push_object_address"),
            Dwarf::VariableValue { .. } => return unsupported("a location by DW_OP_GNU_variable_value"),
            Dwarf::ParameterRef { offset } => {
                let code = self.context.inner()?.left_out_value(offset)?;
                self.code.append(&code);
                self.stack.push(Word::Generic);
            }
            Dwarf::WasmLocal { .. } | Dwarf::WasmGlobal { .. } | Dwarf::WasmStack { .. } => {
                return unsupported("a location of another machine");
            }
        }
        Ok(())
    }

    fn address(&mut self, address: u64) -> Result<(), Refusal> {
        if address == 0 {
            return optimized_out("the linker left it out");
        }
        let address = address.wrapping_add(self.context.bias);
        self.push(
            Instruction::new(Operation::Constant).immediate(address),
            Word::Generic,
        );
        Ok(())
    }

    fn thread_local(&mut self) -> Result<(), Refusal> {
        self.pop()?;
        let Some(storage) = self.context.file.sections.thread_storage else {
            return unsupported("a thread-local variable of a file without thread-local storage");
        };
        let Some(offset) = self.code.take_constant() else {
            return unsupported("a thread-local variable at an offset that is computed");
        };
        if let Some(offset) = storage.thread_pointer_offset(offset) {
            self.push(
                Instruction::new(Operation::ThreadPointer).immediate(offset),
                Word::Generic,
            );
            return Ok(());
        }
        let Some(module) = &self.context.file.thread_module else {
            return unsupported("a thread-local variable of a library");
        };
        self.code.append(&module.clone()?.address(offset));
        self.stack.push(Word::Generic);
        Ok(())
    }

    /// The type of a word; entry 0 is the generic one.
    fn base_type(&self, offset: UnitOffset) -> Result<Word, Refusal> {
        if offset.0 == 0 {
            return Ok(Word::Generic);
        }
        let entry = Entry::at(&self.context.unit, offset)?;
        let Some(AttributeValue::Encoding(encoding)) = entry.value(gimli::DW_AT_encoding) else {
            return unsupported("a computation in an unknown type");
        };
        let size = entry.number(gimli::DW_AT_byte_size).unwrap_or(0);
        let bits = match size {
            1 | 2 | 4 | 8 => 8 * size,
            _ => return unsupported("a computation in a type wider than 64 bits"),
        };
        let signed = match encoding {
            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => true,
            gimli::DW_ATE_unsigned
            | gimli::DW_ATE_unsigned_char
            | gimli::DW_ATE_boolean
            | gimli::DW_ATE_address
            | gimli::DW_ATE_UTF => false,
            other => return unsupported(format!("a computation in {}", encoding_name(other))),
        };
        let bits = u8::try_from(bits).unwrap_or(64);
        Ok(Word::Integer { bits, signed })
    }

    fn extend(&mut self, word: Word) {
        if let Word::Integer { bits, signed } = word {
            self.code.extend(bits.into(), signed);
        }
    }

    fn pair(&mut self) -> Result<Word, Refusal> {
        let (top, below) = (self.pop()?, self.pop()?);
        if top != below {
            return unsupported("a computation with numbers of two types");
        }
        Ok(below)
    }

    fn arithmetic(&mut self, operation: Operation) -> Result<(), Refusal> {
        let word = self.pair()?;
        self.code.operation(operation);
        self.stack.push(word);
        self.extend(word);
        Ok(())
    }

    fn unary(&mut self, operation: Operation) -> Result<(), Refusal> {
        let word = self.top()?;
        self.code.operation(operation);
        self.extend(word);
        Ok(())
    }

    /// The count may be of any type; what is shifted keeps its own.
    fn shift(&mut self, operation: Operation) -> Result<(), Refusal> {
        self.pop()?;
        let word = self.top()?;
        let fits = match word {
            Word::Generic | Word::Integer { bits: 64, .. } => true,
            Word::Integer { signed, .. } => match operation {
                Operation::ShiftRight => !signed,
                Operation::ShiftRightSigned => signed,
                _ => true,
            },
        };
        if !fits {
            return unsupported("a shift that does not fit its number's sign");
        }
        self.code.operation(operation);
        self.extend(word);
        Ok(())
    }

    /// Comparisons are signed, unless their type is not.
    fn comparison(&mut self, operation: Operation, swapped: bool, negated: bool) -> Result<(), Refusal> {
        let word = self.pair()?;
        if word
            == (Word::Integer {
                bits: 64,
                signed: false,
            })
            && operation != Operation::Equal
        {
            return unsupported("an unsigned 64-bit comparison");
        }
        if swapped {
            self.code.operation(Operation::Swap);
        }
        self.code.operation(operation);
        if negated {
            self.push(Instruction::new(Operation::Constant).immediate(0), Word::Generic);
            self.stack.pop();
            self.code.operation(Operation::Equal);
        }
        self.stack.push(Word::Generic);
        Ok(())
    }
}

fn bits(word: Word) -> u8 {
    match word {
        Word::Generic => 64,
        Word::Integer { bits, .. } => bits,
    }
}

fn encoding_name(encoding: DwAte) -> &'static str {
    match encoding {
        gimli::DW_ATE_float => "floating point",
        gimli::DW_ATE_complex_float => "complex numbers",
        _ => "an unusual type",
    }
}
