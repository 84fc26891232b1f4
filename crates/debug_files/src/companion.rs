//! The file with a module's debug information, where that was split off: by build-id, or by the name and
//! checksum in `.gnu_debuglink` (GDB manual, "Debugging Information in Separate Files").

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use object::Object as _;
use profiler_elf::is_plain_build_id;
use profiler_target::{
    OpenFile,
    contents::{FileKey, UNKNOWN_OWNER},
};

use super::{elf::Elf, home::Home, supplement};

/// Where distributions install debug information.
pub const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// Longest file whose checksum is computed, in bytes: some seconds.
const CHECKSUM_MAX: u64 = 2 << 30;

/// What tells whether a file is the one that was split off.
pub struct Wanted {
    build_id: Option<Vec<u8>>,
    /// The file's name and the CRC-32 of its contents; without that, only a build-id tells that it is the one.
    link: Option<(PathBuf, Option<u32>)>,
    /// The module's owner.
    owner: Option<u32>,
}

impl Wanted {
    /// By a module.
    #[must_use]
    pub fn by(elf: &Elf) -> Self {
        Self::by_bytes(elf.bytes(), elf.owner())
    }

    /// By the bytes of a module's file, and its owner.
    pub fn by_bytes(bytes: &[u8], owner: Option<u32>) -> Self {
        let parsed = profiler_elf::parse(bytes).ok();
        let link = parsed.as_ref().and_then(|parsed| {
            let (name, checksum) = parsed.gnu_debuglink().ok().flatten()?;
            profiler_elf::is_plain_name(name)
                .then(|| (PathBuf::from(OsStr::from_bytes(name)), Some(checksum)))
        });
        Self {
            build_id: parsed.as_ref().and_then(profiler_elf::build_id),
            link,
            owner,
        }
    }

    /// By a build-id alone; `owner` is that of the module.
    #[must_use]
    pub fn by_build_id(build_id: Vec<u8>, owner: Option<u32>) -> Self {
        Self {
            build_id: Some(build_id),
            link: None,
            owner,
        }
    }

    /// By a build-id, which is looked for in files of this name as well. The checksum of their contents is not known: one that has no
    /// build-id is not the one.
    #[must_use]
    pub fn by_build_id_and_name(build_id: Vec<u8>, name: Option<&Path>, owner: u32) -> Self {
        Self {
            build_id: Some(build_id).filter(|id| is_plain_build_id(id)),
            link: name.map(|name| (name.to_path_buf(), None)),
            owner: Some(owner),
        }
    }

    /// Finds the file in the usual places, and where it was.
    #[must_use]
    pub fn find(&self, home: &Home) -> Option<(Elf, PathBuf)> {
        self.find_at(&self.candidates(home), home)
    }

    /// The files that there are in the usual places, be they the one or not.
    #[must_use]
    pub fn present(&self, home: &Home) -> Vec<FileKey> {
        let candidates = self.candidates(home);
        let files = candidates.iter().flat_map(|path| home.open(path));
        files.map(|open| open.key).collect()
    }

    /// The files in the usual places that may be the one, for those who read their headers alone: whether a build-id is that of the
    /// module is still to be asked.
    #[must_use]
    pub fn opened(&self, home: &Home) -> Vec<OpenFile> {
        let candidates = self.candidates(home);
        let files = candidates.iter().flat_map(|path| home.open(path));
        files.filter(|open| self.may_own(&open.key)).collect()
    }

    /// The usual places.
    fn candidates(&self, home: &Home) -> Vec<PathBuf> {
        let by_build = self
            .build_id
            .as_deref()
            .map(|build_id| Path::new(DEBUG_FOLDER).join(build_id_path(build_id)));
        let by_link = self.link.iter().zip(home.path().and_then(Path::parent));
        let by_link = by_link.flat_map(|((name, _), folder)| {
            let below = folder.strip_prefix("/").unwrap_or(folder);
            [
                folder.join(name),
                folder.join(".debug").join(name),
                Path::new(DEBUG_FOLDER).join(below).join(name),
            ]
        });
        by_build.into_iter().chain(by_link).collect()
    }

    /// Finds the file in these places, and where it was.
    #[must_use]
    pub fn find_at(&self, candidates: &[PathBuf], home: &Home) -> Option<(Elf, PathBuf)> {
        candidates
            .iter()
            .flat_map(|path| home.open(path).map(move |file| (file, path)))
            .find_map(|(file, path)| Some((self.accept(file, home)?, path.clone())))
    }

    /// The file, if it is the one and holds something that the module lacks.
    fn accept(&self, file: OpenFile, home: &Home) -> Option<Elf> {
        if !self.may_own(&file.key) {
            return None;
        }
        let elf = home.read(file, Elf::read).ok()?;
        self.fits(&elf).then_some(elf)
    }

    /// Whether a file is of the module's owner, or of root. What others put there could have names of their
    /// choice shown in place of the module's own.
    #[must_use]
    pub fn may_own(&self, file: &FileKey) -> bool {
        let owner = file.owner;
        let is_owners = owner != UNKNOWN_OWNER && self.owner.is_none_or(|expected| expected == owner);
        owner == 0 || is_owners
    }

    /// The module's build-id.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Whether a file is the one, and holds something that the module may lack.
    #[must_use]
    pub fn fits(&self, elf: &Elf) -> bool {
        (elf.has_section(".debug_info") || elf.has_section(".symtab")) && self.matches(elf)
    }

    /// Whether a file belongs to the module. The build-id says so at no cost where both have one.
    fn matches(&self, elf: &Elf) -> bool {
        match (&self.build_id, elf.build_id(), &self.link) {
            (Some(wanted), Some(found), _) => wanted == found,
            (_, _, Some((_, Some(checksum)))) => {
                let bytes = elf.bytes();
                bytes.len() as u64 <= CHECKSUM_MAX && crc32fast::hash(bytes) == *checksum
            }
            (Some(wanted), None, None) => supplement::checksum(elf).is_some_and(|found| found == *wanted),
            _ => false,
        }
    }
}

/// `.build-id/xx/yyyy.debug`
pub fn build_id_path(build_id: &[u8]) -> PathBuf {
    let hex = hex(build_id);
    let (first, rest) = hex.split_at(hex.len().min(2));
    PathBuf::from(format!(".build-id/{first}/{rest}.debug"))
}

/// A build-id as it is written.
#[must_use]
pub fn hex(build_id: &[u8]) -> String {
    let digits = build_id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_build_id() {
        let path = build_id_path(&[0xab, 0x01, 0xff]);
        assert_eq!(path, Path::new(".build-id/ab/01ff.debug"));
    }
}
