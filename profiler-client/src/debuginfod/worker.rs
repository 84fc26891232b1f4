//! The thread that gets files while the run goes on.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use profiler_proto::v1;
use profiler_symbolize::DebugFile;
use tokio::sync::oneshot;

use super::{BuildId, names::Names, settings::Settings, store::Store};
use crate::{output::note_amid_progress, render::escape::terminal};

/// Most modules that are asked for in a run.
const MODULES_MAX: usize = 256;
/// What all files of a run may take to come, from when the first is asked for.
const RUN_MAX: Duration = Duration::from_mins(30);

/// Files by what they belong to.
pub(super) type Files = HashMap<BuildId, PathBuf>;

/// Gets the debug files of modules. Dropping it leaves what is on its way.
pub struct Worker {
    wanted: HashSet<BuildId>,
    requests: mpsc::Sender<BuildId>,
    files: oneshot::Receiver<Files>,
}

impl Worker {
    /// Starts it where the environment names servers.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(settings: Option<Settings>) -> io::Result<Option<Self>> {
        let Some(settings) = settings else { return Ok(None) };
        let (requests, asked) = mpsc::channel();
        let (done, files) = oneshot::channel();
        thread::Builder::new()
            .name("debuginfod".to_owned())
            .spawn(move || {
                // Nobody waits for it any more where this fails.
                let _ = done.send(get_all(Store::new(settings), &asked, &mut |text| {
                    note_amid_progress(&text);
                }));
            })?;
        Ok(Some(Self {
            wanted: HashSet::new(),
            requests,
            files,
        }))
    }

    /// Asks for the files of modules that these frames lie in; each is asked for once.
    pub fn want<'a>(&mut self, frames: impl Iterator<Item = &'a v1::Frame>) {
        for frame in frames {
            if let Some(build_id) = BuildId::new(&frame.build_id)
                && self.wanted.len() < MODULES_MAX
                && self.wanted.insert(build_id.clone())
            {
                // It has ended where this fails: it has said why.
                let _ = self.requests.send(build_id);
            }
        }
    }

    /// Waits for what is on its way.
    pub async fn finish(self) -> Names {
        drop(self.requests);
        Names::new(self.files.await.unwrap_or_default())
    }
}

/// Gets files until nobody asks any more.
fn get_all(mut store: Store, asked: &mpsc::Receiver<BuildId>, say: &mut impl FnMut(String)) -> Files {
    let mut files = Files::new();
    let mut deadline = None;
    while let Ok(build_id) = asked.recv() {
        // A file can refer to a supplementary one, and that one to none.
        let mut next = Some(build_id);
        while let Some(build_id) = next.take() {
            if files.contains_key(&build_id) {
                continue;
            }
            let found = store.known(&build_id).or_else(|| {
                if deadline.is_none() {
                    for server in store.unprotected() {
                        say(format!(
                            "warning: {} is not asked for debug information, which could be changed on its way: use https.",
                            terminal(server)
                        ));
                    }
                    if let Some(servers) = store.servers() {
                        say(format!(
                            "getting debug information from {}; DEBUGINFOD_URLS= in the environment leaves it out.",
                            terminal(&servers)
                        ));
                    }
                }
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + RUN_MAX);
                let get = || store.get(&build_id, |text| say(format!("warning: {}", terminal(&text))));
                (Instant::now() < deadline).then(get).flatten()
            });
            let Some(path) = found else { continue };
            let file = DebugFile::open(&path, "");
            next = file.ok().and_then(|file| BuildId::new(file.supplement()?));
            files.insert(build_id, path);
        }
    }
    files
}
