//! What may separate slow calls of a function from others, before anything is attached: the values of its parameters,
//! the branches in it, the cases of its `switch`es, and the calls that it makes.

use std::collections::{BTreeMap, BTreeSet};

use profiler_aggregate::explain::Kind;
use profiler_plan::{
    lines_of,
    names::Match,
    source::{self, FunctionSource},
    values::{self, Shape, Site, shape::Form},
};
use profiler_scope::{Comparison, Name, Place, Predicate, Scope, Step, expression::Expression};

use super::{Constants, Feature, NotLookedAt, PreparedExplain, PreparedPlace, What};
use crate::session::{
    command::{Capture, Purpose},
    error::{Reason, SessionError},
    files::TargetFile,
    functions::{Key, key},
    lines::{self, PreparedLine},
    prepare::{Planner, PreparedStep},
};

/// Calls that are looked at in a second, of each function.
const CALLS_PER_SECOND: u32 = 2_000;

/// Functions that are looked into.
const MAX_FUNCTIONS: usize = 16;

/// Values that are read where a call begins.
const MAX_VALUES: usize = profiler_common::values::MAX_VALUES;

/// Branches, each way for itself, and calls that are looked at; those beyond are counted.
const MAX_PLACES: usize = 128;

/// Cases of a function's `switch`es that are looked at: those beyond would take the others' turns.
const MAX_CASES: usize = 48;

/// Components of a file's path that are tried until it is unambiguous.
const MAX_COMPONENTS: usize = 4;

/// A function that is looked into.
pub struct Subject<'f> {
    file: &'f TargetFile,
    source: FunctionSource,
}

/// The functions that a scope ends with.
pub struct Subjects<'f> {
    /// Those that are looked into.
    looked_into: Vec<Subject<'f>>,
    /// The number of others, for which they are too many.
    too_many: usize,
    /// A file that has some, and no debug information.
    bare: Option<&'f TargetFile>,
}

/// The functions that a scope ends with.
///
/// # Errors
/// Where it does not end with a function that is asked for a duration.
pub fn subjects<'f>(files: &'f [TargetFile], scope: &Scope) -> Result<Subjects<'f>, SessionError> {
    let refuse = |message: &str| Err(SessionError::new(Reason::ArgumentInvalid, message));
    let Some((last, before)) = scope.steps.split_last() else {
        return refuse("there is no call to explain: name a function, as in 'f[>= p95]'");
    };
    let Place::Function(name) = &last.place else {
        return refuse("only calls of a function can be explained, as in 'f[>= p95]'");
    };
    if last.predicates.is_empty() {
        return refuse("say which calls are slow by a condition on their duration, as in 'f[>= p95]'");
    }
    let keeps_above = |predicate: &Predicate| {
        matches!(
            predicate.comparison,
            Comparison::Greater | Comparison::GreaterOrEqual
        )
    };
    if !last.predicates.iter().any(keeps_above) {
        return refuse(
            "only slow calls can be explained: set a lower bound on their duration, as in 'f[>= p95]'",
        );
    }
    if before.iter().any(Step::asks_for_end) {
        return refuse(
            "only the last step, whose calls are compared, may have a condition on the duration or the return value: remove it from the steps before",
        );
    }
    let mut found = Subjects {
        looked_into: Vec::new(),
        too_many: 0,
        bare: None,
    };
    let matching: Vec<Vec<(usize, Match)>> =
        files.iter().map(|file| file.known.index.matching(name)).collect();
    let full =
        matches!(name, Name::Exact(_)) && matching.iter().flatten().any(|(_, kind)| *kind == Match::Full);
    for (file, matching) in files.iter().zip(matching) {
        let matching = matching
            .into_iter()
            .filter(|(_, kind)| !full || *kind == Match::Full);
        let mut numbers: Vec<usize> = matching.map(|(number, _)| number).collect();
        let room = MAX_FUNCTIONS - found.looked_into.len();
        found.too_many += numbers.len().saturating_sub(room);
        numbers.truncate(room);
        if numbers.is_empty() {
            continue;
        }
        if file.known.index.has_debug_info() {
            let sources = source::functions(&file.known.index, &numbers);
            let subjects = sources.into_iter().map(|source| Subject { file, source });
            found.looked_into.extend(subjects);
        } else {
            found.bare.get_or_insert(file);
        }
    }
    Ok(found)
}

