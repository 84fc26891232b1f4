//! Profiles of other tools in the place of a recording: they are shown, compared and written anew.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use profiler_export::{Profile, import};
use profiler_proto::v1;

use crate::{
    cli::request::{Flame, Host, SessionChoice, Sides},
    failure::Failure,
    output::note,
    render::{escape::terminal, svg::About, units},
    state::{flame::FlameState, imported},
};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// What was read.
pub struct Imported {
    /// The stacks.
    pub state: FlameState,
    /// What is said of them.
    pub about: About,
}

/// Reads what a host names, if that is no recording but what another tool wrote.
///
/// # Errors
///
/// Where it cannot be read, or what is asked for is not in such profiles.
pub fn open(host: &Host, request: &Flame) -> Result<Option<Imported>, Failure> {
    let (path, before) = match host {
        Host::Recording(path) => (path, None),
        Host::Comparison { after, before } => (after, Some(before)),
        _ => return Ok(None),
    };
    let foreign = [Some(path), before].map(|path| path.is_some_and(|path| is_foreign(path)));
    if !foreign.contains(&true) {
        return Ok(None);
    }
    if before.is_some() && foreign.contains(&false) {
        return Err(Failure::usage(
            "A recording is not compared with a profile of another tool: write it as one first, with `profiler flame --from RECORDING -o FILE.pb.gz`.",
        ));
    }
    let is_compared = before.is_some();
    require_stacks_alone(request, is_compared)?;
    let profile = read(path)?;
    let before = before.map(|path| read(path)).transpose()?;
    let state = imported::of(&profile, before.as_ref())
        .map_err(|error| Failure::failed(format!("{}: {error}.", shown(path))))?;
    let about = About {
        target: shown(path),
        elapsed: Duration::from_nanos(profile.duration_ns),
    };
    if is_compared && state.differences.is_empty() {
        note(
            "warning: the numbers of samples are not known: nothing says which differences are chance, and none has a colour.",
        );
    }
    Ok(Some(Imported { state, about }))
}

/// What was read, in a line.
#[must_use]
pub fn describe(state: &FlameState, about: &About) -> String {
    let summary = &state.summary;
    let mut words = Vec::new();
    if !about.elapsed.is_zero() {
        words.push(units::duration(about.elapsed.as_nanos() as f64));
    }
    if summary.samples > 0 {
        words.push(format!("{} samples", units::count(summary.samples)));
    } else {
        let weights = state.weights.values();
        let drawn = weights.fold(0_u64, |sum, weight| sum.saturating_add(weight.inside_ns));
        words.push(format!(
            "{} drawn, of a number of samples that it does not say",
            units::weight(drawn, &state.unit)
        ));
    }
    if let Some(before) = state.before.as_ref().filter(|_| summary.samples > 0) {
        words.push(format!(
            "{} of after and {} of before",
            units::count(summary.inside),
            units::count(before.inside)
        ));
    }
    words.join(", ")
}

/// The flame graph of a file that is no recording, but what another tool wrote, and how long that was taken; `None` of others.
///
/// # Errors
///
/// Where it cannot be read.
pub fn picture(host: &Host) -> Result<Option<Picture>, Failure> {
    let Host::Recording(path) = host else {
        return Ok(None);
    };
    if !is_foreign(path) {
        return Ok(None);
    }
    let profile = read(path)?;
    let message = imported::message(&profile, None)
        .map_err(|error| Failure::failed(format!("{}: {error}.", shown(path))))?;
    Ok(Some(Picture {
        message: Box::new(message),
        length: Duration::from_nanos(profile.duration_ns),
    }))
}

/// What there is to see of such a file.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Its stacks.
    pub message: Box<v1::WatchFlameResponse>,
    /// How long it was taken; zero where that is not known.
    pub length: Duration,
}

/// Whether a file is there and no recording. What is no file, such as a pipe, is left to who opens recordings.
fn is_foreign(path: &Path) -> bool {
    if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut begin = [0; profiler_recording::MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    match read {
        Ok(()) => begin != *profiler_recording::MAGIC,
        // It is shorter than that.
        Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
    }
}

fn read(path: &Path) -> Result<Profile, Failure> {
    let failed = |reason: String| Failure::failed(format!("Cannot read {}: {reason}.", shown(path)));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed("it is larger than 1 GiB".to_owned()));
    }
    import::read(&bytes).map_err(|error| {
        let reason = terminal(&error.reason).into_owned();
        failed(format!(
            "it is not a recording, nor a profile of another tool: {reason}"
        ))
    })
}

fn shown(path: &Path) -> String {
    terminal(&path.to_string_lossy()).into_owned()
}

/// Refuses what only a recording can answer.
fn require_stacks_alone(request: &Flame, is_compared: bool) -> Result<(), Failure> {
    let create = match &request.session {
        SessionChoice::Make(create) => create.as_ref(),
        SessionChoice::Join(_) => return Ok(()),
    };
    let target = create.target.as_ref().and_then(|target| target.target.as_ref());
    let is_part =
        |time: Option<v1::RecordedTime>| time.is_some_and(|time| (time.begin_ns, time.end_ns) != (0, 0));
    let has_time = match target {
        Some(v1::target::Target::Recording(time)) => is_part(Some(*time)),
        Some(v1::target::Target::Comparison(both)) => is_part(both.after) || is_part(both.before),
        _ => false,
    };
    let asked = [
        (!create.scope.is_empty(), "a scope"),
        (has_time, "a part of its time"),
        (request.sides == Sides::Outside, "--outside"),
        (request.sides == Sides::Difference && !is_compared, "--diff"),
        (request.by != v1::Grouping::Function, "--by"),
        (request.times != v1::Times::Unspecified, "--on-cpu or --off-cpu"),
        (request.over != v1::Over::Start, "--over"),
        (request.waits, "--waits"),
        (request.unique, "--unique"),
        (request.event.is_some(), "--event"),
    ];
    match asked.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, what)) => Err(Failure::usage(format!(
            "A profile of another tool has stacks alone, neither calls nor threads: leave out {what}."
        ))),
        None => Ok(()),
    }
}
