//! What `profiler` prints as JSON, held against `docs/json.schema.json`.
//!
//! The schema lets readers pass over keys that they do not know, since keys may be added. Here none may be: a key that is
//! printed is one that the schema has.

use std::{fmt, sync::OnceLock};

use serde_json::{Map, Value};

const SCHEMA: &str = include_str!("../../../docs/json.schema.json");

/// Where schemas that are referred to by name are.
const NAMED: &str = "#/$defs/";

/// The only pattern that the schema has: digits.
const DIGITS: &str = "^[0-9]+$";

/// What the entry of a verb begins with.
pub const OF_VERB: &str = "of_";

/// Reads one object a line, all of them lines that one verb prints, whichever it is.
///
/// # Panics
/// On a line that is not JSON, or not as the schema has it.
#[track_caller]
pub fn objects(lines: &str) -> Vec<Value> {
    read(lines, are_as_described)
}

/// Reads one object a line, all of them lines that this verb prints.
///
/// # Panics
/// On a line that is not JSON, or not as the schema has it.
#[track_caller]
pub fn objects_of(verb: &str, lines: &str) -> Vec<Value> {
    read(lines, |objects| are_of_verb(verb, objects))
}

#[track_caller]
fn read(lines: &str, check: impl FnOnce(&[Value]) -> Result<(), String>) -> Vec<Value> {
    let objects: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    if let Err(why) = check(&objects) {
        panic!("not as docs/json.schema.json has it: {why}");
    }
    objects
}

/// The verb whose lines `profiler` prints with these arguments, where it is one that prints any: with `--dry-run` those of `scope`.
#[must_use]
pub fn verb_of(arguments: &[&str]) -> Option<String> {
    let mut verbs = arguments.iter().filter(|argument| entry_of(argument).is_some());
    let verb = verbs.next()?;
    let is_dry = arguments.contains(&"--dry-run");
    let verb = if is_dry { "scope" } else { *verb };
    Some(verb.to_owned())
}

fn entry_of(verb: &str) -> Option<&'static Value> {
    schema()["$defs"].get(format!("{OF_VERB}{verb}"))
}

/// The schema as it is written.
pub fn schema() -> &'static Value {
    static READ: OnceLock<Value> = OnceLock::new();
    READ.get_or_init(|| serde_json::from_str(SCHEMA).unwrap())
}

/// Whether there is a verb that prints all of these.
///
/// # Errors
/// What is not as the schema has it, by the verb that prints the most of them.
pub fn are_as_described(objects: &[Value]) -> Result<(), String> {
    let misfits: Result<Vec<Misfit>, ()> = alternatives(schema())
        .map(|verb| first_misfit(objects, named(&verb["$ref"])).ok_or(()))
        .collect();
    // A verb that prints all of them ends the search.
    let Ok(misfits) = misfits else { return Ok(()) };
    let nearest = misfits
        .into_iter()
        .max_by_key(|misfit| (misfit.line, misfit.type_is_known));
    Err(nearest.map_or_else(String::new, |misfit| misfit.to_string()))
}

/// Whether this verb prints all of these.
///
/// # Errors
/// What is not as the schema has it.
pub fn are_of_verb(verb: &str, objects: &[Value]) -> Result<(), String> {
    let entry = entry_of(verb).ok_or_else(|| format!("no entry of {verb}"))?;
    first_misfit(objects, entry).map_or(Ok(()), |misfit| Err(misfit.to_string()))
}

/// The first object that is not one of a verb's.
struct Misfit {
    /// Counted from 1.
    line: usize,
    /// Whether the verb prints such objects, though not this one.
    type_is_known: bool,
    why: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, {}", self.line, self.why)
    }
}

