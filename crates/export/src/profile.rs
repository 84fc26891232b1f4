//! What is written: stacks with weights, as a flame graph has them.

use std::fmt::Write as _;

/// A call tree's stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// What was profiled, for people.
    pub title: String,
    /// What else there is to know of it, a line each.
    pub comments: Vec<String>,
    /// What stacks are weighed by. The one that tools show first is the last.
    pub measures: Vec<Measure>,
    /// Functions, or what they are grouped by.
    pub frames: Vec<Frame>,
    /// Each with a weight for each measure.
    pub stacks: Vec<Stack>,
    /// When it ended, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// For how long it was collected, in nanoseconds.
    pub duration_ns: u64,
}

/// What stacks are weighed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its name: `samples`, `cpu`, `page-faults`.
    pub name: String,
    /// What it is a number of.
    pub unit: Unit,
}

/// What a weight is a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of time.
    Nanoseconds,
    /// Of memory or of what is read and written.
    Bytes,
    /// Of anything else.
    Count,
}

impl Unit {
    /// As pprof and OpenTelemetry write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Bytes => "bytes",
            Self::Count => "count",
        }
    }
}

/// A function in a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What it is called.
    pub name: String,
    /// The source file; empty where it is not known.
    pub file: String,
    /// The line that ran; 0 where it is not known, or many are meant.
    pub line: u32,
    /// Where the function is declared; 0 where that is not known.
    pub declared_line: u32,
    /// The file of its code; empty where it is not known.
    pub module: String,
    /// The hash of what was linked into it; empty where it is not known.
    pub build_id: Vec<u8>,
    /// The address in the numbering of its module's file; 0 where it is not known, or many are meant.
    pub address: u64,
    /// Its code is a part of the function before it in a stack.
    pub inlined: bool,
}

impl Frame {
    /// The build-id as `readelf` prints it.
    #[must_use]
    pub fn build_id_hex(&self) -> String {
        self.build_id.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Indexes of its frames, the outermost first.
    pub frames: Vec<u32>,
    /// A weight for each measure.
    pub weights: Vec<u64>,
    /// What tells it from others of the same frames.
    pub labels: Vec<Label>,
}

/// A key and a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The key: `side`, `thread`.
    pub key: String,
    /// The value.
    pub value: String,
}

impl Profile {
    /// The frames of a stack, the outermost first. A number that no frame has is left out.
    #[must_use]
    pub fn frames_of<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = (u32, &'a Frame)> {
        stack
            .frames
            .iter()
            .filter_map(|&number| Some((number, self.frames.get(number as usize)?)))
    }

    /// Makes a measure the last, which tools show first; one of another name changes nothing.
    pub fn show_last(&mut self, name: &str) {
        let Some(at) = self.measures.iter().position(|measure| measure.name == name) else {
            return;
        };
        self.measures[at..].rotate_left(1);
        for stack in &mut self.stacks {
            if let Some(weights) = stack.weights.get_mut(at..).filter(|weights| !weights.is_empty()) {
                weights.rotate_left(1);
            }
        }
    }

    /// Hands out each place in code that a stack goes through, the outermost first: a frame, and behind it what is inlined
    /// into it.
    pub fn each_place<'a>(&'a self, stack: &'a Stack, mut each: impl FnMut(&[(u32, &'a Frame)])) {
        let mut place: Vec<(u32, &Frame)> = Vec::new();
        for (number, frame) in self.frames_of(stack) {
            if !frame.inlined && !place.is_empty() {
                each(&place);
                place.clear();
            }
            place.push((number, frame));
        }
        if !place.is_empty() {
            each(&place);
        }
    }
}
