//! Warnings about a plan before it is attached: functions that are not probed, and probes that cost much.

use profiler_plan::{
    self as plan, Ends, PlannedFunction,
    hazards::{Decision, Method},
    source,
};
use profiler_scope::{Name, Place};

use super::{
    super::{files::TargetFile, functions::key},
    PreparedFile, PreparedLines, PreparedSpan,
};

/// Warnings of one kind that are spelled out.
const MAX_WARNINGS: usize = 5;

pub(super) fn warn_once(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// Files without debug information of which it is said what brings it: looking for that takes time.
const MAX_REMEDIES: usize = 3;

/// Files without debug information, as far as they were warned of: most processes of a session run the same files.
#[derive(Default)]
pub(super) struct BareFiles<'a>(Vec<&'a str>);

impl<'a> BareFiles<'a> {
    /// Warns that a file has none, with what brings it in the first ones.
    pub fn warn(&mut self, warnings: &mut Vec<String>, file: &'a TargetFile, lacking: &str) {
        if self.0.contains(&file.shown.as_str()) {
            return;
        }
        let shown = &file.shown;
        let warning = format!("{shown} has no debug information{lacking}");
        warn_once(
            warnings,
            if self.0.len() < MAX_REMEDIES {
                format!("{warning}: {}", file.remedy())
            } else {
                warning
            },
        );
        self.0.push(shown);
    }
}

/// Bytes of debug information beyond which none is read for a warning: it would make attaching slow.
const MAX_DEBUG_BYTES: usize = 64 << 20;

/// Looks up what debug information says of functions, to warn of it.
pub(super) fn look_up(files: &[TargetFile], functions: &mut [PlannedFunction]) {
    for (number, file) in files.iter().enumerate() {
        let of_file = functions.iter().filter(|function| function.module == number);
        let addresses: Vec<u64> = of_file.map(|function| function.address).collect();
        let index = &file.known.index;
        let is_asked = !addresses.is_empty() && index.has_debug_info();
        if !is_asked || index.files().debug().len() > MAX_DEBUG_BYTES {
            continue;
        }
        let mut debugged = source::debugged(index, &addresses);
        for function in functions.iter_mut().filter(|function| function.module == number) {
            function.debugged = debugged.remove(&function.address).unwrap_or_default();
        }
    }
}

/// Says where calls of functions are inlined, which are not among those that are seen.
pub(super) fn warn_of_inlined(warnings: &mut Vec<String>, functions: &[PlannedFunction]) {
    for function in functions {
        let name = &function.name;
        let places = match function.debugged.inlined {
            0 => continue,
            1 => "1 place".to_owned(),
            count => format!("{count} places"),
        };
        let instances = Place::Inlined(Name::Exact(name.clone()));
        warn_once(
            warnings,
            format!("{name} is also inlined in {places}, not counted here: see {instances}"),
        );
    }
}

/// Says that a call of an async function makes a future, and does none of its work.
pub(super) fn warn_of_async(warnings: &mut Vec<String>, files: &[TargetFile], functions: &[PlannedFunction]) {
    for function in functions.iter().filter(|function| function.debugged.is_async) {
        let name = &function.name;
        let body = files.get(function.module).and_then(|file| {
            let index = &file.known.index;
            let bodies = index.matching(&Name::Glob(format!("{name}::{{*")));
            // Closures of the body are within it.
            let names = bodies
                .iter()
                .map(|(at, _)| index.function(*at).name().into_owned());
            names.min_by_key(String::len)
        });
        let body = match body {
            Some(body) => format!(
                "{}, which is called at each poll",
                Place::Function(Name::Exact(body))
            ),
            None => "what polls that, into which it is inlined".to_owned(),
        };
        warn_once(
            warnings,
            format!("{name} is an async function: its calls only make a future; its work is done in {body}"),
        );
    }
}

