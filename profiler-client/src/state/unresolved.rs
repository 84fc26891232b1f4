//! How much of a flame view has functions that are not known, and why.

use std::collections::{BTreeMap, HashMap};

use super::flame::FlameState;

/// Samples of both sides whose stack holds a function that is not known, by the reason of the innermost such.
#[must_use]
pub fn samples(state: &FlameState) -> BTreeMap<String, u64> {
    // Parents come first, so what is known of a node's stack is known before it.
    let mut reasons: HashMap<u32, &str> = HashMap::new();
    let mut samples: BTreeMap<String, u64> = BTreeMap::new();
    for id in &state.order {
        let Some(node) = state.nodes.get(id) else { continue };
        let own = state.frames.get(&node.frame).map(|frame| &*frame.unresolved);
        let reason = own
            .filter(|reason| !reason.is_empty())
            .or_else(|| reasons.get(&node.parent).copied());
        let Some(reason) = reason else { continue };
        reasons.insert(*id, reason);
        let Some(weight) = state.weights.get(id) else {
            continue;
        };
        let count = weight.inside_samples.saturating_add(weight.outside_samples);
        if count > 0 {
            let sum = samples.entry(reason.to_owned()).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use profiler_proto::v1;

    use super::*;
    use crate::state::flame::node;

    #[test]
    fn the_innermost_reason_counts() {
        let frame = |id, unresolved: &str| v1::Frame {
            id,
            unresolved: unresolved.into(),
            ..Default::default()
        };
        let weight = |node, inside_samples, outside_samples| v1::NodeWeight {
            node,
            inside_samples,
            outside_samples,
            ..Default::default()
        };
        let mut state = FlameState::default();
        // main, main;?, main;?;leaf, main;?;[anon], main;leaf
        let message = v1::WatchFlameResponse {
            snapshot: true,
            frames: vec![frame(1, ""), frame(2, "no symbols"), frame(3, "no file")],
            nodes: vec![
                node(1, 0, 1),
                node(2, 1, 2),
                node(3, 2, 1),
                node(4, 2, 3),
                node(5, 1, 1),
            ],
            weights: vec![
                weight(1, 1, 1),
                weight(2, 2, 0),
                weight(3, 4, 8),
                weight(4, 16, 0),
                weight(5, 32, 0),
            ],
            ..Default::default()
        };
        state.apply(message).unwrap();
        let expected = [("no file", 16), ("no symbols", 14)].map(|(reason, n)| (reason.to_owned(), n));
        assert_eq!(samples(&state), BTreeMap::from(expected));
    }
}
