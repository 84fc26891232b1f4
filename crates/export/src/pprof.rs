//! The format of Go's pprof: a gzipped protobuf message.
//!
//! Numbers of fields are those of
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>, which also says what each means.

use std::{collections::HashMap, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use crate::profile::{Frame, Profile, Stack};

/// The field of [`ProfileMessage`] that has the samples.
const SAMPLE: u32 = 2;

/// Writes a profile, gzipped.
///
/// A frame and what is inlined into it are one location with several lines. Labels of a stack are those of its sample, so that
/// `-tagfocus side=inside` and `-tagroot thread` work. The last measure is what is shown first.
#[must_use]
pub fn write(profile: &Profile) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut tables = Tables::new();
    let mut encoded = Vec::new();
    // Fields may come in any order. Samples are written one by one: there are far more of them than of what they refer to.
    for stack in &profile.stacks {
        let sample = tables.sample(profile, stack);
        encoded.clear();
        prost::encoding::message::encode(SAMPLE, &sample, &mut encoded);
        // Writing into memory does not fail.
        let _ = gzip.write_all(&encoded);
    }
    let _ = gzip.write_all(&tables.rest(profile).encode_to_vec());
    gzip.finish().unwrap_or_default()
}

/// What samples refer to, each once.
struct Tables {
    texts: Texts,
    mappings: Vec<Mapping>,
    mapping_ids: HashMap<String, u64>,
    locations: Vec<Location>,
    /// By the frame and what is inlined into it.
    location_ids: HashMap<Vec<u32>, u64>,
    functions: Vec<FunctionMessage>,
    function_ids: HashMap<FunctionKey, u64>,
}

/// What tells functions apart: texts by number, and the line of declaration.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FunctionKey {
    name: i64,
    file: i64,
    declared_line: u32,
}

