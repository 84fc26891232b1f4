//! What slow calls do, on its way to the wire.

use profiler_aggregate::{
    explain::{Durations, Share},
    interval::Estimate,
};
use profiler_proto::v1;
use profiler_scope::Place;

use super::{
    convert,
    stream_info::{self, Position},
};
use crate::session::{ExplainPicture, Explained, What};

pub fn picture(picture: &ExplainPicture, at: Position) -> v1::WatchExplainResponse {
    v1::WatchExplainResponse {
        info: Some(stream_info::of_picture(
            at,
            &picture.scope,
            picture.cost,
            &picture.lost,
            picture.ended.as_ref(),
        )),
        threshold_ns: picture.threshold_ns.unwrap_or(0),
        threshold_of_all_ns: picture.threshold_of_all_ns.unwrap_or(0),
        warming: picture.warming,
        calls: picture.calls,
        looked_at: picture.looked_at,
        slow: Some(side(picture.slow)),
        other: Some(side(picture.other)),
        features: u32::try_from(picture.features).unwrap_or(u32::MAX),
        judged: u32::try_from(picture.judged).unwrap_or(u32::MAX),
        findings: picture.findings.iter().map(finding).collect(),
        not_looked_at: picture
            .left_out
            .iter()
            .map(|not| v1::NotLookedAt {
                what: not.what.clone(),
                reason: not.reason.clone(),
            })
            .collect(),
        lost: convert::losses(&picture.lost),
    }
}

fn side(side: Durations) -> v1::CallsOfSide {
    v1::CallsOfSide {
        calls: side.calls,
        mean_ns: side.mean_ns,
    }
}

fn finding(finding: &Explained) -> v1::Finding {
    let kind = match finding.what {
        What::Value(..) => v1::finding::Kind::Value,
        What::Wait(_) => v1::finding::Kind::Wait,
        What::Frame(_) => v1::finding::Kind::Frame,
        What::Place(
            Place::Call { .. }
            | Place::Function(_)
            | Place::Inlined(_)
            | Place::SystemCall(_)
            | Place::KernelFunction(_),
        )
        | What::Many(_) => v1::finding::Kind::Call,
        What::Place(Place::Line { .. } | Place::Address { .. } | Place::Tracepoint { .. }) => {
            v1::finding::Kind::Line
        }
        What::Place(Place::Branch { .. }) => v1::finding::Kind::Branch,
    };
    let next_cost = finding.cost.filter(|_| finding.next.is_some());
    v1::Finding {
        kind: kind.into(),
        text: finding.text.clone(),
        slow: Some(share(finding.slow)),
        other: Some(share(finding.other)),
        difference: Some(interval(finding.difference)),
        slow_mean: finding.means.map(|means| means.slow),
        other_mean: finding.means.map(|means| means.other),
        next: finding.next.clone().unwrap_or_default(),
        next_hits_per_s: next_cost.map(|cost| cost.hits_per_s),
        next_cpu_share: next_cost.map(|cost| cost.cpu_share),
    }
}

fn share(share: Share) -> v1::CallShare {
    v1::CallShare {
        have: share.have,
        of: share.of,
    }
}

fn interval(estimate: Estimate) -> v1::Interval {
    v1::Interval {
        value: estimate.value,
        low: estimate.low,
        high: estimate.high,
    }
}
