//! A collector of OpenTelemetry, which profiles and metrics are sent to: OTLP over gRPC, as of
//! <https://opentelemetry.io/docs/specs/otlp/>.

use std::{error::Error, future::Future, time::Duration};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
        profiles::v1development::{
            ExportProfilesServiceRequest, profiles_service_client::ProfilesServiceClient,
        },
    },
    metrics::v1::MetricsData,
};
use prost::Message as _;
use tokio::{sync::watch, task::JoinHandle};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    cli::endpoint::OtlpEndpoint,
    failure::Failure,
    render::{escape::terminal, units},
};

/// A collector that takes longer than this to answer is taken for none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A message that takes longer than this is given up.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Histograms of calls.
    Metrics,
    /// Stacks.
    Profiles,
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Profiles => "profiles",
        }
    }
}

/// A connection to a collector.
#[derive(Clone, Debug)]
pub struct Collector {
    channel: Channel,
    url: String,
}

impl Collector {
    /// Connects, where there is one to connect to.
    ///
    /// # Errors
    ///
    /// As of [`Self::connect`].
    pub async fn connect_if(
        endpoint: Option<&OtlpEndpoint>,
        signal: Signal,
    ) -> Result<Option<Self>, Failure> {
        match endpoint {
            Some(endpoint) => Self::connect(endpoint, signal).await.map(Some),
            None => Ok(None),
        }
    }

