//! Copies of files with compressed debug sections, in which these are uncompressed.
//!
//! Debug information is read at a few places, again and again. Compressed, all of it has to be unfolded for each look,
//! into memory; what is written here is mapped instead.
//!
//! Written are the sections that are not loaded: debug information, symbols, their names. What is loaded has its header
//! alone, as in a file that debug information was split off to.

use std::{
    cmp::Reverse,
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt as _,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use object::{
    CompressedData, CompressionFormat, LittleEndian, U16, U32, U64,
    elf::{self, FileHeader64, SectionHeader64},
    pod,
    read::elf::{CompressionHeader as _, FileHeader as _, SectionHeader as _},
};
use profiler_elf::compressed::unfold_into;

type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;

/// Where each section begins.
const ALIGN: u64 = 8;
/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;
/// Bytes that the compressed sections of one file may unfold to: they go to a disk. What was not compressed comes on top, as
/// much as the file has: sections that overlap would be written once each.
const MAX_BYTES: u64 = 3 << 30;
/// Sections of a file. Linkers write some dozens, of single functions in objects alone.
const MAX_SECTIONS: usize = 1 << 12;

/// A section, as it is written.
struct Written<'a> {
    header: Section,
    data: CompressedData<'a>,
}

/// A file that is to be written unfolded.
pub struct Unfolded<'a> {
    header: Header,
    sections: Vec<Written<'a>>,
    /// Bytes that its compressed sections unfold to.
    pub unfolds_to: u64,
}

impl<'a> Unfolded<'a> {
    /// Looks at a file's headers. `None` of one that has no compressed section, contradicts itself, or unfolds to too much.
    #[must_use]
    pub fn of(file: &'a [u8]) -> Option<Self> {
        let header = Header::parse(file).ok()?;
        let found = header.sections(LittleEndian, file).ok()?;
        if found.iter().len() > MAX_SECTIONS {
            return None;
        }
        let (mut unfolds_to, mut as_it_is): (u64, u64) = (0, 0);
        let mut sections = Vec::new();
        for section in found.iter() {
            let written = Written::of(section, file)?;
            let sum = match written.data.format {
                CompressionFormat::None => &mut as_it_is,
                _ => &mut unfolds_to,
            };
            *sum = sum.checked_add(written.data.uncompressed_size)?;
            sections.push(written);
        }
        let is_bounded = (1..=MAX_BYTES).contains(&unfolds_to) && as_it_is <= file.len() as u64;
        is_bounded.then_some(Self {
            header: *header,
            sections,
            unfolds_to,
        })
    }

