//! Counters over time as NDJSON.

use profiler_proto::v1;
use serde_json::{Map, Value, json};

use super::json::{SCHEMA, counts as losses, integer, line};
use crate::{
    cli::events,
    state::timeline::{Bucket, Row, TimelineState},
};

/// The `bucket` object.
#[must_use]
pub fn bucket(state: &TimelineState, rows: &[Row], bucket: &Bucket) -> String {
    let mut object = json!({
        "type": "bucket",
        "schema": SCHEMA,
        "from_ns": integer(bucket.from_ns),
        "to_ns": integer(bucket.to_ns),
        "calls": bucket.calls.map(integer),
        "threads_left_out": integer(bucket.threads_left_out),
    });
    extend(&mut object, counted(state, rows, &bucket.counts));
    // Without threads of their own there is no such key.
    if !bucket.threads.is_empty() {
        let thread = |thread: &v1::ThreadCounts| {
            let mut object = json!({ "tid": thread.tid, "name": thread.name });
            extend(&mut object, counted(state, rows, &thread.counts));
            object
        };
        object["threads"] = bucket.threads.iter().map(thread).collect();
    }
    let mut text = String::new();
    line(&mut text, &object);
    text
}

/// The `summary` object.
#[must_use]
pub fn summary(state: &TimelineState, rows: &[Row]) -> String {
    let totals: Vec<v1::Count> = state
        .totals
        .iter()
        .map(|count| v1::Count {
            unknown: false,
            count: *count,
            share: 1.0,
        })
        .collect();
    let mut object = json!({
        "type": "summary",
        "schema": SCHEMA,
        "scope": state.scope,
        "buckets": integer(state.received),
        "duration_ns": integer(state.duration_ns),
        "calls": state.calls.map(integer),
        "missing": state.missing,
        "lost": losses(&[("slow_client".to_owned(), state.dropped)].into_iter().filter(|(_, lost)| *lost > 0).collect()),
    });
    extend(&mut object, counted(state, rows, &totals));
    if let Some(object) = object.as_object_mut() {
        object.remove("shares");
    }
    let mut text = String::new();
    line(&mut text, &object);
    text
}

fn extend(object: &mut Value, more: Map<String, Value>) {
    if let Some(object) = object.as_object_mut() {
        object.extend(more);
    }
}

/// Counters, their shares, and ratios.
fn counted(state: &TimelineState, rows: &[Row], counts: &[v1::Count]) -> Map<String, Value> {
    let (mut counters, mut shares, mut ratios) = (Map::new(), Map::new(), Map::new());
    for (name, count) in state.counters.iter().zip(counts) {
        let value = if count.unknown {
            Value::Null
        } else {
            integer(count.count)
        };
        counters.insert(name.clone(), value);
        if count.share < 1.0 {
            shares.insert(name.clone(), json!(count.share));
        }
    }
    for row in rows {
        if let Row::Ratio(above, below) = row {
            let count = |at: &usize| {
                let count = counts.get(*at).filter(|count| !count.unknown)?;
                Some(count.count as f64)
            };
            let ratio = count(above).zip(count(below).filter(|below| *below > 0.0));
            let label = events::label(row, &state.counters, "");
            ratios.insert(label, json!(ratio.map(|(above, below)| above / below)));
        }
    }
    let parts = [("counters", counters), ("shares", shares), ("ratios", ratios)];
    parts
        .into_iter()
        .map(|(name, part)| (name.to_owned(), Value::Object(part)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{parsed::parse, timeline::tests::sample},
        *,
    };

    #[test]
    fn an_object_for_a_bucket_and_one_for_all() {
        let (state, _) = sample();
        let rows = [Row::Counter(0), Row::Ratio(0, 1)];
        let object = parse(&bucket(&state, &rows, &state.buckets[1])).remove(0);
        assert_eq!(
            object,
            json!({
                "type": "bucket", "schema": 1, "from_ns": 100_001_000, "to_ns": 200_001_000, "calls": 10,
                "counters": {"task-clock": 100_000_000, "page-faults": 5}, "shares": {},
                "ratios": {"task-clock/page-faults": 20_000_000.0}, "threads_left_out": 0,
                "threads": [{
                    "tid": 7, "name": "clerk", "counters": {"task-clock": 50_000_000, "page-faults": null},
                    "shares": {"page-faults": 0.0}, "ratios": {"task-clock/page-faults": null},
                }],
            })
        );
        let object = parse(&summary(&state, &rows)).remove(0);
        assert_eq!(
            object,
            json!({
                "type": "summary", "schema": 1, "scope": "serve", "buckets": 4, "duration_ns": 400_000_000, "calls": 40,
                "counters": {"task-clock": 200_000_000, "page-faults": 20},
                "ratios": {"task-clock/page-faults": 10_000_000.0}, "missing": {"cycles": "none"}, "lost": {},
            })
        );
    }
}
