//! OpenTelemetry's profiles: the message `ProfilesData`.
//!
//! The format is still developed: this is `v1development` as of version 1.10 of
//! <https://github.com/open-telemetry/opentelemetry-proto>, which also says what each field means. Readers of another version
//! misread it without noticing.

use std::collections::HashMap;

use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile as ProfileMessage, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack as StackMessage, ValueType,
};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint},
};

use super::{instrumentation, key, resource, text_value};
use crate::profile::{Frame, Label, Measure, Profile, Stack};

/// Numbers of fields that are written one by one: those of which there are many, and what they are in.
mod field {
    /// Of `ProfilesData`.
    pub const RESOURCE_PROFILES: u32 = 1;
    /// Of `ProfilesData`.
    pub const DICTIONARY: u32 = 2;
    /// Of `ResourceProfiles`.
    pub const SCOPE_PROFILES: u32 = 2;
    /// Of `ScopeProfiles`.
    pub const PROFILES: u32 = 2;
    /// Of `Profile`.
    pub const SAMPLES: u32 = 2;
    /// Of `ProfilesDictionary`.
    pub const STACK_TABLE: u32 = 7;
}

/// What frames of the kernel have as their module.
const KERNEL: &str = "[kernel]";

/// Writes a profile.
///
/// Each measure is a profile of its own, as the format has one sample type for each, and the last measure is the first of them:
/// what readers show. A frame and what is inlined into it are one location with several lines. Labels of a stack are attributes
/// of its samples; the title is the name of the service.
#[must_use]
pub fn write(profile: &Profile) -> Vec<u8> {
    let mut tables = Tables::new();
    let mut references = Vec::with_capacity(profile.stacks.len());
    let mut before: Option<&Stack> = None;
    for stack in &profile.stacks {
        references.push(tables.refer(profile, stack, before));
        before = Some(stack);
    }
    let heads = profile.measures.iter();
    let heads: Vec<Vec<u8>> = heads
        .map(|measure| tables.head(profile, measure).encode_to_vec())
        .collect();
    let labels = std::mem::take(&mut tables.label_lists);
    let measures = heads.into_iter().enumerate().rev();
    let measures: Vec<Written<'_>> = measures
        .map(|(at, head)| Written {
            stacks: &profile.stacks,
            references: &references,
            labels: &labels,
            at,
            head,
        })
        .collect();
    let scope = ScopeProfiles {
        scope: Some(instrumentation()),
        ..ScopeProfiles::default()
    }
    .encode_to_vec();
    let resource = ResourceProfiles {
        resource: Some(resource(&profile.title)),
        ..ResourceProfiles::default()
    }
    .encode_to_vec();
    // Lengths come first: with them, each sample is written where it stays.
    let lengths: Vec<usize> = measures.iter().map(Written::encoded_len).collect();
    let scope_length = scope.len() + lengths.iter().copied().map(nested).sum::<usize>();
    let resource_length = resource.len() + nested(scope_length);
    let dictionary = tables.dictionary.encode_to_vec();
    let dictionary_length = dictionary.len() + tables.stacks.len();
    let mut data = Vec::with_capacity(nested(resource_length) + nested(dictionary_length));
    begin(field::DICTIONARY, dictionary_length, &mut data);
    data.extend(dictionary);
    data.extend(std::mem::take(&mut tables.stacks));
    begin(field::RESOURCE_PROFILES, resource_length, &mut data);
    data.extend(resource);
    begin(field::SCOPE_PROFILES, scope_length, &mut data);
    data.extend(scope);
    for (measure, length) in measures.iter().zip(lengths) {
        begin(field::PROFILES, length, &mut data);
        data.extend(&measure.head);
        for sample in measure.samples() {
            prost::encoding::message::encode(field::SAMPLES, &sample, &mut data);
        }
    }
    data
}

/// Begins a message of a length in another's field.
fn begin(field: u32, length: usize, into: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(length as u64, into);
}

