//! The service's clients, for what programs do not show of it.

use profiler_proto::v1::{
    self, session_service_client::SessionServiceClient, target_service_client::TargetServiceClient,
    view_service_client::ViewServiceClient,
};
use tonic::transport::Channel;

use super::service::channel_of;

/// A service's clients on one connection.
#[derive(Clone)]
pub struct Clients {
    pub sessions: SessionServiceClient<Channel>,
    pub targets: TargetServiceClient<Channel>,
    pub views: ViewServiceClient<Channel>,
}

impl Clients {
    /// Those of whoever has made the connection.
    pub async fn on(stream: std::os::unix::net::UnixStream) -> Self {
        let channel = channel_of(stream).await;
        Self {
            sessions: SessionServiceClient::new(channel.clone()),
            targets: TargetServiceClient::new(channel.clone()),
            views: ViewServiceClient::new(channel),
        }
    }
}

/// A process as a target.
pub fn of(pid: u32) -> v1::Target {
    v1::Target {
        target: Some(v1::target::Target::Pid(pid)),
    }
}
