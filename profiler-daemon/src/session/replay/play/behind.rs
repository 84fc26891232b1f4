//! What goes on behind a part: hits and calls of it are told late, and intervals off the CPU that it ends amid of are told when they end.

use super::{
    super::{
        super::records::{OUTSIDE_DROPPED, Recorded, RecordedSample},
        named::named,
        named_counts::is_of_all,
        part::LATE_NS,
    },
    Played,
    way::Next,
};
use crate::{kernel::Activity, recording::Batch};

/// What is known of what came after a part.
#[derive(Default)]
pub(super) struct Behind {
    is_incomplete: bool,
}

impl Behind {
    /// Something of it is missing.
    pub(super) fn miss(&mut self) {
        self.is_incomplete = true;
    }

    /// Whether something is.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Takes intervals off the CPU that go on when the part ends.
    pub(super) fn take(&mut self, batch: &mut Batch, played: &mut Played) {
        let is_lost = |(name, count): (&String, &u64)| {
            *count > 0 && (name == OUTSIDE_DROPPED || name.starts_with("off_cpu_") && !is_of_all(name))
        };
        self.is_incomplete |= batch.dropped > 0 || batch.counters.iter().any(is_lost);
        played.take_going_on(std::mem::take(&mut batch.records));
    }
}

/// What to do with what came after the part: hits and calls of it may be among that, and intervals that it ends amid of.
pub(super) fn next(played: Option<&mut Played>, batch: &Batch) -> Next {
    let Some(played) = played else {
        return Next::End;
    };
    if played.draws_outside {
        // How long it went on is told when it has ended, be it an hour later.
        return Next::PlayGoingOn;
    }
    let now_ns = played.now_ns;
    if batch.from_ns >= now_ns.saturating_add(LATE_NS) {
        return Next::End;
    }
    if let Some(hits) = &mut played.hits {
        hits.end_at(now_ns);
    } else if let Some(spans) = &mut played.spans {
        spans.end_at(now_ns);
    } else {
        return Next::End;
    }
    Next::PlayLate
}

impl Played {
    /// Takes the time of intervals off the CPU that lies in the part, of those that were told after it.
    fn take_going_on(&mut self, records: Vec<Recorded>) {
        let Some(flame) = &mut self.flame else { return };
        for record in records {
            let Recorded::Sample(sample) = record else {
                continue;
            };
            if sample.activity == Activity::OnCpu || sample.begin_ns() >= self.now_ns {
                continue;
            }
            if sample.ts_ns <= self.now_ns {
                // It was told late.
                flame.sample(&named(sample.since(self.begun_ns)), None, &[]);
                continue;
            }
            let until = RecordedSample {
                weight_ns: self.now_ns - sample.begin_ns(),
                ts_ns: self.now_ns,
                ..sample
            };
            flame.goes_on(&until.since(self.begun_ns));
        }
    }
}