/// What is read where the calls begin: the parameters that are numbers, and the numbers that they point to.
///
/// # Errors
/// Where the debug information cannot be read.
pub fn capture(subjects: &Subjects<'_>) -> Result<(Capture, Vec<Feature>), SessionError> {
    let mut features: Vec<Feature> = Vec::new();
    let mut add = |expression: &str, form: &Form| {
        let (Some(kind), Ok(parsed)) = (kind_of(form), profiler_scope::expression::parse(expression)) else {
            return;
        };
        let what = What::Value(parsed, constants_of(form));
        if features.len() < MAX_VALUES && !features.iter().any(|known| known.what == what) {
            features.push(Feature { what, kind });
        }
    };
    for Subject { file, source } in &subjects.looked_into {
        let sections = lines::sections(file)?;
        let debug = lines::debug(file, &sections);
        // Of the shapes alone: where the file lies in the target does not matter.
        let site = Site {
            address: source.address,
            bias: 0,
        };
        let shape = |expression: &str| -> Option<Shape> {
            let expression = profiler_scope::expression::parse(expression).ok()?;
            Some(values::lower(&debug, site, &expression).ok()?.shape)
        };
        let parameters = || {
            let own = |variable: &&source::Variable| variable.parameter && variable.inlined_from.is_none();
            source
                .variables
                .iter()
                .filter(own)
                .map(|variable| variable.name.as_str())
        };
        for name in parameters() {
            if let Some(shape) = shape(name) {
                add(name, &shape.form);
            }
        }
        for name in parameters() {
            let behind = shape(&format!("*{name}"));
            if let Some(Form::Structure(members)) = behind.map(|shape| shape.form) {
                for member in members.iter().filter(|member| !member.name.is_empty()) {
                    add(&format!("{name}->{}", member.name), &member.shape.form);
                }
            }
        }
    }
    let expressions = features.iter().filter_map(|feature| match &feature.what {
        What::Value(expression, _) => Some(expression.clone()),
        What::Place(_) | What::Wait(_) | What::Many(_) | What::Frame(_) => None,
    });
    let capture = Capture {
        print: expressions.collect::<Vec<Expression>>(),
        hits_per_second: CALLS_PER_SECOND,
        stack: false,
        purpose: Purpose::Explained,
    };
    Ok((capture, features))
}

/// What may be said of a value.
fn kind_of(form: &Form) -> Option<Kind> {
    match form {
        Form::Integer { .. } | Form::Float => Some(Kind::Amount),
        Form::Boolean | Form::Enumeration { .. } | Form::Pointer => Some(Kind::Choice),
        Form::Bits { of, .. } => kind_of(&of.form),
        _ => None,
    }
}

/// How such a value is written.
fn constants_of(form: &Form) -> Constants {
    match form {
        Form::Boolean => Constants::Booleans,
        Form::Pointer => Constants::Pointers,
        Form::Enumeration { names, .. } => Constants::Names(names.clone()),
        Form::Bits { of, .. } => constants_of(&of.form),
        _ => Constants::Numbers,
    }
}

/// The branches and cases in the functions and the calls that they make, ready to be attached.
pub fn prepare(
    planner: &Planner<'_>,
    subjects: &Subjects<'_>,
    capture: Capture,
    mut features: Vec<Feature>,
) -> PreparedExplain {
    let Subjects {
        looked_into: subjects,
        too_many,
        bare,
    } = subjects;
    let mut places = Vec::new();
    let mut left_out: BTreeMap<String, String> = BTreeMap::new();
    let mut beyond = 0;
    for Wanted { place, paths } in wanted(subjects) {
        if places.len() >= MAX_PLACES {
            beyond += 1;
            continue;
        }
        match attempt(planner, subjects, &place, &paths) {
            Ok(step) => {
                let kind = if step.step.place.has_spans() {
                    Kind::Time
                } else {
                    Kind::Flag
                };
                let what = What::Place(step.step.place.clone());
                places.push(PreparedPlace {
                    feature: features.len(),
                    functions: functions_of(subjects, &step),
                    step,
                });
                features.push(Feature { what, kind });
            }
            Err(error) => {
                left_out.insert(place.to_string(), error.message);
            }
        }
    }
    if let Some(file) = bare.filter(|_| subjects.is_empty()) {
        let reason = format!("{} has no debug information: {}", file.shown, file.remedy());
        left_out.insert("branches, calls and values".to_owned(), reason);
    }
    if *too_many > 0 {
        let reason = format!("at most {MAX_FUNCTIONS} are looked into");
        left_out.insert(format!("{too_many} functions"), reason);
    }
    if beyond > 0 {
        let reason = format!("at most {MAX_PLACES} are looked at");
        left_out.insert(format!("{beyond} branches, cases and calls"), reason);
    }
    PreparedExplain {
        capture,
        features,
        places,
        left_out: (left_out.into_iter())
            .map(|(what, reason)| NotLookedAt { what, reason })
            .collect(),
        can_be_probed: planner.check(),
    }
}