    /// Connects, and sends a message without contents: a server may take connections and speak something else.
    ///
    /// # Errors
    ///
    /// Where nobody answers there who takes this signal.
    pub async fn connect(OtlpEndpoint(url): &OtlpEndpoint, signal: Signal) -> Result<Self, Failure> {
        let connect = async {
            let endpoint = Endpoint::from_shared(url.clone())?;
            endpoint.connect_timeout(CONNECT_TIMEOUT).connect().await
        };
        let channel = connect.await.map_err(|error| {
            Failure::failed(format!(
                "Cannot reach a collector at {url}: {}. Does it listen for OTLP over gRPC there?",
                root(&error)
            ))
        })?;
        let collector = Self {
            channel,
            url: url.clone(),
        };
        let asked = async {
            match signal {
                Signal::Metrics => collector.send_metrics(MetricsData::default()).await,
                Signal::Profiles => collector.send_profiles(&[]).await,
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, asked).await {
            Ok(answer) => answer.map(|()| collector),
            Err(_) => Err(Failure::failed(format!(
                "Who listens at {url} does not answer: is it a collector that takes OTLP over gRPC there?"
            ))),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends profiles, as [`profiler_export::otlp::encoded_profiles`] makes them.
    ///
    /// # Errors
    ///
    /// Where the collector does not take all of them.
    pub async fn send_profiles(&self, profiles: &[u8]) -> Result<(), Failure> {
        let refused = |reason: &str| self.refused(Signal::Profiles, reason);
        let request = ExportProfilesServiceRequest::decode(profiles);
        let request = request.map_err(|error| refused(&error.to_string()))?;
        let mut client = ProfilesServiceClient::new(self.channel.clone());
        let answer = self.ask(Signal::Profiles, client.export(request)).await?;
        let partial = answer.partial_success;
        let rejected = partial.filter(|partial| partial.rejected_profiles != 0);
        rejected.map_or(Ok(()), |partial| Err(refused(&partial.error_message)))
    }

    /// Sends metrics.
    async fn send_metrics(&self, MetricsData { resource_metrics }: MetricsData) -> Result<(), Failure> {
        let request = ExportMetricsServiceRequest { resource_metrics };
        let mut client = MetricsServiceClient::new(self.channel.clone());
        let answer = self.ask(Signal::Metrics, client.export(request)).await?;
        let partial = answer.partial_success;
        let rejected = partial.filter(|partial| partial.rejected_data_points != 0);
        rejected.map_or(Ok(()), |partial| {
            Err(self.refused(Signal::Metrics, &partial.error_message))
        })
    }

    async fn ask<T>(
        &self,
        signal: Signal,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(SEND_TIMEOUT, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.refused(signal, &reason(&status))),
            Err(_) => Err(self.refused(signal, "it did not answer within 10 s")),
        }
    }

    fn refused(&self, signal: Signal, reason: &str) -> Failure {
        let reason = if reason.is_empty() {
            "it does not say why"
        } else {
            reason
        };
        Failure::failed(format!(
            "The collector at {} did not take the {}: {}.",
            self.url,
            signal.name(),
            terminal(reason)
        ))
    }

    /// Metrics that are sent again and again from now on.
    #[must_use]
    pub fn into_stream(self) -> MetricsStream {
        let (newest, mut metrics) = watch::channel(None);
        let collector = self.clone();
        let task = tokio::spawn(async move {
            let mut sent = Sent::default();
            // The last ones are seen when the other end has gone.
            while metrics.changed().await.is_ok() {
                let Some(metrics) = metrics.borrow_and_update().clone() else {
                    continue;
                };
                sent.add(collector.send_metrics(metrics).await);
            }
            sent
        });
        MetricsStream {
            newest,
            task,
            url: self.url,
        }
    }
}

/// What became of what was sent.
#[derive(Default, Debug)]
struct Sent {
    times: u64,
    failures: u64,
    /// Why the last was not taken.
    last: Option<Failure>,
    /// Why one was not taken, of those before the last.
    first_failure: Option<String>,
}

impl Sent {
    fn add(&mut self, outcome: Result<(), Failure>) {
        self.times += 1;
        self.failures += u64::from(outcome.is_err());
        let before = std::mem::replace(&mut self.last, outcome.err());
        if self.first_failure.is_none() {
            self.first_failure = before.map(|failure| failure.message);
        }
    }
}

/// Metrics that are sent as they change. They are sums since the start: where a collector is slow, the newest take the place of
/// those before, and no call is lost.
#[derive(Debug)]
pub struct MetricsStream {
    newest: watch::Sender<Option<MetricsData>>,
    task: JoinHandle<Sent>,
    url: String,
}

impl MetricsStream {
    /// Has them sent when the collector has taken those before.
    pub fn offer(&self, metrics: MetricsData) {
        self.newest.send_replace(Some(metrics));
    }

    /// Sends the last ones, and says in a line how often that was done.
    ///
    /// # Errors
    ///
    /// Where the collector did not take the last ones.
    pub async fn finish(self, last: MetricsData) -> Result<String, Failure> {
        self.offer(last);
        let Self { newest, task, url } = self;
        drop(newest);
        let sent = task
            .await
            .map_err(|error| Failure::failed(format!("Sending to {url} broke off: {error}.")))?;
        if let Some(failure) = sent.last {
            return Err(failure);
        }
        let times = match sent.times {
            1 => "once".to_owned(),
            times => format!("{} times", units::count(times)),
        };
        Ok(match sent.first_failure {
            None => format!("{url}: metrics sent {times}"),
            Some(failure) => {
                let failures = units::count(sent.failures);
                format!(
                    "warning: metrics sent {times} to {url}: {failures} failed, the last was taken. The first failure: {failure}"
                )
            }
        })
    }
}

/// Why a request failed, and what to do about it.
fn reason(status: &Status) -> String {
    let said = status.source().map_or_else(|| status.message().to_owned(), root);
    match status.code() {
        Code::Unimplemented if said.is_empty() => {
            "it has no receiver of them for OTLP over gRPC at this port".to_owned()
        }
        Code::Unimplemented => format!("it has no receiver of them at this port: {said}"),
        Code::OutOfRange | Code::ResourceExhausted => {
            format!(
                "{said}; its receiver may limit the size of messages (max_recv_msg_size_mib): raise it, or write a file with -o FILE.otlp"
            )
        }
        Code::Unavailable => format!("it is not there any more, or busy: {said}"),
        _ => said,
    }
}

/// What an error comes from.
fn root(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
