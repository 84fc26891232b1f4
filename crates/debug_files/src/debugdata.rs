//! Symbols in `.gnu_debugdata`: an ELF file with only the symbols that the dynamic table lacks, packed with xz
//! (GDB manual, "`MiniDebugInfo`").

use std::io::{self, Read as _};

use lzma_rust2::XzReader;
use object::{Object as _, ObjectSection as _};

use super::elf::{self, Elf};

/// Most bytes that it may have unpacked; distributions' largest have some megabytes.
const UNPACKED_MAX: u64 = 64 << 20;
/// Most memory that unpacking may take besides, in KiB: 64 MiB is the dictionary of xz's strongest level.
const UNPACKING_MAX_KIB: u32 = 80 << 10;

/// The file within a file; `None` where there is none.
///
/// # Errors
/// Where it is damaged, or takes more memory than is allowed.
pub fn read(file: &[u8]) -> io::Result<Option<Elf>> {
    let parsed = elf::parse(file)?;
    let Some(section) = parsed.section_by_name(".gnu_debugdata") else {
        return Ok(None);
    };
    let packed = section
        .data()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Elf::from_bytes(unpack(packed)?).map(Some)
}

fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    XzReader::new_mem_limit(packed, true, UNPACKING_MAX_KIB)
        .take(UNPACKED_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > UNPACKED_MAX {
        let text = ".gnu_debugdata takes too much memory unpacked";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
        sync::LazyLock,
    };

    use proptest::prelude::*;

    use super::*;

    fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut child = Command::new("xz")
            .args(["-9", "-c"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(bytes).unwrap());
            child.wait_with_output().unwrap().stdout
        })
    }

    static PACKED: LazyLock<Vec<u8>> = LazyLock::new(|| pack(&std::fs::read("/bin/true").unwrap()));

    #[test]
    fn unpacks_the_original_bytes() {
        assert_eq!(unpack(&PACKED).unwrap(), std::fs::read("/bin/true").unwrap());
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = pack(&vec![0; usize::try_from(UNPACKED_MAX).unwrap() + 2]);
        assert!(bomb.len() < 100_000);
        assert!(unpack(&bomb).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_data_does_no_harm(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), length in any::<prop::sample::Index>()) {
            let mut bytes = PACKED.clone();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(length.index(bytes.len() + 1));
            let _ = unpack(&bytes);
        }
    }
}
