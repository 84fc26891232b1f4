//! Two parts of recordings in one picture: which shares grew, and which shrank.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use profiler_aggregate::calltree::{FrameId, NodeId};
use profiler_symbolize::{Frame, FrameTable, Grouping};

use super::{
    super::{
        ending::Ending,
        error::{Reason, SessionError},
        picture::{FlamePicture, FlameRequest, FunctionInfo, Losses},
        watchers::{self, Pictures},
    },
    begun::Begun,
    play::Played,
};

/// What the user should know of two parts that are compared.
///
/// # Errors
/// Where they are of different scopes, and none was asked for.
pub fn warnings(after: &Begun, before: &Begun) -> Result<Vec<String>, SessionError> {
    let name = |scope: &str| match scope {
        "" => "everything, without a scope".to_owned(),
        scope => format!("`{scope}`"),
    };
    if after.scope != before.scope {
        let message = format!(
            "the recordings are of different scopes, {} and {}: name the scope to compare",
            name(&before.scope),
            name(&after.scope)
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let mut warnings: Vec<String> = (before.warnings.iter())
        .map(|warning| format!("before: {warning}"))
        .collect();
    let moved = after.functions.iter().filter(|function| {
        let same =
            |other: &&Arc<FunctionInfo>| other.name == function.name && other.module == function.module;
        let others: Vec<_> = before.functions.iter().filter(same).collect();
        !others.is_empty() && others.iter().all(|other| other.address != function.address)
    });
    let mut modules: Vec<&str> = moved.map(|function| &*function.module).collect();
    modules.sort_unstable();
    modules.dedup();
    for module in modules {
        warnings.push(format!(
            "{module} is another build in each recording: functions are compared by name"
        ));
    }
    if after.frequency_hz != before.frequency_hz {
        warnings.push(format!(
            "the sampling frequency was {} Hz, and before {} Hz",
            after.frequency_hz, before.frequency_hz
        ));
    }
    Ok(warnings)
}

/// The flame graph of both: what is inside the one, and outside what is inside the one before.
///
/// # Errors
/// Where no flame graph was requested.
pub fn picture(
    mut after: Played,
    mut before: Played,
    request: FlameRequest,
) -> Result<Pictures<FlamePicture>, SessionError> {
    let [variant, variant_before] = [&after, &before].map(|played| played.variant(request));
    let (times, times_before) = (variant.kind.times, variant_before.kind.times);
    let other_builds = other_builds(&after.frames, &before.frames);
    let matched = Matched::new(&after.frames, &before.frames, variant.kind.by);
    let mut lost = after.flame_losses(times);
    add_losses(&mut lost, before.flame_losses(times_before));
    let attempted = after
        .attempted(times)
        .saturating_add(before.attempted(times_before));
    let (Some(flame), Some(flame_before)) = (&mut after.flame, &mut before.flame) else {
        let message = "no flame graph was requested";
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    };
    let compared = flame.compared(after.now_ns, flame_before, before.now_ns, variant.over, |frame| {
        matched.of(frame)
    });
    add_losses(&mut lost, flame.given_up());
    add_losses(&mut lost, flame_before.given_up());
    let nodes = compared.tree.nodes_after(NodeId::NONE);
    let nodes = nodes.map(|(_, node)| node);
    let mut ended = if after.ended == before.ended {
        after.ended
    } else {
        Ending::other(format!("{}; before: {}", after.ended.reason, before.ended.reason))
    };
    if !other_builds.is_empty() {
        ended = Ending::other(format!(
            "{}; other builds than before: {} (functions are compared by name)",
            ended.reason,
            other_builds.join(", ")
        ));
    }
    if let (Some(event), Some(event_before)) = (times.event(), times_before.event())
        && event != event_before
    {
        ended = Ending::other(format!(
            "{}; {event} was recorded with {}, and before with {}",
            ended.reason,
            event.pace(),
            event_before.pace()
        ));
    }
    let picture = FlamePicture {
        scope: after.scope,
        by: variant.kind.by,
        times,
        generation: 0,
        nodes: Arc::new(nodes.collect()),
        frames: matched.frames,
        picture: compared.picture,
        before: Some(compared.other),
        attempted,
        lost,
        cost: after.cost,
        ended: Some(ended),
    };
    Ok(watchers::single(picture))
}

/// Adds what else was lost.
fn add_losses(lost: &mut Losses, more: impl IntoIterator<Item = (&'static str, u64)>) {
    for (reason, count) in more {
        let sum = lost.entry(reason).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// The modules that both have samples of, in other builds.
fn other_builds<'a>(after: &'a FrameTable, before: &'a FrameTable) -> Vec<&'a str> {
    let (after, before) = (builds(after), builds(before));
    let both = after.into_iter().filter_map(|(module, builds)| {
        let others = before.get(module)?;
        (builds != *others).then_some(module)
    });
    both.collect()
}

/// The build-ids of modules.
fn builds(frames: &FrameTable) -> BTreeMap<&str, BTreeSet<&[u8]>> {
    let mut builds: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
    for frame in frames.iter() {
        if let Some(build) = frame.build() {
            builds.entry(&frame.module).or_default().insert(build);
        }
    }
    builds
}

/// The frames of two recordings, those of the same function once.
///
/// Another build has its functions at other lines. Those of one name in one file (overloads, where names are without
/// parameters) are matched in the order of their lines.
struct Matched {
    frames: FrameTable,
    /// By the number of a frame of the one before.
    of: Vec<u32>,
}

/// What frames of the same function have in common.
#[derive(PartialEq, Eq, Hash)]
struct Name<'a> {
    function: &'a str,
    file: &'a str,
    module: &'a str,
    inlined: bool,
    kernel: bool,
    /// Where lines are what is drawn.
    line: u32,
}

impl<'a> Name<'a> {
    fn of(frame: &'a Frame, by: Grouping) -> Self {
        let Frame {
            function,
            file,
            line,
            module,
            inlined,
            kernel,
            unresolved: _,
            nameable: _,
        } = frame;
        Self {
            function,
            file,
            module,
            inlined: *inlined,
            kernel: *kernel,
            line: if by == Grouping::Line { *line } else { 0 },
        }
    }
}

impl Matched {
    fn new(after: &FrameTable, before: &FrameTable, by: Grouping) -> Self {
        let mut frames = after.clone();
        let (known, others) = (by_name(after, by), by_name(before, by));
        let mut of = vec![0; before.len()];
        for (name, others) in others {
            let known = known.get(&name).map_or(&[][..], Vec::as_slice);
            let at_line: HashMap<&Frame, u32> =
                known.iter().rev().map(|at| (&after[*at as usize], *at)).collect();
            for (rank, &other) in others.iter().enumerate() {
                let frame = &before[other as usize];
                let same = at_line.get(frame);
                let ranked = (known.len() == others.len()).then(|| &known[rank]);
                of[other as usize] = if let Some(at) = ranked.or(same) {
                    *at
                } else {
                    frames.push(frame.clone());
                    u32::try_from(frames.len() - 1).unwrap_or(0)
                };
            }
        }
        Self { frames, of }
    }

    fn of(&self, frame: FrameId) -> FrameId {
        FrameId(self.of.get(frame.0 as usize).copied().unwrap_or(0))
    }
}

/// The numbers of frames by their names, in the order of their lines.
fn by_name(frames: &FrameTable, by: Grouping) -> HashMap<Name<'_>, Vec<u32>> {
    let mut named: HashMap<Name<'_>, Vec<u32>> = HashMap::new();
    for (number, frame) in (0..).zip(frames.iter()) {
        named.entry(Name::of(frame, by)).or_default().push(number);
    }
    for numbers in named.values_mut() {
        numbers.sort_by_key(|number| frames[*number as usize].line);
    }
    named
}
