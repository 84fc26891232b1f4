//! What the messages of all views' streams have in common.

use super::v1;

/// A message of a view's stream.
pub trait Message {
    /// What it begins with; `None` where it is missing, though each has it.
    fn info(&self) -> Option<&v1::StreamInfo>;

    /// The same, to be added to.
    fn info_mut(&mut self) -> Option<&mut v1::StreamInfo>;

    /// Why it is the last one, if it is.
    fn end(&self) -> Option<&v1::StreamEnd> {
        self.info()?.end.as_ref()
    }

    /// Whether it is the last one.
    fn is_final(&self) -> bool {
        self.end().is_some()
    }
}

impl<M: Message> Message for Box<M> {
    fn info(&self) -> Option<&v1::StreamInfo> {
        (**self).info()
    }

    fn info_mut(&mut self) -> Option<&mut v1::StreamInfo> {
        (**self).info_mut()
    }
}

macro_rules! messages {
    ($($message:ty),+ $(,)?) => {
        $(
            impl Message for $message {
                fn info(&self) -> Option<&v1::StreamInfo> {
                    self.info.as_ref()
                }

                fn info_mut(&mut self) -> Option<&mut v1::StreamInfo> {
                    self.info.as_mut()
                }
            }
        )+
    };
}

messages!(
    v1::WatchLatencyResponse,
    v1::WatchFlameResponse,
    v1::WatchTraceResponse,
    v1::WatchExplainResponse,
    v1::WatchSpansResponse,
    v1::WatchWaitsResponse,
    v1::WatchTimelineResponse,
    v1::WatchSyscallsResponse,
    v1::WatchRecordsResponse,
);
