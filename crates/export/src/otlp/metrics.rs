//! OpenTelemetry's metrics: the message `MetricsData`, with an exponential histogram for each function.
//!
//! The format is that of <https://github.com/open-telemetry/opentelemetry-proto>, version 1.
//!
//! Histograms of calls have buckets of equal width between two powers of two, 0.4 to 0.8% of a duration. Exponential ones of
//! [`SCALE`] have buckets of 0.54%. A bucket's calls go to the exponential bucket that its middle lies in: none is lost or
//! divided, and a percentile moves by at most the width of one bucket of each kind, 1.4%. The conversion is made once, here:
//! histograms of several functions or machines are to be added before it.

use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Metric, MetricsData,
    ResourceMetrics, ScopeMetrics, exponential_histogram_data_point::Buckets, metric::Data,
};
use prost::Message as _;

use super::{attribute, instrumentation, key, resource};
use crate::durations::{Count, Durations, FunctionDurations};

/// The scale: bucket `i` holds durations above `2^(i / 2^SCALE)` seconds, up to where the next begins.
pub const SCALE: i32 = 7;

/// Buckets for each power of two.
const PER_OCTAVE: f64 = (1_u32 << SCALE) as f64;

const NS_PER_S: f64 = 1e9;

/// Writes the durations as the bytes of [`message`].
#[must_use]
pub fn write(durations: &Durations) -> Vec<u8> {
    message(durations).encode_to_vec()
}

/// The durations as a metric, `profiler.call.duration`, in seconds, cumulative since they are counted.
#[must_use]
pub fn message(durations: &Durations) -> MetricsData {
    let points = durations.functions.iter();
    let points = points.map(|function| point(durations, function)).collect();
    let metric = Metric {
        name: "profiler.call.duration".to_owned(),
        description: "How long calls took".to_owned(),
        unit: "s".to_owned(),
        data: Some(Data::ExponentialHistogram(ExponentialHistogram {
            data_points: points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        })),
        ..Metric::default()
    };
    let scope = ScopeMetrics {
        scope: Some(instrumentation()),
        metrics: vec![metric],
        ..ScopeMetrics::default()
    };
    let resource = ResourceMetrics {
        resource: Some(resource(&durations.title)),
        scope_metrics: vec![scope],
        ..ResourceMetrics::default()
    };
    MetricsData {
        resource_metrics: vec![resource],
    }
}

fn point(durations: &Durations, function: &FunctionDurations) -> ExponentialHistogramDataPoint {
    let count = function
        .counts
        .iter()
        .fold(0_u64, |sum, counted| sum.saturating_add(counted.count));
    let none = function.counts.iter().filter(|counted| counted.value_ns == 0);
    let seconds = |ns: u64| (count > 0).then_some(ns as f64 / NS_PER_S);
    ExponentialHistogramDataPoint {
        attributes: [
            attribute(key::FUNCTION, &function.name),
            attribute(key::MODULE, &function.module),
            attribute(key::SCOPE, &durations.scope),
        ]
        .into_iter()
        .flatten()
        .collect(),
        start_time_unix_nano: durations.began_ns,
        time_unix_nano: durations.ended_ns,
        count,
        sum: Some(function.sum_ns / NS_PER_S),
        scale: SCALE,
        zero_count: none.map(|counted| counted.count).sum(),
        positive: buckets(&function.counts),
        min: seconds(function.min_ns),
        max: seconds(function.max_ns),
        ..ExponentialHistogramDataPoint::default()
    }
}

/// The counts by exponential bucket, from the first that is not empty to the last.
fn buckets(counts: &[Count]) -> Option<Buckets> {
    let counted = counts
        .iter()
        .filter(|counted| counted.value_ns > 0 && counted.count > 0)
        .map(|counted| (index(counted.value_ns), counted.count));
    let counted: Vec<(i32, u64)> = counted.collect();
    let first = counted.iter().map(|(index, _)| *index).min()?;
    let last = counted.iter().map(|(index, _)| *index).max()?;
    let at = |index: i32| usize::try_from(index - first).unwrap_or_default();
    let mut bucket_counts = vec![0_u64; at(last) + 1];
    for (index, count) in counted {
        let sum = &mut bucket_counts[at(index)];
        *sum = sum.saturating_add(count);
    }
    Some(Buckets {
        offset: first,
        bucket_counts,
    })
}

/// The bucket of a duration.
#[expect(
    clippy::cast_possible_truncation,
    reason = "within 128 * 64 of nothing, as logarithms of 64 bits are"
)]
fn index(ns: u64) -> i32 {
    ((ns as f64 / NS_PER_S).log2() * PER_OCTAVE).ceil() as i32 - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_lies_in_its_bucket(ns in 1..1_u64 << 42) {
            let edge = |index: i32| (f64::from(index) / PER_OCTAVE).exp2() * NS_PER_S;
            let (from, to) = (edge(index(ns)), edge(index(ns) + 1));
            // To within what a double rounds.
            prop_assert!(from < ns as f64 * (1.0 + 1e-9) && ns as f64 <= to * (1.0 + 1e-9), "{from} {ns} {to}");
        }

        #[test]
        fn no_call_is_lost(counts in prop::collection::vec((0..1_u64 << 42, 0..1000_u64), 0..50)) {
            let counts: Vec<Count> = counts.into_iter().map(|(value_ns, count)| Count { value_ns, count }).collect();
            let function = FunctionDurations { counts, ..FunctionDurations::default() };
            let point = point(&Durations::default(), &function);
            let positive = point.positive.map_or(0, |buckets| buckets.bucket_counts.iter().sum());
            prop_assert_eq!(point.zero_count + positive, point.count);
        }
    }
}
