//! What was split off from a file that a target has mapped: its symbols and debug information, in the file that a
//! distribution's debug package has of it, or packed within it; and both unfolded, where they are compressed.

use std::sync::{Arc, OnceLock};

use profiler_debug_files::{Finder, Home, Kept, Unfold, Unfolded, Wanted, debugdata};
use profiler_elf::{Bytes, Elf};
use profiler_plan::ModuleFiles;
use profiler_target::contents::{Contents, FileKey};

use super::{files::Size, outlines};
use crate::cache::{Folder, Kind, Place};

/// A mapped file and what was split off from it.
pub struct Parts {
    pub files: ModuleFiles,
    /// Debug information that was not found.
    pub missing: Option<Missing>,
    /// Where outlines of the debug information are kept.
    pub outlines: Option<Place>,
    pub size: Size,
    /// Bytes of the file with debug information.
    debug_length: u64,
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
            debug_length: program.as_ref().len() as u64,
            size: size_of(&program),
            files: ModuleFiles::whole(Arc::new(program)),
            missing: None,
            outlines: None,
        };
        // What it is not, those who read it say.
        let files = parts.files.clone();
        if let Ok(elf) = Elf::parse(files.program()) {
            parts.complete(&elf, files.program(), (key, home), cache);
        }
        parts
    }

    fn complete(
        &mut self,
        elf: &Elf<'_>,
        program: &[u8],
        (key, home): (&FileKey, &Home),
        cache: Option<&Arc<Folder>>,
    ) {
        let mut with_debug = None;
        if elf.has_debug_info() {
            // What others may write to can be another file's by the time that it is read.
            with_debug = Some(*key).filter(|_| self.size.memory == 0);
            let program = self.files.program_bytes();
            if let Some(unfolded) = with_debug.and_then(|key| unfolding(program, elf.build_id(), key, cache))
            {
                self.take_debug(unfolded);
            }
        } else {
            let wanted = Wanted::by_bytes(program, Some(key.owner));
            let mut lacks_symbols = !elf.has_symbol_table();
            let mut is_missing = true;
            if let Some((found, path)) = wanted.find(home) {
                tracing::debug!(path = %path.display(), "debug information that was split off");
                let own = found.key().copied().filter(|_| found.bytes_owned() == 0);
                self.size.memory += found.bytes_owned();
                self.size.mapped += found.bytes().len() - found.bytes_owned();
                is_missing = !found.has_section(".debug_info");
                let has_symbols = found.has_section(".symtab");
                let found: Bytes = Arc::new(found);
                if lacks_symbols && has_symbols {
                    self.files = self.files.clone().with_symbols(Arc::clone(&found));
                    lacks_symbols = false;
                }
                if !is_missing {
                    with_debug = own;
                    let unfolded =
                        own.and_then(|key| unfolding(Arc::clone(&found), elf.build_id(), key, cache));
                    self.take_debug(unfolded.unwrap_or(Debug::AsItIs(found)));
                }
            }
            if is_missing {
                let present = wanted.present(home);
                self.missing = Some(Missing { wanted, present });
            }
            if lacks_symbols && let Ok(Some(packed)) = debugdata::read(program) {
                self.size.memory += packed.bytes_owned();
                self.files = self.files.clone().with_symbols(Arc::new(packed));
            }
        }
        let folder = cache.filter(|_| self.debug_length >= outlines::MIN_LENGTH);
        self.outlines = with_debug.and_then(|key| folder?.place(elf.build_id(), &key));
    }

    fn take_debug(&mut self, debug: Debug) {
        self.files = match debug {
            Debug::AsItIs(bytes) => {
                self.debug_length = (*bytes).as_ref().len() as u64;
                self.files.clone().with_debug(bytes)
            }
            Debug::Unfolding(unfolding) => {
                self.debug_length = unfolding.length;
                self.size.mapped += usize::try_from(unfolding.length).unwrap_or(usize::MAX);
                self.files.clone().with_debug_when_read(Arc::new(unfolding))
            }
        };
    }
}

/// A file with debug information.
enum Debug {
    AsItIs(Bytes),
    Unfolding(Unfolding),
}

/// A file that is unfolded when it is first read: most of what a process has mapped nobody asks about.
struct Unfolding {
    file: Bytes,
    build_id: Option<Vec<u8>>,
    key: FileKey,
    /// What it will have, about.
    length: u64,
    unfolder: Unfolder,
    kept: OnceLock<Option<Kept>>,
}

impl AsRef<[u8]> for Unfolding {
    fn as_ref(&self) -> &[u8] {
        let unfold = || {
            let file = (*self.file).as_ref();
            self.unfolder.unfolded(file, self.build_id.as_deref(), &self.key)
        };
        let kept = self.kept.get_or_init(unfold).as_ref();
        kept.map_or((*self.file).as_ref(), |kept| (**kept).as_ref())
    }
}

/// The file, to be unfolded into a folder; `None` of one that is read as it is.
fn unfolding(
    file: Bytes,
    build_id: Option<&[u8]>,
    key: FileKey,
    cache: Option<&Arc<Folder>>,
) -> Option<Debug> {
    let length = Unfolded::of((*file).as_ref())?.unfolds_to;
    let unfolder = Unfolder(Arc::clone(cache?));
    (length >= outlines::MIN_LENGTH).then(|| {
        Debug::Unfolding(Unfolding {
            file,
            build_id: build_id.map(<[u8]>::to_vec),
            key,
            length,
            unfolder,
            kept: OnceLock::new(),
        })
    })
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
        Contents::Mapped(_) | Contents::OnDisk(_) => Size {
            memory: 0,
            mapped: length,
        },
        Contents::Copied(_) => Size {
            memory: length,
            mapped: 0,
        },
    }
}
