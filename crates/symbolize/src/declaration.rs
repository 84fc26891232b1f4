//! DWARF: a function's name and where it is declared.

use std::path::Path;

use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};
use profiler_debug_files::Bytes;

use super::{name::NAME_MAX, references::References};

/// How many references are followed, from a call to its function to that one's declaration.
const REFERENCES_MAX: usize = 16;

/// What is known of a function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Declaration {
    /// The linker's name where there is one.
    pub linkage_name: Option<Vec<u8>>,
    /// The name in the source, without its namespaces.
    pub name: Option<Vec<u8>>,
    /// The file; empty where it is not known.
    pub file: String,
    /// The line; 0 where it is not known.
    pub line: u32,
}

impl Declaration {
    /// Reads an entry and those that it refers to.
    pub fn read(references: References<'_, '_>, unit: &Unit<Bytes<'_>>, entry: UnitOffset) -> Self {
        let mut known = Self::default();
        known.follow(references, unit, entry, REFERENCES_MAX);
        known
    }

    fn follow(
        &mut self,
        references: References<'_, '_>,
        unit: &Unit<Bytes<'_>>,
        entry: UnitOffset,
        references_left: usize,
    ) {
        let Ok(entry) = unit.entry(entry) else { return };
        self.add(references.dwarf, unit, &entry);
        let Some(references_left) = references_left.checked_sub(1) else {
            return;
        };
        let next = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification));
        let (references, next) = match next {
            Some(AttributeValue::UnitRef(next)) => {
                return self.follow(references, unit, next, references_left);
            }
            Some(AttributeValue::DebugInfoRef(next)) => (Some(references), next),
            Some(AttributeValue::DebugInfoRefSup(next)) => (references.in_supplement(), next),
            _ => return,
        };
        let found = references.and_then(|references| Some((references, references.unit_at(next)?)));
        if let Some((references, (unit, next))) = found {
            self.follow(references, &unit, next, references_left);
        }
    }

    /// Adds what is not known yet.
    fn add(
        &mut self,
        dwarf: &Dwarf<Bytes<'_>>,
        unit: &Unit<Bytes<'_>>,
        entry: &DebuggingInformationEntry<Bytes<'_>>,
    ) {
        let text = |name| {
            let value = dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
            Some(value.slice()[..value.slice().len().min(NAME_MAX)].to_vec())
        };
        if self.linkage_name.is_none() {
            self.linkage_name =
                text(gimli::DW_AT_linkage_name).or_else(|| text(gimli::DW_AT_MIPS_linkage_name));
        }
        if self.name.is_none() {
            self.name = text(gimli::DW_AT_name);
        }
        if self.file.is_empty()
            && let Some(AttributeValue::FileIndex(index)) = entry.attr_value(gimli::DW_AT_decl_file)
        {
            self.file = file_name(dwarf, unit, index).unwrap_or_default();
            let line = entry
                .attr_value(gimli::DW_AT_decl_line)
                .and_then(|line| line.udata_value());
            self.line = line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        }
    }
}

/// The path of a file in a unit's table, from the directory that was compiled in.
pub(super) fn file_name(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| {
        let bytes = dwarf.attr_string(unit, value).ok()?.slice();
        Some(String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_MAX)]).into_owned())
    };
    let name = text(file.path_name())?;
    // Joining keeps the right side alone where that is absolute. The first directory is the one compiled in
    // itself, which need not be absolute.
    let directory = Some(file).filter(|file| file.directory_index() != 0);
    let directory = directory
        .and_then(|file| file.directory(header))
        .and_then(text)
        .unwrap_or_default();
    let compiled_in = unit
        .comp_dir
        .map(|directory| directory.to_string_lossy().into_owned())
        .unwrap_or_default();
    Some(
        Path::new(&compiled_in)
            .join(directory)
            .join(name)
            .to_string_lossy()
            .into_owned(),
    )
}
