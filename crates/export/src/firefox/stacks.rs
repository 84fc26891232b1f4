//! A profile: a thread for each of what is measured.
//!
//! Times of samples are moments there; ours are sums, so that all samples stand one behind the other, each as long as it weighs.

use std::{collections::BTreeMap, fmt::Write as _};

use foldhash::HashMap;
use serde_json::{Value, json};

use super::{Category, NS_PER_MS, Strings, begin, meta, milliseconds};
use crate::{
    json_text::quoted,
    list::list,
    profile::{Frame, Label, Measure, Profile, Stack, Unit},
};

/// By number: of code of programs, of the kernel, and of what a thread did off the CPU.
const CATEGORIES: [Category; 3] = [
    Category {
        name: "User",
        color: "yellow",
    },
    Category {
        name: "Kernel",
        color: "orange",
    },
    Category {
        name: "Off CPU",
        color: "grey",
    },
];

/// Writes a profile: a thread for each measure, and for each set of labels. The last measure comes first.
#[must_use]
pub fn write(profile: &Profile) -> Vec<u8> {
    let mut sets: BTreeMap<&[Label], Vec<&Stack>> = BTreeMap::new();
    for stack in &profile.stacks {
        sets.entry(&stack.labels).or_default().push(stack);
    }
    let began_ms = profile.ended_ns.saturating_sub(profile.duration_ns) / NS_PER_MS;
    let began_ms = json!(began_ms);
    let mut text = begin(&meta(&profile.title, &began_ms, &CATEGORIES));
    let measures = profile.measures.iter().enumerate().rev();
    let threads: Vec<_> = measures
        .flat_map(|measure| sets.iter().map(move |set| (measure, set)))
        .enumerate()
        .collect();
    list(
        &mut text,
        threads,
        |text, (number, ((at, measure), (labels, stacks)))| {
            thread(text, profile, number, (at, measure), (labels, stacks));
        },
    );
    text.push_str("}\n");
    text.into_bytes()
}

/// Writes the thread of a measure and a set of labels.
fn thread(
    text: &mut String,
    profile: &Profile,
    number: usize,
    (at, measure): (usize, &Measure),
    (labels, stacks): (&[Label], &[&Stack]),
) {
    let mut tables = Tables::default();
    let mut samples: Vec<Sample> = Vec::new();
    for stack in stacks {
        let weight = stack.weights.get(at).copied().unwrap_or(0);
        if weight > 0
            && let Some(stack) = tables.stack(profile, stack)
        {
            samples.push(Sample { stack, weight });
        }
    }
    let mut name = measure.name.clone();
    for Label { key, value } in labels {
        let _ = write!(name, ", {key} {value}");
    }
    let is_time = measure.unit == Unit::Nanoseconds;
    let all = samples
        .iter()
        .fold(0_u64, |sum, sample| sum.saturating_add(sample.weight));
    let _ = write!(
        text,
        "{{\"name\":{},\"processName\":{},\"isMainThread\":{},\"processType\":\"default\",\"pid\":\"0\",\"tid\":{number},\
         \"processStartupTime\":0,\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\
         \"markers\":{{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],\"phase\":[],\"category\":[],\"length\":0}},\
         \"nativeSymbols\":{{\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[],\"length\":0}},\"samples\":{{",
        quoted(&name),
        quoted(&profile.title),
        number == 0,
    );
    let weight_type = match measure.unit {
        Unit::Nanoseconds => "tracing-ms",
        Unit::Bytes => "bytes",
        Unit::Count => "samples",
    };
    let _ = write!(
        text,
        "\"weightType\":\"{weight_type}\",\"length\":{},\"stack\":",
        samples.len()
    );
    list(text, &samples, |text, sample| {
        let _ = write!(text, "{}", sample.stack);
    });
    text.push_str(",\"time\":");
    let (mut before, scale) = (0_u64, if is_time { 1 } else { span_ns(profile) / all.max(1) });
    list(text, &samples, |text, sample| {
        milliseconds(text, before.saturating_mul(scale));
        before = before.saturating_add(sample.weight);
    });
    text.push_str(",\"weight\":");
    list(text, &samples, |text, sample| {
        if is_time {
            milliseconds(text, sample.weight);
        } else {
            let _ = write!(text, "{}", sample.weight);
        }
    });
    text.push_str("},");
    tables.write(text, profile);
    text.push('}');
}

/// The length of the time line that counts are drawn on.
const fn span_ns(profile: &Profile) -> u64 {
    if profile.duration_ns == 0 {
        NS_PER_MS
    } else {
        profile.duration_ns
    }
}

/// The functions and stacks of a thread.
#[derive(Default)]
struct Tables {
    /// Frames of the profile that are in use, in order.
    frames: Vec<u32>,
    frame_numbers: HashMap<u32, usize>,
    stacks: Vec<Node>,
    stack_numbers: HashMap<Node, usize>,
}

/// A stack as the table has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    /// The number of the stack around it; `None` of an outermost.
    prefix: Option<usize>,
    /// The number of its frame.
    frame: usize,
}

