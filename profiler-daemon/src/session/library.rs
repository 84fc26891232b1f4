//! What is known of files, from one request to the next: an edit of a running scope reads nothing anew, and the outline
//! of large debug information is made once for each build.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{files::KnownFile, outlines::Folder};
use crate::target::contents::FileKey;

/// Files whose symbols are kept.
const MAX_FILES: usize = 256;
/// Bytes that what is kept of them may take, apart from what is mapped.
const MAX_BYTES: usize = 128 << 20;

/// A file, and the path that it is mapped by: the C library is told by that.
type Key = (FileKey, String);

/// Files by what they are; the least recently used go first. Cheap to clone.
#[derive(Clone)]
pub struct Library {
    kept: Arc<Mutex<Kept>>,
    outlines: Option<Arc<Folder>>,
}

#[derive(Default)]
struct Kept {
    files: HashMap<Key, Entry>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    file: Arc<KnownFile>,
    bytes: usize,
    used: u64,
}

impl Library {
    /// One that keeps outlines in a folder.
    #[must_use]
    pub fn new(outlines: Option<PathBuf>) -> Self {
        Self {
            kept: Arc::default(),
            outlines: outlines.map(|path| Arc::new(Folder::new(path))),
        }
    }

    /// Where outlines are kept.
    pub(super) fn outlines(&self) -> Option<&Arc<Folder>> {
        self.outlines.as_ref()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<KnownFile>> {
        let mut kept = self.kept();
        kept.uses += 1;
        let uses = kept.uses;
        let entry = kept.files.get_mut(key)?;
        entry.used = uses;
        Some(Arc::clone(&entry.file))
    }

    pub(super) fn keep(&self, key: Key, file: &Arc<KnownFile>) {
        self.kept().keep(key, file, file.memory());
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(&mut self, key: Key, file: &Arc<KnownFile>, bytes: usize) {
        if bytes > MAX_BYTES {
            return;
        }
        self.uses += 1;
        let entry = Entry {
            file: Arc::clone(file),
            bytes,
            used: self.uses,
        };
        self.bytes += bytes;
        if let Some(before) = self.files.insert(key, entry) {
            self.bytes -= before.bytes;
        }
        while self.files.len() > MAX_FILES || self.bytes > MAX_BYTES {
            let oldest = self.files.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            if let Some(gone) = self.files.remove(&oldest) {
                self.bytes -= gone.bytes;
            }
        }
    }
}