fn first_misfit(objects: &[Value], entry: &Value) -> Option<Misfit> {
    objects.iter().enumerate().find_map(|(at, object)| {
        let of_type =
            |schema: &&Value| named(&schema["$ref"])["properties"]["type"]["const"] == object["type"];
        let same_type = alternatives(entry).find(of_type);
        let why = match same_type {
            None => Err("no such object".to_owned()),
            Some(schema) => fits(object, schema),
        };
        why.err().map(|why| Misfit {
            line: at + 1,
            type_is_known: same_type.is_some(),
            why: format!("{why}: {object}"),
        })
    })
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    schema["anyOf"].as_array().into_iter().flatten()
}

/// Whether a value is of a schema; else what is not.
fn fits(value: &Value, schema: &Value) -> Result<(), String> {
    let keywords = schema.as_object().unwrap();
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "$ref" => fits(value, named(wanted))?,
            "anyOf" => one_of(value, schema)?,
            "type" => is_of_type(value, wanted)?,
            "const" => expect(value == wanted, || format!("{value} is not {wanted}"))?,
            "enum" => expect(wanted.as_array().unwrap().contains(value), || {
                format!("{value} is none of {wanted}")
            })?,
            "minimum" => expect(
                value
                    .as_f64()
                    .is_none_or(|value| value >= wanted.as_f64().unwrap()),
                || format!("{value} is below {wanted}"),
            )?,
            "pattern" => {
                assert_eq!(wanted, DIGITS);
                let is_other =
                    |text: &str| text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit());
                expect(!value.as_str().is_some_and(is_other), || {
                    format!("{value} is no number")
                })?;
            }
            "items" => each_item(value, wanted)?,
            "minItems" | "maxItems" => {
                let length = value.as_array().map_or(0, Vec::len) as u64;
                expect(Some(length) == wanted.as_u64(), || {
                    format!("{value} has not {wanted} items")
                })?;
            }
            "properties" => each_property(value, keywords)?,
            "additionalProperties" => each_value(value, wanted)?,
            "required" => {
                let missing = wanted
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|key| value.get(key.as_str().unwrap()).is_none());
                expect(missing.is_none(), || format!("no key {}", missing.unwrap()))?;
            }
            "description" => {}
            other => panic!("the schema's `{other}` is not known here"),
        }
    }
    Ok(())
}

fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn named(reference: &Value) -> &'static Value {
    let name = reference.as_str().unwrap().strip_prefix(NAMED).unwrap();
    &schema()["$defs"][name]
}

/// Whether a value is of one of several; else what is not, in each of them.
fn one_of(value: &Value, schema: &Value) -> Result<(), String> {
    let mut misfits = Vec::new();
    for alternative in alternatives(schema) {
        match fits(value, alternative) {
            Ok(()) => return Ok(()),
            Err(misfit) => misfits.push(misfit),
        }
    }
    Err(misfits.join(", or "))
}

fn is_of_type(value: &Value, wanted: &Value) -> Result<(), String> {
    let is = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("`{other}` is no type"),
    };
    let fits = wanted
        .as_array()
        .map_or_else(|| is(wanted), |names| names.iter().any(is));
    expect(fits, || format!("{value} is no {wanted}"))
}

fn each_item(value: &Value, schema: &Value) -> Result<(), String> {
    let mut items = value.as_array().into_iter().flatten();
    items.try_for_each(|item| fits(item, schema))
}

fn each_value(value: &Value, schema: &Value) -> Result<(), String> {
    let mut values = value.as_object().into_iter().flatten();
    values.try_for_each(|(key, value)| fits(value, schema).map_err(|misfit| format!("{key}: {misfit}")))
}

fn each_property(value: &Value, schema: &Map<String, Value>) -> Result<(), String> {
    let mut values = value.as_object().into_iter().flatten();
    values.try_for_each(|(key, value)| {
        let of_key = schema["properties"].get(key);
        let of_key = of_key.ok_or_else(|| format!("the key {key} is not there"))?;
        fits(value, of_key).map_err(|misfit| format!("{key}: {misfit}"))
    })
}
