//! `profiler.v1.InfoService`: which machine this is, who asks, and what they may have.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use profiler_proto::{
    limits::{MAX_FREQUENCY_HZ, MAX_SUBSCRIPTIONS},
    v1::{self, info_service_server::InfoService},
};
use rustix::time::{ClockId, clock_gettime};
use tonic::{Request, Response, Status};

use super::arguments;
use crate::{
    host::Host,
    recording,
    session::{Allowed, Caller, Handle},
};

/// What the service serves.
#[derive(Clone)]
pub enum Served {
    /// The processes of this machine.
    Processes,
    /// A recording of a machine.
    Recording(v1::HostInfo),
    /// One that is held against another.
    Comparison(v1::HostInfo),
}

impl Served {
    /// A recording in a file.
    pub fn recording(path: &Path) -> Self {
        Self::Recording(recording::host(path).unwrap_or_default())
    }

    /// One that is held against another.
    pub fn comparison(path: &Path) -> Self {
        Self::Comparison(recording::host(path).unwrap_or_default())
    }
}

/// The service.
pub struct Info {
    handle: Handle,
    served: Served,
    /// Of this start of the service.
    instance: String,
}

impl Info {
    /// Of what a handle serves.
    pub fn new(handle: Handle, served: Served) -> Self {
        let instance = format!("{:x}-{:x}", std::process::id(), monotonic_ns());
        Self {
            handle,
            served,
            instance,
        }
    }

    fn limits(&self, caller: Caller) -> Option<v1::Limits> {
        let Allowed { held, frequency_hz } = self.handle.allowed(caller)?;
        let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Some(v1::Limits {
            sessions: number(held.sessions),
            probes: number(held.probes),
            frequency_hz: frequency_hz.unwrap_or(MAX_FREQUENCY_HZ),
            subscriptions: number(MAX_SUBSCRIPTIONS),
        })
    }
}

#[tonic::async_trait]
impl InfoService for Info {
    async fn get_info(
        &self,
        request: Request<v1::GetInfoRequest>,
    ) -> Result<Response<v1::GetInfoResponse>, Status> {
        let caller = arguments::caller(&request)?;
        let (host, served) = match &self.served {
            Served::Processes => (this_host(), v1::Served::Processes),
            Served::Recording(host) => (host.clone(), v1::Served::Recording),
            Served::Comparison(host) => (host.clone(), v1::Served::Comparison),
        };
        Ok(Response::new(v1::GetInfoResponse {
            host: Some(host),
            uid: caller.uid,
            is_root: caller.is_root(),
            served: served.into(),
            limits: self.limits(caller),
            instance: self.instance.clone(),
        }))
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds_ns = u64::try_from(now.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000);
    seconds_ns + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// This machine, now.
fn this_host() -> v1::HostInfo {
    let Host {
        id,
        boot_id,
        name,
        kernel,
    } = Host::this();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    v1::HostInfo {
        id,
        boot_id,
        name,
        kernel,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        monotonic_ns: monotonic_ns(),
        // 0 of a clock that is set before 1970.
        since_1970_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
    }
}
