//! What is known of files, from one request to the next: an edit of a running scope reads nothing anew, and the outline
//! of large debug information is made once for each build.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use profiler_target::contents::FileKey;

use super::{
    census::CommandLines,
    files::{KnownFile, Size},
    trace_access::TraceAccess,
};
use crate::cache::Folder;

/// Files whose symbols are kept.
const MAX_FILES: usize = 256;
/// Bytes of memory that what is kept of them may take, and bytes of files that may be mapped. A file that is deleted stays
/// on disk as long as it is mapped.
const MAX_SIZE: Size = Size {
    memory: 128 << 20,
    mapped: 8 << 30,
};

/// A file, and the path that it is mapped by: the C library is told by that.
type Key = (FileKey, String);

/// Files by what they are; the least recently used go first. Cheap to clone.
#[derive(Clone)]
pub struct Library {
    kept: Arc<Mutex<Kept>>,
    outlines: Option<Arc<Folder>>,
    command_lines: CommandLines,
    trace_access: TraceAccess,
}

#[derive(Default)]
struct Kept {
    files: HashMap<Key, Entry>,
    uses: u64,
}

struct Entry {
    file: Arc<KnownFile>,
    used: u64,
}

impl Library {
    /// One that keeps outlines in a folder.
    #[must_use]
    pub fn new(outlines: Option<Arc<Folder>>) -> Self {
        Self {
            kept: Arc::default(),
            outlines,
            command_lines: CommandLines::default(),
            trace_access: TraceAccess::default(),
        }
    }

    /// How the kernel is asked who may trace a process.
    pub(super) fn trace_access(&self) -> &TraceAccess {
        &self.trace_access
    }

    /// The command lines of processes, by which they may be meant.
    pub(crate) fn command_lines(&self) -> &CommandLines {
        &self.command_lines
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

    /// Keeps a file, instead of the one that it has replaced.
    pub(super) fn keep(&self, key: Key, file: &Arc<KnownFile>) {
        let mut kept = self.kept();
        let gone = kept.keep(key, file);
        // What is gone is unmapped while others are served.
        drop(kept);
        drop(gone);
    }

    /// Gives up what was not used for longest, until the rest fits: files take more as more is asked of them.
    pub(super) fn trim(&self) {
        let mut kept = self.kept();
        let gone = kept.trim(MAX_SIZE);
        drop(kept);
        drop(gone);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Keeps a file; what is given up for it.
    fn keep(&mut self, key: Key, file: &Arc<KnownFile>) -> Vec<Entry> {
        self.uses += 1;
        let entry = Entry {
            file: Arc::clone(file),
            used: self.uses,
        };
        let (of, path) = (key.0, key.1.clone());
        let mut gone: Vec<Entry> = self.files.insert(key, entry).into_iter().collect();
        let replaced =
            |(other, at): &Key, _: &mut Entry| *other != of && of.shares_device(other) && *at == path;
        gone.extend(self.files.extract_if(replaced).map(|(_, entry)| entry));
        gone.extend(self.trim(MAX_SIZE));
        gone
    }

    /// Takes out what does not fit.
    fn trim(&mut self, most: Size) -> Vec<Entry> {
        let mut by_use: Vec<(u64, Size, Key)> = self
            .files
            .iter()
            .map(|(key, entry)| (entry.used, entry.file.size(), key.clone()))
            .collect();
        by_use.sort_unstable_by_key(|&(used, _, _)| std::cmp::Reverse(used));
        let mut all = Size::default();
        let mut gone = Vec::new();
        for (number, (_, size, key)) in by_use.into_iter().enumerate() {
            let with = all + size;
            // One that is too large by itself drives out no other.
            if number < MAX_FILES && with.memory <= most.memory && with.mapped <= most.mapped {
                all = with;
            } else {
                gone.extend(self.files.remove(&key));
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::session::files::know_path;
    use profiler_plan::Part;

    fn keep(library: &Library, path: &Path, shown: &str) -> Key {
        let key = (FileKey::of(&fs::metadata(path).unwrap()), shown.to_owned());
        library.keep(key.clone(), &know_path(path));
        key
    }

    #[test]
    fn a_file_that_was_replaced_is_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let library = Library::new(None);
        fs::copy("/bin/true", &path).unwrap();
        let first = keep(&library, &path, "/program");
        let other = keep(&library, &path, "/other");
        fs::copy("/bin/false", folder.path().join("new")).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        let second = keep(&library, &path, "/program");
        assert!(library.get(&first).is_none());
        assert!(library.get(&second).is_some());
        assert!(library.get(&other).is_some());
    }

    #[test]
    fn counts_memory_of_outlines_made_after_reading() {
        let library = Library::new(None);
        let key = keep(&library, Path::new("/bin/true"), "/bin/true");
        let file = library.get(&key).unwrap();
        let before = file.size();
        assert!(before.mapped > 0);
        let outline = file.index.outline(Part::Names);
        let size = file.size();
        assert_eq!(size.memory, before.memory + outline.bytes().len());
        let room = |memory| Size { memory, ..size };
        assert!(library.kept().trim(room(size.memory)).is_empty());
        assert_eq!(library.kept().trim(room(before.memory)).len(), 1);
        assert!(library.get(&key).is_none());
    }

    #[test]
    fn evicts_the_least_recently_used_file() {
        let folder = tempfile::tempdir().unwrap();
        let library = Library::new(None);
        let keys = ["a", "b", "c"].map(|name| {
            let path = folder.path().join(name);
            fs::copy("/bin/true", &path).unwrap();
            keep(&library, &path, name)
        });
        let file = library.get(&keys[0]).unwrap();
        let Size { memory, mapped } = file.size();
        let most = Size {
            memory: 3 * memory,
            mapped: 2 * mapped,
        };
        drop(library.kept().trim(most));
        let left = keys.map(|key| library.get(&key).is_some());
        assert_eq!(left, [true, false, true]);
    }
}
