//! What is written for OpenTelemetry: read by the messages of its own crate.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    common::v1::any_value::Value,
    metrics::v1::{AggregationTemporality, MetricsData, metric::Data},
    profiles::v1development::{KeyValueAndUnit, ProfilesData, ProfilesDictionary},
};
use profiler_export::{Profile, otlp};
use prost::Message as _;

use support::{by_stack, durations, profile};

fn at<T>(table: &[T], index: i32) -> &T {
    &table[usize::try_from(index).unwrap()]
}

struct Reader<'a>(&'a ProfilesDictionary);

impl Reader<'_> {
    fn text(&self, index: i32) -> String {
        at(&self.0.string_table, index).clone()
    }

    fn attribute(&self, index: i32) -> (String, String) {
        let attribute = at(&self.0.attribute_table, index);
        let value = attribute.value.clone().unwrap().value;
        let Some(Value::StringValue(text)) = value else {
            panic!("{value:?}");
        };
        (self.text(attribute.key_strindex), text)
    }

    fn attributes(&self, indexes: &[i32]) -> BTreeMap<String, String> {
        indexes.iter().map(|index| self.attribute(*index)).collect()
    }

    /// Names, the outermost first.
    fn stack(&self, index: i32) -> Vec<String> {
        let locations = &at(&self.0.stack_table, index).location_indices;
        let locations = locations.iter().rev();
        let locations = locations.map(|location| at(&self.0.location_table, *location));
        let lines = locations.flat_map(|location| location.lines.iter().rev());
        lines
            .map(|line| self.text(at(&self.0.function_table, line.function_index).name_strindex))
            .collect()
    }
}

/// Values of each measure by stack and side.
fn stacks(data: &ProfilesData) -> BTreeMap<String, BTreeMap<(Vec<String>, String), u64>> {
    let reader = Reader(data.dictionary.as_ref().unwrap());
    let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
    let of_profile = |profile: &opentelemetry_proto::tonic::profiles::v1development::Profile| {
        let samples = profile.samples.iter().map(|sample| {
            let side = reader.attributes(&sample.attribute_indices)["side"].clone();
            let [value] = sample.values[..] else {
                panic!("{:?}", sample.values)
            };
            (
                (reader.stack(sample.stack_index), side),
                u64::try_from(value).unwrap(),
            )
        });
        let name = reader.text(profile.sample_type.unwrap().type_strindex);
        (name, samples.collect())
    };
    profiles.iter().map(of_profile).collect()
}

fn expected(profile: &Profile) -> BTreeMap<String, BTreeMap<(Vec<String>, String), u64>> {
    let by_stack = by_stack(profile);
    let of_measure = |(at, measure): (usize, &profiler_export::Measure)| {
        let stacks = by_stack.iter();
        let stacks = stacks.map(|(stack, weights)| (stack.clone(), weights[at]));
        (measure.name.clone(), stacks.collect())
    };
    profile.measures.iter().enumerate().map(of_measure).collect()
}

#[test]
fn every_stack_has_its_weight_of_each_measure() {
    let profile = profile();
    let data = ProfilesData::decode(&otlp::encoded_profiles(&profile)[..]).unwrap();
    assert_eq!(stacks(&data), expected(&profile));

    let dictionary = data.dictionary.as_ref().unwrap();
    let reader = Reader(dictionary);
    let shown = &data.resource_profiles[0].scope_profiles[0].profiles[0];
    let shown_type = shown.sample_type.unwrap();
    let shown_type = [shown_type.type_strindex, shown_type.unit_strindex].map(|text| reader.text(text));
    assert_eq!(shown_type, ["cpu", "nanoseconds"], "the last measure comes first");
    assert_eq!(
        (shown.time_unix_nano, shown.duration_nano),
        (1_700_000_000_000_000_000, 10_000_000_000)
    );
    let comments = reader.attributes(&shown.attribute_indices);
    assert_eq!(comments["profiler.comments"], "scope: handle[>= p95]");
    let resource = data.resource_profiles[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes[0].key, "service.name");
    // What is inlined shares the location of the function that it is in.
    let most = dictionary
        .location_table
        .iter()
        .map(|location| location.lines.len());
    assert_eq!(most.max(), Some(2));
    let location = &dictionary.location_table[1];
    let kind = reader.attributes(&location.attribute_indices);
    assert_eq!(kind["profile.frame.type"], "native");
}

