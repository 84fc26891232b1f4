//! What of a source line can become a step.

use profiler_proto::v1;
use profiler_scope::{Name, Place, Scope};

use super::super::lens::LineId;

/// Ways that the branches of a line go on which are told.
const WAYS: usize = 2;

/// The lines that are shown, in order: the function's own, then those of other files.
pub fn lines(source: &v1::SourceFunction) -> impl Iterator<Item = &v1::SourceLine> {
    source.lines.iter().filter(|line| line.line > 0)
}

/// Which line it is.
#[must_use]
pub fn id(source: &v1::SourceFunction, line: &v1::SourceLine) -> LineId {
    let own = source
        .function
        .as_ref()
        .map_or("", |function| function.file.as_str());
    LineId {
        file: if line.file.is_empty() { own } else { &line.file }.to_owned(),
        line: line.line,
    }
}

/// Whether a line is one where the function's ways part or come together again, and which can be a step: a branch, or a loop.
#[must_use]
pub fn has_branch(source: &v1::SourceFunction, line: &v1::SourceLine) -> bool {
    let is_one = |branch: &v1::SourceBranch| branch.otherwise.is_some() || branch.is_loop;
    line.branches.iter().any(is_one) && !places(source, line).is_empty()
}

/// The line that a loop whose jump back decides nothing begins at again.
fn beginning_of_loop(source: &v1::SourceFunction, line: &v1::SourceLine) -> Option<LineId> {
    let mut loops = line.branches.iter();
    let back = loops.find(|branch| branch.is_loop && branch.otherwise.is_none())?;
    let to = back.taken.as_ref()?;
    let begin = lines(source).find(|line| line.line == to.line && line.file == to.file)?;
    let begin_id = id(source, begin);
    (!begin.sites.is_empty() && begin_id != id(source, line)).then_some(begin_id)
}

