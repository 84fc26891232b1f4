//! Unwind tables of files: made when first needed, known by build-id, and those of large files kept on disk.

use std::{
    collections::HashMap,
    io,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use profiler_target::{
    Mapping, Module, OpenFile,
    contents::{Contents, FileKey, UNKNOWN_OWNER},
    read_file, read_of_process, user_of,
};
use profiler_unwind::{self as unwind, BuildError, Key, Segments, Table};

use crate::cache::{Folder, Kind, Place};

/// Files that are remembered; then all are looked at anew.
const MAX_FILES: usize = 4096;

/// Length of the files whose tables are kept on disk, at least: others' are made in a few milliseconds.
const KEPT_MIN_LENGTH: u64 = 2 << 20;

/// Age of a file's last change, at least, for its table to be kept on disk: the clocks of file systems are coarse, and
/// a file that is being written may change again at what is the same time to them.
const SETTLED: Duration = Duration::from_secs(2);

/// The vDSO's owner.
const ROOT: u32 = 0;

/// What is kept of a file.
#[derive(Clone)]
pub struct KnownFile {
    /// Its build-id and owner, or whatever else it is known by.
    pub key: Key,
    segments: Segments,
    /// Where its table is kept on disk, if it is.
    place: Option<Arc<Place>>,
}

impl KnownFile {
    /// See [`Segments::load_bias`].
    pub fn load_bias(&self, mapping: &Mapping) -> Option<u64> {
        self.segments.load_bias(mapping.start, mapping.file_offset)
    }

    /// The table that is kept on disk, else one that is made, and which is to be kept.
    fn table(&self, contents: &[u8]) -> Result<(Table, Option<Unkept>), BuildError> {
        let read = |place: &Place| place.read(Kind::Unwind, |kept| Table::from_bytes(kept.as_ref()));
        if let Some(kept) = self.place.as_deref().and_then(read) {
            return Ok((kept, None));
        }
        let table = unwind::build(contents)?;
        let unkept = self.place.as_ref().map(|place| Unkept {
            place: Arc::clone(place),
            bytes: table.to_bytes(),
        });
        Ok((table, unkept))
    }
}

/// A table that is still to be kept on disk.
struct Unkept {
    place: Arc<Place>,
    bytes: Vec<u8>,
}

/// Where an ELF file's bytes are had, for the few that a table is still to be made of.
pub enum Source {
    /// They have been read.
    Read(Contents),
    /// Known from before: they are read where they are needed.
    Unread(Box<OpenFile>),
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
pub struct Files {
    folder: Option<Arc<Folder>>,
    known: HashMap<FileKey, KnownFile>,
    made: HashMap<Key, Made>,
    unkept: Vec<Unkept>,
}

impl Files {
    /// Knows none yet; keeps tables in a folder.
    pub fn new(folder: Option<Arc<Folder>>) -> Self {
        Self {
            folder,
            known: HashMap::new(),
            made: HashMap::new(),
            unkept: Vec::new(),
        }
    }

    /// A file that a process has mapped.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn open(&mut self, pid: u32, module: &Module) -> io::Result<(KnownFile, Source)> {
        let module = module.clone();
        let opened = read_of_process(pid, move || {
            let user = user_of(pid).ok_or(io::ErrorKind::NotFound)?;
            let (file, _) = module.open(pid)?;
            OpenFile::of(file, user)
        });
        let open = opened?;
        let state = open.key;
        if let Some(known) = self.known.get(&state) {
            return Ok((known.clone(), Source::Unread(Box::new(open))));
        }
        let contents = contents(open)?;
        let bytes = contents.as_ref();
        let id = build_id(bytes).filter(|_| state.owner != UNKNOWN_OWNER);
        let id = id.unwrap_or_else(|| state.identity().map(u64::to_le_bytes).concat());
        // What others may write to, and so was copied, can be another file's by the time that it is read.
        let is_kept = matches!(contents, Contents::Mapped(_))
            && state.length >= KEPT_MIN_LENGTH
            && state.is_older_than(SETTLED);
        let folder = self.folder.as_ref().filter(|_| is_kept);
        let known = KnownFile {
            key: key(&id, state.owner),
            segments: Segments::read(bytes),
            place: folder
                .and_then(|folder| folder.place(Some(&id), &state))
                .map(Arc::new),
        };
        if self.known.len() >= MAX_FILES {
            self.known.clear();
        }
        self.known.insert(state, known.clone());
        Ok((known, Source::Read(contents)))
    }

    /// The code that the kernel maps into every process, by what it has in memory.
    ///
    /// # Errors
    /// Where the process's memory cannot be read.
    pub fn vdso(pid: u32, mapping: &Mapping) -> io::Result<(KnownFile, Source)> {
        let mapping = mapping.clone();
        let bytes = read_of_process(pid, move || mapping.read_vdso(pid))?;
        let id = build_id(&bytes).unwrap_or_else(|| b"[vdso]".to_vec());
        let known = KnownFile {
            key: key(&id, ROOT),
            segments: Segments::read(&bytes),
            place: None,
        };
        Ok((known, Source::Read(Contents::Copied(bytes))))
    }

    /// The tables of files, in the same order, made side by side; `None` where there is none.
    pub fn tables(&mut self, wanted: &[(&KnownFile, &Source)]) -> Vec<Option<Table>> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((file, source)) = wanted.get(index) else {
                    return made;
                };
                made.push((index, table(file, source)));
            }
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(wanted.len()))
                .map(|_| scope.spawn(work))
                .collect();
            let own = work();
            let others = others.into_iter().filter_map(|thread| thread.join().ok());
            own.into_iter().chain(others.flatten()).collect()
        });
        let mut tables: Vec<Option<Table>> = wanted.iter().map(|_| None).collect();
        for (index, result) in made {
            match result {
                Ok((table, unkept)) => {
                    self.unkept.extend(unkept);
                    self.remember(&wanted[index].0.key, Made::From(table.base));
                    tables[index] = Some(table);
                }
                Err(Failed::Unread(error)) => tracing::debug!(%error, "not read"),
                Err(Failed::Nothing(error)) => {
                    tracing::debug!(%error, "no unwind table");
                    self.remember(&wanted[index].0.key, Made::Nothing);
                }
            }
        }
        tables
    }

    /// Keeps on disk what was made: no sample is to wait for that.
    pub fn keep(&mut self) {
        for Unkept { place, bytes } in self.unkept.drain(..) {
            place.keep(Kind::Unwind, &bytes);
        }
    }

    fn remember(&mut self, key: &Key, made: Made) {
        if self.made.len() >= MAX_FILES {
            self.made.clear();
        }
        self.made.insert(Arc::clone(key), made);
    }

    /// What came of making a file's table.
    pub fn made(&self, key: &Key) -> Made {
        self.made.get(key).copied().unwrap_or(Made::NotYet)
    }
}

/// Why there is no table.
enum Failed {
    /// The file could not be read this time.
    Unread(io::Error),
    /// It has none.
    Nothing(BuildError),
}

fn table(file: &KnownFile, source: &Source) -> Result<(Table, Option<Unkept>), Failed> {
    let made = match source {
        Source::Read(contents) => file.table(contents.as_ref()),
        Source::Unread(open) => {
            let contents = open.try_clone().and_then(contents);
            file.table(contents.map_err(Failed::Unread)?.as_ref())
        }
    };
    made.map_err(Failed::Nothing)
}

/// The bytes of a file that a process has mapped.
fn contents(open: OpenFile) -> io::Result<Contents> {
    read_file(open, |open| Contents::of(&open.file))
}

fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    profiler_elf::build_id(&profiler_elf::parse(bytes).ok()?)
}

/// A build-id is believed only among files of one owner.
fn key(id: &[u8], owner: u32) -> Key {
    Key::from([id, &owner.to_le_bytes()].concat())
}
