//! Samples of events from messages, which somebody may have made up.

use profiler_common::record::{WEIGHT, Weight};
use profiler_proto::v1;
use profiler_symbolize::Frames;

use super::decode::{Damaged, Decoder, MAX_COUNT, Thread};
use crate::{
    kernel::{Event, EventCounts, Key, Pace},
    session::{AtEvent, EventReading, Recorded, RecordedAtEvent},
};

/// An event that was recorded; `None` of one that this version does not know.
pub(super) fn known(told: &v1::RecordedEvent) -> Option<Event> {
    let pace = match (told.period, told.frequency_hz) {
        (0, frequency_hz) => Pace::Frequency(frequency_hz),
        (period, _) => Pace::Period(period),
    };
    Event::parse(&told.name, Some(pace), 0)
}

impl Decoder {
    /// Records with the samples of events among them, in the order in which both came.
    pub(super) fn with_events(
        &mut self,
        records: Vec<Option<Recorded>>,
        samples: Vec<v1::RecordedEventSample>,
        from_ns: u64,
        frames: &mut Frames,
    ) -> Result<Vec<Recorded>, Damaged> {
        let mut all = Vec::with_capacity(records.len() + samples.len());
        let mut records = records.into_iter();
        let mut last_ns = from_ns;
        for sample in samples {
            let before = sample.records_before as usize;
            if before > records.len() {
                return Err(Damaged);
            }
            all.extend(records.by_ref().take(before).flatten());
            all.extend(self.at_event(sample, &mut last_ns, frames)?);
        }
        all.extend(records.flatten());
        Ok(all)
    }

    /// Takes what came of an event, by the time of what came before; `None` of what a newer version writes.
    fn at_event(
        &mut self,
        told: v1::RecordedEventSample,
        last_ns: &mut u64,
        frames: &mut Frames,
    ) -> Result<Option<Recorded>, Damaged> {
        let event = self.event(told.event)?;
        let key = Key {
            space: told.space,
            place: told.place,
        };
        let what = match told.what {
            None => return Ok(None),
            Some(v1::recorded_event_sample::What::Sample(sample)) => {
                let spans = sample.spans.iter().copied();
                AtEvent::Sample(self.sample(&sample, spans, (last_ns, 0), frames)?, key)
            }
            Some(v1::recorded_event_sample::What::Weight(weight)) => {
                let Thread { tgid, tid, .. } = self.thread(weight.thread)?;
                *last_ns = last_ns.saturating_add_signed(weight.after_ns);
                if weight.weight > MAX_COUNT {
                    return Err(Damaged);
                }
                AtEvent::Weight(Weight {
                    kind: WEIGHT,
                    event: 0,
                    tgid,
                    tid,
                    ts_ns: *last_ns,
                    key: key.place,
                    weight: weight.weight,
                })
            }
        };
        Ok(event.map(|event| Recorded::AtEvent(Box::new(RecordedAtEvent { event, what }))))
    }

    /// What became of samples of the events that this version knows.
    pub(super) fn event_counts(&self, told: &[v1::CountedEvent]) -> Result<Vec<EventReading>, Damaged> {
        let mut counted = Vec::new();
        for told in told {
            let counts = EventCounts {
                attempted: told.attempted,
                limited: told.limited,
                yielded: told.yielded,
                ring_full: told.ring_full,
                unseen: told.unseen,
            };
            let EventCounts {
                attempted,
                limited,
                yielded,
                ring_full,
                unseen,
            } = counts;
            let all = [attempted, limited, yielded, ring_full, unseen];
            if all.iter().any(|count| *count > MAX_COUNT) {
                return Err(Damaged);
            }
            let event = self.event(told.event)?;
            counted.extend(event.map(|event| EventReading { event, counts }));
        }
        Ok(counted)
    }

    /// The event of a number; `None` of one that this version does not know.
    fn event(&self, number: u32) -> Result<Option<Event>, Damaged> {
        let known = self.events.get(number as usize);
        known.copied().ok_or(Damaged)
    }
}
