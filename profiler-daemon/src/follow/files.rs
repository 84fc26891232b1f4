//! Unwind tables of files: made when first needed, known by build-id.

use std::{
    collections::HashMap,
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    sync::Arc,
};

use object::Object as _;

use crate::{
    target::{Mapping, Module, contents::Contents},
    unwind::{self, Key, Segments, Table},
};

/// Files that are remembered; then all are looked at anew.
const MAX_FILES: usize = 4096;

/// What tells a file from all others, and from itself after it was written to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }
}

/// What is kept of a file.
#[derive(Clone)]
pub struct KnownFile {
    /// Its build-id, or whatever else it is known by.
    pub key: Key,
    segments: Segments,
}

impl KnownFile {
    /// See [`Segments::load_bias`].
    pub fn load_bias(&self, mapping: &Mapping) -> Option<u64> {
        self.segments.load_bias(mapping.start, mapping.file_offset)
    }
}

/// Where an ELF file's bytes are had, for the few that a table is still to be made of.
pub enum Source {
    /// They have been read.
    Read(Contents),
    /// Known from before: they are read where they are needed.
    Unread(File),
}

/// What came of making a table. It outlives the table itself, which is only in the programs' maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// None was made yet.
    NotYet,
    /// There can be none.
    Nothing,
    /// It begins at this of the file's own addresses.
    From(u64),
}

/// Files that processes have mapped.
#[derive(Default)]
pub struct Files {
    known: HashMap<Identity, KnownFile>,
    made: HashMap<Key, Made>,
}

impl Files {
    /// A file that a process has mapped.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn open(&mut self, pid: u32, module: &Module) -> io::Result<(KnownFile, Source)> {
        let (file, _) = module.open(pid)?;
        let identity = Identity::of(&file.metadata()?);
        if let Some(known) = self.known.get(&identity) {
            return Ok((known.clone(), Source::Unread(file)));
        }
        let contents = Contents::of(&file)?;
        let known = know(contents.as_ref(), || {
            let Identity {
                device,
                inode,
                size,
                modified,
            } = identity;
            format!("{device}:{inode}:{size}:{}.{}", modified.0, modified.1)
        });
        if self.known.len() >= MAX_FILES {
            self.known.clear();
        }
        self.known.insert(identity, known.clone());
        Ok((known, Source::Read(contents)))
    }

    /// The code that the kernel maps into every process, by what it has in memory.
    ///
    /// # Errors
    /// Where the process's memory cannot be read.
    pub fn vdso(pid: u32, mapping: &Mapping) -> io::Result<(KnownFile, Source)> {
        let bytes = mapping.read_vdso(pid)?;
        let known = know(&bytes, || "[vdso]".to_owned());
        Ok((known, Source::Read(Contents::Copied(bytes))))
    }

    /// Makes a table, and remembers where it begins.
    pub fn build(&mut self, key: &Key, source: &Source) -> Option<Table> {
        let read;
        let contents = match source {
            Source::Read(contents) => contents,
            Source::Unread(file) => match Contents::of(file) {
                Ok(contents) => {
                    read = contents;
                    &read
                }
                Err(error) => {
                    tracing::debug!(%error, "not read");
                    return None;
                }
            },
        };
        let table = match unwind::build(contents.as_ref()) {
            Ok(table) => Some(table),
            Err(error) => {
                tracing::debug!(%error, "no unwind table");
                None
            }
        };
        if self.made.len() >= MAX_FILES {
            self.made.clear();
        }
        let made = table
            .as_ref()
            .map_or(Made::Nothing, |table| Made::From(table.base));
        self.made.insert(Arc::clone(key), made);
        table
    }

    /// What came of making a file's table.
    pub fn made(&self, key: &Key) -> Made {
        self.made.get(key).copied().unwrap_or(Made::NotYet)
    }
}

fn know(bytes: &[u8], otherwise: impl FnOnce() -> String) -> KnownFile {
    let file = object::File::parse(bytes).ok();
    let build_id = file.as_ref().and_then(|file| file.build_id().ok().flatten());
    let key = match build_id.filter(|id| (8..=64).contains(&id.len())) {
        Some(id) => Key::from(id),
        None => Key::from(otherwise().into_bytes()),
    };
    KnownFile {
        key,
        segments: Segments::read(bytes),
    }
}
