//! `profiler.v1.ViewService`: each view as a stream of its own, and several in one.

use futures_util::StreamExt as _;
use profiler_proto::v1::{self, view_service_server::ViewService};
use tonic::{Request, Response, Status};

use super::{
    arguments, departures,
    places::{Limits, Place, Places},
    streams::{Messages, Watched},
    watches::Watches,
};
use crate::session::{Caller, Handle, Reason, SessionError};

/// How many streams of views there may be, be they of one view or of several: each keeps what its client was told.
const STREAMS: Limits = Limits {
    of_a_user: 256,
    of_all: 1024,
};

/// The service.
pub struct Views {
    handle: Handle,
    watches: Watches,
    places: Places,
}

impl Views {
    /// That of a handle, with the watches of a service.
    pub fn new(handle: Handle, watches: Watches) -> Self {
        Self {
            handle,
            watches,
            places: Places::new(STREAMS),
        }
    }

    async fn open<R: Watched>(&self, request: Request<R>) -> Result<Response<Messages<R::Message>>, Status> {
        let caller = arguments::caller(&request)?;
        let place = take(&self.places, caller)?;
        let messages = departures::open(request.into_inner(), caller, &self.handle).await?;
        Ok(Response::new(keeping(place, messages)))
    }
}

/// Takes a place for a stream of a caller's.
fn take(places: &Places, caller: Caller) -> Result<Place, SessionError> {
    places.take(caller.uid).ok_or_else(|| {
        let Limits { of_a_user, of_all } = STREAMS;
        let message = format!(
            "a user may have {of_a_user} streams of views open at once, and all users but root {of_all}: close others, or ask for \
             several views in one stream (`Watch`)"
        );
        SessionError::new(Reason::LimitReached, message)
    })
}

/// A stream that has its place until it is dropped.
fn keeping<T: 'static>(place: Place, messages: Messages<T>) -> Messages<T> {
    Box::pin(messages.map(move |message| {
        let _ = &place;
        message
    }))
}

#[tonic::async_trait]
impl ViewService for Views {
    type WatchStream = Messages<v1::WatchResponse>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let caller = arguments::caller(&request)?;
        let place = take(&self.places, caller)?;
        let messages = self.watches.begin(caller, request.into_inner().subscriptions)?;
        Ok(Response::new(keeping(place, messages)))
    }

    async fn change_watch(
        &self,
        request: Request<v1::ChangeWatchRequest>,
    ) -> Result<Response<v1::ChangeWatchResponse>, Status> {
        let caller = arguments::caller(&request)?;
        self.watches.change(caller, request.into_inner()).await?;
        Ok(Response::new(v1::ChangeWatchResponse {}))
    }

    type WatchLatencyStream = Messages<v1::WatchLatencyResponse>;

    async fn watch_latency(
        &self,
        request: Request<v1::WatchLatencyRequest>,
    ) -> Result<Response<Self::WatchLatencyStream>, Status> {
        self.open(request).await
    }

    type WatchFlameStream = Messages<v1::WatchFlameResponse>;

    async fn watch_flame(
        &self,
        request: Request<v1::WatchFlameRequest>,
    ) -> Result<Response<Self::WatchFlameStream>, Status> {
        self.open(request).await
    }

    type WatchTraceStream = Messages<v1::WatchTraceResponse>;

    async fn watch_trace(
        &self,
        request: Request<v1::WatchTraceRequest>,
    ) -> Result<Response<Self::WatchTraceStream>, Status> {
        self.open(request).await
    }

    type WatchExplainStream = Messages<v1::WatchExplainResponse>;

    async fn watch_explain(
        &self,
        request: Request<v1::WatchExplainRequest>,
    ) -> Result<Response<Self::WatchExplainStream>, Status> {
        self.open(request).await
    }

    type WatchSpansStream = Messages<v1::WatchSpansResponse>;

    async fn watch_spans(
        &self,
        request: Request<v1::WatchSpansRequest>,
    ) -> Result<Response<Self::WatchSpansStream>, Status> {
        self.open(request).await
    }

    type WatchWaitsStream = Messages<v1::WatchWaitsResponse>;

    async fn watch_waits(
        &self,
        request: Request<v1::WatchWaitsRequest>,
    ) -> Result<Response<Self::WatchWaitsStream>, Status> {
        self.open(request).await
    }

    type WatchTimelineStream = Messages<v1::WatchTimelineResponse>;

    async fn watch_timeline(
        &self,
        request: Request<v1::WatchTimelineRequest>,
    ) -> Result<Response<Self::WatchTimelineStream>, Status> {
        self.open(request).await
    }

    type WatchSyscallsStream = Messages<v1::WatchSyscallsResponse>;

    async fn watch_syscalls(
        &self,
        request: Request<v1::WatchSyscallsRequest>,
    ) -> Result<Response<Self::WatchSyscallsStream>, Status> {
        self.open(request).await
    }

    type WatchRecordsStream = Messages<v1::WatchRecordsResponse>;

    async fn watch_records(
        &self,
        request: Request<v1::WatchRecordsRequest>,
    ) -> Result<Response<Self::WatchRecordsStream>, Status> {
        self.open(request).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn streams_of_a_user_are_bounded_until_they_end_and_roots_are_not() {
        let places = Places::new(STREAMS);
        let open = |uid| {
            let place = take(&places, Caller { uid, gid: uid })?;
            let messages: Messages<u32> = Box::pin(stream::iter([Ok(1), Ok(2)]));
            Ok::<_, SessionError>(keeping(place, messages))
        };
        let mut streams: Vec<_> = (0..STREAMS.of_a_user).map(|_| open(7).unwrap()).collect();
        let refused = open(7).err().unwrap();
        assert_eq!(refused.reason, Reason::LimitReached);
        assert!(refused.message.contains("256") && refused.message.contains("Watch"));
        assert!(open(8).is_ok() && open(0).is_ok());
        // One that was read in part has its place still.
        assert_eq!(streams[0].next().await.unwrap().unwrap(), 1);
        assert!(open(7).is_err());
        streams.pop();
        assert!(open(7).is_ok());
    }
}
