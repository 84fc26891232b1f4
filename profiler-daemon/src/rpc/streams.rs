//! A stream of messages for each view: what a request asks for, opened at its session.
//!
//! A stream is pulled: while its client does not read, pictures replace one another in the channel, and
//! the gap in their numbers is what the client is told to have missed.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use profiler_proto::{stream::Message, v1};
use tokio::sync::mpsc;
use tonic::Status;

use super::{
    arguments, explain, flame_delta::FlameDelta, latency_delta::LatencyDelta,
    recorded_counters::RecordedCounters, records, spans, stream_info::Position, system_calls,
    thread_names::ThreadNames, timeline, trace, waits,
};
use crate::session::{
    Caller, ExplainPicture, FlamePicture, FlameRequest, Handle, LatencyPicture, MoreRecords, Pictures, Room,
    SpansPicture, SpansRequest, SyscallsPicture, WaitsPicture,
};

/// Messages of a view.
pub type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A client's request for a view, and the messages that answer it.
#[tonic::async_trait]
pub trait Watched: Sized {
    /// What answers it.
    type Message: Message + Send + 'static;

    /// The name of its session.
    fn session(&self) -> &str;

    /// Opens the view for a caller.
    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status>;
}

#[tonic::async_trait]
impl Watched for v1::WatchLatencyRequest {
    type Message = v1::WatchLatencyResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let interval_ns = arguments::interval_ns(self.interval)?;
        let name = arguments::name(self.session)?;
        let pictures = handle.watch_latency(caller, name, interval_ns).await?;
        let mut delta = LatencyDelta::default();
        Ok(messages(pictures, move |picture: &LatencyPicture, at| {
            (delta.next(picture, at), picture.ended.is_some())
        }))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchFlameRequest {
    type Message = v1::WatchFlameResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let asked = FlameRequest {
            by: arguments::grouping(self.by()),
            times: arguments::drawn(&self)?,
            waits: self.waits,
            unique: self.unique,
            over: arguments::over(self.over()),
            difference: self.difference,
            pace: arguments::asked_pace(&self),
        };
        let interval_ns = arguments::interval_ns(self.interval)?;
        let name = arguments::name(self.session)?;
        let pictures = handle.watch_flame(caller, name, interval_ns, asked).await?;
        let mut delta = FlameDelta::default();
        Ok(messages(pictures, move |picture: &FlamePicture, at| {
            (delta.next(picture, at), picture.ended.is_some())
        }))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchTraceRequest {
    type Message = v1::WatchTraceResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let name = arguments::name(self.session)?;
        let batches = handle.watch_trace(caller, name).await?;
        Ok(Box::pin(stream::unfold(
            (batches, ThreadNames::default(), Leaving::default()),
            |(mut batches, mut names, mut leaving)| async {
                let batch = leaving.next(&mut batches).await?;
                leaving.keep(batch.room.clone(), batch.ended.is_some());
                let message = trace::batch(&batch, &mut names);
                Some((Ok(message), (batches, names, leaving)))
            },
        )))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchExplainRequest {
    type Message = v1::WatchExplainResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let interval_ns = arguments::interval_ns(self.interval)?;
        let name = arguments::name(self.session)?;
        let pictures = handle.watch_explain(caller, name, interval_ns).await?;
        Ok(messages(pictures, |picture: &ExplainPicture, at| {
            (explain::picture(picture, at), picture.ended.is_some())
        }))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchSpansRequest {
    type Message = v1::WatchSpansResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let interval_ns = arguments::interval_ns(self.interval)?;
        let asked = SpansRequest {
            number: spans::wanted(self.spans)?,
            waits: self.waits,
            system_calls: self.system_calls,
        };
        let name = arguments::name(self.session)?;
        let pictures = handle.watch_spans(caller, name, interval_ns, asked).await?;
        let mut stream = spans::Messages::default();
        Ok(messages(pictures, move |picture: &SpansPicture, at| {
            (stream.next(picture, at), picture.ended.is_some())
        }))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchWaitsRequest {
    type Message = v1::WatchWaitsResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let interval_ns = arguments::interval_ns(self.interval)?;
        let name = arguments::name(self.session)?;
        let pictures = handle.watch_waits(caller, name, interval_ns).await?;
        Ok(messages(pictures, |picture: &WaitsPicture, at| {
            (waits::picture(picture, at), picture.ended.is_some())
        }))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchTimelineRequest {
    type Message = v1::WatchTimelineResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let asked = timeline::request(&self)?;
        let name = arguments::name(self.session)?;
        let buckets = handle.watch_timeline(caller, name, asked).await?;
        let messages = timeline::Messages::new(self.counters);
        Ok(Box::pin(stream::unfold(
            Some((buckets, messages)),
            |state| async {
                let (mut buckets, mut messages) = state?;
                let bucket = buckets.recv().await?;
                let last = bucket.ended.is_some();
                Some((Ok(messages.next(&bucket)), (!last).then_some((buckets, messages))))
            },
        )))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchSyscallsRequest {
    type Message = v1::WatchSyscallsResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let by = arguments::caller_grouping(self.by())?;
        let interval_ns = arguments::interval_ns(self.interval)?;
        let name = arguments::name(self.session)?;
        let pictures = handle.watch_syscalls(caller, name, interval_ns, by).await?;
        Ok(messages(pictures, |picture: &SyscallsPicture, at| {
            (system_calls::picture(picture, at), picture.ended.is_some())
        }))
    }
}

#[tonic::async_trait]
impl Watched for v1::WatchRecordsRequest {
    type Message = v1::WatchRecordsResponse;

    fn session(&self) -> &str {
        &self.session
    }

    async fn open(self, caller: Caller, handle: &Handle) -> Result<Messages<Self::Message>, Status> {
        let Self {
            session,
            counters,
            waits,
            syscalls,
            off_cpu,
            events,
        } = self;
        let name = arguments::name(session)?;
        let counters = match counters {
            Some(request) => {
                let asked = timeline::request(&request)?;
                let buckets = handle.watch_timeline(caller, name.clone(), asked).await?;
                Some(RecordedCounters::new(buckets, request))
            }
            None => None,
        };
        let more = MoreRecords {
            waits,
            syscalls,
            off_cpu,
            events: arguments::recorded_events(&events)?,
        };
        let batches = handle.watch_records(caller, name, more).await?;
        let messages = records::Messages::new(waits);
        Ok(Box::pin(stream::unfold(
            (batches, messages, counters, Leaving::default()),
            |(mut batches, mut messages, mut counters, mut leaving)| async {
                let batch = leaving.next(&mut batches).await?;
                let last = batch.ended.is_some();
                leaving.keep(batch.room.clone(), last);
                let mut message = messages.next(&batch);
                if let Some(counters) = &mut counters {
                    message.counted = counters.take(last).await;
                }
                Some((Ok(message), (batches, messages, counters, leaving)))
            },
        )))
    }
}

/// The rooms of the messages that leave: one is asked for as soon as the connection has taken a part of the one before, and kept until
/// that has taken another.
#[derive(Default)]
struct Leaving {
    rooms: [Option<Arc<Room>>; 2],
    /// There are no more messages.
    is_over: bool,
}

impl Leaving {
    /// The next batch; `None` behind the last.
    async fn next<T>(&self, batches: &mut mpsc::Receiver<T>) -> Option<T> {
        if self.is_over {
            return None;
        }
        batches.recv().await
    }

    /// Keeps the room of the next message, and lets go of the one before the last.
    fn keep(&mut self, room: Option<Arc<Room>>, is_last: bool) {
        let [_, before] = std::mem::take(&mut self.rooms);
        self.rooms = [before, room];
        self.is_over = is_last;
    }
}

/// Turns pictures into messages, until one is the last or nobody makes any more.
fn messages<P, T>(
    pictures: Pictures<P>,
    next: impl FnMut(&P, Position) -> (T, bool) + Send + 'static,
) -> Messages<T>
where
    P: Send + Sync + 'static,
    T: Send + 'static,
{
    Box::pin(stream::unfold(Some((pictures, next, 0)), |state| async {
        let (mut pictures, mut next, read) = state?;
        loop {
            pictures.changed().await.ok()?;
            let Some(picture) = pictures.borrow_and_update().clone() else {
                continue;
            };
            // All before it were made, and `read` of them came this far.
            let position = Position {
                seq: picture.seq,
                dropped: picture.seq.saturating_sub(read),
            };
            let (message, last) = next(&picture, position);
            return Some((Ok(message), (!last).then_some((pictures, next, read + 1))));
        }
    }))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::sync::watch;

    use super::*;
    use crate::session::Numbered;

    #[tokio::test]
    async fn pictures_that_a_client_did_not_read_in_time_are_counted() {
        let (sender, pictures) = watch::channel(None);
        let send = |seq| sender.send_replace(Some(Numbered::new(seq, "picture".into())));
        let mut messages = messages(pictures, |_: &String, at| (at, false));
        let mut read = async || {
            let Position { seq, dropped } = messages.next().await.unwrap().unwrap();
            (seq, dropped)
        };
        send(0);
        assert_eq!(read().await, (0, 0));
        send(1);
        send(2);
        assert_eq!(read().await, (2, 1));
        send(3);
        assert_eq!(read().await, (3, 1));
    }

    #[tokio::test]
    async fn pictures_before_the_first_that_is_read_are_counted_too() {
        let (sender, pictures) = watch::channel(None);
        sender.send_replace(Some(Numbered::new(4, ())));
        let mut messages = messages(pictures, |(): &(), at| (at.dropped, false));
        assert_eq!(messages.next().await.unwrap().unwrap(), 4);
    }
}