/// What a message of a length takes in another's field; all numbers of fields here are written in a byte.
const fn nested(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

/// A profile of one measure.
struct Written<'a> {
    stacks: &'a [Stack],
    references: &'a [Reference],
    /// Lists of attributes.
    labels: &'a [Vec<i32>],
    /// Which of the weights.
    at: usize,
    /// All but the samples.
    head: Vec<u8>,
}

/// What a stack's samples refer to.
struct Reference {
    /// By its number in the table.
    stack: i32,
    /// Its labels: which of the lists of attributes, as many stacks have the same.
    labels: usize,
}

impl Written<'_> {
    fn encoded_len(&self) -> usize {
        let samples = self.samples().map(|sample| nested(sample.encoded_len()));
        self.head.len() + samples.sum::<usize>()
    }

    fn samples(&self) -> impl Iterator<Item = Sample> {
        let stacks = self.stacks.iter().zip(self.references);
        stacks.filter_map(|(stack, reference)| {
            let weight = *stack.weights.get(self.at)?;
            (weight > 0).then(|| Sample {
                stack_index: reference.stack,
                attribute_indices: self.labels.get(reference.labels).cloned().unwrap_or_default(),
                values: vec![i64::try_from(weight).unwrap_or(i64::MAX)],
                ..Sample::default()
            })
        })
    }
}

/// What samples refer to, each once. The first of each table stands for nothing, as the format asks for.
struct Tables {
    dictionary: ProfilesDictionary,
    /// Stacks as they are written: there are about as many as samples.
    stacks: Vec<u8>,
    last_stack: i32,
    /// Lists of attributes, each once, and which of them stands for which labels.
    label_lists: Vec<Vec<i32>>,
    labels: HashMap<Vec<Label>, usize>,
    texts: HashMap<String, i32>,
    mappings: HashMap<String, i32>,
    /// By the frame and what is inlined into it.
    locations: HashMap<Vec<u32>, i32>,
    functions: HashMap<Function, i32>,
    attributes: HashMap<Attribute, i32>,
}

/// An attribute by the numbers of its texts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Attribute {
    key: i32,
    value: i32,
}

impl Tables {
    fn new() -> Self {
        let mut stacks = Vec::new();
        begin(field::STACK_TABLE, 0, &mut stacks);
        Self {
            dictionary: ProfilesDictionary {
                mapping_table: vec![Mapping::default()],
                location_table: vec![Location::default()],
                function_table: vec![Function::default()],
                link_table: vec![Link::default()],
                string_table: vec![String::new()],
                attribute_table: vec![KeyValueAndUnit::default()],
                stack_table: Vec::new(),
            },
            stacks,
            last_stack: 0,
            label_lists: Vec::new(),
            labels: HashMap::new(),
            texts: HashMap::from([(String::new(), 0)]),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            functions: HashMap::new(),
            attributes: HashMap::new(),
        }
    }

    /// A profile of one measure, without its samples.
    fn head(&mut self, profile: &Profile, measure: &Measure) -> ProfileMessage {
        let comments = profile.comments.join("\n");
        let comments = (!comments.is_empty()).then(|| self.attribute(key::COMMENTS, &comments));
        ProfileMessage {
            sample_type: Some(ValueType {
                type_strindex: self.text(&measure.name),
                unit_strindex: self.text(measure.unit.name()),
            }),
            time_unix_nano: profile.ended_ns.saturating_sub(profile.duration_ns),
            duration_nano: profile.duration_ns,
            attribute_indices: comments.into_iter().collect(),
            ..ProfileMessage::default()
        }
    }

