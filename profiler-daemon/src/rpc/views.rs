//! `profiler.v1.ViewService`: each view as a stream of its own, and several in one.

use profiler_proto::v1::{self, view_service_server::ViewService};
use tonic::{Request, Response, Status};

use super::{
    arguments, departures,
    streams::{Messages, Watched},
    watches::Watches,
};
use crate::session::Handle;

/// The service.
pub struct Views {
    handle: Handle,
    watches: Watches,
}

impl Views {
    /// That of a handle, with the watches of a service.
    pub fn new(handle: Handle, watches: Watches) -> Self {
        Self { handle, watches }
    }

    async fn open<R: Watched>(&self, request: Request<R>) -> Result<Response<Messages<R::Message>>, Status> {
        let caller = arguments::caller(&request)?;
        let messages = departures::open(request.into_inner(), caller, &self.handle).await?;
        Ok(Response::new(messages))
    }
}

#[tonic::async_trait]
impl ViewService for Views {
    type WatchStream = Messages<v1::WatchResponse>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let caller = arguments::caller(&request)?;
        let messages = self.watches.begin(caller, request.into_inner().subscriptions)?;
        Ok(Response::new(messages))
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
