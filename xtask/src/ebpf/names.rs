//! File names in an eBPF object: made relative where the compiler could not, and searched for absolute ones.
//!
//! `--remap-path-prefix` has no effect on what a precompiled `core` brings along: its line information names
//! the distribution's own source directory, which the BTF string table then holds.

use std::{ops::Range, path::Path};

use object::{Object, ObjectSection};

use crate::error::{Error, Result};

const BTF_MAGIC: [u8; 2] = 0xeb9f_u16.to_le_bytes();

/// First directories of absolute paths, as they stand on machines that build.
const ABSOLUTE_PREFIXES: [&str; 14] = [
    "/root/", "/home/", "/usr/", "/work", "/tmp/", "/build/", "/builds/", "/rustc/", "/var/", "/opt/",
    "/mnt/", "/srv/", "/nix/", "/__w/",
];

/// Replaces prefixes of names in the object's BTF string table, in place, and returns how many names changed.
///
/// A shortened name is filled up with NUL, so every offset into the table stays right.
///
/// # Errors
/// When the object has no well-formed `.BTF` section, or a replacement is longer than its prefix.
pub fn replace_prefixes(object: &mut [u8], prefixes: &[(String, String)]) -> Result<usize> {
    let mut changed = 0;
    let strings = btf_strings(object)?;
    for name in object[strings].split_mut(|byte| *byte == 0) {
        let Some((prefix, replacement)) = prefixes
            .iter()
            .find(|(prefix, _)| !prefix.is_empty() && name.starts_with(prefix.as_bytes()))
        else {
            continue;
        };
        if replacement.len() > prefix.len() {
            return Err(Error::told(format!(
                "`{replacement}` does not fit in the place of `{prefix}`"
            )));
        }
        let length = name.len();
        name.copy_within(prefix.len().., replacement.len());
        name[..replacement.len()].copy_from_slice(replacement.as_bytes());
        name[length - (prefix.len() - replacement.len())..].fill(0);
        changed += 1;
    }
    Ok(changed)
}

/// Absolute paths in the object's bytes: those under the usual directories, and under those given.
pub fn absolute_paths(object: &[u8], directories: &[&Path]) -> Vec<String> {
    let given = directories
        .iter()
        .map(|directory| directory.to_string_lossy().into_owned());
    let prefixes: Vec<String> = ABSOLUTE_PREFIXES
        .iter()
        .map(|prefix| (*prefix).to_owned())
        .chain(given)
        .collect();
    object
        .split(|byte| !(0x20..0x7f).contains(byte))
        .map(String::from_utf8_lossy)
        .filter(|text| prefixes.iter().any(|prefix| text.contains(prefix.as_str())))
        .map(std::borrow::Cow::into_owned)
        .collect()
}

fn btf_strings(bytes: &[u8]) -> Result<Range<usize>> {
    find_btf_strings(bytes).ok_or_else(|| Error::told("the linked object has no well-formed .BTF section"))
}

fn find_btf_strings(bytes: &[u8]) -> Option<Range<usize>> {
    let file = object::File::parse(bytes).ok()?;
    let (start, size) = file.section_by_name(".BTF")?.file_range()?;
    let section = usize::try_from(start).ok()?..usize::try_from(start.checked_add(size)?).ok()?;
    let btf = bytes.get(section.clone())?;
    // magic u16, version u8, flags u8, header length, type offset and length, string offset and length: u32.
    let word = |at: usize| Some(u32::from_le_bytes(btf.get(at..at + 4)?.try_into().ok()?) as usize);
    if btf.get(..2)? != BTF_MAGIC {
        return None;
    }
    let from = word(4)?.checked_add(word(16)?)?;
    let to = from.checked_add(word(20)?)?;
    btf.get(from..to)?;
    Some(section.start + from..section.start + to)
}

#[cfg(test)]
mod tests {
    use object::{Architecture, BinaryFormat, Endianness, SectionKind, write};

    use super::*;

    const TABLE: &[u8] = b"\0/usr/src/rustc-9/library/core/src/option.rs\0src/main.rs\0";

    fn object_with_btf(table: &[u8]) -> Vec<u8> {
        let mut btf = BTF_MAGIC.to_vec();
        btf.extend([1, 0]);
        for word in [24, 0, 0, 0, u32::try_from(table.len()).unwrap()] {
            btf.extend(u32::to_le_bytes(word));
        }
        btf.extend(table);
        let mut object = write::Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        let section = object.add_section(Vec::new(), b".BTF".to_vec(), SectionKind::Debug);
        object.append_section_data(section, &btf, 1);
        object.write().unwrap()
    }

    #[test]
    fn names_become_relative_and_offsets_stay() {
        let mut object = object_with_btf(TABLE);
        let before = object.len();
        assert_eq!(
            absolute_paths(&object, &[]),
            ["/usr/src/rustc-9/library/core/src/option.rs"]
        );
        let prefixes = [("/usr/src/rustc-9".to_owned(), "rust".to_owned())];
        assert_eq!(replace_prefixes(&mut object, &prefixes).unwrap(), 1);
        assert_eq!(absolute_paths(&object, &[]), Vec::<String>::new());
        assert_eq!(object.len(), before);
        let table = &object[btf_strings(&object).unwrap()];
        assert!(table[1..].starts_with(b"rust/library/core/src/option.rs\0"));
        assert_eq!(
            table.iter().rposition(|byte| *byte == b's'),
            TABLE.iter().rposition(|byte| *byte == b's')
        );
        assert!(table.ends_with(b"\0src/main.rs\0"));
    }

    #[test]
    fn a_replacement_that_does_not_fit_is_refused() {
        let prefixes = [("/usr".to_owned(), "longer".to_owned())];
        assert!(replace_prefixes(&mut object_with_btf(TABLE), &prefixes).is_err());
    }

    #[test]
    fn directories_of_this_machine_count_too() {
        assert_eq!(
            absolute_paths(b"\0/srv2/x/y.rs\0", &[Path::new("/srv2/x")]),
            ["/srv2/x/y.rs"]
        );
    }

    #[test]
    fn no_btf_is_an_error() {
        assert!(replace_prefixes(&mut [0; 64], &[]).is_err());
        assert!(replace_prefixes(&mut [], &[]).is_err());
    }
}
