//! What of a source line can become a step.

use profiler_proto::v1;
use profiler_scope::{Name, Place};

use super::super::lens::LineId;

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

/// The steps that a line can be: its branches each way, the line itself, calls that are made there.
#[must_use]
pub fn places(source: &v1::SourceFunction, line: &v1::SourceLine) -> Vec<Place> {
    let LineId { file, line: number } = id(source, line);
    let Some(file) = file
        .rsplit('/')
        .next()
        .filter(|file| !file.is_empty())
        .map(str::to_owned)
    else {
        return Vec::new();
    };
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

/// Whether the code goes on, where the branch is not taken, at the nearest line below: what the text has right there.
fn goes_on_below(branch: &v1::SourceBranch, number: u32) -> bool {
    let line = |to: &Option<v1::SourcePosition>| to.as_ref().map_or(0, |to| to.line);
    let (taken, otherwise) = (line(&branch.taken), line(&branch.otherwise));
    otherwise > number && (taken <= number || otherwise < taken)
}

/// What a step of a line means, in a few words: where a branch goes.
#[must_use]
pub fn words(line: &v1::SourceLine, place: &Place) -> String {
    let Place::Branch { taken, .. } = place else {
        return place.to_string();
    };
    let goes = line.branches.iter().find_map(|branch| {
        let to = if *taken { &branch.taken } else { &branch.otherwise };
        to.as_ref().map(|to| to.line).filter(|line| *line > 0)
    });
    match goes {
        Some(goes) => format!("{place} (goes on at line {goes})"),
        None => place.to_string(),
    }
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
