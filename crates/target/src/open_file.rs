//! Files of targets that are open, and known to answer or not.

use std::{
    fs::{File, Metadata},
    io,
    mem::ManuallyDrop,
    ops::Deref,
};

use rustix::fs::fstatfs;

use super::{
    contents::FileKey,
    file_systems::{OVERLAY, answers},
    own_mounts,
    timed::close_for,
    user::ROOT,
};

/// A file that is open, as it was then.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: Handle,
    /// What the file system said of it.
    pub metadata: Metadata,
    /// Which it is, and in which state.
    pub key: FileKey,
}

impl OpenFile {
    /// Asks about an open file, for a user who answers for it. Its file system may not answer: see [`crate::read_of_user`].
    ///
    /// # Errors
    /// Where the file system tells nothing of it.
    pub fn of(file: File, user: u32) -> io::Result<Self> {
        // Until it is known to answer, closing it is nothing to wait for either.
        let mut handle = Handle {
            file: ManuallyDrop::new(file),
            user,
            answers: false,
        };
        let metadata = handle.metadata()?;
        let key = FileKey::of_open(&handle, &metadata);
        handle.answers = match fstatfs(&*handle)?.f_type {
            // What is mounted for this process as well, whoever may look at it has mounted.
            OVERLAY => own_mounts::have(&handle),
            system => answers(system),
        };
        Ok(Self {
            file: handle,
            metadata,
            key,
        })
    }

    /// One of this process's own, or that somebody has named who may.
    ///
    /// # Errors
    /// As of [`Self::of`].
    pub fn own(file: File) -> io::Result<Self> {
        Self::of(file, ROOT)
    }

    /// The same, by another descriptor.
    ///
    /// # Errors
    /// Where there are no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let Handle { user, answers, .. } = self.file;
        Ok(Self {
            file: Handle {
                file: ManuallyDrop::new(self.file.try_clone()?),
                user,
                answers,
            },
            metadata: self.metadata.clone(),
            key: self.key,
        })
    }
}

/// An open file. Closing it has its file system asked (`flush`), which may not answer: another thread waits for that.
#[derive(Debug)]
pub struct Handle {
    /// Taken when this is dropped.
    file: ManuallyDrop<File>,
    user: u32,
    answers: bool,
}

impl Handle {
    /// The user who answers for it.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Whether reading it waits for nobody.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.answers
    }
}

impl Deref for Handle {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nothing uses it behind this, which is done once.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if !self.answers {
            close_for(self.user, file);
        }
    }
}
