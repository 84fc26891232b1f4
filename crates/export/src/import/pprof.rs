//! pprof's protobuf message, decompressed.

use std::collections::HashMap;

use prost::Message as _;

use super::{NotAProfile, stacks::Stacks};
use crate::{
    pprof::{FunctionMessage, Location, Mapping, ProfileMessage},
    profile::{Frame, Measure, Profile, Unit},
};

/// Reads one.
pub fn read(bytes: &[u8]) -> Result<Profile, NotAProfile> {
    let message = ProfileMessage::decode(bytes).map_err(|_| {
        NotAProfile::new("it is neither pprof's, nor the text of `perf script`, nor folded stacks")
    })?;
    if message.sample_type.is_empty() {
        return Err(NotAProfile::new(
            "it has no types of samples, which each pprof profile has",
        ));
    }
    if message.sample_type.len() > MAX_TYPES {
        return Err(NotAProfile::new("it has more than 64 types of samples"));
    }
    let mut read = Read::new(&message);
    let mut stacks = Stacks::default();
    let units: Vec<Scaled> = message
        .sample_type
        .iter()
        .map(|kind| scaled(&read.text(kind.unit)))
        .collect();
    for sample in &message.sample {
        let mut frames = Vec::new();
        // The innermost is first, of locations and of their lines.
        for id in sample.location_id.iter().rev() {
            frames.extend_from_slice(read.frames(*id, &mut stacks)?);
            stacks.room_for(frames.len())?;
        }
        let weights = sample.value.iter().zip(&units);
        let weights: Option<Vec<u64>> = weights
            .map(|(value, unit)| Some(u64::try_from(*value).ok()?.saturating_mul(unit.factor)))
            .collect();
        let Some(weights) = weights else {
            return Err(NotAProfile::new(
                "it has negative values, as a difference has: write both profiles, and compare them with `profiler diff`",
            ));
        };
        stacks.add(frames, &weights)?;
    }
    let measures = message.sample_type.iter().zip(units).map(|(kind, unit)| {
        let name = read.text(kind.r#type);
        Measure {
            name: if name.is_empty() {
                "values".to_owned()
            } else {
                name
            },
            unit: unit.unit,
        }
    });
    let mut profile = stacks.profile(measures.collect());
    profile.show_last(&read.text(message.default_sample_type));
    profile.duration_ns = u64::try_from(message.duration_nanos).unwrap_or(0);
    let began_ns = u64::try_from(message.time_nanos).unwrap_or(0);
    profile.ended_ns = began_ns.saturating_add(profile.duration_ns);
    Ok(profile)
}

/// Types of samples.
const MAX_TYPES: usize = 64;

/// What values are numbers of, once they are multiplied.
struct Scaled {
    unit: Unit,
    factor: u64,
}

/// A unit by its name, as `profile.proto` has them.
fn scaled(unit: &str) -> Scaled {
    let (unit, factor) = match unit {
        "nanoseconds" => (Unit::Nanoseconds, 1),
        "microseconds" => (Unit::Nanoseconds, 1_000),
        "milliseconds" => (Unit::Nanoseconds, 1_000_000),
        "seconds" => (Unit::Nanoseconds, 1_000_000_000),
        "bytes" => (Unit::Bytes, 1),
        _ => (Unit::Count, 1),
    };
    Scaled { unit, factor }
}

/// What samples refer to.
struct Read<'a> {
    message: &'a ProfileMessage,
    /// The frames of locations that were asked for, by their numbers.
    known: HashMap<u64, Vec<u32>>,
    locations: HashMap<u64, &'a Location>,
    functions: HashMap<u64, &'a FunctionMessage>,
    mappings: HashMap<u64, &'a Mapping>,
}

impl<'a> Read<'a> {
    fn new(message: &'a ProfileMessage) -> Self {
        Self {
            message,
            known: HashMap::new(),
            locations: message
                .location
                .iter()
                .map(|location| (location.id, location))
                .collect(),
            functions: message
                .function
                .iter()
                .map(|function| (function.id, function))
                .collect(),
            mappings: message
                .mapping
                .iter()
                .map(|mapping| (mapping.id, mapping))
                .collect(),
        }
    }

    /// A text by its number; nothing of a number that none has.
    fn text(&self, number: i64) -> String {
        let at = usize::try_from(number).ok();
        let text = at.and_then(|at| self.message.string_table.get(at));
        text.cloned().unwrap_or_default()
    }

    /// The numbers of a location's frames, the outermost first.
    fn frames(&mut self, id: u64, stacks: &mut Stacks) -> Result<&[u32], NotAProfile> {
        if !self.known.contains_key(&id) {
            let frames = self.number(id, stacks)?;
            self.known.insert(id, frames);
        }
        Ok(self.known.get(&id).map_or(&[], Vec::as_slice))
    }

    fn number(&self, id: u64, stacks: &mut Stacks) -> Result<Vec<u32>, NotAProfile> {
        let Some(location) = self.locations.get(&id) else {
            return Ok(Vec::new());
        };
        let module = self.mappings.get(&location.mapping_id);
        let module = module.map_or_else(String::new, |mapping| self.text(mapping.filename));
        if location.line.is_empty() {
            // It is called by its address.
            let frame = Frame {
                name: format!("{:#x}", location.address),
                module,
                ..Frame::default()
            };
            return Ok(vec![stacks.frame(frame)?]);
        }
        let lines = location.line.iter().rev().enumerate();
        let numbers = lines.map(|(depth, line)| {
            let function = self.functions.get(&line.function_id);
            let text = |of: fn(&FunctionMessage) -> i64| {
                function.map_or_else(String::new, |function| self.text(of(function)))
            };
            stacks.frame(Frame {
                name: text(|function| function.name),
                file: text(|function| function.filename),
                declared_line: function
                    .and_then(|function| u32::try_from(function.start_line).ok())
                    .unwrap_or(0),
                module: module.clone(),
                inlined: depth > 0,
                ..Frame::default()
            })
        });
        numbers.collect()
    }
}
