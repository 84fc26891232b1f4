//! A trace on its way to the wire.

use profiler_aggregate::ThreadId;
use profiler_plan::values::{Reading, Value};
use profiler_proto::v1;
use serde_json::{Value as Json, json};

use super::{
    convert, flame_delta,
    stream_info::{self, Position, Shown},
    thread_names::ThreadNames,
};
use crate::session::{NamedStack, ThreadName, TraceBatch, TracedHit, TracedPlace, TracedValue};

/// Integers beyond it are strings in JSON: not every reader has more than doubles.
const EXACT: u128 = 1 << 53;

/// A batch as a message, with the names of threads that the client has not been told.
pub fn batch(batch: &TraceBatch, names: &mut ThreadNames) -> v1::WatchTraceResponse {
    v1::WatchTraceResponse {
        info: Some(stream_info::info(
            Position {
                seq: batch.seq,
                dropped: 0,
            },
            &Shown {
                scope: "",
                cost: batch.cost,
                children: Some(stream_info::children(&batch.unseen)),
                ended: batch.ended.as_ref(),
            },
        )),
        places: batch.places.iter().map(|place| traced_place(place)).collect(),
        frames: batch
            .frames
            .iter()
            .map(|(id, frame)| flame_delta::frame((id.0 as usize, frame)))
            .collect(),
        hits: batch.hits.iter().map(hit).collect(),
        reached: batch.reached,
        rejected: batch.rejected,
        lost: convert::losses(&batch.lost),
        unseen: convert::losses(&batch.unseen),
        thread_names: match &batch.thread_names {
            Some(recorded) => recorded.iter().map(thread_name).collect(),
            None => names.of(batch.hits.iter().map(|hit| ThreadId {
                tgid: hit.pid,
                tid: hit.tid,
            })),
        },
    }
}

/// What a thread was called.
pub fn thread_name(name: &ThreadName) -> v1::ThreadName {
    v1::ThreadName {
        pid: name.pid,
        tid: name.tid,
        name: name.name.clone(),
    }
}

/// A place.
pub fn traced_place(place: &TracedPlace) -> v1::TracedPlace {
    let TracedPlace {
        site,
        function,
        file,
        line,
        module,
        address,
    } = place;
    v1::TracedPlace {
        function: function.clone(),
        file: file.clone(),
        line: *line,
        module: module.clone(),
        address: *address,
        site: site.clone(),
    }
}

fn hit(hit: &TracedHit) -> v1::Hit {
    v1::Hit {
        ts_ns: hit.ts_ns,
        pid: hit.pid,
        tid: hit.tid,
        place: hit.place,
        duration_ns: hit.duration_ns,
        values: hit.values.iter().map(value).collect(),
        stack: hit.stack.as_deref().map(stack),
    }
}

fn stack(stack: &NamedStack) -> v1::Stack {
    let NamedStack { frames, complete } = stack;
    v1::Stack {
        frames: frames.iter().map(|frame| frame.0).collect(),
        complete: *complete,
    }
}

/// A value.
pub fn value(traced: &TracedValue) -> v1::HitValue {
    v1::HitValue {
        expression: traced.expression.to_string(),
        r#type: traced.type_name.to_string(),
        ..reading(&traced.reading)
    }
}

/// A value without its expression and type.
pub fn reading(reading: &Reading) -> v1::HitValue {
    let (state, json, text, reason) = match reading {
        Reading::Ok(value) => (
            v1::ValueState::Ok,
            as_json(value).to_string(),
            value.to_string(),
            String::new(),
        ),
        Reading::OptimizedOut(reason) => (
            v1::ValueState::OptimizedOut,
            String::new(),
            String::new(),
            reason.clone(),
        ),
        Reading::Unreadable(reason) => (
            v1::ValueState::Unreadable,
            String::new(),
            String::new(),
            reason.clone(),
        ),
        Reading::Unsupported(reason) => (
            v1::ValueState::Unsupported,
            String::new(),
            String::new(),
            reason.clone(),
        ),
    };
    let as_int = match reading {
        Reading::Ok(value) => value.as_negative_int(),
        _ => None,
    };
    v1::HitValue {
        state: state.into(),
        json,
        text,
        reason,
        as_int,
        ..Default::default()
    }
}

fn integer(negative: bool, magnitude: u128) -> Json {
    if magnitude > EXACT {
        return Json::String(format!("{}{magnitude}", if negative { "-" } else { "" }));
    }
    let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
    json!(if negative { -magnitude } else { magnitude })
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::Signed(number) | Value::Enumerator { number, name: None } => {
            integer(*number < 0, number.unsigned_abs())
        }
        Value::Unsigned(number) => integer(false, *number),
        Value::Register(number) => integer(*number < 0, number.unsigned_abs().into()),
        Value::Boolean(value) => json!(value),
        Value::Character(character) => json!(character.to_string()),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Float(number) => json!(number.to_string()),
        Value::Pointer(address) => json!(format!("{address:#x}")),
        Value::Enumerator { name: Some(name), .. } => json!(name),
        Value::Text { bytes, .. } => json!(String::from_utf8_lossy(bytes)),
        Value::Structure(members) => Json::Object(
            members
                .iter()
                .map(|(name, reading)| (name.clone(), reading_json(reading)))
                .collect(),
        ),
        Value::Sequence { elements, .. } => elements.iter().map(reading_json).collect(),
        Value::Variant { name, value } => json!({ name: reading_json(value) }),
    }
}

/// A part of a value: what could not be read of it is null.
fn reading_json(reading: &Reading) -> Json {
    match reading {
        Reading::Ok(value) => as_json(value),
        _ => Json::Null,
    }
}
