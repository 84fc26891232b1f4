//! A collector of OpenTelemetry, which profiles and metrics are sent to: OTLP over gRPC, as of
//! <https://opentelemetry.io/docs/specs/otlp/>.

use std::{error::Error, time::Duration};

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
use tokio::{sync::mpsc, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};

use crate::{
    cli::{endpoint::OtlpEndpoint, exit::Failure},
    render::{escape::terminal, units},
};

/// A collector that takes longer than this to answer is taken for none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A message that takes longer than this is given up.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a collector.
#[derive(Clone, Debug)]
pub struct Collector {
    channel: Channel,
    url: String,
}

impl Collector {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Where nobody answers there.
    pub async fn connect(OtlpEndpoint(url): &OtlpEndpoint) -> Result<Self, Failure> {
        let connect = async {
            let endpoint = Endpoint::from_shared(url.clone())?;
            let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(SEND_TIMEOUT);
            endpoint.connect().await
        };
        match connect.await {
            Ok(channel) => Ok(Self {
                channel,
                url: url.clone(),
            }),
            Err(error) => Err(Failure::failed(format!(
                "Cannot reach a collector at {url}: {}. Does it listen for OTLP over gRPC there?",
                root(&error)
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
        let request = ExportProfilesServiceRequest::decode(profiles);
        let request = request.map_err(|error| self.refused(&error.to_string()))?;
        let mut client = ProfilesServiceClient::new(self.channel.clone());
        let answer = client.export(request).await;
        let answer = answer
            .map_err(|status| self.refused(status.message()))?
            .into_inner();
        match answer
            .partial_success
            .filter(|partial| partial.rejected_profiles != 0)
        {
            Some(partial) => Err(self.refused(&partial.error_message)),
            None => Ok(()),
        }
    }

    /// Sends metrics.
    async fn send_metrics(&self, MetricsData { resource_metrics }: MetricsData) -> Result<(), Failure> {
        let request = ExportMetricsServiceRequest { resource_metrics };
        let mut client = MetricsServiceClient::new(self.channel.clone());
        let answer = client.export(request).await;
        let answer = answer
            .map_err(|status| self.refused(status.message()))?
            .into_inner();
        match answer
            .partial_success
            .filter(|partial| partial.rejected_data_points != 0)
        {
            Some(partial) => Err(self.refused(&partial.error_message)),
            None => Ok(()),
        }
    }

    fn refused(&self, reason: &str) -> Failure {
        let reason = if reason.is_empty() {
            "it does not say why"
        } else {
            reason
        };
        Failure::failed(format!(
            "The collector at {} did not take it: {}.",
            self.url,
            terminal(reason)
        ))
    }

    /// Metrics that are sent again and again from now on.
    #[must_use]
    pub fn into_stream(self) -> MetricsStream {
        let (queue, mut metrics) = mpsc::channel(1);
        let collector = self.clone();
        let task = tokio::spawn(async move {
            let mut sent = Sent::default();
            while let Some(metrics) = metrics.recv().await {
                let outcome = collector.send_metrics(metrics).await;
                sent.times += 1;
                sent.failures += u64::from(outcome.is_err());
                sent.last = outcome;
            }
            sent
        });
        MetricsStream {
            queue,
            task,
            url: self.url,
        }
    }
}

/// What became of what was sent.
#[derive(Debug)]
struct Sent {
    times: u64,
    failures: u64,
    last: Result<(), Failure>,
}

impl Default for Sent {
    fn default() -> Self {
        Self {
            times: 0,
            failures: 0,
            last: Ok(()),
        }
    }
}

/// Metrics that are sent as they change. They are sums since the start: where a collector is slow, those in between are left out,
/// and no call is lost.
#[derive(Debug)]
pub struct MetricsStream {
    queue: mpsc::Sender<MetricsData>,
    task: JoinHandle<Sent>,
    url: String,
}

impl MetricsStream {
    /// Has them sent if the collector has taken those before.
    pub fn offer(&self, metrics: impl FnOnce() -> MetricsData) {
        if let Ok(permit) = self.queue.try_reserve() {
            permit.send(metrics());
        }
    }

    /// Sends the last ones, and says in a line how often that was done.
    ///
    /// # Errors
    ///
    /// Where the collector did not take the last ones.
    pub async fn finish(self, last: MetricsData) -> Result<String, Failure> {
        let Self { queue, task, url } = self;
        // Where the task has ended, its outcome says why.
        let _ = queue.send(last).await;
        drop(queue);
        let sent = task
            .await
            .map_err(|error| Failure::failed(format!("Sending to {url} broke off: {error}.")))?;
        sent.last?;
        let times = units::count(sent.times);
        Ok(if sent.failures == 0 {
            format!("{url}: metrics sent {times} times")
        } else {
            let failures = units::count(sent.failures);
            format!("{url}: metrics sent {times} times, {failures} of them in vain; the last ones were taken")
        })
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
