//! From what the programs read to values.

use std::sync::Arc;

use profiler_common::{
    record::SpanEnd,
    values::{MAX_BYTES, OUTPUT_BYTES, State},
};
use profiler_plan::values::{self, Reading, Refusal};

use super::{
    super::{
        lines::{Known, Printed},
        records::RecordedLook,
        symbols::NamedStack,
    },
    hit::TracedValue,
};
use crate::kernel::{Hit, ReadValue};

/// The values of a hit.
pub fn read(printed: &[Printed], hit: &Hit) -> Vec<TracedValue> {
    let mut read = hit.values.iter();
    printed
        .iter()
        .map(|printed| match &printed.lowered {
            Ok(lowered) if printed.known != Known::AtOnce => TracedValue {
                expression: Arc::clone(&printed.expression),
                type_name: lowered.shape.type_name.as_str().into(),
                reading: Reading::Unsupported("the call has not ended".to_owned()),
            },
            Err(refusal) => TracedValue {
                expression: Arc::clone(&printed.expression),
                type_name: "".into(),
                reading: refused(refusal),
            },
            Ok(lowered) => TracedValue {
                expression: Arc::clone(&printed.expression),
                type_name: lowered.shape.type_name.as_str().into(),
                reading: read.next().map_or_else(
                    || Reading::Unsupported("the record of the hit is full".to_owned()),
                    |value| values::render(lowered, &state(value)),
                ),
            },
        })
        .collect()
}

/// Puts in what a call has returned; `followed` was read where it did.
pub fn returned(
    printed: &[Printed],
    end: &SpanEnd,
    followed: Option<&[ReadValue]>,
    values: &mut [TracedValue],
) {
    let mut followed = followed.unwrap_or_default().iter();
    for (printed, value) in printed.iter().zip(values) {
        let Ok(lowered) = &printed.lowered else { continue };
        value.reading = match printed.known {
            Known::AtOnce => continue,
            _ if end.flags & SpanEnd::RETURNED == 0 => Reading::Unsupported(
                "the call ended by a jump to another function, which returns in its place".to_owned(),
            ),
            Known::Returned => values::render_returned(lowered, end.returned),
            Known::Followed => followed.next().map_or_else(
                || Reading::Unreadable("there was no room for the values read at the return".to_owned()),
                |value| values::render(lowered, &state(value)),
            ),
        };
    }
}

/// What is recorded of what was read.
pub(super) fn look(values: &[TracedValue], stack: Option<Arc<NamedStack>>) -> RecordedLook {
    RecordedLook {
        values: values.iter().map(|value| value.reading.clone()).collect(),
        stack,
    }
}

/// What the interpreter ended with.
fn state(value: &ReadValue) -> State {
    let mut state = State::START;
    state.outcome = u8::try_from(value.outcome).unwrap_or(u8::MAX);
    state.fault = value.fault;
    let length = value.bytes.len().min(MAX_BYTES);
    state.output[..length].copy_from_slice(&value.bytes[..length]);
    state.length = u32::try_from(length).unwrap_or(0);
    state
}

const _: () = assert!(MAX_BYTES <= OUTPUT_BYTES);

/// Why nothing is read, as a reading.
fn refused(refusal: &Refusal) -> Reading {
    Reading::from(refusal.clone())
}
