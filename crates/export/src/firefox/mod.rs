//! The format of the Firefox Profiler: JSON.
//!
//! The "processed profile format", in the version [`VERSION`], which later ones upgrade:
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>.
//!
//! | file | idea |
//! |---|---|
//! | `stacks` | a profile: a thread for each of what is measured |
//! | `events` | events over time: markers of threads, and counters |

mod events;
mod stacks;

use std::fmt::Write as _;

use foldhash::HashMap;
use serde_json::{Value, json};

use crate::{
    json_text::{string, visible},
    list::list,
};

pub use self::{events::write as events, stacks::write};

/// The format's version: the last one in which each thread has its own tables.
pub const VERSION: u32 = 48;

/// Nanoseconds in the format's unit of time.
const NS_PER_MS: u64 = 1_000_000;

/// What code or an event is, with its colour.
struct Category {
    name: &'static str,
    color: &'static str,
}

/// What is said of all of a file; `began_ms` is when its time begins, in milliseconds since 1970.
fn meta(title: &str, began_ms: &Value, categories: &[Category]) -> Value {
    let categories = categories.iter();
    let categories: Vec<Value> = categories
        .map(|Category { name, color }| json!({ "name": name, "color": color, "subcategories": ["Other"] }))
        .collect();
    json!({
        "version": 24,
        "preprocessedProfileVersion": VERSION,
        "interval": 1,
        "startTime": began_ms,
        "processType": 0,
        "product": title,
        "stackwalk": 1,
        "symbolicated": true,
        "categories": categories,
        "markerSchema": [],
    })
}

/// A file up to its threads, by [`meta`].
fn begin(meta: &Value) -> String {
    let meta = visible(&meta.to_string());
    format!("{{\"meta\":{meta},\"libs\":[],\"pages\":[],\"threads\":")
}

/// Writes nanoseconds as milliseconds, exactly.
fn milliseconds(text: &mut String, ns: u64) {
    let _ = write!(text, "{}.{:06}", ns / NS_PER_MS, ns % NS_PER_MS);
}

/// Texts by number.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Strings {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len();
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn has(&self, text: &str) -> bool {
        self.numbers.contains_key(text)
    }

    /// All of them as JSON.
    fn write(&self, text: &mut String) {
        list(text, &self.all, |text, of| string(text, of));
    }

    /// `None` of an empty one.
    fn number_of(&mut self, text: &str) -> Option<usize> {
        (!text.is_empty()).then(|| self.number(text))
    }
}
