//! How often places are reached, counted for a moment by probes that do nothing else.

use std::path::PathBuf;

use profiler_common::probe::ProbeId;

use super::{
    command::{Caller, Reply},
    error::{Reason, SessionError},
    refusal::attach_refusal,
    running::answer,
};
use crate::kernel::{Attachment, Engine, HitSpec, KernelError};

/// How long hits are counted.
const COUNTED_NS: u64 = 100_000_000;

/// Hits after which counting ends before.
const MAX_HITS: u64 = 10_000;

/// Time between looks at how many there are.
pub const TICK_NS: u64 = 5_000_000;

/// Places that are counted at where each takes a tenth of a second to be let go of.
const MAX_PERF_PLACES: usize = 16;

/// What is counted in one file of one process.
pub struct MeasuredFile {
    pub pid: u32,
    /// A path that the kernel resolves to the mapped file.
    pub path: PathBuf,
    pub specs: Vec<HitSpec>,
}

/// What was counted.
pub struct Measured {
    /// Times that each place was reached, in the order of the specifications.
    pub hits: Vec<u64>,
    /// In this time.
    pub ns: u64,
}

/// Places that are being counted at.
pub struct Measuring {
    /// Who asked.
    caller: Caller,
    attachments: Vec<Attachment>,
    probes: Vec<ProbeId>,
    /// What they had counted when all were attached.
    before: Vec<u64>,
    since_ns: u64,
    reply: Reply<Measured>,
}

/// What was counted, and who is to be told.
pub struct Ended {
    pub reply: Reply<Measured>,
    pub measured: Measured,
}

/// Refuses more places than can be let go of in a moment.
pub fn require_few(places: usize, perf_links: bool) -> Result<(), SessionError> {
    if !perf_links || places <= MAX_PERF_PLACES {
        return Ok(());
    }
    let message = format!(
        "--measure cannot count the hits of {places} places before Linux 6.10, where each probe takes a tenth of a second to detach: name fewer than {} functions, or leave it out",
        MAX_PERF_PLACES + 1
    );
    Err(SessionError::new(Reason::LimitReached, message))
}

/// Attaches what counts; nothing stays attached where that fails.
pub fn attach(engine: &mut Engine, files: &[MeasuredFile]) -> Result<Vec<Attachment>, SessionError> {
    let mut attachments = Vec::new();
    for file in files.iter().filter(|file| !file.specs.is_empty()) {
        let attached: Result<Attachment, KernelError> = engine.attach_hits(file.pid, &file.path, &file.specs);
        match attached {
            Ok(attachment) => attachments.push(attachment),
            Err(error) => {
                for attachment in attachments {
                    engine.detach(attachment);
                }
                return Err(attach_refusal(&error, &[file.pid]));
            }
        }
    }
    Ok(attachments)
}

impl Measuring {
    /// Processes at whose places is counted.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.attachments.iter().map(Attachment::pid)
    }

    /// Who asked.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Counts from now on.
    pub fn new(
        engine: &Engine,
        caller: Caller,
        attachments: Vec<Attachment>,
        reply: Reply<Measured>,
        now_ns: u64,
    ) -> Self {
        let probes: Vec<ProbeId> = attachments
            .iter()
            .flat_map(|attachment| attachment.probes().iter().copied())
            .collect();
        let before = probes.iter().map(|probe| reached(engine, *probe)).collect();
        Self {
            caller,
            attachments,
            probes,
            before,
            since_ns: now_ns,
            reply,
        }
    }

    fn hits(&self, engine: &Engine) -> Vec<u64> {
        let counted = self.probes.iter().zip(&self.before);
        counted
            .map(|(probe, before)| reached(engine, *probe).saturating_sub(*before))
            .collect()
    }

    /// Whether it has counted long enough, or often enough, or for somebody who has gone.
    pub fn is_over(&self, engine: &Engine, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= COUNTED_NS
            || self.reply.is_closed()
            || self.hits(engine).iter().sum::<u64>() >= MAX_HITS
    }

    /// Takes the probes off the target and answers that it may not be counted there any more.
    pub fn refuse(self, engine: &mut Engine, error: SessionError) {
        for attachment in self.attachments {
            engine.detach(attachment);
        }
        answer(self.reply, Err(error));
    }

    /// Takes the probes off the target.
    pub fn end(self, engine: &mut Engine, now_ns: u64) -> Ended {
        let measured = Measured {
            hits: self.hits(engine),
            ns: now_ns.saturating_sub(self.since_ns),
        };
        for attachment in self.attachments {
            engine.detach(attachment);
        }
        Ended {
            reply: self.reply,
            measured,
        }
    }
}

fn reached(engine: &Engine, probe: ProbeId) -> u64 {
    engine.hit_counts(probe).reached
}
