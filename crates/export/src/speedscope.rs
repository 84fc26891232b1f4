//! The format of speedscope: JSON, with a profile for each of what is measured.
//!
//! The schema: <https://www.speedscope.app/file-format-schema.json>.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::{
    list::list,
    profile::{Frame, Label, Measure, Profile, Stack, Unit},
};

/// Writes a profile: one for each measure, and for each set of labels. The last measure is shown first.
#[must_use]
pub fn write(profile: &Profile) -> Vec<u8> {
    let mut sets: BTreeMap<&[Label], Vec<&Stack>> = BTreeMap::new();
    for stack in &profile.stacks {
        sets.entry(&stack.labels).or_default().push(stack);
    }
    let mut text = String::from("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",");
    let _ = write!(
        text,
        "\"name\":{},\"exporter\":\"profiler\",\"activeProfileIndex\":0,",
        Value::from(profile.title.as_str())
    );
    text.push_str("\"shared\":{\"frames\":");
    list(&mut text, &profile.frames, |text, frame| {
        let _ = write!(text, "{}", frame_value(frame));
    });
    text.push_str("},\"profiles\":");
    let measures = profile.measures.iter().enumerate().rev();
    let profiles: Vec<_> = measures
        .flat_map(|measure| sets.iter().map(move |set| (measure, set)))
        .collect();
    list(&mut text, profiles, |text, ((at, measure), (labels, stacks))| {
        one(text, profile, (at, measure), labels, stacks);
    });
    text.push_str("}\n");
    text.into_bytes()
}

/// Writes the profile of a measure and a set of labels.
fn one(
    text: &mut String,
    profile: &Profile,
    (at, measure): (usize, &Measure),
    labels: &[Label],
    stacks: &[&Stack],
) {
    let weight_of = |stack: &Stack| stack.weights.get(at).copied().unwrap_or(0);
    let weighed = || stacks.iter().filter(|stack| weight_of(stack) > 0);
    let total = weighed().fold(0_u64, |total, stack| total.saturating_add(weight_of(stack)));
    let mut name = measure.name.clone();
    for Label { key, value } in labels {
        let _ = write!(name, ", {key} {value}");
    }
    let _ = write!(
        text,
        "{{\"type\":\"sampled\",\"name\":{},\"unit\":\"{}\",\"startValue\":0,\"endValue\":{total},\"samples\":",
        Value::from(name),
        unit(measure.unit)
    );
    list(text, weighed(), |text, stack| {
        list(text, profile.frames_of(stack), |text, (number, _)| {
            let _ = write!(text, "{number}");
        });
    });
    text.push_str(",\"weights\":");
    list(text, weighed(), |text, stack| {
        let _ = write!(text, "{}", weight_of(stack));
    });
    text.push('}');
}

fn frame_value(frame: &Frame) -> Value {
    let mut value = json!({ "name": frame.name });
    if !frame.file.is_empty() {
        value["file"] = frame.file.as_str().into();
    }
    let line = if frame.line > 0 {
        frame.line
    } else {
        frame.declared_line
    };
    if line > 0 {
        value["line"] = line.into();
    }
    value
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count => "none",
    }
}
