//! What the threads of a flame view did in its time.

use profiler_proto::v1;

use super::flame::FlameState;

/// The module of frames that say what a thread did off the CPU.
pub const OFF_CPU: &str = "[off-cpu]";

/// Such a frame, of what goes on when the session ends.
const GOES_ON: &str = "[goes on]";

/// What threads did, by the innermost frame of their stacks; `on_cpu` where they ran.
pub const ACTIVITIES: [&str; 5] = ["on_cpu", "sleeping", "uninterruptible", "stopped", "runnable"];

/// Time of the calls inside and outside, in nanoseconds, in the order of [`ACTIVITIES`].
#[must_use]
pub fn times(state: &FlameState) -> [(u64, u64); ACTIVITIES.len()] {
    let mut times = [(0_u64, 0_u64); ACTIVITIES.len()];
    for (id, weight) in &state.weights {
        let at = |id: u32| {
            let node = state.nodes.get(&id)?;
            Some((state.frames.get(&node.frame)?, node.parent))
        };
        // What still goes on says so innermost.
        let innermost = at(*id).and_then(|(frame, parent)| {
            let goes_on = frame.module == OFF_CPU && frame.function == GOES_ON;
            if goes_on {
                at(parent)
            } else {
                Some((frame, parent))
            }
        });
        let (inside_ns, outside_ns) = &mut times[innermost.map_or(0, |(frame, _)| activity(frame))];
        *inside_ns = inside_ns.saturating_add(weight.inside_ns);
        *outside_ns = outside_ns.saturating_add(weight.outside_ns);
    }
    times
}

/// What a frame says that its thread did, as an index into [`ACTIVITIES`].
fn activity(frame: &v1::Frame) -> usize {
    let word = frame
        .function
        .strip_prefix('[')
        .and_then(|word| word.strip_suffix(']'));
    let known = word.filter(|_| frame.module == OFF_CPU);
    let place = known.and_then(|word| ACTIVITIES.iter().position(|activity| *activity == word));
    place.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_innermost_frames() {
        let frame = |id, function: &str, module: &str| v1::Frame {
            id,
            function: function.into(),
            module: module.into(),
            ..Default::default()
        };
        let node = |id, parent, frame| v1::FlameNode {
            id,
            parent,
            frame,
            complete: true,
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
            ],
            nodes: vec![
                node(1, 0, 1),
                node(2, 1, 2),
                node(3, 1, 3),
                node(4, 1, 4),
                node(5, 2, 5),
            ],
            weights: vec![
                weight(1, 1, 10),
                weight(2, 2, 20),
                weight(3, 4, 40),
                weight(4, 8, 80),
                weight(5, 16, 160),
            ],
            ..Default::default()
        };
        state.apply(message).unwrap();
        assert_eq!(times(&state), [(9, 90), (18, 180), (0, 0), (0, 0), (4, 40)]);
    }
}
