//! What slow calls do that others do not, as NDJSON.

use std::collections::BTreeMap;

use profiler_proto::v1;
use serde_json::{Value, json};

use super::json::{SCHEMA, integer, known, line};

/// The `explain` object, with so many findings.
#[must_use]
pub fn explained(explained: &v1::WatchExplainResponse, number: usize) -> String {
    let side = |side: Option<v1::CallsOfSide>| {
        let side = side.unwrap_or_default();
        json!({"calls": integer(side.calls), "mean_ns": nanoseconds(side.mean_ns)})
    };
    let lost: BTreeMap<&str, Value> = explained
        .lost
        .iter()
        .map(|(reason, &count)| (reason.as_str(), integer(count)))
        .collect();
    let not_looked_at = explained.not_looked_at.iter();
    let mut lines = String::new();
    line(
        &mut lines,
        &json!({
            "type": "explain",
            "schema": SCHEMA,
            "scope": explained.info.as_ref().map_or("", |info| info.scope.as_str()),
            "threshold_ns": if explained.threshold_ns == 0 { Value::Null } else { integer(explained.threshold_ns) },
            "threshold_of_all_ns": if explained.threshold_of_all_ns == 0 { Value::Null } else { integer(explained.threshold_of_all_ns) },
            "warming": explained.warming,
            "calls": integer(explained.calls),
            "looked_at": integer(explained.looked_at),
            "slow": side(explained.slow),
            "other": side(explained.other),
            "features": explained.features,
            "judged": explained.judged,
            "findings": explained.findings.iter().take(number).map(finding).collect::<Vec<_>>(),
            "not_looked_at": not_looked_at
                .map(|not| json!({"what": not.what, "reason": not.reason}))
                .collect::<Vec<_>>(),
            "lost": lost,
        }),
    );
    lines
}

fn finding(finding: &v1::Finding) -> Value {
    let share = |share: Option<v1::CallShare>| {
        let share = share.unwrap_or_default();
        json!({"have": integer(share.have), "of": integer(share.of)})
    };
    let difference = finding.difference.unwrap_or_default();
    let kind = match finding.kind() {
        v1::finding::Kind::Branch => "branch",
        v1::finding::Kind::Line => "line",
        v1::finding::Kind::Call => "call",
        v1::finding::Kind::Wait => "wait",
        v1::finding::Kind::Frame => "frame",
        v1::finding::Kind::Value | v1::finding::Kind::Unspecified => "value",
    };
    let mut object = json!({
        "kind": kind,
        "what": finding.text,
        "slow": share(finding.slow),
        "other": share(finding.other),
        "difference": {"value": difference.value, "low": difference.low, "high": difference.high},
        "next": known(&finding.next),
        "next_hits_per_s": finding.next_hits_per_s,
        "next_cpu_share": finding.next_cpu_share,
    });
    if let (Some(slow), Some(other)) = (finding.slow_mean, finding.other_mean) {
        if matches!(finding.kind(), v1::finding::Kind::Call | v1::finding::Kind::Wait) {
            object["slow_mean_ns"] = nanoseconds(slow);
            object["other_mean_ns"] = nanoseconds(other);
        } else {
            object["slow_mean"] = slow.into();
            object["other_mean"] = other.into();
        }
    }
    object
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a duration, whole as all are"
)]
fn nanoseconds(ns: f64) -> Value {
    integer(ns.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{explain::tests::response, parsed::parse};

    #[test]
    fn findings_are_an_object_each() {
        let text = explained(&response(), 2);
        let object = parse(&text).remove(0);
        assert_eq!(object["type"], "explain");
        assert_eq!(object["slow"], json!({"calls": 42, "mean_ns": 12_100_000}));
        let findings = object["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[0]["next"], "f[>= p95]/main.cc:1310!taken");
        assert_eq!(
            (&findings[0]["next_hits_per_s"], &findings[0]["next_cpu_share"]),
            (&json!(1234.0), &json!(0.0042))
        );
        assert_eq!(findings[0]["slow"], json!({"have": 42, "of": 42}));
        assert_eq!(findings[1]["kind"], "call");
        assert_eq!(findings[1]["slow_mean_ns"], 3_920_000);
    }
}
