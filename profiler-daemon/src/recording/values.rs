//! Values in messages, and back. Messages may have been made up: what is no value is refused.

use profiler_plan::values::{Reading, Value};
use profiler_proto::v1::{self, recorded_value::Value as Message};

use super::decode::Damaged;

/// Said of a value that is not in the file.
const LEFT_OUT: &str = "values were left out of the recording";

/// Said of a value that takes more memory than those of a hit do.
const TOO_LARGE: &str = "the recorded value is larger than any that is read";

/// Memory of the values of a hit, in bytes: those that were read have at most 256 of them, with the names of members. The rest is for
/// recordings that somebody made up.
const MAX_BYTES: usize = 64 << 10;

/// A value as a message.
pub fn message(reading: &Reading) -> v1::RecordedValue {
    let value = match reading {
        Reading::Ok(value) => value_message(value),
        Reading::OptimizedOut(reason) => Message::OptimizedOut(reason.clone()),
        Reading::Unreadable(reason) => Message::Unreadable(reason.clone()),
        Reading::Unsupported(reason) => Message::Unsupported(reason.clone()),
    };
    v1::RecordedValue { value: Some(value) }
}

fn value_message(value: &Value) -> Message {
    match value {
        Value::Signed(number) => Message::Integer(signed(*number)),
        Value::Unsigned(number) => Message::Integer(integer(false, false, *number)),
        Value::Register(number) => Message::Integer(v1::RecordedInteger {
            is_register: true,
            ..signed((*number).into())
        }),
        Value::Boolean(value) => Message::Boolean(*value),
        Value::Character(character) => Message::Character(u32::from(*character)),
        Value::Float(number) => Message::Float(*number),
        Value::Pointer(address) => Message::Pointer(*address),
        Value::Enumerator { number, name } => Message::Enumerator(v1::RecordedEnumerator {
            number: Some(signed(*number)),
            name: name.clone().unwrap_or_default(),
        }),
        Value::Text {
            bytes,
            length,
            pointer,
        } => Message::Text(v1::RecordedText {
            bytes: bytes.clone(),
            length: *length,
            pointer: *pointer,
        }),
        Value::Structure(members) => Message::Structure(v1::RecordedStructure {
            members: members.iter().map(|(name, value)| member(name, value)).collect(),
        }),
        Value::Sequence { elements, count } => Message::Sequence(v1::RecordedSequence {
            elements: elements.iter().map(message).collect(),
            count: *count,
        }),
        Value::Variant { name, value } => Message::Variant(Box::new(member(name, value))),
    }
}

fn member(name: &str, value: &Reading) -> v1::RecordedMember {
    v1::RecordedMember {
        name: name.to_owned(),
        value: Some(Box::new(message(value))),
    }
}

fn signed(number: i128) -> v1::RecordedInteger {
    integer(true, number < 0, number.unsigned_abs())
}

fn integer(is_signed: bool, is_negative: bool, magnitude: u128) -> v1::RecordedInteger {
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    v1::RecordedInteger {
        is_signed,
        is_negative,
        is_register: false,
        low: half(magnitude),
        high: half(magnitude >> 64),
    }
}

/// The values of a hit; what is larger than any that is read is left out.
pub fn readings(messages: Vec<v1::RecordedValue>) -> Result<Vec<Reading>, Damaged> {
    let mut left = MAX_BYTES;
    let readings = messages.into_iter().map(|message| {
        let reading = reading(message)?;
        let Some(rest) = left.checked_sub(reading.bytes()) else {
            return Ok(Reading::Unsupported(TOO_LARGE.to_owned()));
        };
        left = rest;
        Ok(reading)
    });
    readings.collect()
}

/// The value of a message. How deep values lie in one another is bounded by the decoder of messages.
pub fn reading(message: v1::RecordedValue) -> Result<Reading, Damaged> {
    let Some(value) = message.value else {
        return Ok(Reading::Unsupported(LEFT_OUT.to_owned()));
    };
    Ok(Reading::Ok(match value {
        Message::OptimizedOut(reason) => return Ok(Reading::OptimizedOut(reason)),
        Message::Unreadable(reason) => return Ok(Reading::Unreadable(reason)),
        Message::Unsupported(reason) => return Ok(Reading::Unsupported(reason)),
        Message::Integer(integer) if integer.is_register => {
            Value::Register(i64::try_from(signed_of(integer)?).map_err(|_| Damaged)?)
        }
        Message::Integer(integer) if integer.is_signed => Value::Signed(signed_of(integer)?),
        Message::Integer(integer) => Value::Unsigned(magnitude(integer)),
        Message::Boolean(value) => Value::Boolean(value),
        Message::Character(code) => Value::Character(char::from_u32(code).ok_or(Damaged)?),
        Message::Float(number) => Value::Float(number),
        Message::Pointer(address) => Value::Pointer(address),
        Message::Enumerator(v1::RecordedEnumerator { number, name }) => Value::Enumerator {
            number: signed_of(number.unwrap_or_default())?,
            name: (!name.is_empty()).then_some(name),
        },
        Message::Text(v1::RecordedText {
            bytes,
            length,
            pointer,
        }) => Value::Text {
            bytes,
            length,
            pointer,
        },
        Message::Structure(v1::RecordedStructure { members }) => {
            let members = members.into_iter().map(member_of);
            Value::Structure(members.collect::<Result<_, _>>()?)
        }
        Message::Sequence(v1::RecordedSequence { elements, count }) => Value::Sequence {
            elements: elements.into_iter().map(reading).collect::<Result<_, _>>()?,
            count,
        },
        Message::Variant(member) => {
            let (name, value) = member_of(*member)?;
            let value = Box::new(value);
            Value::Variant { name, value }
        }
    }))
}

