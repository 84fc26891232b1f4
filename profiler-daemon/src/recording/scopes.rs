//! Which scopes a recording is of, without what was recorded of them.

use std::io;

use profiler_proto::v1;
use profiler_recording::ReadError;
use prost::Message;

use super::{
    MAX_MESSAGES, Recording,
    decode::{self, Damaged},
};
use crate::session::RecordedScope;

/// What a [`v1::WatchRecordsResponse`] says of itself; everything else in it is passed over.
#[derive(Clone, PartialEq, Message)]
struct Head {
    // As older versions have written it.
    #[prost(string, tag = "4")]
    final_reason_before: String,
    #[prost(uint64, tag = "5")]
    from_ns: u64,
    #[prost(message, optional, tag = "8")]
    scope: Option<v1::RecordedScope>,
    #[prost(message, optional, tag = "41")]
    info: Option<v1::StreamInfo>,
}

/// What came in a short time, but for the records.
pub struct Told {
    /// From when on: `CLOCK_MONOTONIC` of the recorded machine.
    pub from_ns: u64,
    /// The scope, where that is told.
    pub scope: Option<RecordedScope>,
    /// Why nothing comes after it; empty where something may.
    final_reason: String,
}

impl Recording {
    /// Why the recorded session ended, where it did while it was recorded; it is told by what was written last.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read_ending(&mut self) -> io::Result<Option<String>> {
        let Some(last) = self.chunks.last().map(|place| place.number) else {
            return Ok(None);
        };
        let content = match self.content(last) {
            Ok(content) => content,
            Err(ReadError::Damaged { .. }) => return Ok(None),
            Err(ReadError::Io(error)) => return Err(error),
        };
        let mut ending = None;
        // What is damaged has no end.
        let _ = read_heads(&content, &mut |told| {
            ending = Some(told.final_reason).filter(|reason| !reason.is_empty());
            true
        });
        Ok(ending)
    }

    /// Reads which scopes were recorded, in order, from a little before a time on; `take` says whether to go on. What is damaged is
    /// passed over, as far as [`Self::read`] misses it.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read_scopes(&mut self, from_ns: u64, mut take: impl FnMut(Told) -> bool) -> io::Result<()> {
        let mut is_known = false;
        let mut until_ns = None;
        for number in self.first_for(from_ns)..self.chunks.len() {
            let place = self.chunks[number];
            let is_missing = until_ns.is_some_and(|until_ns| until_ns < place.from_ns);
            until_ns = Some(place.to_ns);
            is_known = place.begins_anew || is_known && !(place.is_behind_hole && is_missing);
            if !is_known {
                continue;
            }
            let content = match self.content(place.number) {
                Ok(content) => content,
                Err(ReadError::Damaged { .. }) => {
                    is_known = false;
                    continue;
                }
                Err(ReadError::Io(error)) => return Err(error),
            };
            match read_heads(&content, &mut take) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Damaged) => is_known = false,
            }
        }
        Ok(())
    }
}

/// Reads what the messages of a chunk say of themselves; whether to go on.
fn read_heads(mut content: &[u8], take: &mut impl FnMut(Told) -> bool) -> Result<bool, Damaged> {
    for _ in 0..MAX_MESSAGES {
        if content.is_empty() {
            return Ok(true);
        }
        let head = Head::decode_length_delimited(&mut content).map_err(|_| Damaged)?;
        let Head {
            final_reason_before,
            from_ns,
            scope,
            info,
        } = head;
        let end = info.and_then(|info| info.end);
        let scope = scope.map(decode::scope).transpose()?;
        let told = Told {
            from_ns,
            scope: scope.map(|(scope, _)| scope),
            final_reason: end.map_or(final_reason_before, |end| end.reason),
        };
        if !take(told) {
            return Ok(false);
        }
    }
    if content.is_empty() {
        Ok(true)
    } else {
        Err(Damaged)
    }
}
