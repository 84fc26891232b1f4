//! Names of addresses, from the files that have come.

use std::collections::HashMap;

use profiler_debug_files::{Reader, SideLoaded};
use profiler_proto::v1;
use profiler_symbolize::{DebugFile, Frame};

use super::{BuildId, worker::Files};

/// The files, and those of them that are open.
#[derive(Default)]
pub struct Names {
    files: Files,
    open: HashMap<BuildId, Option<DebugFile>>,
}

impl Names {
    pub(super) fn new(files: Files) -> Self {
        Self {
            files,
            open: HashMap::new(),
        }
    }

    /// Whether nothing can be named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What a frame stands for that could not be named, outermost first and without ids; `None` where that stays so. Where
    /// lines are not asked for, it is a function alone: the frame's address is where that begins, so that what was inlined where it
    /// ran is not known.
    pub fn of(&mut self, frame: &v1::Frame, by: v1::Grouping) -> Option<Vec<v1::Frame>> {
        let build_id = BuildId::new(&frame.build_id)?;
        let Self { files, open } = self;
        let file = open
            .entry(build_id)
            .or_insert_with_key(|build_id| open_file(files, build_id));
        let by_line = by == v1::Grouping::Line;
        let mut frames = file.as_mut()?.resolve(frame.address, by_line);
        if !by_line {
            frames = frames.split_off(frames.len().saturating_sub(1));
        }
        if frames.iter().any(|frame| frame.unresolved.is_some()) {
            return None;
        }
        let named = |found: &Frame| v1::Frame {
            id: 0,
            function: found.function.to_string(),
            file: found.file.to_string(),
            line: found.line,
            module: frame.module.clone(),
            inlined: found.inlined,
            kernel: false,
            unresolved: String::new(),
            build_id: Vec::new(),
            address: 0,
        };
        Some(frames.iter().rev().map(named).collect())
    }
}

fn open_file(files: &Files, build_id: &BuildId) -> Option<DebugFile> {
    let mut file = DebugFile::open(files.get(build_id)?, "").ok()?;
    let supplement = file
        .supplement()
        .and_then(BuildId::new)
        .and_then(|supplement| files.get(&supplement));
    if let Some(supplement) = supplement
        && let Ok(side_loaded) = SideLoaded::scan(std::slice::from_ref(supplement), &Reader::OWN)
    {
        file.side_load(side_loaded);
    }
    Some(file)
}
