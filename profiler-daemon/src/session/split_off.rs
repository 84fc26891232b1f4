//! What was split off from a file that a target has mapped: its symbols and debug information, in the file that a
//! distribution's debug package has of it, or packed within it; and both unfolded, where they are compressed.

use std::sync::Arc;

use super::{files::Size, outlines};
use crate::{
    cache::{Folder, Kind, Place},
    debug_files::{Finder, Home, Kept, Unfold, Unfolded, Wanted, debugdata},
    plan::{self, ModuleFiles, elf::Bytes},
    target::contents::{Contents, FileKey},
};

/// A mapped file and what was split off from it.
pub struct Parts {
    pub files: ModuleFiles,
    /// Debug information that was not found.
    pub missing: Option<Missing>,
    /// Where outlines of the debug information are kept.
    pub outlines: Option<Place>,
    pub size: Size,
}

/// Debug information that was not found. It may be installed while the target runs.
pub struct Missing {
    wanted: Wanted,
    /// What there was in its place.
    present: Vec<FileKey>,
}

impl Missing {
    /// Whether there is something else in its place now.
    pub fn may_be_found(&self, home: &Home) -> bool {
        self.wanted.present(home) != self.present
    }
}

impl Parts {
    /// Looks for what the file lacks, where that is at home.
    pub fn find(program: Contents, key: &FileKey, home: &Home, cache: Option<&Arc<Folder>>) -> Self {
        let mut parts = Self {
            size: size_of(&program),
            files: ModuleFiles::whole(Arc::new(program)),
            missing: None,
            outlines: None,
        };
        // What it is not, those who read it say.
        let files = parts.files.clone();
        if let Ok(elf) = plan::elf::Elf::parse(files.program()) {
            parts.complete(&elf, files.program(), (key, home), cache);
        }
        parts
    }

    fn complete(
        &mut self,
        elf: &plan::elf::Elf<'_>,
        program: &[u8],
        (key, home): (&FileKey, &Home),
        cache: Option<&Arc<Folder>>,
    ) {
        let finder = finder(cache);
        let mut with_debug = None;
        if elf.has_debug_info() {
            // What others may write to can be another file's by the time that it is read.
            with_debug = Some(*key).filter(|_| self.size.memory == 0);
            let unfolded = with_debug.and_then(|key| finder.kept(program, elf.build_id(), &key));
            if let Some(unfolded) = unfolded {
                self.take_debug(unfolded);
            }
        } else {
            let wanted = Wanted::by_bytes(program, Some(key.owner));
            let is_stripped = !elf.has_symbol_table();
            if let Some((found, path)) = finder.companion(&wanted, home) {
                tracing::debug!(path = %path.display(), "debug information that was split off");
                with_debug = found.key().copied().filter(|_| found.bytes_owned() == 0);
                self.size.memory += found.bytes_owned();
                let found: Bytes = Arc::new(found);
                if is_stripped {
                    self.files = self.files.clone().with_symbols(Arc::clone(&found));
                }
                self.take_debug(found);
            } else {
                let present = wanted.present(home);
                self.missing = Some(Missing { wanted, present });
                if is_stripped && let Ok(Some(packed)) = debugdata::read(program) {
                    self.size.memory += packed.bytes_owned();
                    self.files = self.files.clone().with_symbols(Arc::new(packed));
                }
            }
        }
        let is_large = self.files.debug().len() as u64 >= outlines::MIN_LENGTH;
        let folder = cache.filter(|_| is_large);
        self.outlines = with_debug.and_then(|key| folder?.place(elf.build_id(), &key));
    }

    fn take_debug(&mut self, debug: Bytes) {
        self.size.mapped += (*debug).as_ref().len();
        self.files = self.files.clone().with_debug(debug);
    }
}

/// How debug files are found, with those that are unfolded in a folder.
pub fn finder(cache: Option<&Arc<Folder>>) -> Finder {
    Finder::new(cache.map(|folder| Arc::new(Unfolder(Arc::clone(folder))) as Arc<dyn Unfold>))
}

/// Unfolds files into a folder.
struct Unfolder(Arc<Folder>);

impl Unfold for Unfolder {
    fn unfolded(&self, file: &[u8], build_id: Option<&[u8]>, key: &FileKey) -> Option<Kept> {
        let unfolded = Unfolded::of(file)?;
        if unfolded.unfolds_to < outlines::MIN_LENGTH {
            return None;
        }
        let place = self.0.place(build_id, key)?;
        let read = || place.read(Kind::Unfolded, |kept| Some(Arc::new(kept) as Kept));
        if let Some(kept) = read() {
            return Some(kept);
        }
        let span = tracing::info_span!("unfold", bytes = unfolded.unfolds_to);
        span.in_scope(|| {
            place.keep_written(Kind::Unfolded, |file, begin| unfolded.write(file, begin));
        });
        read()
    }
}

fn size_of(contents: &Contents) -> Size {
    let length = contents.as_ref().len();
    match contents {
        Contents::Mapped(_) => Size {
            memory: 0,
            mapped: length,
        },
        Contents::Copied(_) => Size {
            memory: length,
            mapped: 0,
        },
    }
}
