//! What recordings of older versions have in other fields: those that now are a [`v1::StreamInfo`].

use profiler_proto::v1;

/// What a message begins with.
pub fn info(message: &v1::WatchRecordsResponse) -> v1::StreamInfo {
    message.info.clone().unwrap_or_else(|| v1::StreamInfo {
        dropped: message.dropped_before,
        cost: message.cost_before,
        end: message.final_before.then(|| v1::StreamEnd {
            cause: v1::EndCause::Other.into(),
            reason: message.final_reason_before.clone(),
            signal: message.final_signal_before,
        }),
        ..Default::default()
    })
}

/// How many records were lost before a message.
pub fn dropped(message: &v1::WatchRecordsResponse) -> u64 {
    let info = message.info.as_ref();
    info.map_or(message.dropped_before, |info| info.dropped)
}

/// How many buckets of counters were lost before one.
pub fn dropped_buckets(bucket: &v1::WatchTimelineResponse) -> u64 {
    let info = bucket.info.as_ref();
    info.map_or(bucket.dropped_before, |info| info.dropped)
}
