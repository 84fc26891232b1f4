//! What two readers have read, value by value.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

use profiler_plan::values::{Reading, Value};
use serde_json::Value as Json;

/// Values that are counted by their numbers alone, or their first bytes.
const MAX_LISTED: usize = 400;

#[derive(Default)]
pub struct Tally {
    pub stops: u64,
    /// Both read it, and it is equal.
    agree: u64,
    /// gdb reads it, and we do not.
    only_theirs: u64,
    /// We read it, and gdb does not.
    only_ours: u64,
    /// Neither reads it.
    neither: u64,
    /// Of those that agree, what we read before the function had stored it.
    at_start: u64,
    /// gdb reads a place of the frame before anything is there.
    early: u64,
    /// Conditions on what was read that were decided right.
    pub requirements: u64,
    /// Both read it, and it is not equal.
    pub differ: Vec<String>,
    reasons: BTreeMap<String, u64>,
    listed: Vec<String>,
    listed_ours: Vec<String>,
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:5} stops, {:6} agree, {:4} differ, {:5} gdb only, {:4} ours only, {:5} neither, {:4} early, {:4} at start, {:5} conditions: {:.2}% read",
            self.stops,
            self.agree,
            self.differ.len(),
            self.only_theirs,
            self.only_ours,
            self.neither,
            self.early,
            self.at_start,
            self.requirements,
            100.0 * self.read_share()
        )
    }
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.stops += other.stops;
        self.agree += other.agree;
        self.only_theirs += other.only_theirs;
        self.only_ours += other.only_ours;
        self.neither += other.neither;
        self.early += other.early;
        self.requirements += other.requirements;
        self.at_start += other.at_start;
        self.differ.extend_from_slice(&other.differ);
        self.listed.extend_from_slice(&other.listed);
        self.listed_ours.extend_from_slice(&other.listed_ours);
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    /// Of what gdb reads, what we read.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn read_share(&self) -> f64 {
        let read = self.agree + self.differ.len() as u64;
        read as f64 / (read + self.only_theirs).max(1) as f64
    }

    pub fn explain(&self) {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        println!("not read, though gdb does:");
        for (reason, count) in reasons.iter().take(40) {
            println!("{count:6} {reason}");
        }
        if std::env::var_os("VALUES_LIST").is_some() {
            for line in self.listed.iter().chain(&self.listed_ours).take(4 * MAX_LISTED) {
                println!("{line}");
            }
        }
        for line in self.differ.iter().take(MAX_LISTED) {
            println!("DIFFER {line}");
        }
    }

    /// What we read before the function stored its arguments, against what gdb reads after.
    pub fn compare_at_start(&mut self, place: &str, ours: &Reading, theirs: &Json) {
        match ours {
            Reading::Ok(_) => {
                let agreed = self.agree;
                self.compare(place, ours, theirs);
                self.at_start += self.agree - agreed;
            }
            reading => {
                if theirs.get("s").is_none() && self.listed.len() < MAX_LISTED {
                    self.listed.push(format!("START {place}: {reading:?}"));
                }
            }
        }
    }

    pub fn compare(&mut self, place: &str, ours: &Reading, theirs: &Json) {
        if let Some(state) = theirs.get("s") {
            match (ours, state.as_str().unwrap()) {
                (_, "skipped") => {}
                (Reading::Ok(value), _) => {
                    self.only_ours += 1;
                    let shown: String = format!("{value:?}").chars().take(100).collect();
                    self.listed_ours
                        .push(format!("OURS {place}: {shown}; gdb: {theirs}"));
                }
                _ => self.neither += 1,
            }
            return;
        }
        let value = match ours {
            Reading::Ok(value) => value,
            Reading::OptimizedOut(reason) | Reading::Unreadable(reason) | Reading::Unsupported(reason) => {
                let leaves = leaves(theirs);
                if reason.contains("has not stored it yet") || reason.contains("not initialized yet") {
                    self.early += leaves;
                    return;
                }
                self.only_theirs += leaves;
                // Addresses differ from place to place.
                let reason = reason.split(" 0x").next().unwrap_or_default().to_owned();
                *self.reasons.entry(reason).or_default() += leaves;
                if leaves > 0 && self.listed.len() < MAX_LISTED {
                    self.listed
                        .push(format!("THEIRS {place}: {ours:?}; gdb: {theirs}"));
                }
                return;
            }
        };
        if let Err(difference) = self.values(place, value, theirs) {
            self.differ
                .push(format!("{place}: {difference}; ours {value:?}, gdb {theirs}"));
        }
    }

    fn values(&mut self, place: &str, ours: &Value, theirs: &Json) -> Result<(), String> {
        let number = theirs.get("i").map(|number| number.as_str().unwrap());
        let agrees = match ours {
            Value::Register(number_) => number == Some(&number_.to_string()),
            Value::Signed(number_) => number == Some(&number_.to_string()),
            Value::Unsigned(number_) => number == Some(&number_.to_string()),
            Value::Boolean(yes) => number == Some(if *yes { "1" } else { "0" }),
            Value::Character(character) => number == Some(&u32::from(*character).to_string()),
            Value::Pointer(address) => number.is_some_and(|n| same_address(n, *address)),
            Value::Enumerator { number: n, name } => {
                let named = theirs.get("e").is_none_or(|shown| {
                    let shown = shown.as_str().unwrap();
                    // Sums of names, and numbers without one, are shown by gdb in brackets.
                    name.as_ref().is_none_or(|name| shown.ends_with(name.as_str()))
                });
                number == Some(&n.to_string()) && named
            }
            Value::Float(float) => {
                let bits: Option<u64> = theirs
                    .get("f")
                    .map(|bits| bits.as_str().unwrap().parse().unwrap());
                bits.is_some_and(|bits| {
                    bits == float.to_bits() || float.is_nan() && f64::from_bits(bits).is_nan()
                })
            }
            Value::Text {
                bytes,
                length,
                pointer,
            } => match theirs.get("a") {
                // gdb is asked for an array's elements one by one.
                Some(of) if pointer.is_none() => characters(bytes, *length, of),
                _ => text(bytes, *length, *pointer, theirs),
            },
            Value::Structure(members) => {
                let Some(fields) = theirs.get("m") else {
                    return Err("not a structure".into());
                };
                let fields = fields.as_array().unwrap();
                // A structure without members may be one that gdb shows nothing of, or the other way around.
                if fields.len() != members.len() {
                    return Err("other members".into());
                }
                for ((name, reading), field) in members.iter().zip(fields) {
                    let theirs = field[0].as_str().unwrap();
                    if !theirs.ends_with(name.as_str()) {
                        return Err(format!("member {name}, and not {theirs}"));
                    }
                    self.compare(&format!("{place} . {name}"), reading, &field[1]);
                }
                return Ok(());
            }
            Value::Sequence { elements, count } => {
                let Some(of) = theirs.get("a").or_else(|| theirs.get("v")) else {
                    return Err("not a sequence".into());
                };
                if theirs["n"].as_str() != Some(&count.to_string()) {
                    return Err("another length".into());
                }
                for (index, (reading, of)) in elements.iter().zip(of.as_array().unwrap()).enumerate() {
                    self.compare(&format!("{place} [{index}]"), reading, of);
                }
                return Ok(());
            }
            Value::Variant { name, value } => {
                // gdb shows the members of the variant that there is, by its name.
                let Some([field]) = theirs.get("m").and_then(Json::as_array).map(Vec::as_slice) else {
                    return Err("not one variant".into());
                };
                // Those of asynchronous functions are called by their types.
                let theirs_name = field[0].as_str().unwrap();
                let is_numbered = theirs_name.bytes().all(|byte| byte.is_ascii_digit());
                if theirs_name != name && !is_numbered {
                    return Err("another variant".into());
                }
                self.compare(&format!("{place} {name}"), value, &field[1]);
                return Ok(());
            }
        };
        if agrees {
            self.agree += 1;
            Ok(())
        } else {
            Err("another value".into())
        }
    }
}

