//! What recordings of older versions have in other fields.

use crate::v1;

impl v1::WatchRecordsResponse {
    /// What the message begins with, be it of an older version.
    #[must_use]
    pub fn beginning(&self) -> v1::StreamInfo {
        self.info.clone().unwrap_or_else(|| v1::StreamInfo {
            dropped: self.dropped_before,
            cost: self.cost_before,
            end: self.final_before.then(|| v1::StreamEnd {
                cause: v1::EndCause::Other.into(),
                reason: self.final_reason_before.clone(),
                signal: self.final_signal_before,
            }),
            ..Default::default()
        })
    }

    /// How many records were lost before it.
    #[must_use]
    pub fn records_lost(&self) -> u64 {
        let info = self.info.as_ref();
        info.map_or(self.dropped_before, |info| info.dropped)
    }
}

impl v1::WatchTimelineResponse {
    /// How many buckets were lost before it.
    #[must_use]
    pub fn buckets_lost(&self) -> u64 {
        let info = self.info.as_ref();
        info.map_or(self.dropped_before, |info| info.dropped)
    }
}

impl v1::RecordingAbout {
    /// The machine that was recorded.
    #[must_use]
    pub fn machine(&self) -> v1::HostInfo {
        self.host.clone().unwrap_or_else(|| v1::HostInfo {
            name: self.host_before.clone(),
            kernel: self.kernel_before.clone(),
            monotonic_ns: self.monotonic_ns_before,
            since_1970_ns: self.since_1970_ns_before,
            ..Default::default()
        })
    }
}