/// Says of functions with one code that all their calls are seen.
fn warn_of_same_code(warnings: &mut Vec<String>, functions: &[PlannedFunction]) {
    let mut shared = functions.iter().filter(|function| !function.same_code.is_empty());
    for function in shared.by_ref().take(MAX_WARNINGS) {
        warn_once(
            warnings,
            format!(
                "{} has the same code as {}: the calls of all these are seen as its own",
                function.name,
                listed(&function.same_code)
            ),
        );
    }
    let others = shared.count();
    if others > 0 {
        warn_once(
            warnings,
            format!("{others} more functions have the same code as others"),
        );
    }
}

pub(super) fn warn(warnings: &mut Vec<String>, decision: &Decision, plan: &plan::Plan) {
    let mut add = |warning: String| warn_once(warnings, warning);
    for warning in &decision.warnings {
        add(warning.clone());
    }
    for skipped in plan.skipped.iter().take(MAX_WARNINGS) {
        add(format!("{} is not probed: {}", skipped.name, skipped.reason));
    }
    if plan.skipped.len() > MAX_WARNINGS {
        add(format!(
            "{} more functions are not probed",
            plan.skipped.len() - MAX_WARNINGS
        ));
    }
    for chosen in plan.chosen.iter().take(MAX_WARNINGS) {
        let plan::ChosenFunction {
            ifunc,
            function,
            shared_with,
        } = chosen;
        let shared = match shared_with.len() {
            0 => String::new(),
            _ => format!(
                "; so does {}, whose calls are among those that are seen",
                listed(shared_with)
            ),
        };
        add(format!(
            "{ifunc} is an ifunc: in this process it stands for {function}{shared}"
        ));
    }
    let never = |function: &PlannedFunction| function.ends == Ends::Never;
    if let Some(names) = names_of(plan, never) {
        add(format!(
            "{names} never returns: calls are counted where they begin, and have no duration"
        ));
    }
    let by_ret = |function: &PlannedFunction| {
        decision.method == Method::Return && matches!(function.ends, Ends::At(_))
    };
    if let Some(names) = names_of(plan, by_ret) {
        add(format!(
            "a return probe would break {names}: each return is probed instead, and single-stepped by the kernel"
        ));
    }
    let is_followed = |function: &PlannedFunction| !function.tail_calls.followed.is_empty();
    if let Some((names, function)) =
        names_of(plan, is_followed).zip(plan.functions.iter().find(|f| is_followed(f)))
    {
        add(format!(
            "{names} ends in a jump to {}: its calls last until that returns; the probes there cost all who call that, within these calls too",
            listed(&function.tail_calls.followed)
        ));
    }
    let is_cut = |function: &PlannedFunction| !function.tail_calls.cut.is_empty();
    if let Some((names, function)) = names_of(plan, is_cut).zip(plan.functions.iter().find(|f| is_cut(f))) {
        add(format!(
            "calls of {names} end where it jumps to {}: the time of that is not in them",
            listed(&function.tail_calls.cut)
        ));
    }
    if let Some(names) = names_of(plan, |function| function.loops) {
        add(format!(
            "{names} jumps back to its entry: each turn of that loop costs as much as a call, but is not counted as one"
        ));
    }
    warn_of_same_code(warnings, &plan.functions);
}

/// Names, the first of them spelled out.
fn listed(names: &[String]) -> String {
    const SPELLED_OUT: usize = 3;
    let (first, others) = names.split_at(names.len().min(SPELLED_OUT));
    match others.len() {
        0 => first.join(", "),
        count => format!("{} and {count} more", first.join(", ")),
    }
}

/// The functions of a plan that something is said of, in words; `None` where there are none.
fn names_of(plan: &plan::Plan, is_meant: impl Fn(&PlannedFunction) -> bool) -> Option<String> {
    let mut meant = plan.functions.iter().filter(|function| is_meant(function));
    let first = &meant.next()?.name;
    Some(match meant.count() {
        0 => first.clone(),
        count => format!("{first} (and {count} more)"),
    })
}