/// Holds text against the characters of an array: these are the first, and a NUL follows if there are more.
fn characters(bytes: &[u8], length: Option<u64>, theirs: &Json) -> bool {
    // Signed ones may be negative.
    let number = |of: &Json| Some(of["i"].as_str()?.parse::<i16>().ok()?.to_le_bytes()[0]);
    let theirs: Option<Vec<u8>> = theirs.as_array().unwrap().iter().map(number).collect();
    theirs.is_some_and(|theirs| {
        let ends = theirs.get(bytes.len()).is_none_or(|next| *next == 0);
        // gdb is asked for the first few of many.
        let both = theirs.len().min(bytes.len());
        theirs[..both] == bytes[..both] && (ends || length.is_none())
    })
}

fn same_address(theirs: &str, ours: u64) -> bool {
    theirs.parse::<u64>().is_ok_and(|theirs| theirs == ours)
}

fn text(bytes: &[u8], length: Option<u64>, pointer: Option<u64>, theirs: &Json) -> bool {
    let Some(text) = theirs.get("t").and_then(Json::as_str) else {
        return false;
    };
    let text: Vec<u8> = (0..text.len() / 2)
        .map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap())
        .collect();
    let both = text.len().min(bytes.len());
    let same_pointer = match (theirs.get("i").and_then(Json::as_str), pointer) {
        (Some(theirs), Some(ours)) => same_address(theirs, ours),
        _ => true,
    };
    let same_length = match (theirs.get("n").and_then(Json::as_str), length) {
        (Some(theirs), Some(ours)) => theirs == ours.to_string(),
        _ => true,
    };
    same_pointer
        && same_length
        && text[..both] == bytes[..both]
        && (both > 0 || text.is_empty() == bytes.is_empty())
}

/// Values that gdb has read of one.
fn leaves(theirs: &Json) -> u64 {
    if theirs.get("s").is_some() {
        return 0;
    }
    if let Some(fields) = theirs.get("m") {
        return fields
            .as_array()
            .unwrap()
            .iter()
            .map(|field| leaves(&field[1]))
            .sum();
    }
    match theirs.get("a") {
        Some(elements) => elements.as_array().unwrap().iter().map(leaves).sum(),
        None => 1,
    }
}