/// Texts by number; that of number 0 is empty.
struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Tables {
    fn new() -> Self {
        Self {
            texts: Texts {
                all: vec![String::new()],
                numbers: HashMap::from([(String::new(), 0)]),
            },
            mappings: Vec::new(),
            mapping_ids: HashMap::new(),
            locations: Vec::new(),
            location_ids: HashMap::new(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
        }
    }

    fn sample(&mut self, profile: &Profile, stack: &Stack) -> Sample {
        Sample {
            location_id: self.locations_of(profile, stack),
            value: stack
                .weights
                .iter()
                .map(|weight| i64::try_from(*weight).unwrap_or(i64::MAX))
                .collect(),
            label: stack
                .labels
                .iter()
                .map(|label| LabelMessage {
                    key: self.text(&label.key),
                    str: self.text(&label.value),
                })
                .collect(),
        }
    }

    /// All but the samples, when these have been told what to refer to.
    fn rest(mut self, profile: &Profile) -> ProfileMessage {
        let measures = profile.measures.iter().map(|measure| ValueType {
            r#type: self.text(&measure.name),
            unit: self.text(measure.unit.name()),
        });
        let sample_type = measures.collect();
        let shown = profile.measures.last();
        let default_sample_type = shown.map_or(0, |measure| self.text(&measure.name));
        let title = Some(&profile.title).filter(|title| !title.is_empty());
        let comments = title.into_iter().chain(&profile.comments);
        let comment = comments.map(|line| self.text(line)).collect();
        let began_ns = profile.ended_ns.saturating_sub(profile.duration_ns);
        ProfileMessage {
            sample_type,
            sample: Vec::new(),
            mapping: self.mappings,
            location: self.locations,
            function: self.functions,
            string_table: self.texts.all,
            time_nanos: i64::try_from(began_ns).unwrap_or(i64::MAX),
            duration_nanos: i64::try_from(profile.duration_ns).unwrap_or(i64::MAX),
            comment,
            default_sample_type,
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        self.texts.number(text)
    }

    /// The locations of a stack, the innermost first.
    fn locations_of(&mut self, profile: &Profile, stack: &Stack) -> Vec<u64> {
        let mut ids = Vec::new();
        profile.each_place(stack, |place| ids.push(self.location(place)));
        ids.reverse();
        ids
    }

    /// The location of a frame and of what is inlined into it.
    fn location(&mut self, place: &[(u32, &Frame)]) -> u64 {
        let key: Vec<u32> = place.iter().map(|(number, _)| *number).collect();
        if let Some(id) = self.location_ids.get(&key) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        // The innermost function's line is the first.
        let line = place.iter().rev().map(|(_, frame)| Line {
            function_id: self.function(frame),
            line: frame.line.into(),
        });
        let line = line.collect();
        let outer = place.first().map(|(_, frame)| *frame);
        let location = Location {
            id,
            mapping_id: outer.map_or(0, |frame| self.mapping(frame)),
            address: outer.map_or(0, |frame| frame.address),
            line,
        };
        self.locations.push(location);
        self.location_ids.insert(key, id);
        id
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let key = FunctionKey {
            name: self.text(&frame.name),
            file: self.text(&frame.file),
            declared_line: frame.declared_line,
        };
        let next = self.functions.len() as u64 + 1;
        let id = *self.function_ids.entry(key).or_insert(next);
        if id == next {
            self.functions.push(FunctionMessage {
                id,
                name: key.name,
                system_name: key.name,
                filename: key.file,
                start_line: frame.declared_line.into(),
            });
        }
        id
    }

    fn mapping(&mut self, frame: &Frame) -> u64 {
        if frame.module.is_empty() {
            return 0;
        }
        if let Some(id) = self.mapping_ids.get(&frame.module) {
            // Only frames without a name say which build it is.
            if !frame.build_id.is_empty()
                && let Some(at) = usize::try_from(*id).ok().and_then(|id| id.checked_sub(1))
                && self.mappings.get(at).is_some_and(|mapping| mapping.build_id == 0)
            {
                let build_id = self.texts.number(&frame.build_id_hex());
                self.mappings[at].build_id = build_id;
            }
            return *id;
        }
        let id = self.mappings.len() as u64 + 1;
        let mapping = Mapping {
            id,
            filename: self.text(&frame.module),
            build_id: self.texts.number(&frame.build_id_hex()),
            // What could be named has been.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        };
        self.mappings.push(mapping);
        self.mapping_ids.insert(frame.module.clone(), id);
        id
    }
}

impl Texts {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = i64::try_from(self.all.len()).unwrap_or(i64::MAX);
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// `perftools.profiles.Profile`.
#[derive(Clone, PartialEq, Message)]
pub struct ProfileMessage {
    /// What a sample's values are.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// Stacks.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Files of code.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Places in code.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<FunctionMessage>,
    /// All texts; others are numbers of these.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// When it began, in nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// For how long, in nanoseconds.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// Free text, by number.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The value that is shown first, by the number of its name.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// `perftools.profiles.ValueType`; both by number.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueType {
    /// What it is.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// What it is a number of.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// `perftools.profiles.Sample`.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Its stack, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// As `sample_type` says.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Labels.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<LabelMessage>,
}

/// `perftools.profiles.Label`; both by number.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LabelMessage {
    /// The key.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The value.
    #[prost(int64, tag = "2")]
    pub str: i64,
}

/// `perftools.profiles.Mapping`.
#[expect(clippy::struct_excessive_bools, reason = "as the format has them")]
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Mapping {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The file, by number.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Its build-id, by number.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Functions have names.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Functions have source files.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Locations have lines.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Inlined functions are known.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// `perftools.profiles.Location`.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its file of code; 0 where that is not known.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Its address; 0 where that is not known.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// What is inlined there, and last the function that it is inlined into.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// `perftools.profiles.Line`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line that ran.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// `perftools.profiles.Function`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct FunctionMessage {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name, by number.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Its name as the linker knows it, by number.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Its source file, by number.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// Where it begins.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