    /// Puts a stack and its labels into the tables. Stacks of the same frames follow one another: `before` is the last one.
    fn refer(&mut self, profile: &Profile, stack: &Stack, before: Option<&Stack>) -> Reference {
        let is_another = before.is_none_or(|before| before.frames != stack.frames);
        if is_another && !stack.frames.is_empty() {
            let mut location_indices = Vec::new();
            profile.each_place(stack, |place| location_indices.push(self.location(place)));
            // The innermost is the first.
            location_indices.reverse();
            let message = StackMessage { location_indices };
            prost::encoding::message::encode(field::STACK_TABLE, &message, &mut self.stacks);
            self.last_stack = self.last_stack.saturating_add(1);
        }
        let labels = if let Some(labels) = self.labels.get(&stack.labels) {
            *labels
        } else {
            let numbers = stack.labels.iter();
            let numbers = numbers.map(|label| self.attribute(&label.key, &label.value));
            let numbers = numbers.collect();
            self.label_lists.push(numbers);
            let last = self.label_lists.len() - 1;
            self.labels.insert(stack.labels.clone(), last);
            last
        };
        Reference {
            stack: if stack.frames.is_empty() {
                0
            } else {
                self.last_stack
            },
            labels,
        }
    }

    fn location(&mut self, place: &[(u32, &Frame)]) -> i32 {
        let frames: Vec<u32> = place.iter().map(|(number, _)| *number).collect();
        if let Some(number) = self.locations.get(&frames) {
            return *number;
        }
        // The innermost function's line is the first.
        let lines = place.iter().rev().map(|(_, frame)| Line {
            function_index: self.function(frame),
            line: frame.line.into(),
            column: 0,
        });
        let lines = lines.collect();
        let outer = place.first().map(|(_, frame)| *frame);
        let location = Location {
            mapping_index: outer.map_or(0, |frame| self.mapping(frame)),
            address: outer.map_or(0, |frame| frame.address),
            lines,
            attribute_indices: outer.map_or_else(Vec::new, |frame| self.frame_type(frame)),
        };
        let number = push(&mut self.dictionary.location_table, location);
        self.locations.insert(frames, number);
        number
    }

    fn frame_type(&mut self, frame: &Frame) -> Vec<i32> {
        let kind = match frame.module.as_str() {
            KERNEL => "kernel",
            // What stands for a thread, or for what it did off the CPU.
            module if module.is_empty() || module.starts_with('[') => return Vec::new(),
            _ => "native",
        };
        vec![self.attribute(key::FRAME_TYPE, kind)]
    }

    fn function(&mut self, frame: &Frame) -> i32 {
        let name = self.text(&frame.name);
        let function = Function {
            name_strindex: name,
            system_name_strindex: name,
            filename_strindex: self.text(&frame.file),
            start_line: frame.declared_line.into(),
        };
        if let Some(number) = self.functions.get(&function) {
            return *number;
        }
        let number = push(&mut self.dictionary.function_table, function);
        self.functions.insert(function, number);
        number
    }

    fn mapping(&mut self, frame: &Frame) -> i32 {
        if frame.module.is_empty() {
            return 0;
        }
        let number = if let Some(number) = self.mappings.get(&frame.module) {
            *number
        } else {
            let mapping = Mapping {
                filename_strindex: self.text(&frame.module),
                ..Mapping::default()
            };
            let number = push(&mut self.dictionary.mapping_table, mapping);
            self.mappings.insert(frame.module.clone(), number);
            number
        };
        // Only frames without a name say which build it is.
        if !frame.build_id.is_empty() {
            let attribute = self.attribute(key::BUILD_ID, &frame.build_id_hex());
            let mapping = usize::try_from(number)
                .ok()
                .and_then(|at| self.dictionary.mapping_table.get_mut(at));
            if let Some(mapping) = mapping {
                mapping.attribute_indices = vec![attribute];
            }
        }
        number
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let attribute = Attribute {
            key: self.text(key),
            value: self.text(value),
        };
        if let Some(number) = self.attributes.get(&attribute) {
            return *number;
        }
        let written = KeyValueAndUnit {
            key_strindex: attribute.key,
            value: Some(text_value(value)),
            unit_strindex: 0,
        };
        let number = push(&mut self.dictionary.attribute_table, written);
        self.attributes.insert(attribute, number);
        number
    }

    fn text(&mut self, text: &str) -> i32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = push(&mut self.dictionary.string_table, text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }
}

/// Adds to a table; its number there.
fn push<T>(table: &mut Vec<T>, item: T) -> i32 {
    let number = i32::try_from(table.len()).unwrap_or(i32::MAX);
    table.push(item);
    number
}
