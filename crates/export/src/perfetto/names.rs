//! Names by number, of which the first packet that has one has the text too; and values of arguments.

use super::messages::{DebugAnnotation, InternedData, InternedName};
use crate::timeline::{Argument, Value};

/// Names, and which of them packets have had.
pub struct Names<'a> {
    texts: &'a [String],
    known: Vec<Known>,
}

/// Which lists of names one is in.
#[derive(Clone, Copy, Default)]
struct Known {
    event: bool,
    argument: bool,
    value: bool,
}

impl<'a> Names<'a> {
    pub fn of(texts: &'a [String]) -> Self {
        Self {
            texts,
            known: vec![Known::default(); texts.len()],
        }
    }

    /// The number of an event's name; its text goes to `interned` the first time.
    pub fn event(&mut self, name: u32, interned: &mut InternedData) -> u64 {
        let is_new = self.is_first(name, |known| &mut known.event);
        self.number(name, is_new, &mut interned.event_names)
    }

    /// An argument; texts of its names go to `interned` the first time.
    pub fn argument(&mut self, argument: &Argument, interned: &mut InternedData) -> DebugAnnotation {
        let is_new = self.is_first(argument.name, |known| &mut known.argument);
        let name = self.number(argument.name, is_new, &mut interned.debug_annotation_names);
        DebugAnnotation {
            name_iid: Some(name),
            ..self.value(&argument.value, interned)
        }
    }

    /// A value, without a name.
    fn value(&mut self, value: &Value, interned: &mut InternedData) -> DebugAnnotation {
        let mut annotation = DebugAnnotation::default();
        match value {
            Value::Unsigned(number) => annotation.uint_value = Some(*number),
            Value::Signed(number) => annotation.int_value = Some(*number),
            Value::Double(number) => annotation.double_value = Some(*number),
            Value::Bool(value) => annotation.bool_value = Some(*value),
            Value::Text(text) => annotation.string_value = Some(text.clone().into()),
            Value::Name(name) => {
                let is_new = self.is_first(*name, |known| &mut known.value);
                let texts = &mut interned.debug_annotation_string_values;
                annotation.string_value_iid = Some(self.number(*name, is_new, texts));
            }
            // Nothing in them would be no value.
            Value::List(values) if values.is_empty() => annotation.string_value = Some("[]".to_owned()),
            Value::Object(members) if members.is_empty() => annotation.string_value = Some("{}".to_owned()),
            Value::List(values) => {
                let values = values.iter();
                annotation.array_values = values.map(|value| self.value(value, interned)).collect();
            }
            Value::Object(members) => {
                let members = members.iter().map(|member| DebugAnnotation {
                    name: Some(member.name.clone().into()),
                    ..self.value(&member.value, interned)
                });
                annotation.dict_entries = members.collect();
            }
        }
        annotation
    }

    /// Whether a name has not been in a list, where it is from now on.
    fn is_first(&mut self, name: u32, list: impl FnOnce(&mut Known) -> &mut bool) -> bool {
        let known = self.known.get_mut(name as usize);
        known.is_some_and(|known| !std::mem::replace(list(known), true))
    }

    /// A name's number in the file; a new one's text is put into a list.
    fn number(&self, name: u32, is_new: bool, list: &mut Vec<InternedName>) -> u64 {
        let iid = u64::from(name) + 1;
        if is_new {
            let name = self.texts.get(name as usize).cloned().unwrap_or_default();
            list.push(InternedName { iid, name });
        }
        iid
    }
}
