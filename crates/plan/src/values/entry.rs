//! The entries (DIEs) of a file's debug information, and their references.

use super::{
    file::{DebugFile, Slice},
    refusal::Refusal,
};
use gimli::{AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwAt, DwTag, Unit, UnitOffset};
use std::rc::Rc;

/// References that are followed from an entry to what it is an instance of.
const MAX_CHAIN: usize = 8;
/// Bytes of a name that are kept: what is longer is contrived, or a template's whole argument list.
const MAX_NAME_BYTES: usize = 4096;
/// Children of one entry that are looked at.
const MAX_CHILDREN: usize = 1 << 16;

/// An entry and the unit it is in.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    pub unit: Rc<Unit<Slice<'a>>>,
    pub die: DebuggingInformationEntry<Slice<'a>>,
}

impl<'a> Entry<'a> {
    pub fn at(unit: &Rc<Unit<Slice<'a>>>, offset: UnitOffset) -> Result<Self, Refusal> {
        Ok(Self {
            unit: Rc::clone(unit),
            die: unit.entry(offset)?,
        })
    }

    /// The entry of a unit itself.
    pub fn first(unit: &Rc<Unit<Slice<'a>>>) -> Result<Self, Refusal> {
        let mut entries = unit.entries();
        match entries.next_dfs()? {
            Some(die) => Ok(Self {
                unit: Rc::clone(unit),
                die: die.clone(),
            }),
            None => Err(Refusal::Damaged("a unit has no entry".into())),
        }
    }

    pub fn children(&self) -> Result<Vec<Self>, Refusal> {
        let mut children = Vec::new();
        if !self.die.has_children() {
            return Ok(children);
        }
        let mut tree = self.unit.entries_tree(Some(self.die.offset()))?;
        let mut nodes = tree.root()?.children();
        while let Some(node) = nodes.next()? {
            if children.len() == MAX_CHILDREN {
                return Err(Refusal::Damaged("an entry has too many children".into()));
            }
            children.push(Self {
                unit: Rc::clone(&self.unit),
                die: node.entry().clone(),
            });
        }
        Ok(children)
    }

    pub fn tag(&self) -> DwTag {
        self.die.tag()
    }

    pub fn value(&self, name: DwAt) -> Option<AttributeValue<Slice<'a>>> {
        self.die.attr_value(name)
    }

    pub fn number(&self, name: DwAt) -> Option<u64> {
        self.value(name)?.udata_value()
    }

    pub fn flag(&self, name: DwAt) -> bool {
        matches!(self.value(name), Some(AttributeValue::Flag(true)))
    }

    /// Where it is in `.debug_info`.
    pub fn offset(&self) -> usize {
        self.die
            .offset()
            .to_debug_info_offset(&self.unit.header)
            .map_or(0, |offset| offset.0)
    }

    /// The language of its unit.
    pub fn language(&self) -> Option<gimli::DwLang> {
        let mut entries = self.unit.entries();
        match entries.next_dfs().ok()??.attr_value(gimli::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    /// Whether its unit is written in Rust.
    pub fn is_rust(&self) -> bool {
        self.language() == Some(gimli::DW_LANG_Rust)
    }
}

impl<'a> DebugFile<'a> {
    /// The entry at an offset into `.debug_info`.
    pub(super) fn entry_at(&self, offset: usize) -> Result<Entry<'a>, Refusal> {
        let unit = self.unit_around(offset)?;
        let inside = DebugInfoOffset(offset)
            .to_unit_offset(&unit.header)
            .ok_or_else(|| Refusal::Damaged("a reference points outside its unit".into()))?;
        Entry::at(&unit, inside)
    }

    /// What an attribute refers to.
    pub(super) fn referred(&self, entry: &Entry<'a>, name: DwAt) -> Result<Option<Entry<'a>>, Refusal> {
        match entry.value(name) {
            None => Ok(None),
            Some(AttributeValue::UnitRef(offset)) => Entry::at(&entry.unit, offset).map(Some),
            Some(AttributeValue::DebugInfoRef(offset)) => self.entry_at(offset.0).map(Some),
            Some(AttributeValue::DebugTypesRef(_)) => {
                Err(Refusal::Unsupported("a type in a type unit".into()))
            }
            Some(AttributeValue::DebugInfoRefSup(_)) => Err(Refusal::Unsupported(
                "debug information that was moved to a supplementary file".into(),
            )),
            Some(_) => Err(Refusal::Damaged(
                "an attribute is not the reference it should be".into(),
            )),
        }
    }

    /// The first to have an attribute: the entry, or what it is an instance or the definition of.
    pub(super) fn through(&self, entry: &Entry<'a>, name: DwAt) -> Result<Option<Entry<'a>>, Refusal> {
        let mut at = entry.clone();
        for _ in 0..MAX_CHAIN {
            if at.die.has_attr(name) {
                return Ok(Some(at));
            }
            let Some(next) = self.origin(&at)? else {
                return Ok(None);
            };
            at = next;
        }
        Ok(None)
    }

    /// What an entry is an instance or the definition of.
    pub(super) fn origin(&self, entry: &Entry<'a>) -> Result<Option<Entry<'a>>, Refusal> {
        match self.referred(entry, gimli::DW_AT_abstract_origin)? {
            Some(origin) => Ok(Some(origin)),
            None => self.referred(entry, gimli::DW_AT_specification),
        }
    }

    /// Its name, or that of what it is an instance of.
    pub(super) fn name(&self, entry: &Entry<'a>) -> Option<String> {
        self.text_through(entry, gimli::DW_AT_name)
    }

    /// The text of an attribute, or that of what it is an instance or the definition of.
    pub(super) fn text_through(&self, entry: &Entry<'a>, attribute: DwAt) -> Option<String> {
        let named = self.through(entry, attribute).ok()??;
        let value = named.value(attribute)?;
        let name = self.dwarf.attr_string(&named.unit, value).ok()?;
        let name = name.slice().get(..MAX_NAME_BYTES).unwrap_or(name.slice());
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Its type, or that of what it is an instance of; `None` stands for `void`.
    pub(super) fn type_of(&self, entry: &Entry<'a>) -> Result<Option<Entry<'a>>, Refusal> {
        match self.through(entry, gimli::DW_AT_type)? {
            Some(typed) => self.referred(&typed, gimli::DW_AT_type),
            None => Ok(None),
        }
    }

    /// Whether an entry's code is at an address.
    pub(super) fn holds(&self, entry: &Entry<'a>, address: u64) -> bool {
        self.ranges(entry)
            .iter()
            .any(|range| range.start <= address && address < range.end)
    }

    /// The addresses of an entry's code, in its order.
    pub(super) fn ranges(&self, entry: &Entry<'a>) -> Vec<std::ops::Range<u64>> {
        let mut found = Vec::new();
        let Ok(mut ranges) = self.dwarf.die_ranges(&entry.unit, &entry.die) else {
            return found;
        };
        while let Ok(Some(range)) = ranges.next() {
            if found.len() == MAX_CHILDREN {
                break;
            }
            if range.begin < range.end {
                found.push(range.begin..range.end);
            }
        }
        found
    }
}
