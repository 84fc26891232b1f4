//! Links by which probes are attached.

use std::os::fd::OwnedFd;

use crate::kernel::{
    AttachKind, Engine,
    closing::{self, Closing},
    opening::Opened,
    perf::{self, PerfLinks},
};

/// Links by which probes are attached; within each, entries before exits, the order of detaching.
pub(in crate::kernel) enum Links {
    Multi {
        entries: Vec<Opened<OwnedFd>>,
        exits: Vec<Opened<OwnedFd>>,
    },
    Perf {
        entries: Vec<PerfLinks>,
        exits: Vec<PerfLinks>,
    },
}

impl Links {
    /// Where no end is waited for any more: all in one group, which takes half as long.
    pub(super) fn at_once(self) -> Self {
        match self {
            Self::Multi { mut entries, exits } => {
                entries.extend(exits);
                Self::Multi {
                    entries,
                    exits: Vec::new(),
                }
            }
            links @ Self::Perf { .. } => links,
        }
    }

    /// Closes them, entries before exits.
    pub(in crate::kernel) fn close(self) -> Vec<Closing> {
        match self {
            Self::Multi { entries, exits } => {
                vec![closing::close(closing::links(entries), closing::links(exits))]
            }
            Self::Perf { entries, exits } => {
                let (entries, late_entries) = perf::links(entries);
                let (exits, late_exits) = perf::links(exits);
                // Others are not to wait for those that are still being opened.
                vec![
                    closing::close_events(entries, exits),
                    closing::close(late_entries, late_exits),
                ]
            }
        }
    }

    /// Whether nothing is attached by them.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Multi { entries, exits } => entries.is_empty() && exits.is_empty(),
            Self::Perf { entries, exits } => entries.is_empty() && exits.is_empty(),
        }
    }
}

impl Engine {
    /// Links of the kind that this kernel has: none yet.
    pub(in crate::kernel) fn no_links(&self) -> Links {
        match self.ability.attach {
            AttachKind::Multi => Links::Multi {
                entries: Vec::new(),
                exits: Vec::new(),
            },
            AttachKind::Perf => Links::Perf {
                entries: Vec::new(),
                exits: Vec::new(),
            },
        }
    }
}
