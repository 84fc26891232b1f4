//! `profiler.v1.ViewService`: streams of pictures.
//!
//! A stream is pulled: while its client does not read, pictures replace one another in the channel, and
//! the gap in their numbers is what the client is told to have missed.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use profiler_proto::v1::{self, view_service_server::ViewService};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::{
    arguments, explain, flame_delta::FlameDelta, latency_delta::LatencyDelta,
    recorded_counters::RecordedCounters, records, spans, system_calls, thread_names::ThreadNames, timeline,
    trace, waits,
};
use crate::session::{
    ExplainPicture, FlamePicture, FlameRequest, Handle, LatencyPicture, MoreRecords, Pictures, Room,
    SpansPicture, SpansRequest, SyscallsPicture, WaitsPicture,
};

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

/// The service.
pub struct Views(pub Handle);

type MessageStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ViewService for Views {
    type WatchLatencyStream = MessageStream<v1::WatchLatencyResponse>;
    type WatchFlameStream = MessageStream<v1::WatchFlameResponse>;
    type WatchTraceStream = MessageStream<v1::WatchTraceResponse>;
    type WatchExplainStream = MessageStream<v1::WatchExplainResponse>;

    async fn watch_explain(
        &self,
        request: Request<v1::WatchExplainRequest>,
    ) -> Result<Response<Self::WatchExplainStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::WatchExplainRequest { session, interval } = request.into_inner();
        let interval_ns = arguments::interval_ns(interval)?;
        let name = arguments::name(session)?;
        let pictures = self.0.watch_explain(caller, name, interval_ns).await?;
        Ok(Response::new(messages(
            pictures,
            |picture: &ExplainPicture, at| (explain::picture(picture, at), picture.ended.is_some()),
        )))
    }
    type WatchSpansStream = MessageStream<v1::WatchSpansResponse>;
    type WatchWaitsStream = MessageStream<v1::WatchWaitsResponse>;

    async fn watch_waits(
        &self,
        request: Request<v1::WatchWaitsRequest>,
    ) -> Result<Response<Self::WatchWaitsStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::WatchWaitsRequest { session, interval } = request.into_inner();
        let interval_ns = arguments::interval_ns(interval)?;
        let name = arguments::name(session)?;
        let pictures = self.0.watch_waits(caller, name, interval_ns).await?;
        Ok(Response::new(messages(pictures, |picture: &WaitsPicture, at| {
            (waits::picture(picture, at), picture.ended.is_some())
        })))
    }

    type WatchTimelineStream = MessageStream<v1::WatchTimelineResponse>;

    async fn watch_timeline(
        &self,
        request: Request<v1::WatchTimelineRequest>,
    ) -> Result<Response<Self::WatchTimelineStream>, Status> {
        let caller = arguments::caller(&request)?;
        let request = request.into_inner();
        let asked = timeline::request(&request)?;
        let name = arguments::name(request.session)?;
        let buckets = self.0.watch_timeline(caller, name, asked).await?;
        let messages = timeline::Messages::new(request.counters);
        Ok(Response::new(Box::pin(stream::unfold(
            Some((buckets, messages)),
            |state| async {
                let (mut buckets, mut messages) = state?;
                let bucket = buckets.recv().await?;
                let last = bucket.ended.is_some();
                Some((Ok(messages.next(&bucket)), (!last).then_some((buckets, messages))))
            },
        ))))
    }

    type WatchSyscallsStream = MessageStream<v1::WatchSyscallsResponse>;

    async fn watch_syscalls(
        &self,
        request: Request<v1::WatchSyscallsRequest>,
    ) -> Result<Response<Self::WatchSyscallsStream>, Status> {
        let caller = arguments::caller(&request)?;
        let request = request.into_inner();
        let by = arguments::caller_grouping(request.by())?;
        let interval_ns = arguments::interval_ns(request.interval)?;
        let name = arguments::name(request.session)?;
        let pictures = self.0.watch_syscalls(caller, name, interval_ns, by).await?;
        Ok(Response::new(messages(
            pictures,
            |picture: &SyscallsPicture, at| (system_calls::picture(picture, at), picture.ended.is_some()),
        )))
    }

    async fn watch_trace(
        &self,
        request: Request<v1::WatchTraceRequest>,
    ) -> Result<Response<Self::WatchTraceStream>, Status> {
        let caller = arguments::caller(&request)?;
        let name = arguments::name(request.into_inner().session)?;
        let batches = self.0.watch_trace(caller, name).await?;
        Ok(Response::new(Box::pin(stream::unfold(
            (batches, ThreadNames::default(), Leaving::default()),
            |(mut batches, mut names, mut leaving)| async {
                let batch = leaving.next(&mut batches).await?;
                leaving.keep(batch.room.clone(), batch.ended.is_some());
                let message = trace::batch(&batch, &mut names);
                Some((Ok(message), (batches, names, leaving)))
            },
        ))))
    }

    type WatchRecordsStream = MessageStream<v1::WatchRecordsResponse>;

    async fn watch_records(
        &self,
        request: Request<v1::WatchRecordsRequest>,
    ) -> Result<Response<Self::WatchRecordsStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::WatchRecordsRequest {
            session,
            counters,
            waits,
            syscalls,
            off_cpu,
            events,
        } = request.into_inner();
        let name = arguments::name(session)?;
        let counters = match counters {
            Some(request) => {
                let asked = timeline::request(&request)?;
                let buckets = self.0.watch_timeline(caller, name.clone(), asked).await?;
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
        let batches = self.0.watch_records(caller, name, more).await?;
        let messages = records::Messages::new(waits);
        Ok(Response::new(Box::pin(stream::unfold(
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
        ))))
    }

    async fn watch_spans(
        &self,
        request: Request<v1::WatchSpansRequest>,
    ) -> Result<Response<Self::WatchSpansStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::WatchSpansRequest {
            session,
            interval,
            spans: number,
            waits,
            system_calls,
        } = request.into_inner();
        let interval_ns = arguments::interval_ns(interval)?;
        let asked = SpansRequest {
            number: spans::wanted(number)?,
            waits,
            system_calls,
        };
        let name = arguments::name(session)?;
        let pictures = self.0.watch_spans(caller, name, interval_ns, asked).await?;
        let mut stream = spans::Messages::default();
        Ok(Response::new(messages(
            pictures,
            move |picture: &SpansPicture, at| (stream.next(picture, at), picture.ended.is_some()),
        )))
    }

    async fn watch_latency(
        &self,
        request: Request<v1::WatchLatencyRequest>,
    ) -> Result<Response<Self::WatchLatencyStream>, Status> {
        let caller = arguments::caller(&request)?;
        let v1::WatchLatencyRequest { session, interval } = request.into_inner();
        let interval_ns = arguments::interval_ns(interval)?;
        let pictures = self
            .0
            .watch_latency(caller, arguments::name(session)?, interval_ns)
            .await?;
        let mut delta = LatencyDelta::default();
        Ok(Response::new(messages(
            pictures,
            move |picture: &LatencyPicture, at| (delta.next(picture, at), picture.ended.is_some()),
        )))
    }

    async fn watch_flame(
        &self,
        request: Request<v1::WatchFlameRequest>,
    ) -> Result<Response<Self::WatchFlameStream>, Status> {
        let caller = arguments::caller(&request)?;
        let request = request.into_inner();
        let asked = FlameRequest {
            by: arguments::grouping(request.by()),
            times: arguments::drawn(&request)?,
            waits: request.waits,
            unique: request.unique,
            over: arguments::over(request.over()),
            difference: request.difference,
            pace: arguments::asked_pace(&request),
        };
        let interval_ns = arguments::interval_ns(request.interval)?;
        let name = arguments::name(request.session)?;
        let pictures = self.0.watch_flame(caller, name, interval_ns, asked).await?;
        let mut delta = FlameDelta::default();
        Ok(Response::new(messages(
            pictures,
            move |picture: &FlamePicture, at| (delta.next(picture, at), picture.ended.is_some()),
        )))
    }
}

/// Where a message stands in its stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Number of its picture.
    pub seq: u64,
    /// Pictures before it that the client did not read in time.
    pub dropped: u64,
}

/// Turns pictures into messages, until one is the last or nobody makes any more.
fn messages<P, T>(
    pictures: Pictures<P>,
    next: impl FnMut(&P, Position) -> (T, bool) + Send + 'static,
) -> MessageStream<T>
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