/// What stands for all samples of a stack.
#[derive(Clone, Copy)]
struct Sample {
    /// The number of the stack.
    stack: usize,
    weight: u64,
}

impl Tables {
    /// The number of a stack; `None` of one without a frame.
    fn stack(&mut self, profile: &Profile, stack: &Stack) -> Option<usize> {
        let mut prefix = None;
        for (number, _) in profile.frames_of(stack) {
            let next = self.frames.len();
            let frame = *self.frame_numbers.entry(number).or_insert(next);
            if frame == next {
                self.frames.push(number);
            }
            let next = self.stacks.len();
            let node = Node { prefix, frame };
            let number = *self.stack_numbers.entry(node).or_insert(next);
            if number == next {
                self.stacks.push(node);
            }
            prefix = Some(number);
        }
        prefix
    }

    fn write(&self, text: &mut String, profile: &Profile) {
        let none = Frame::default();
        let frames: Vec<&Frame> = self
            .frames
            .iter()
            .map(|number| profile.frames.get(*number as usize).unwrap_or(&none))
            .collect();
        let mut strings = Strings::default();
        let mut resources = Strings::default();
        let names: Vec<usize> = frames.iter().map(|frame| strings.number(&frame.name)).collect();
        let files: Vec<Option<usize>> = frames
            .iter()
            .map(|frame| strings.number_of(&frame.file))
            .collect();
        let modules: Vec<Option<usize>> = frames
            .iter()
            .map(|frame| resources.number_of(&frame.module))
            .collect();
        let resource_names: Vec<usize> = resources.all.iter().map(|name| strings.number(name)).collect();
        let categories: Vec<usize> = frames.iter().map(|frame| category(frame)).collect();
        let length = frames.len();
        let column = |text: &mut String, name: &str, values: &[Value]| {
            let _ = write!(text, ",\"{name}\":");
            list(text, values, |text, value| {
                let _ = write!(text, "{value}");
            });
        };
        let of = |value: &dyn Fn(usize) -> Value| (0..length).map(value).collect::<Vec<Value>>();
        let line = |line: u32| if line > 0 { Value::from(line) } else { Value::Null };

        let _ = write!(text, "\"frameTable\":{{\"length\":{length}");
        column(text, "address", &of(&|_| Value::from(-1)));
        column(
            text,
            "inlineDepth",
            &of(&|at| Value::from(u32::from(frames[at].inlined))),
        );
        column(text, "category", &of(&|at| Value::from(categories[at])));
        column(text, "subcategory", &of(&|_| Value::from(0)));
        column(text, "func", &of(&Value::from));
        column(text, "line", &of(&|at| line(frames[at].line)));
        for empty in ["nativeSymbol", "innerWindowID", "implementation", "column"] {
            column(text, empty, &of(&|_| Value::Null));
        }
        let _ = write!(text, "}},\"funcTable\":{{\"length\":{length}");
        column(text, "name", &of(&|at| Value::from(names[at])));
        column(text, "isJS", &of(&|_| Value::from(false)));
        column(text, "relevantForJS", &of(&|_| Value::from(false)));
        column(
            text,
            "resource",
            &of(&|at| modules[at].map_or_else(|| Value::from(-1), Value::from)),
        );
        column(text, "fileName", &of(&|at| Value::from(files[at])));
        column(text, "lineNumber", &of(&|at| line(frames[at].declared_line)));
        column(text, "columnNumber", &of(&|_| Value::Null));
        let _ = write!(text, "}},\"resourceTable\":{{\"length\":{}", resource_names.len());
        let of_resources = |value: &dyn Fn(usize) -> Value| {
            resource_names.iter().map(|name| value(*name)).collect::<Vec<_>>()
        };
        column(text, "name", &of_resources(&Value::from));
        column(text, "lib", &of_resources(&|_| Value::Null));
        column(text, "host", &of_resources(&|_| Value::Null));
        // A library.
        column(text, "type", &of_resources(&|_| Value::from(1)));
        let _ = write!(
            text,
            "}},\"stackTable\":{{\"length\":{},\"frame\":",
            self.stacks.len()
        );
        list(text, &self.stacks, |text, node| {
            let _ = write!(text, "{}", node.frame);
        });
        text.push_str(",\"prefix\":");
        list(text, &self.stacks, |text, node| {
            let _ = match node.prefix {
                Some(prefix) => write!(text, "{prefix}"),
                None => write!(text, "null"),
            };
        });
        text.push_str(",\"category\":");
        list(text, &self.stacks, |text, node| {
            let _ = write!(text, "{}", categories[node.frame]);
        });
        text.push_str(",\"subcategory\":");
        list(text, &self.stacks, |text, _| text.push('0'));
        text.push_str("},\"stringArray\":");
        strings.write(text);
    }
}

/// An index into [`CATEGORIES`].
fn category(frame: &Frame) -> usize {
    match frame.module.as_str() {
        "[kernel]" => 1,
        "[off-cpu]" => 2,
        _ => 0,
    }
}