/// The steps that a line can be: its branches each way, the line itself, where its loop begins again, calls that are made there.
#[must_use]
pub fn places(source: &v1::SourceFunction, line: &v1::SourceLine) -> Vec<Place> {
    let LineId { file, line: number } = id(source, line);
    let file = file_name(&file).to_owned();
    if file.is_empty() {
        return Vec::new();
    }
    let mut places = Vec::new();
    let divides = |branch: &v1::SourceBranch| branch.otherwise.is_some();
    if let Some(branch) = line.branches.iter().find(|branch| divides(branch)) {
        let first = !goes_on_below(branch, number);
        places.extend([first, !first].map(|taken| Place::Branch {
            file: file.clone(),
            line: number,
            taken,
        }));
    }
    if !line.sites.is_empty() {
        places.push(Place::Line {
            file: file.clone(),
            line: number,
        });
    }
    if let Some(begin) = beginning_of_loop(source, line) {
        places.push(Place::Line {
            file: file_name(&begin.file).to_owned(),
            line: begin.line,
        });
    }
    for call in &line.calls {
        let place = Place::Call {
            callee: Name::Exact(call.callee.clone()),
            file: file.clone(),
            line: number,
        };
        if !call.callee.is_empty() && call.return_address != 0 && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Whether the code goes on, where the branch is not taken, at the nearest line below: what the text has right there.
fn goes_on_below(branch: &v1::SourceBranch, number: u32) -> bool {
    let line = |to: &Option<v1::SourcePosition>| to.as_ref().map_or(0, |to| to.line);
    let (taken, otherwise) = (line(&branch.taken), line(&branch.otherwise));
    otherwise > number && (taken <= number || otherwise < taken)
}

/// A step that is a branch, and a line that it seems to rule out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// The branch, as the scope has it.
    pub branch: Place,
    /// The line where it goes on.
    pub goes_on_at: u32,
}

/// The branch of a scope that seems to rule out its last step, a line: the line stands in the text between where the branch goes on the
/// other way and where it goes on, as the body of an `if` does that is passed over. A loop around both may lead there all the same.
#[must_use]
pub fn ruled_out(source: &v1::SourceFunction, scope: &Scope) -> Option<RuledOut> {
    let (last, before) = scope.steps.split_last()?;
    let (Place::Line { file, line } | Place::Branch { file, line, .. } | Place::Call { file, line, .. }) =
        &last.place
    else {
        return None;
    };
    // Behind a step that begins a call, branches are those of a call around it.
    let in_same_call = before.iter().rev().take_while(|step| !step.place.has_spans());
    let mut branches = in_same_call.map(|step| &step.place);
    branches.find_map(|place| {
        let Place::Branch {
            file: of,
            line: at,
            taken,
        } = place
        else {
            return None;
        };
        let goes_on_at = passes_over(source, of, *at, *taken, *line)?;
        (file_name(of) == file_name(file)).then(|| RuledOut {
            branch: place.clone(),
            goes_on_at,
        })
    })
}

/// Where all branches of a line go on, if each of them passes over another line.
fn passes_over(source: &v1::SourceFunction, file: &str, at: u32, taken: bool, over: u32) -> Option<u32> {
    let is_it = |id: &LineId| id.line == at && file_name(&id.file) == file_name(file);
    let line = lines(source).find(|line| is_it(&id(source, line)))?;
    let divides = |branch: &&v1::SourceBranch| branch.otherwise.is_some();
    let mut goes_on_at = None;
    for branch in line.branches.iter().filter(divides) {
        let (to, other) = if taken {
            (&branch.taken, &branch.otherwise)
        } else {
            (&branch.otherwise, &branch.taken)
        };
        let (to, other) = (to.as_ref()?, other.as_ref()?);
        let is_in_file = to.file == line.file && other.file == line.file;
        if !is_in_file || other.line == 0 || !(other.line..to.line).contains(&over) {
            return None;
        }
        goes_on_at = Some(to.line);
    }
    goes_on_at
}

/// What a step of a line means, in a few words: where a branch goes, and what a loop does.
#[must_use]
pub fn words(line: &v1::SourceLine, place: &Place) -> String {
    let goes = match place {
        Place::Branch { taken, .. } => where_to(line, *taken),
        // The line itself is where it is said to be.
        Place::Line { line: number, .. } if *number != line.line => {
            Some("each time round of the loop".to_owned())
        }
        _ => None,
    };
    match goes {
        Some(goes) => format!("{place} ({goes})"),
        None => place.to_string(),
    }
}

/// Where the branches of a line go on, which are one step together.
fn where_to(line: &v1::SourceLine, taken: bool) -> Option<String> {
    let mut ways: Vec<String> = Vec::new();
    for branch in &line.branches {
        let to = if taken { &branch.taken } else { &branch.otherwise };
        let Some(to) = to.as_ref().map(|to| to.line).filter(|line| *line > 0) else {
            continue;
        };
        let way = match (branch.is_loop, taken) {
            (false, _) => format!("goes on at line {to}"),
            (true, true) => format!("round again from line {to}"),
            (true, false) => format!("the loop ends, goes on at line {to}"),
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let more = ways.len() > WAYS;
    ways.truncate(WAYS);
    let words = ways.join(", or ") + if more { ", …" } else { "" };
    (!words.is_empty()).then_some(words)
}

/// Expressions that can be read at a line, so many at most: its variables, those of the function itself first.
#[must_use]
pub fn expressions(source: &v1::SourceFunction, line: Option<&v1::SourceLine>, most: usize) -> Vec<String> {
    let all = source.variables.iter();
    let mut readable: Vec<&v1::SourceVariable> = match line {
        Some(line) => {
            let indexes = line.variables.iter().chain(&line.variables_in_part);
            indexes
                .filter_map(|&at| source.variables.get(usize::try_from(at).ok()?))
                .collect()
        }
        // Where calls begin.
        None => all.filter(|variable| variable.parameter).collect(),
    };
    readable.retain(|variable| !variable.name.is_empty() && !variable.ranges.is_empty());
    readable.sort_by_key(|variable| !variable.inlined_from.is_empty());
    let mut names: Vec<String> = Vec::new();
    for variable in readable {
        if !names.contains(&variable.name) {
            names.push(variable.name.clone());
        }
    }
    names.truncate(most);
    names
}
