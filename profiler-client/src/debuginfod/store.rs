//! The files on disk, in the layout that debuginfod's other clients share: `FOLDER/BUILD-ID/debuginfo`.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use profiler_symbolize::DebugFile;

use super::{
    BuildId,
    download::{Agents, DownloadError, download},
    settings::Settings,
};

/// A file that did not come from a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// It did not come.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// It is not what was asked for.
    #[error("what it sends is not the debug information of this build")]
    NotThisBuild,
    /// What cannot be written.
    #[error("{path}: {error}")]
    Write {
        /// A path in the folder.
        path: String,
        /// What the system says.
        error: io::Error,
    },
}

/// The files, and the servers that they come from.
pub(super) struct Store {
    settings: Settings,
    agents: Agents,
    /// What no server has, for this run.
    nowhere: HashSet<BuildId>,
    /// Servers that did not answer, for this run.
    silent: HashSet<String>,
}

impl Store {
    pub fn new(settings: Settings) -> Self {
        Self {
            agents: Agents::new(&settings),
            settings,
            nowhere: HashSet::new(),
            silent: HashSet::new(),
        }
    }

    /// The servers, as one says them; `None` where there are none.
    pub fn servers(&self) -> Option<String> {
        let servers = &self.settings.servers;
        (!servers.is_empty()).then(|| servers.join(", "))
    }

    /// The servers that are set and not asked.
    pub fn unprotected(&self) -> &[String] {
        &self.settings.unprotected
    }

    /// The file that is there already.
    pub fn known(&self, build_id: &BuildId) -> Option<PathBuf> {
        let path = self.path(build_id);
        // Other clients leave an empty file where there is none to be had. Servers change: asking again costs little.
        is_of(&path, build_id).then_some(path)
    }

    fn path(&self, build_id: &BuildId) -> PathBuf {
        self.settings.cache.join(build_id.hex()).join("debuginfo")
    }

    /// Gets a file from the first server that has it. What should be said of the others is handed over.
    pub fn get(&mut self, build_id: &BuildId, mut say: impl FnMut(String)) -> Option<PathBuf> {
        if self.nowhere.contains(build_id) {
            return None;
        }
        for server in self.settings.servers.clone() {
            if self.silent.contains(&server) {
                continue;
            }
            match self.get_from(&server, build_id) {
                Ok(path) => return Some(path),
                Err(StoreError::Download(error)) => {
                    if error.is_remarkable() {
                        say(format!("{server}: {error}."));
                    }
                    if error.is_of_server() {
                        self.silent.insert(server);
                    }
                }
                Err(StoreError::NotThisBuild) => say(format!("{server}: {}.", StoreError::NotThisBuild)),
                Err(error) => {
                    say(format!("{error}."));
                    break;
                }
            }
        }
        self.nowhere.insert(build_id.clone());
        None
    }

    fn get_from(&self, server: &str, build_id: &BuildId) -> Result<PathBuf, StoreError> {
        let path = self.path(build_id);
        let folder = path.parent().unwrap_or(&path);
        let write = |error| StoreError::Write {
            path: folder.display().to_string(),
            error,
        };
        fs::create_dir_all(folder).map_err(write)?;
        let got = self.get_into(folder, server, build_id, &path);
        if got.is_err() {
            // Only where nothing is in it.
            let _ = fs::remove_dir(folder);
        }
        got
    }

    fn get_into(
        &self,
        folder: &Path,
        server: &str,
        build_id: &BuildId,
        path: &Path,
    ) -> Result<PathBuf, StoreError> {
        let write = |error| StoreError::Write {
            path: folder.display().to_string(),
            error,
        };
        // Another name until it is whole and the right one; removed when dropped.
        let mut file = tempfile::Builder::new()
            .prefix(".debuginfo.")
            .tempfile_in(folder)
            .map_err(write)?;
        let url = format!("{server}/buildid/{}/debuginfo", build_id.hex());
        download(&self.agents, &url, &self.settings, &mut file)?;
        if !is_of(file.path(), build_id) {
            return Err(StoreError::NotThisBuild);
        }
        file.persist(path).map_err(|error| write(error.error))?;
        Ok(path.to_path_buf())
    }
}

/// Whether a file is the debug information of a build.
fn is_of(path: &Path, build_id: &BuildId) -> bool {
    let found = DebugFile::open(path, "");
    found.is_ok_and(|file| BuildId::new(file.build_id()).as_ref() == Some(build_id))
}

#[cfg(test)]
mod tests;
