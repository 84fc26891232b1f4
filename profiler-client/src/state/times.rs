//! What the threads of a flame view did in its time.

use std::collections::HashMap;

use profiler_proto::v1;

use super::flame::FlameState;

/// The module of frames that say what a thread did off the CPU.
pub const OFF_CPU: &str = "[off-cpu]";

/// What threads did, as frames of [`OFF_CPU`] say it; `on_cpu` where a stack has none.
pub const ACTIVITIES: [&str; 5] = ["on_cpu", "sleeping", "uninterruptible", "stopped", "runnable"];

/// Time of the calls inside and outside, in nanoseconds, in the order of [`ACTIVITIES`].
///
/// The outermost of such frames counts: what is further in is that it goes on, or what others did whom the thread waited
/// for.
#[must_use]
pub fn times(state: &FlameState) -> [(u64, u64); ACTIVITIES.len()] {
    let mut times = [(0_u64, 0_u64); ACTIVITIES.len()];
    let mut known: HashMap<u32, Option<usize>> = HashMap::with_capacity(state.order.len());
    // Parents come first.
    for id in &state.order {
        let Some(node) = state.nodes.get(id) else { continue };
        let outer = known.get(&node.parent).copied().flatten();
        let activity = outer.or_else(|| activity(state.frames.get(&node.frame)?));
        known.insert(*id, activity);
        let Some(weight) = state.weights.get(id) else {
            continue;
        };
        let (inside_ns, outside_ns) = &mut times[activity.unwrap_or(0)];
        *inside_ns = inside_ns.saturating_add(weight.inside_ns);
        *outside_ns = outside_ns.saturating_add(weight.outside_ns);
    }
    times
}

/// What a frame says that its thread did off the CPU, as an index into [`ACTIVITIES`].
#[must_use]
pub fn activity(frame: &v1::Frame) -> Option<usize> {
    let word = frame
        .function
        .strip_prefix('[')
        .and_then(|word| word.strip_suffix(']'));
    let word = word.filter(|_| frame.module == OFF_CPU)?;
    ACTIVITIES.iter().position(|activity| *activity == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::flame::node;

    #[test]
    fn times_are_of_the_outermost_words() {
        let frame = |id, function: &str, module: &str| v1::Frame {
            id,
            function: function.into(),
            module: module.into(),
            ..Default::default()
        };
        let weight = |node, inside_ns, outside_ns| v1::NodeWeight {
            node,
            inside_ns,
            outside_ns,
            ..Default::default()
        };
        let mut state = FlameState::default();
        let message = v1::WatchFlameResponse {
            snapshot: true,
            // A function of the program may have such a name.
            frames: vec![
                frame(1, "main", "program"),
                frame(2, "[sleeping]", OFF_CPU),
                frame(3, "[runnable]", OFF_CPU),
                frame(4, "[sleeping]", "program"),
                frame(5, "[goes on]", OFF_CPU),
                frame(6, "flush", "program"),
            ],
            nodes: vec![
                node(1, 0, 1),
                node(2, 1, 2),
                node(3, 1, 3),
                node(4, 1, 4),
                node(5, 2, 5),
                // What another did meanwhile.
                node(6, 2, 6),
                node(7, 6, 3),
            ],
            weights: vec![
                weight(1, 1, 10),
                weight(2, 2, 20),
                weight(3, 4, 40),
                weight(4, 8, 80),
                weight(5, 16, 160),
                weight(7, 32, 320),
            ],
            ..Default::default()
        };
        state.apply(message).unwrap();
        assert_eq!(times(&state), [(9, 90), (50, 500), (0, 0), (0, 0), (4, 40)]);
    }
}