#[test]
fn each_table_begins_with_nothing_and_has_nothing_twice() {
    let data = ProfilesData::decode(&otlp::encoded_profiles(&profile())[..]).unwrap();
    let dictionary = data.dictionary.unwrap();
    assert_eq!(dictionary.string_table[0], "");
    assert_eq!(dictionary.attribute_table[0], KeyValueAndUnit::default());
    assert_eq!(dictionary.mapping_table[0].encoded_len(), 0);
    assert_eq!(dictionary.location_table[0].encoded_len(), 0);
    assert_eq!(dictionary.function_table[0].encoded_len(), 0);
    assert_eq!(dictionary.stack_table[0].encoded_len(), 0);
    assert_eq!(dictionary.link_table[0].encoded_len(), 0);
    let is_unique = |encoded: Vec<Vec<u8>>| {
        let all: std::collections::BTreeSet<_> = encoded.iter().collect();
        assert_eq!(all.len(), encoded.len());
    };
    is_unique(
        dictionary
            .string_table
            .iter()
            .map(|text| text.clone().into_bytes())
            .collect(),
    );
    is_unique(
        dictionary
            .stack_table
            .iter()
            .map(prost::Message::encode_to_vec)
            .collect(),
    );
    is_unique(
        dictionary
            .location_table
            .iter()
            .map(prost::Message::encode_to_vec)
            .collect(),
    );
    is_unique(
        dictionary
            .attribute_table
            .iter()
            .map(prost::Message::encode_to_vec)
            .collect(),
    );
}

#[test]
fn a_profile_of_nothing_is_read() {
    let data = ProfilesData::decode(&otlp::encoded_profiles(&Profile::default())[..]).unwrap();
    assert!(data.resource_profiles[0].scope_profiles[0].profiles.is_empty());
}

#[test]
fn histograms_have_each_call_in_its_bucket() {
    let data = MetricsData::decode(&otlp::encoded_metrics(&durations())[..]).unwrap();
    let metric = &data.resource_metrics[0].scope_metrics[0].metrics[0];
    assert_eq!(
        (metric.name.as_str(), metric.unit.as_str()),
        ("profiler.call.duration", "s")
    );
    let Some(Data::ExponentialHistogram(histogram)) = &metric.data else {
        panic!("{:?}", metric.data);
    };
    assert_eq!(
        histogram.aggregation_temporality,
        AggregationTemporality::Cumulative as i32
    );
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.zero_count), (9_503, 3));
    assert_eq!(
        (point.min, point.max, point.sum),
        (Some(0.0), Some(0.0301), Some(15.1))
    );
    let buckets = point.positive.as_ref().unwrap();
    let counted = (buckets.offset..)
        .zip(&buckets.bucket_counts)
        .filter(|(_, count)| **count > 0);
    let counted: Vec<(f64, u64)> = counted
        .map(|(index, count)| ((f64::from(index) / f64::from(1 << otlp::SCALE)).exp2(), *count))
        .collect();
    let [(fast_s, 9_000), (slow_s, 500)] = counted[..] else {
        panic!("{counted:?}");
    };
    let is_near = |from_s: f64, value_s: f64| from_s <= value_s && value_s <= from_s * 1.006;
    assert!(
        is_near(fast_s, 10_048e-9) && is_near(slow_s, 30_015_488e-9),
        "{counted:?}"
    );
}
