//! Finds the debug files of modules: first those that the user names, then those in the usual places; in
//! uncompressed form, if there is a copy in that form.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_target::contents::FileKey;

use super::{companion::Wanted, elf::Elf, home::Home, sideload::SideLoaded, supplement};

/// Bytes of a file that others keep.
pub type Kept = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Keeps files with their debug sections unfolded, see [`super::Unfolded`].
pub trait Unfold: Send + Sync {
    /// A file unfolded; `None` where it is read as it is.
    fn unfolded(&self, file: &[u8], build_id: Option<&[u8]>, key: &FileKey) -> Option<Kept>;
}

/// Finds debug files.
#[derive(Default)]
pub struct Finder {
    side_loaded: SideLoaded,
    unfold: Option<Arc<dyn Unfold>>,
}

impl Finder {
    /// One that has unfolded files kept.
    #[must_use]
    pub fn new(unfold: Option<Arc<dyn Unfold>>) -> Self {
        Self {
            side_loaded: SideLoaded::default(),
            unfold,
        }
    }

    /// Looks among these files first.
    pub fn side_load(&mut self, files: SideLoaded) {
        self.side_loaded.extend(files);
    }

    /// The file with what a module lacks, and where it was.
    #[must_use]
    pub fn companion(&self, wanted: &Wanted, home: &Home) -> Option<(Elf, PathBuf)> {
        let found = self.side_loaded.find(wanted).or_else(|| wanted.find(home));
        let (elf, path) = found?;
        let unfolded = self.unfolded(&elf);
        Some((unfolded.unwrap_or(elf), path))
    }

    /// As [`supplement::find`].
    ///
    /// # Errors
    /// Where there should be one and none is found.
    pub fn supplement(
        &self,
        referring: &Elf,
        from: Option<&Path>,
        owner: Option<u32>,
        home: &Home,
    ) -> std::io::Result<Option<Elf>> {
        let found = supplement::find(referring, from, owner, home, &self.side_loaded)?;
        Ok(found.map(|elf| self.unfolded(&elf).unwrap_or(elf)))
    }

    /// A file with its debug sections unfolded; `None` where it is read as it is.
    #[must_use]
    pub fn unfolded(&self, elf: &Elf) -> Option<Elf> {
        // What others may write to can be another file's by the time that it is read.
        let key = elf.key().filter(|_| elf.bytes_owned() == 0)?;
        let unfold = self.unfold.as_ref()?;
        let kept = unfold.unfolded(elf.bytes(), elf.build_id(), key)?;
        Elf::unfolded(kept, elf).ok()
    }
}
