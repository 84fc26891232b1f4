//! `r` in a program that is built without the service, which writes recordings.

use profiler_proto::v1;

use super::{Reports, Session, What};
use crate::{connect::Connection, in_process::left_out};

/// One that never begins.
#[derive(Debug)]
pub struct Recording;

impl Recording {
    /// Says why none begins.
    pub fn begin(_: Connection, _: &Session, _: v1::Lens, reports: Reports) -> Self {
        tokio::spawn(async move { reports.send_to_all(What::Recorded(left_out().message)).await });
        Self
    }

    /// It is not.
    #[expect(clippy::unused_self, reason = "as that of a recording")]
    pub const fn is_running(&self) -> bool {
        false
    }

    /// What came of it: nothing.
    #[expect(clippy::unused_async, reason = "as that of a recording")]
    pub async fn end(self) -> String {
        left_out().message
    }
}