/// Names the cost of entries that the kernel has to single-step, for what is attached at them.
pub(super) fn warn_of_entries(warnings: &mut Vec<String>, looks: bool, prepared: &[PreparedFile]) {
    let sites = prepared.iter().flat_map(|file| &file.sites);
    let stepped: Vec<&PreparedSpan> = sites.filter(|span| span.site.entry_single_stepped).collect();
    let Some(PreparedSpan { site, spec, .. }) = stepped.first() else {
        return;
    };
    // A function is in several processes, or files.
    let mut functions: Vec<_> = stepped.iter().map(|span| key(&span.site.function)).collect();
    functions.sort_unstable();
    functions.dedup();
    let others = match functions.len() {
        1 => String::new(),
        count => format!(" and of {} more", count - 1),
    };
    // Where the programs do instructions themselves, they do not where they have more to do.
    let why = if looks && spec.done_by_program {
        ", as conditions or values are read there"
    } else {
        ""
    };
    warn_once(
        warnings,
        format!(
            "the entry of {}{others} ({}) is single-stepped by the kernel{why}: a call costs about ten times as much",
            site.function.name, site.entry_instruction
        ),
    );
}

/// Names the cost of the places of a step that the kernel has to single-step.
pub(super) fn warn_of_lines(warnings: &mut Vec<String>, place: &Place, prepared: &[PreparedLines]) {
    let lines = || prepared.iter().flat_map(|file| &file.lines);
    let mut stepped = lines().filter_map(|line| line.single_stepped.as_deref());
    let Some(mnemonic) = stepped.next() else { return };
    let of = match (1 + stepped.count(), lines().count()) {
        (_, 1) => String::new(),
        (stepped, all) => format!(" at {stepped} of {all} addresses"),
    };
    warn_once(
        warnings,
        format!(
            "{place} ({mnemonic}) is single-stepped by the kernel{of}: reaching it costs about ten times as much"
        ),
    );
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Child, Command},
    };

    use profiler_target::Process;

    use super::*;
    use crate::session::{Caller, debug_package::SharedBudget, files::read_process, library::Library};

    /// A program, which is ended with the test.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_brings_debug_information_is_looked_for_once_a_file_and_for_the_first_files() {
        let running = Running(Command::new("sleep").arg("1000").spawn().unwrap());
        // The kernel lets the parent go on before the new program is in place.
        let maps = format!("/proc/{}/maps", running.0.id());
        while !fs::read_to_string(&maps).unwrap().contains("/sleep") {}
        let process = Process::open(running.0.id()).unwrap();
        let library = Library::new(None);
        let packages = SharedBudget::default();
        let read = || {
            let caller = Caller { uid: 0, gid: 0 };
            let mut file = read_process(caller, &process, &library, &packages)
                .unwrap()
                .swap_remove(0);
            file.shown = "first".to_owned();
            file
        };
        let mut files: Vec<TargetFile> = (0..=MAX_REMEDIES + 1).map(|_| read()).collect();
        // One that another process has mapped, too, and others.
        for (number, file) in files.iter_mut().enumerate().skip(2) {
            file.shown = format!("other {number}");
        }
        let (mut warnings, mut bare) = (Vec::new(), BareFiles::default());
        for file in &files {
            bare.warn(&mut warnings, file, ", which tells types");
        }
        assert_eq!(warnings.len(), MAX_REMEDIES + 1, "{warnings:?}");
        let (last, first) = warnings.split_last().unwrap();
        for warning in first {
            let says =
                warning.contains(" has no debug information, which tells types: install its debug package");
            assert!(says, "{warning}");
        }
        assert!(
            last.ends_with(" has no debug information, which tells types"),
            "{last}"
        );
        let sought: Vec<bool> = files.iter().map(TargetFile::is_remedy_known).collect();
        assert_eq!(sought, [true, false, true, true, false]);
    }
}