    /// Writes the file into another one, from a place on; sections by all cores, as unfolding takes longer than writing.
    ///
    /// # Errors
    /// What writing says; [`io::ErrorKind::InvalidData`] where a section is damaged.
    pub fn write(&self, file: &File, begin: u64) -> io::Result<()> {
        let mut end = size_of::<Header>() as u64;
        let mut headers = Vec::with_capacity(self.sections.len());
        let mut parts = Vec::new();
        for Written { header, data } in &self.sections {
            let mut header = *header;
            if header.sh_type(LittleEndian) != elf::SHT_NULL {
                end = end.next_multiple_of(ALIGN);
                header.sh_offset = U64::new(LittleEndian, end);
                parts.push((begin + end, *data));
                end += data.uncompressed_size;
            }
            headers.push(header);
        }
        let table = end.next_multiple_of(ALIGN);
        let mut header = self.header;
        header.e_phoff = U64::new(LittleEndian, 0);
        header.e_phnum = U16::new(LittleEndian, 0);
        header.e_shoff = U64::new(LittleEndian, table);
        file.write_all_at(pod::bytes_of(&header), begin)?;
        file.write_all_at(pod::bytes_of_slice(&headers), begin + table)?;
        // The longest first: the others are done meanwhile.
        parts.sort_by_key(|(_, data)| Reverse(data.uncompressed_size));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(&(at, data)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut out = BufWriter::with_capacity(BUFFER, At { file, at });
                unfold_into(data, &mut out)?;
                out.flush()?;
            }
            Ok(())
        };
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        thread::scope(|scope| {
            let others: Vec<_> = (1..cores.min(parts.len())).map(|_| scope.spawn(work)).collect();
            let own = work();
            others.into_iter().fold(own, |result, other| match other.join() {
                Ok(other) => result.and(other),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

/// A place in a file that is written to.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Write for At<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> Written<'a> {
    fn of(section: &Section, file: &'a [u8]) -> Option<Self> {
        let mut header = *section;
        let flags = section.sh_flags(LittleEndian);
        if flags.contains(elf::SHF_ALLOC) {
            header.sh_type = U32::new(LittleEndian, elf::SHT_NOBITS);
        }
        let kind = header.sh_type(LittleEndian);
        let nothing = CompressedData::none(&[]);
        if kind == elf::SHT_NOBITS || kind == elf::SHT_NULL {
            return Some(Self {
                header,
                data: nothing,
            });
        }
        let data = match section.compression(LittleEndian, file).ok()? {
            None => CompressedData::none(section.data(LittleEndian, file).ok()?),
            Some((compression, offset, size)) => {
                let start = usize::try_from(offset).ok()?;
                let data = file.get(start..start.checked_add(usize::try_from(size).ok()?)?)?;
                header.sh_flags = U64::new(LittleEndian, elf::SectionFlags(flags.0 & !elf::SHF_COMPRESSED.0));
                header.sh_addralign = U64::new(LittleEndian, compression.ch_addralign(LittleEndian));
                let format = match compression.ch_type(LittleEndian) {
                    elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                    elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                    _ => return None,
                };
                CompressedData {
                    format,
                    data,
                    uncompressed_size: compression.ch_size(LittleEndian),
                }
            }
        };
        header.sh_size = U64::new(LittleEndian, data.uncompressed_size);
        Some(Self { header, data })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read as _, Seek as _},
        path::Path,
        process::Command,
    };

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    use proptest::prelude::*;

    use super::*;

    /// A small file with debug information, compressed as is asked.
    fn compressed(folder: &Path, how: &str) -> Vec<u8> {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../symbolize/tests/fixtures/inlined.c"
        );
        let (plain, output) = (folder.join("plain"), folder.join(how));
        let build = ["-O2", "-g", "-shared", "-fPIC", "-nostdlib", "-o"];
        let built = Command::new("gcc").args(build).arg(&plain).arg(source).status();
        assert!(built.unwrap().success());
        let packed = Command::new("objcopy")
            .arg(format!("--compress-debug-sections={how}"))
            .args([&plain, &output])
            .status();
        assert!(packed.unwrap().success());
        fs::read(output).unwrap()
    }

    fn written(file: &[u8]) -> Option<Vec<u8>> {
        let mut out = tempfile::tempfile().unwrap();
        // What is before it stays.
        out.write_all(b"begin").unwrap();
        Unfolded::of(file)?.write(&out, 5).ok()?;
        let mut bytes = Vec::new();
        out.seek(io::SeekFrom::Start(0)).unwrap();
        out.read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"begin"));
        Some(bytes.split_off(5))
    }

    /// What a section holds, unfolded.
    fn section<'a>(file: &'a [u8], name: &str) -> std::borrow::Cow<'a, [u8]> {
        let parsed = object::read::elf::ElfFile64::<LittleEndian>::parse(file).unwrap();
        parsed.section_by_name(name).unwrap().uncompressed_data().unwrap()
    }

    #[test]
    fn sections_are_as_they_were_and_none_is_compressed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(written(&compressed(folder.path(), "none")).is_none());
        let file = compressed(folder.path(), "zlib");
        let unfolded = written(&file).unwrap();
        let parsed = object::read::elf::ElfFile64::<LittleEndian>::parse(&*unfolded).unwrap();
        let mut compared = 0;
        for part in parsed
            .sections()
            .filter(|part| part.address() == 0 && part.size() > 0)
        {
            let name = part.name().unwrap();
            assert_eq!(part.data().unwrap(), &*section(&file, name), "{name}");
            compared += usize::from(name.starts_with(".debug_"));
        }
        assert!(compared >= 5);
        let names = |file: &[u8]| {
            let parsed = object::read::elf::ElfFile64::<LittleEndian>::parse(file).unwrap();
            let symbols = parsed.symbols();
            symbols
                .map(|symbol| (symbol.name().unwrap().to_owned(), symbol.address(), symbol.size()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&unfolded), names(&file));
        assert!(names(&file).len() > 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_files_do_no_harm(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            static FILE: std::sync::LazyLock<Vec<u8>> =
                std::sync::LazyLock::new(|| compressed(tempfile::tempdir().unwrap().path(), "zlib"));
            let mut file = FILE.clone();
            for (at, byte) in damage {
                let at = at.index(file.len());
                file[at] = byte;
            }
            // What says that it is large is not written here.
            if Unfolded::of(&file).is_some_and(|unfolded| unfolded.unfolds_to < 1 << 20) {
                written(&file);
            }
        }
    }
}
