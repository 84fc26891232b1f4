//! Finds the supplementary file, to which `dwz` moves the debug information that several files share:
//! `.gnu_debugaltlink` of GNU, `.debug_sup` of DWARF 5 (section 7.3.6).

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use gimli::{EndianSlice, LittleEndian, Reader as _};
use object::{Object as _, ObjectSection as _};

use super::{
    companion::{DEBUG_FOLDER, Wanted, build_id_path},
    elf::Elf,
    home::Home,
    sideload::SideLoaded,
};

/// The version of `.debug_sup`.
const VERSION: u16 = 5;
/// Longest path that is followed, in bytes.
const PATH_MAX: usize = 4096;
/// How long a checksum or build-id is, in bytes.
const ID_LENGTHS: std::ops::RangeInclusive<usize> = 8..=64;
/// Where distributions put such files.
const DWZ_FOLDER: &str = ".dwz";

/// What a file says of its supplementary file.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    /// Its path, absolute or from the folder of the file that refers to it.
    path: PathBuf,
    /// Its build-id, or its checksum as it says it itself.
    id: Vec<u8>,
}

impl Link {
    fn of(elf: &Elf) -> Option<Self> {
        let parsed = elf.parse().ok()?;
        if let Some((path, id)) = parsed.gnu_debugaltlink().ok().flatten() {
            return Self::new(path, id);
        }
        let said = debug_sup(elf)?;
        if said.is_supplement {
            return None;
        }
        Self::new(&said.path, &said.id)
    }

    fn new(path: &[u8], id: &[u8]) -> Option<Self> {
        let plain = !path.is_empty() && path.len() <= PATH_MAX && ID_LENGTHS.contains(&id.len());
        plain.then(|| Self {
            path: PathBuf::from(OsStr::from_bytes(path)),
            id: id.to_vec(),
        })
    }

    /// Where it may be, given where the file is that refers to it.
    fn candidates(&self, from: Option<&Path>) -> Vec<PathBuf> {
        let folder = from.and_then(Path::parent);
        let name = self.path.file_name();
        let named = folder.map(|folder| folder.join(&self.path));
        let absolute = Some(self.path.clone()).filter(|path| path.is_absolute());
        let beside = folder
            .zip(name)
            .map(|(folder, name)| folder.join(DWZ_FOLDER).join(name));
        let central = name.map(|name| Path::new(DEBUG_FOLDER).join(DWZ_FOLDER).join(name));
        let by_build = Path::new(DEBUG_FOLDER).join(build_id_path(&self.id));
        named
            .or(absolute)
            .into_iter()
            .chain([by_build])
            .chain(beside)
            .chain(central)
            .collect()
    }
}

/// What `.debug_sup` holds.
struct DebugSup {
    /// The file is the supplementary one itself.
    is_supplement: bool,
    /// That of the other file.
    path: Vec<u8>,
    /// The checksum.
    id: Vec<u8>,
}

fn debug_sup(elf: &Elf) -> Option<DebugSup> {
    let parsed = elf.parse().ok()?;
    let section = parsed.section_by_name(".debug_sup")?;
    let mut bytes = EndianSlice::new(section.data().ok()?, LittleEndian);
    if bytes.read_u16().ok()? != VERSION {
        return None;
    }
    let is_supplement = bytes.read_u8().ok()? != 0;
    let path = bytes.read_null_terminated_slice().ok()?;
    let length = usize::try_from(bytes.read_uleb128().ok()?).ok()?;
    let id = bytes.split(length).ok()?;
    Some(DebugSup {
        is_supplement,
        path: path.slice().to_vec(),
        id: id.slice().to_vec(),
    })
}

/// The checksum that a supplementary file gives itself.
#[must_use]
pub fn checksum(elf: &Elf) -> Option<Vec<u8>> {
    debug_sup(elf)
        .filter(|said| said.is_supplement)
        .map(|said| said.id)
}

/// The build-id or checksum of the supplementary file that a file refers to.
#[must_use]
pub fn wanted_by(elf: &Elf) -> Option<Vec<u8>> {
    Link::of(elf).map(|link| link.id)
}

/// Finds the supplementary file that a file refers to, if it does; `from` is where that file is, and `owner` whose the
/// module is.
///
/// # Errors
/// Where there should be one and none is found.
pub fn find(
    referring: &Elf,
    from: Option<&Path>,
    owner: Option<u32>,
    home: &Home,
    side_loaded: &SideLoaded,
) -> io::Result<Option<Elf>> {
    let Some(link) = Link::of(referring) else {
        return Ok(None);
    };
    let candidates = link.candidates(from);
    let wanted = Wanted::by_build_id(link.id, owner);
    let found = side_loaded.find(&wanted).map(|(elf, _)| elf);
    let found = found.or_else(|| wanted.find_at(&candidates, home).map(|(elf, _)| elf));
    let Some(elf) = found else {
        let text = format!("there is no supplementary file {}", link.path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    Ok(Some(elf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_is_looked_for() {
        let id = [0xab; 20];
        let from = Path::new("/usr/lib/debug/.build-id/01/23.debug");
        let relative = Link::new(b"../../.dwz/common", &id).unwrap();
        let candidates = relative.candidates(Some(from));
        let first = "/usr/lib/debug/.build-id/01/../../.dwz/common";
        assert_eq!(candidates[0], Path::new(first));
        assert!(candidates.contains(&"/usr/lib/debug/.dwz/common".into()));
        let absolute = Link::new(b"/elsewhere/common", &id).unwrap();
        for from in [Some(from), None] {
            let candidates = absolute.candidates(from);
            assert_eq!(candidates[0], Path::new("/elsewhere/common"));
            assert!(candidates[1].starts_with("/usr/lib/debug/.build-id/ab"));
        }
        assert!(Link::new(b"", &id).is_none() && Link::new(b"x", &[1; 4]).is_none());
    }
}
