//! Debug information that the compiler left in files beside the objects (`.dwo`), or that was then packed into
//! one beside the program (`.dwp`): DWARF 5, section 7.3.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use gimli::{Dwarf, DwoId};
use profiler_debug_files::{Bytes, Elf, Home, Wanted};

use super::sections::Sections;

/// Most files beside objects that are open for one module; then they are all opened anew.
const OBJECTS_MAX: usize = 64;

/// Where a unit's debug information is.
#[derive(Debug)]
pub(super) struct Skeleton {
    pub id: DwoId,
    /// The file beside the object.
    pub path: PathBuf,
}

struct DebugFile {
    elf: Elf,
    sections: Sections,
}

/// The files of one module.
#[derive(Default)]
pub(super) struct Split {
    package: Option<DebugFile>,
    /// Whether the package was looked for.
    looked: bool,
    objects: HashMap<u64, Option<DebugFile>>,
}

impl Split {
    /// Opens the file that a unit is in, if that has not been tried.
    pub fn load(&mut self, skeleton: &Skeleton, wanted: &Wanted, home: &Home) {
        if !std::mem::replace(&mut self.looked, true)
            && let Some(path) = home.path()
        {
            let mut path = OsString::from(path);
            path.push(".dwp");
            self.package = open(Path::new(&path), wanted, home);
        }
        let intact = |file: &Option<DebugFile>| file.as_ref().is_none_or(|file| file.elf.is_intact());
        if !intact(&self.package) {
            self.package = None;
        }
        if self.package.is_some() {
            return;
        }
        self.objects.retain(|_, file| intact(file));
        if self.objects.len() >= OBJECTS_MAX {
            self.objects.clear();
        }
        self.objects.entry(skeleton.id.0).or_insert_with(|| {
            // Objects are moved together with the program as often as not.
            let beside = home.path().and_then(Path::parent).zip(skeleton.path.file_name());
            let beside = beside.map(|(folder, name)| folder.join(name));
            open(&skeleton.path, wanted, home).or_else(|| open(&beside?, wanted, home))
        });
    }

    /// A view of the sections that a unit is in, of what was loaded.
    pub fn dwarf<'a>(&'a self, id: DwoId, parent: &Dwarf<Bytes<'a>>) -> Option<Dwarf<Bytes<'a>>> {
        let mut dwarf = if let Some(package) = &self.package {
            let package = package.sections.package(&package.elf).ok()?;
            package.find_cu(id, parent).ok()??
        } else {
            let object = self.objects.get(&id.0)?.as_ref()?;
            let mut dwarf = object.sections.dwarf(&object.elf);
            dwarf.make_dwo(parent);
            dwarf
        };
        dwarf.debug_line_str = parent.debug_line_str;
        Some(dwarf)
    }

    /// Bytes that copied files and decompressed sections take.
    pub fn bytes(&self) -> usize {
        let files = self.objects.values().flatten().chain(&self.package);
        files
            .map(|file| file.elf.bytes_owned() + file.sections.bytes())
            .sum()
    }
}

fn open(path: &Path, wanted: &Wanted, home: &Home) -> Option<DebugFile> {
    let read = |file| -> io::Result<DebugFile> {
        let elf = home.read(file, Elf::read)?;
        let sections = Sections::load_split(&elf)?;
        Ok(DebugFile { elf, sections })
    };
    home.open(path)
        .filter(|open| wanted.may_own(&open.key))
        .find_map(|file| match read(file) {
            Ok(file) if file.sections.has_info() => Some(file),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%error, path = %path.display(), "split debug information left out");
                None
            }
        })
}
