//! A journal that slow requests append to. Its writer holds the lock while it waits for the disk, as a writer should not.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{error::Error, stop::Stop};

/// Between two times that it is written.
const PAUSE: Duration = Duration::from_millis(1);

/// What is written at once: as much as takes a disk a millisecond or so.
const BLOCK_LEN: usize = 1 << 20;

/// The file has so many blocks; then the first is written again.
const BLOCKS: u64 = 16;

/// What requests append to.
#[derive(Debug, Default)]
pub struct Journal {
    entries: Mutex<Vec<u64>>,
}

/// The thread that writes a journal, and its file, which is removed with it.
#[derive(Debug)]
pub struct Writer {
    journal: Arc<Journal>,
    stop: Stop,
    thread: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl Writer {
    /// Makes the file, which must not be there yet, and starts to write it.
    pub fn start(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|source| Error::Journal {
            path: path.to_owned(),
            source,
        })?;
        let (journal, stop) = (Arc::new(Journal::default()), Stop::default());
        let spawned = thread::Builder::new().name("journal".to_owned()).spawn({
            let (journal, stop) = (Arc::clone(&journal), stop.clone());
            move || write_journal(&journal, &file, &stop)
        });
        let thread = spawned.map_err(|source| Error::System {
            call: "starting a thread",
            source,
        })?;
        Ok(Self {
            journal,
            stop,
            thread,
            path: path.to_owned(),
        })
    }

    pub fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.journal)
    }

    /// Ends it, and removes the file.
    pub fn stop(self) -> Result<(), Error> {
        self.stop.set();
        let written = self.thread.join().map_err(|_| Error::Panicked("writing"))?;
        let removed = fs::remove_file(&self.path);
        written.and(removed).map_err(|source| Error::Journal {
            path: self.path,
            source,
        })
    }
}

/// Appends an entry, once the writer lets go of the journal.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn append_entry(journal: &Journal, id: u64) -> u64 {
    let mut entries = journal.entries.lock().unwrap_or_else(PoisonError::into_inner);
    // Nobody reads them: what is not written yet is overwritten.
    if entries.len() >= BLOCK_LEN / 8 {
        entries.clear();
    }
    entries.push(id);
    entries.len() as u64
}

fn write_journal(journal: &Journal, file: &File, stop: &Stop) -> io::Result<()> {
    let mut block = vec![0; BLOCK_LEN];
    for number in (0..BLOCKS).cycle() {
        if stop.asked_before(Instant::now() + PAUSE) {
            break;
        }
        flush_journal(journal, &mut block, file, number * BLOCK_LEN as u64)?;
    }
    Ok(())
}

/// Writes a block and waits until the disk has it, with the lock held.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn flush_journal(
    journal: &Journal,
    block: &mut [u8],
    file: &File,
    offset: u64,
) -> io::Result<()> {
    let mut entries = journal.entries.lock().unwrap_or_else(PoisonError::into_inner);
    for (bytes, entry) in block.as_chunks_mut::<8>().0.iter_mut().zip(entries.drain(..)) {
        *bytes = entry.to_le_bytes();
    }
    file.write_all_at(block, offset)?;
    file.sync_data()
}
