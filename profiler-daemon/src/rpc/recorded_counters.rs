//! Counters over time, in messages of records: those of a stream of buckets that goes on beside that of records.

use std::{collections::HashMap, time::Duration};

use profiler_proto::v1;
use tokio::sync::mpsc::Receiver;

use super::timeline::Messages;
use crate::session::TimelineBucket;

/// Longest wait for the last bucket, which comes with the last records.
const LAST: Duration = Duration::from_secs(1);

/// A stream of buckets.
pub struct RecordedCounters {
    buckets: Receiver<TimelineBucket>,
    messages: Messages,
    /// What is told with buckets, which can then be understood without those before.
    told: v1::RecordedCounters,
}

impl RecordedCounters {
    /// What was asked for, and the buckets that come of it.
    pub fn new(buckets: Receiver<TimelineBucket>, asked: v1::WatchTimelineRequest) -> Self {
        Self {
            buckets,
            messages: Messages::new(asked.counters),
            told: v1::RecordedCounters {
                threads: asked.threads,
                ..Default::default()
            },
        }
    }

    /// The buckets that have come, if any have; with the last records up to the last.
    pub async fn take(&mut self, is_last: bool) -> Option<v1::RecordedCounters> {
        let mut counted = v1::RecordedCounters::default();
        while let Some(bucket) = self.next(is_last).await {
            let message = self.messages.next(&bucket);
            if !message.counters.is_empty() {
                self.told.counters.clone_from(&message.counters);
                self.told.missing.clone_from(&message.missing);
            }
            counted.buckets.push(v1::WatchTimelineResponse {
                counters: Vec::new(),
                missing: HashMap::new(),
                // What else it says, the message that they are in says.
                info: message.info.map(|info| v1::StreamInfo {
                    dropped: info.dropped,
                    ..Default::default()
                }),
                ..message
            });
            if bucket.ended.is_some() {
                break;
            }
        }
        (!counted.buckets.is_empty()).then(|| v1::RecordedCounters {
            buckets: counted.buckets,
            ..self.told.clone()
        })
    }

    async fn next(&mut self, is_last: bool) -> Option<TimelineBucket> {
        if is_last {
            return tokio::time::timeout(LAST, self.buckets.recv()).await.ok()?;
        }
        self.buckets.try_recv().ok()
    }
}
