//! The calls of a function by a value, as the client knows them.

use std::collections::BTreeMap;

use profiler_proto::v1;

use super::{Malformed, histogram::Counts};

/// The calls of a function since the start, by the value that an expression had where they began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByValue {
    /// The expression, as it was understood.
    pub expression: String,
    /// Name of its type; empty where it is not known.
    pub type_name: String,
    /// Calls in all: those of `values`, `other` and `not_divided`.
    pub calls: u64,
    /// What took the most time in all first.
    pub values: Vec<ValueCalls>,
    /// Calls with other values.
    pub other: ValueCalls,
    /// Calls whose value or duration is not known, by reason.
    pub not_divided: BTreeMap<String, u64>,
}

/// The calls that began with a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueCalls {
    /// The value; of the others, nothing.
    pub value: v1::HitValue,
    /// The calls in numbers.
    pub summary: v1::Summary,
    /// The calls by duration.
    pub counts: Counts,
}

impl ByValue {
    /// Reads what the protocol carries: all that is known.
    ///
    /// # Errors
    ///
    /// Where a histogram leaves the layout.
    pub fn read(message: v1::CallsByValue) -> Result<Self, Malformed> {
        let v1::CallsByValue {
            function: _,
            expression,
            r#type,
            calls,
            values,
            other,
            not_divided,
        } = message;
        Ok(Self {
            expression,
            type_name: r#type,
            calls,
            values: values
                .into_iter()
                .map(ValueCalls::read)
                .collect::<Result<_, _>>()?,
            other: ValueCalls::read(other.unwrap_or_default())?,
            not_divided: not_divided.into_iter().collect(),
        })
    }

    /// The time of all calls that are divided, in nanoseconds.
    #[must_use]
    pub fn time_ns(&self) -> f64 {
        let rows = self.values.iter().chain([&self.other]);
        rows.map(ValueCalls::time_ns).sum()
    }
}

impl ValueCalls {
    fn read(message: v1::ValueLatency) -> Result<Self, Malformed> {
        let v1::ValueLatency {
            value,
            summary,
            counts,
        } = message;
        Ok(Self {
            value: value.unwrap_or_default(),
            summary: summary.unwrap_or_default(),
            counts: Counts::read(&counts.unwrap_or_default())?,
        })
    }

    /// The time that its calls took in all, in nanoseconds.
    #[must_use]
    pub fn time_ns(&self) -> f64 {
        self.summary.count * self.summary.mean_ns
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn row(value: Option<v1::HitValue>, calls: u32, mean_ns: f64) -> v1::ValueLatency {
        v1::ValueLatency {
            value,
            summary: Some(v1::Summary {
                count: calls.into(),
                mean_ns,
                p50_ns: 900,
                p95_ns: 2_000,
                p99_ns: 3_000,
                max_ns: 4_000,
                ..Default::default()
            }),
            counts: Some(v1::Histogram {
                bucket_deltas: vec![100],
                counts: vec![calls.into()],
            }),
        }
    }

    fn value(state: v1::ValueState, json: &str, text: &str, reason: &str) -> v1::HitValue {
        v1::HitValue {
            state: state.into(),
            json: json.into(),
            text: text.into(),
            reason: reason.into(),
            ..Default::default()
        }
    }

    /// An enumerator, a number that has no name, one that cannot be read, others, and what is not divided.
    pub(crate) fn sample(function: u32) -> v1::CallsByValue {
        use v1::ValueState::{Ok, Unreadable};
        v1::CallsByValue {
            function,
            expression: "req->kind".into(),
            r#type: "enum kind".into(),
            calls: 150,
            values: vec![
                row(Some(value(Ok, "\"RED\"", "RED", "")), 80, 9_000.0),
                row(
                    Some(value(Ok, "9007199254740993", "9007199254740993", "")),
                    40,
                    2_000.0,
                ),
                row(Some(value(Unreadable, "", "", "no page\x1b[2J")), 10, 1_000.0),
            ],
            other: Some(row(None, 15, 1_000.0)),
            not_divided: [("rate_limit".to_owned(), 4), ("open".to_owned(), 1)].into(),
        }
    }

    #[test]
    fn all_is_read_and_adds_up() {
        let by = ByValue::read(sample(1)).unwrap();
        let calls = by.values.iter().chain([&by.other]).map(|row| row.counts.total());
        assert_eq!(
            calls.sum::<u64>() + by.not_divided.values().sum::<u64>(),
            by.calls
        );
        assert!((by.time_ns() - 825_000.0).abs() < 1e-6);
        assert_eq!(
            ByValue::read(v1::CallsByValue::default()).unwrap(),
            ByValue::default()
        );
    }

    #[test]
    fn a_histogram_beyond_the_layout_is_refused() {
        let mut message = sample(1);
        message.values[0].counts.as_mut().unwrap().bucket_deltas = vec![5000];
        assert!(ByValue::read(message).is_err());
    }
}