fn member_of(member: v1::RecordedMember) -> Result<(String, Reading), Damaged> {
    let v1::RecordedMember { name, value } = member;
    Ok((name, reading(value.map(|value| *value).unwrap_or_default())?))
}

fn magnitude(integer: v1::RecordedInteger) -> u128 {
    u128::from(integer.high) << 64 | u128::from(integer.low)
}

fn signed_of(integer: v1::RecordedInteger) -> Result<i128, Damaged> {
    let magnitude = magnitude(integer);
    if integer.is_negative {
        0_i128.checked_sub_unsigned(magnitude).ok_or(Damaged)
    } else {
        i128::try_from(magnitude).map_err(|_| Damaged)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn each_kind_of_value_comes_back_as_it_was() {
        let ok = Reading::Ok;
        let values = [
            ok(Value::Signed(i128::MIN)),
            ok(Value::Signed(-1)),
            ok(Value::Register(0xffff_ffff)),
            ok(Value::Register(i64::MIN)),
            ok(Value::Unsigned(u128::MAX)),
            ok(Value::Boolean(false)),
            ok(Value::Character('é')),
            ok(Value::Float(-0.5)),
            ok(Value::Pointer(0x7fff_0000_1234)),
            ok(Value::Enumerator {
                number: -3,
                name: Some("RED".to_owned()),
            }),
            ok(Value::Enumerator {
                number: 9,
                name: None,
            }),
            ok(Value::Text {
                bytes: b"a\xff".to_vec(),
                length: None,
                pointer: Some(0),
            }),
            ok(Value::Structure(vec![
                ("n".to_owned(), ok(Value::Signed(0))),
                ("gone".to_owned(), Reading::OptimizedOut("not kept".to_owned())),
            ])),
            ok(Value::Sequence {
                elements: vec![ok(Value::Unsigned(1)), Reading::Unreadable("at 0x0".to_owned())],
                count: 7,
            }),
            ok(Value::Variant {
                name: "Some".to_owned(),
                value: Box::new(ok(Value::Unsigned(5))),
            }),
            Reading::Unsupported("a union".to_owned()),
        ];
        for value in values {
            let bytes = message(&value).encode_to_vec();
            let decoded = v1::RecordedValue::decode(bytes.as_slice()).unwrap();
            assert_eq!(reading(decoded), Ok(value));
        }
    }

    #[test]
    fn values_larger_than_any_that_is_read_are_left_out() {
        let text = |length| {
            message(&Reading::Ok(Value::Text {
                bytes: vec![b'a'; length],
                length: None,
                pointer: None,
            }))
        };
        let largest = MAX_BYTES - 4 * size_of::<Reading>();
        let values = readings(vec![text(MAX_BYTES), text(largest), text(MAX_BYTES / 2), text(5)]).unwrap();
        let kept = values.iter().map(|value| matches!(value, Reading::Ok(_)));
        assert_eq!(kept.collect::<Vec<_>>(), [false, true, false, true]);
        let bytes: usize = values.iter().map(Reading::bytes).sum();
        assert!(bytes < MAX_BYTES + 1024, "{bytes}");
    }

    #[test]
    fn what_is_no_value_is_refused_and_what_was_left_out_says_so() {
        let no_character = Message::Character(0xd800);
        let too_large = Message::Integer(integer(true, true, u128::MAX));
        for value in [no_character, too_large] {
            let message = v1::RecordedValue { value: Some(value) };
            assert_eq!(reading(message), Err(Damaged));
        }
        let Ok(Reading::Unsupported(reason)) = reading(v1::RecordedValue::default()) else {
            panic!("nothing was recorded");
        };
        assert!(reason.contains("left out"), "{reason}");
    }
}