/// The functions that have sites of a step.
fn functions_of(subjects: &[Subject<'_>], step: &PreparedStep) -> Vec<Key> {
    let lines = step.lines.iter().flat_map(|lines| &lines.lines);
    let spans = step.files.iter().flat_map(|file| &file.sites);
    let of_line = |line: &PreparedLine| Key {
        module: line.place.module.clone(),
        address: line.place.address,
    };
    let sites: Vec<Key> = lines
        .map(of_line)
        .chain(spans.map(|span| key(&span.site.function)))
        .collect();
    let has = |Subject { file, source }: &&Subject<'_>| {
        sites.iter().any(|site| {
            file.shown == site.module && source.ranges.iter().any(|range| range.contains(&site.address))
        })
    };
    let with_sites = subjects.iter().filter(has);
    with_sites
        .map(|subject| Key {
            module: subject.file.shown.clone(),
            address: subject.source.address,
        })
        .collect()
}

/// A place in the functions by what it is called.
struct Wanted {
    place: Place,
    /// The paths of its file: several may be called the same.
    paths: BTreeSet<String>,
}

/// The places in the functions.
fn wanted(subjects: &[Subject<'_>]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for Subject { file, source } in subjects {
        let calls = || {
            let all = source.lines.iter().flat_map(|line| &line.calls);
            all.filter(|call| call.return_address.is_some())
        };
        let branches = || {
            let all = source.lines.iter().flat_map(|line| &line.branches);
            all.filter(|branch| branch.otherwise.is_some())
        };
        let cases = || source.lines.iter().flat_map(|line| line.cases.iter().copied());
        let addresses: Vec<u64> = calls()
            .map(|call| call.address)
            .chain(branches().map(|branch| branch.address))
            .chain(cases())
            .collect();
        // A scope names what is inlined by where it is written.
        let lines = lines_of(&file.known.index, &addresses);
        let mut add = |address: u64, place: &dyn Fn(String, u32) -> Place| {
            let Some((path, line)) = lines.get(&address) else {
                return;
            };
            let place = place(tail(path, 1), *line);
            match wanted.iter_mut().find(|known| known.place == place) {
                Some(known) => _ = known.paths.insert(path.clone()),
                None => wanted.push(Wanted {
                    place,
                    paths: BTreeSet::from([path.clone()]),
                }),
            }
        };
        for branch in branches() {
            for taken in [true, false] {
                add(branch.address, &|file, line| Place::Branch { file, line, taken });
            }
        }
        for call in calls() {
            let callee = if call.callee.is_empty() {
                Name::Glob("*".to_owned())
            } else {
                Name::Exact(call.callee.clone())
            };
            add(call.address, &|file, line| Place::Call {
                callee: callee.clone(),
                file,
                line,
            });
        }
        // No branch tells which case of a `switch` is the one.
        for case in cases().take(MAX_CASES) {
            add(case, &|file, line| Place::Line { file, line });
        }
    }
    wanted
}

/// The last components of a path.
fn tail(path: &str, components: usize) -> String {
    let parts: Vec<&str> = path.rsplit('/').take(components).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// Plans a place, its file named by as few components as are needed; only what lies in the functions themselves.
fn attempt(
    planner: &Planner<'_>,
    subjects: &[Subject<'_>],
    place: &Place,
    paths: &BTreeSet<String>,
) -> Result<PreparedStep, SessionError> {
    let mut result = Err(SessionError::new(Reason::LineNotFound, "its file is not known"));
    for (path, components) in paths
        .iter()
        .flat_map(|path| (1..=MAX_COMPONENTS).map(move |count| (path, count)))
    {
        let mut place = place.clone();
        match &mut place {
            Place::Branch { file, .. } | Place::Call { file, .. } | Place::Line { file, .. } => {
                *file = tail(path, components);
            }
            Place::Function(_)
            | Place::Inlined(_)
            | Place::Address { .. }
            | Place::SystemCall(_)
            | Place::KernelFunction(_)
            | Place::Tracepoint { .. } => {}
        }
        let step = Step {
            place,
            predicates: Vec::new(),
            conditions: Vec::new(),
        };
        result = planner.step(&step, None, &mut Vec::new());
        match &result {
            Err(error) if error.reason == Reason::FileAmbiguous => {}
            _ => break,
        }
    }
    let mut step = result?;
    let inside = |module: &str, address: u64| {
        subjects.iter().any(|Subject { file, source }| {
            file.shown == module && source.ranges.iter().any(|range| range.contains(&address))
        })
    };
    for lines in &mut step.lines {
        lines
            .lines
            .retain(|line| inside(&line.place.module, line.place.address));
    }
    for file in &mut step.files {
        file.sites
            .retain(|span| inside(&span.site.function.module, span.site.function.address));
    }
    step.lines.retain(|lines| !lines.lines.is_empty());
    step.files.retain(|file| !file.sites.is_empty());
    if step.lines.is_empty() && step.files.is_empty() {
        return Err(SessionError::new(
            Reason::LineNotFound,
            "none of its instructions is in the function itself",
        ));
    }
    Ok(step)
}
