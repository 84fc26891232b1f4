//! What was split off from a file that a target has mapped: its symbols and debug information, in the file that a
//! distribution's debug package has of it, or packed within it; and both unfolded, where they are compressed.

use std::{
    io::{BufWriter, Write as _},
    sync::Arc,
};

use super::{files::Size, outlines};
use crate::{
    cache::{Folder, Kind, Place},
    debug_files::{Elf, Home, Unfolded, Wanted, debugdata},
    plan::{self, ModuleFiles, elf::Bytes},
    target::contents::{Contents, FileKey},
};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

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

/// A file with debug information, and whose it is in the cache.
struct Debug {
    bytes: Bytes,
    place: Option<Place>,
    length: u64,
}

impl Parts {
    /// Looks for what the file lacks, where that is at home.
    pub fn find(program: Contents, key: &FileKey, home: &Home, cache: Option<&Arc<Folder>>) -> Self {
        let mut size = size_of(&program);
        let is_copied = matches!(program, Contents::Copied(_));
        let program: Bytes = Arc::new(program);
        let bytes = (*program).as_ref();
        let mut files = ModuleFiles::whole(Arc::clone(&program));
        let (mut missing, mut debug) = (None, None);
        if let Ok(elf) = plan::elf::Elf::parse(bytes) {
            let place = |key: &FileKey| cache.and_then(|folder| folder.place(elf.build_id(), key));
            if elf.has_debug_info() {
                debug = Some(Debug {
                    bytes: Arc::clone(&program),
                    // What others may write to can be another file's by the time that it is read.
                    place: place(key).filter(|_| !is_copied),
                    length: key.length,
                });
            } else {
                let wanted = Wanted::by_bytes(bytes, Some(key.owner));
                let found = wanted.find(home);
                let is_stripped = !elf.has_symbol_table();
                if let Some((found, path)) = found {
                    tracing::debug!(path = %path.display(), "debug information that was split off");
                    size = size + found.size();
                    let own = found.key().filter(|_| found.bytes_owned() == 0);
                    let (place, length) = (own.and_then(place), found.bytes().len() as u64);
                    let bytes: Bytes = Arc::new(found);
                    if is_stripped {
                        files = files.with_symbols(Arc::clone(&bytes));
                    }
                    debug = Some(Debug { bytes, place, length });
                } else {
                    let present = wanted.present(home);
                    missing = Some(Missing { wanted, present });
                    if is_stripped && let Ok(Some(packed)) = debugdata::read(bytes) {
                        size = size + packed.size();
                        files = files.with_symbols(Arc::new(packed));
                    }
                }
            }
        }
        let outlines = debug.and_then(|debug| {
            let Debug {
                bytes,
                place,
                mut length,
            } = debug;
            let unfolded = place.as_ref().and_then(|place| unfold(&bytes, place));
            if let Some(unfolded) = unfolded {
                length = (*unfolded).as_ref().len() as u64;
                size.mapped += (*unfolded).as_ref().len();
                files = files.clone().with_debug(unfolded);
            } else if !Arc::ptr_eq(&bytes, &program) {
                files = files.clone().with_debug(bytes);
            }
            place.filter(|_| length >= outlines::MIN_LENGTH)
        });
        Self {
            files,
            missing,
            outlines,
            size,
        }
    }
}

/// The file with its sections unfolded, from where such are kept; `None` where it is read as it is.
fn unfold(file: &Bytes, place: &Place) -> Option<Bytes> {
    let unfolded = Unfolded::of((**file).as_ref())?;
    if unfolded.unfolds_to < outlines::MIN_LENGTH {
        return None;
    }
    let read = || place.read(Kind::Unfolded, |kept| Some(Arc::new(kept) as Bytes));
    if let Some(kept) = read() {
        return Some(kept);
    }
    let span = tracing::info_span!("unfold", bytes = unfolded.unfolds_to);
    span.in_scope(|| {
        place.keep_written(Kind::Unfolded, |out| {
            let mut out = BufWriter::with_capacity(BUFFER, out);
            unfolded.write(&mut out)?;
            out.flush()
        });
    });
    read()
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

impl Elf {
    fn size(&self) -> Size {
        let memory = self.bytes_owned();
        Size {
            memory,
            mapped: self.bytes().len() - memory,
        }
    }
}
