//! Files with symbols that the user names, used instead of those in the usual places.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use profiler_target::open_at_once;

use super::{
    companion::Wanted,
    elf::{Elf, Summary},
    reader::Reader,
};

/// Most entries of folders that are looked at.
const ENTRIES_MAX: usize = 1 << 18;
/// Most files that are kept; the first ones stay.
const FILES_MAX: usize = 1 << 16;
/// Most files without a build-id: each may be read in whole for each module.
const NAMELESS_MAX: usize = 64;

/// ELF files by build-id.
#[derive(Debug, Default)]
pub struct SideLoaded {
    by_build: HashMap<Vec<u8>, SideFile>,
    nameless: Vec<SideFile>,
}

/// One of them.
#[derive(Clone, Debug)]
struct SideFile {
    path: PathBuf,
    /// Whose rights it is opened with, each time: another file may have its name by then.
    reader: Reader,
}

/// A path that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SideLoadError {
    /// It cannot be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// There is no ELF file.
    #[error(
        "{0}: there is no ELF file for x86-64: name one with symbols or debug information, or a folder of them"
    )]
    Nothing(String),
}

impl SideLoaded {
    /// Lists the ELF files that paths lead to, as the reader may open them: files, and folders with all that is below them. Links are
    /// followed where they are named, and not within folders.
    ///
    /// # Errors
    /// Where a path cannot be read, or has no ELF file. What cannot be read within a folder is left out.
    pub fn scan(paths: &[PathBuf], reader: &Reader) -> Result<Self, SideLoadError> {
        let mut found = Self::default();
        for path in paths {
            let unreadable = |error| SideLoadError::Unreadable {
                path: path.display().to_string(),
                error,
            };
            // Errors are the system's, and what is found within is no error.
            let count = reader.run(|| found.add(path, reader)).map_err(unreadable)?;
            if count == 0 {
                return Err(SideLoadError::Nothing(path.display().to_string()));
            }
        }
        Ok(found)
    }

    /// Adds what a path leads to, with the reader's rights; how many files that were.
    fn add(&mut self, path: &Path, reader: &Reader) -> io::Result<usize> {
        if fs::metadata(path)?.is_dir() {
            fs::read_dir(path)?;
            Ok(self.add_folder(path, reader))
        } else {
            open_at_once(path)?;
            Ok(usize::from(self.add_file(path, reader)))
        }
    }

    fn add_folder(&mut self, folder: &Path, reader: &Reader) -> usize {
        let mut count = 0;
        let mut left = ENTRIES_MAX;
        let mut folders = VecDeque::from([folder.to_path_buf()]);
        while let Some(folder) = folders.pop_front() {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.take(left).flatten() {
                left -= 1;
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push_back(entry.path()),
                    Ok(kind) if kind.is_file() => count += usize::from(self.add_file(&entry.path(), reader)),
                    _ => {}
                }
            }
        }
        count
    }

    fn add_file(&mut self, path: &Path, reader: &Reader) -> bool {
        let Some(Summary { build_id, has_debug }) = regular(path).and_then(|file| Summary::read(file).ok())
        else {
            return false;
        };
        let file = || SideFile {
            path: path.to_path_buf(),
            reader: reader.clone(),
        };
        match build_id {
            Some(build_id) if self.by_build.len() < FILES_MAX => match self.by_build.entry(build_id) {
                // Of two, the one with debug information says more.
                Entry::Occupied(mut known) if has_debug => drop(known.insert(file())),
                Entry::Occupied(_) => {}
                Entry::Vacant(new) => drop(new.insert(file())),
            },
            None if self.nameless.len() < NAMELESS_MAX => self.nameless.push(file()),
            _ => {}
        }
        true
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_build.is_empty() && self.nameless.is_empty()
    }

    /// Adds others, which go before what is there already.
    pub fn extend(&mut self, others: Self) {
        if self.by_build.len() + others.by_build.len() > FILES_MAX {
            *self = Self::default();
        }
        self.by_build.extend(others.by_build);
        self.nameless.splice(0..0, others.nameless);
        self.nameless.truncate(NAMELESS_MAX);
    }

    /// The file that belongs to a module, and where it is.
    #[must_use]
    pub fn find(&self, wanted: &Wanted) -> Option<(Elf, PathBuf)> {
        let by_build = wanted.build_id().and_then(|build_id| self.by_build.get(build_id));
        by_build
            .into_iter()
            .chain(&self.nameless)
            .filter_map(|file| Some((Elf::open(file.open()?).ok()?, &file.path)))
            .find(|(elf, _)| wanted.fits(elf))
            .map(|(elf, path)| (elf, path.clone()))
    }
}

impl SideFile {
    fn open(&self) -> Option<File> {
        self.reader.run(|| Ok(regular(&self.path))).ok()?
    }
}

/// Opens a file. Pipes and devices are not read: they may have no end.
fn regular(path: &Path) -> Option<File> {
    let file = open_at_once(path).ok()?;
    file.metadata().is_ok_and(|file| file.is_file()).then_some(file)
}

#[cfg(test)]
mod tests {
    use profiler_testkit::skipped;

    use super::{super::reader::Rights, *};

    #[test]
    fn folders_are_searched_and_what_is_no_elf_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("text"), "text").unwrap();
        let scan = |path: PathBuf| SideLoaded::scan(&[path], &Reader::OWN);
        assert!(matches!(scan(at("text")), Err(SideLoadError::Nothing(_))));
        assert!(matches!(scan(at("a")), Err(SideLoadError::Nothing(_))));
        assert!(matches!(
            scan(at("missing")),
            Err(SideLoadError::Unreadable { .. })
        ));
        fs::copy("/bin/true", at("a/b/true")).unwrap();
        for path in ["a", "a/b", "a/b/true"] {
            let found = scan(at(path)).unwrap();
            assert_eq!((found.by_build.len(), found.nameless.len()), (1, 0), "{path}");
        }
        assert!(SideLoaded::scan(&[at("a"), at("text")], &Reader::OWN).is_err());
    }

    #[test]
    fn what_the_reader_may_not_open_is_neither_listed_nor_read_later() {
        use std::os::unix::fs::PermissionsExt as _;
        if !rustix::process::geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(folder.path(), 0o755);
        fs::copy("/bin/true", at("secret")).unwrap();
        set_mode(&at("secret"), 0o600);
        let nobody = Reader::process(Rights::nobody());
        let scan = |path: &Path| SideLoaded::scan(&[path.to_path_buf()], &nobody);
        let refused = scan(&at("secret")).unwrap_err();
        assert!(matches!(&refused, SideLoadError::Unreadable { error, .. }
            if error.kind() == io::ErrorKind::PermissionDenied));
        assert!(matches!(scan(folder.path()), Err(SideLoadError::Nothing(_))));
        // One that takes the name of a file that was listed is not read either.
        set_mode(&at("secret"), 0o644);
        let listed = scan(folder.path()).unwrap();
        let file = listed.by_build.values().next().unwrap();
        assert!(file.open().is_some());
        set_mode(&at("secret"), 0o600);
        assert!(file.open().is_none());
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let scanned = SideLoaded::scan(std::slice::from_ref(&pipe), &Reader::OWN);
        assert!(matches!(scanned, Err(SideLoadError::Nothing(_))));
    }
}
