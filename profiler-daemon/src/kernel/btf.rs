//! Offsets of kernel structures, from the running kernel's own BTF.
//!
//! Format: `Documentation/bpf/btf.rst` of the kernel. Only what finding a member needs is read; every
//! access is bounds-checked, though the kernel is trusted to give sound data.

use std::collections::HashMap;

use super::KernelError;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;

/// Byte offsets of named members of a structure.
///
/// # Errors
/// Where the kernel has no BTF, or the structure lacks one of the members.
pub fn member_offsets(
    structure: &str,
    members: &[&'static str],
) -> Result<HashMap<&'static str, u32>, KernelError> {
    let data = std::fs::read(PATH).map_err(|error| KernelError::Btf(format!("{PATH}: {error}")))?;
    find(&data, structure, members).ok_or_else(|| {
        KernelError::Btf(format!(
            "{PATH} has no struct {structure} with members {members:?}"
        ))
    })
}

fn find(data: &[u8], structure: &str, members: &[&'static str]) -> Option<HashMap<&'static str, u32>> {
    if u16::from_le_bytes(data.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    let header = word(data, 4)? as usize;
    let types = data
        .get(header + word(data, 8)? as usize..)?
        .get(..word(data, 12)? as usize)?;
    let strings = data
        .get(header + word(data, 16)? as usize..)?
        .get(..word(data, 20)? as usize)?;
    let mut at = 0;
    while at + 12 <= types.len() {
        let name = word(types, at)?;
        let info = word(types, at + 4)?;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        at += 12;
        if kind == KIND_STRUCT && string(strings, name)? == structure.as_bytes() {
            let bitfields = info >> 31 == 1;
            let mut found = HashMap::new();
            for index in 0..count {
                let member = string(strings, word(types, at + index * 12)?)?;
                let offset = word(types, at + index * 12 + 8)?;
                let bits = if bitfields { offset & 0x00ff_ffff } else { offset };
                if let Some(wanted) = members.iter().find(|wanted| wanted.as_bytes() == member) {
                    found.insert(*wanted, bits / 8);
                }
            }
            return (found.len() == members.len()).then_some(found);
        }
        // Bytes that follow the common part, by kind.
        at += match kind {
            1 | 14 | 17 => 4,                        // INT, VAR, DECL_TAG
            3 => 12,                                 // ARRAY
            KIND_STRUCT | 5 | 15 | 19 => count * 12, // UNION, DATASEC, ENUM64
            6 | 13 => count * 8,                     // ENUM, FUNC_PROTO
            2 | 7..=12 | 16 | 18 => 0,               // PTR, FWD…FUNC, FLOAT, TYPE_TAG
            _ => return None,
        };
    }
    None
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn string(strings: &[u8], at: u32) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    rest.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_data_is_refused(mut data in proptest::collection::vec(any::<u8>(), 0..256)) {
            if data.len() >= 8 {
                data[..2].copy_from_slice(&MAGIC.to_le_bytes());
                data[4..8].copy_from_slice(&24u32.to_le_bytes());
            }
            prop_assert_eq!(find(&data, "task_struct", &["sas_ss_sp"]), None);
        }
    }
}
