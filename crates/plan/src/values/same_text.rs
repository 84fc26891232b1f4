//! Whether a value is a certain text: as a whole, and decided by the programs.

use profiler_common::values::{Comparison, Instruction, Kind, Operation};

use super::{
    code::Code,
    path::{Lowering, Reached},
    place::Place,
    refusal::{Refusal, unsupported},
    shape::{Form, Shape},
    text::{Content, Text},
};

/// Bytes of text that a value is compared with: eight an instruction.
const MAX_COMPARED: usize = 96;

/// Bytes of a pointer or a length.
const WORD: u64 = 8;

impl<'a> Lowering<'_, 'a> {
    /// Instructions that reject a hit unless what was reached is the text, or is not.
    pub fn same_text(
        &self,
        reached: &Reached<'a>,
        comparison: Comparison,
        text: &[u8],
    ) -> Result<Vec<Instruction>, Refusal> {
        let name = self.shape_of(reached).type_name;
        let no_text = || unsupported(format!("{name} is not text and cannot be compared"));
        if reached.bits.is_some() || !reached.counts.is_empty() {
            return no_text();
        }
        let compared = match self.text_of(reached)? {
            Some(Text::Terminated { .. }) => terminated(&reached.place, text)?,
            Some(Text::Counted {
                pointer,
                length,
                content: Content::Characters,
                ..
            }) => counted(&reached.place, pointer, length, text)?,
            Some(Text::Counted { .. }) => return no_text(),
            None => {
                let shape = self.shape_of(reached);
                let Form::Characters { count, .. } = shape.form else {
                    return no_text();
                };
                in_array(&reached.place, &shape, count, text)?
            }
        };
        require_same(compared, comparison, text)
    }
}

/// Rejects a hit by what a comparison with a text has left.
pub(super) fn require_same(
    mut compared: Vec<Instruction>,
    comparison: Comparison,
    text: &[u8],
) -> Result<Vec<Instruction>, Refusal> {
    if text.len() > MAX_COMPARED {
        return unsupported(format!(
            "a comparison with text of {} bytes, of at most {MAX_COMPARED}",
            text.len()
        ));
    }
    let is_equal = u64::from(comparison == Comparison::Equal);
    compared.push(Instruction::new(Operation::Constant).immediate(is_equal));
    compared.push(Instruction::new(Operation::Require).size(Kind::Unsigned as u8));
    Ok(compared)
}

/// Leaves 1 where a pointer leads to the text and the NUL that ends it, else 0: also where it is null.
pub(super) fn terminated(place: &Place, text: &[u8]) -> Result<Vec<Instruction>, Refusal> {
    let mut ended = text.to_vec();
    ended.push(0);
    // With room for one byte more, so that what is longer does not end where it is cut.
    let room = u32::try_from(ended.len() + 1).unwrap_or(u32::MAX);
    let mut compared = place.value(WORD)?.instructions().to_vec();
    let mut unless_null = vec![
        Instruction::new(Operation::CopyString).length(room),
        Instruction::new(Operation::Constant).immediate(1),
    ];
    matches(&ended, &mut unless_null);
    skipped_if_zero(unless_null, &mut compared);
    Ok(compared)
}

/// Leaves 1 where as many bytes as a length says are the text, else 0.
fn counted(place: &Place, pointer: u64, length: u64, text: &[u8]) -> Result<Vec<Instruction>, Refusal> {
    let mut is_as_long: Code = place.part(length, WORD).value(WORD)?;
    is_as_long.push(Instruction::new(Operation::Constant).immediate(text.len() as u64));
    is_as_long.operation(Operation::Equal);
    let mut compared = is_as_long.instructions().to_vec();
    if text.is_empty() {
        return Ok(compared);
    }
    let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let address = place.part(pointer, WORD).value(WORD)?;
    let mut if_as_long = address.instructions().to_vec();
    if_as_long.push(Instruction::new(Operation::Copy).length(bytes));
    matches(text, &mut if_as_long);
    skipped_if_zero(if_as_long, &mut compared);
    Ok(compared)
}

/// Leaves 1 where characters up to the first NUL, or all of them, are the text, else 0.
pub(super) fn in_array(
    place: &Place,
    shape: &Shape,
    count: u64,
    text: &[u8],
) -> Result<Vec<Instruction>, Refusal> {
    let mut ended = text.to_vec();
    match (text.len() as u64).cmp(&count) {
        std::cmp::Ordering::Less => ended.push(0),
        std::cmp::Ordering::Equal => {}
        std::cmp::Ordering::Greater => {
            return unsupported(format!(
                "{} holds no text of {} bytes",
                shape.type_name,
                text.len()
            ));
        }
    }
    let mut compared = Vec::new();
    let missing = place.part(0, count).emit(ended.len() as u64, &mut compared)?;
    if !missing.is_empty() {
        return unsupported("a comparison with text of which a part was optimized out");
    }
    compared.push(Instruction::new(Operation::Constant).immediate(1));
    matches(&ended, &mut compared);
    Ok(compared)
}

/// Appends what is to be done unless the word on top is 0, which stays there otherwise.
fn skipped_if_zero(skipped: Vec<Instruction>, into: &mut Vec<Instruction>) {
    let length = u32::try_from(skipped.len()).unwrap_or(u32::MAX);
    into.push(Instruction::new(Operation::Pick));
    into.push(Instruction::new(Operation::JumpIfZero).length(length));
    into.extend(skipped);
}

/// Holds the output against bytes.
pub(super) fn matches(bytes: &[u8], into: &mut Vec<Instruction>) {
    for (at, chunk) in (0_u32..).step_by(8).zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        into.push(
            Instruction::new(Operation::Match)
                .size(u8::try_from(chunk.len()).unwrap_or(8))
                .length(at)
                .immediate(u64::from_le_bytes(word)),
        );
    }
}
