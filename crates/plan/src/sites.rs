//! The plan of one name: the functions that it means and the sites to probe in each.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
};

use profiler_common::{condition::Condition, instruction::Action};
use profiler_scope::{Name, Place};

use super::{
    body::Body,
    code::CodeError,
    dwarf::Debugged,
    entry::{EntryPoint, Taken, entry_point, first_point},
    exits::{ExitPoint, Way},
    frames::Frames,
    functions::{Function, ModuleIndex},
    goroutines,
    hazards::{Decision, KernelAbility, Method},
    ifuncs::{Choices, Resolver},
    names::Match,
    return_address, source,
    tail::{Follow, TailCalls, all_exits},
    unusable::{self, Unusable},
};

/// How much a plan may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Functions that one name may mean.
    pub functions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { functions: 2_500 }
    }
}

/// Functions of a plan that may share the ends of one that they end in jumps to.
const MAX_SHARING: usize = 4;

/// Names offered where one matches nothing.
const NEAREST: usize = 5;

/// What to probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The functions, by module and address.
    pub functions: Vec<PlannedFunction>,
    /// Functions that the name means but that cannot be probed.
    pub skipped: Vec<Skipped>,
    /// Of ifuncs that the name means, what they stand for.
    pub chosen: Vec<ChosenFunction>,
}

/// What an ifunc stands for in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChosenFunction {
    /// Its name.
    pub ifunc: String,
    /// The name of the function that was chosen.
    pub function: String,
    /// Other ifuncs for which the same function was chosen: their calls are calls of it too.
    pub shared_with: Vec<String>,
}

/// One function's sites.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedFunction {
    /// Index of its module in what [`plan`] was given.
    pub module: usize,
    /// Its name as it is shown.
    pub name: String,
    /// Its name in the symbol table.
    pub linkage_name: String,
    /// Its address in the file's address space.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where in the file the entry is probed.
    pub entry_offset: u64,
    /// What is there.
    pub entry: EntryPoint,
    /// Its own jumps lead back to where its entry is probed: what is reached there at the stack pointer of a call goes on with it.
    pub loops: bool,
    /// How its end is seen.
    pub ends: Ends,
    /// Jumps in which it ends.
    pub tail_calls: TailCalls,
    /// Other functions that have its code: see [`Function::same_code`].
    pub same_code: Vec<String>,
    /// What debug information says of it, where that was looked up.
    pub debugged: Debugged,
}

/// How a function's end is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ends {
    /// By the kernel's return probe.
    ReturnProbe,
    /// At each of these.
    At(Vec<ExitSite>),
    /// It does not return, as what ends in `abort` or in an exception: its calls have no end.
    Never,
}

impl Ends {
    /// Where it is probed.
    #[must_use]
    pub fn sites(&self) -> &[ExitSite] {
        match self {
            Self::At(sites) => sites,
            Self::ReturnProbe | Self::Never => &[],
        }
    }
}

/// Where a function's end is probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExitSite {
    /// Where in the file the instruction is.
    pub file_offset: u64,
    /// What it does, for programs that can do it themselves.
    pub action: Action,
    /// How the function is left there.
    pub way: Way,
    /// Of a conditional jump, when it is taken.
    pub condition: Option<Condition>,
    /// It lies in another function, whose own callers come there too.
    pub is_elsewhere: bool,
}

/// A function that cannot be probed, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// Its name as it is shown.
    pub name: String,
    /// What is in the way.
    pub reason: String,
    /// What can be asked for instead; empty where the reason says it.
    pub instead: String,
}

/// Why there is nothing to probe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// No function is called that.
    #[error("{}", no_such_function(name, nearest, *stripped))]
    NoSuchFunction {
        /// What was asked for.
        name: String,
        /// The nearest names, nearest first.
        nearest: Vec<String>,
        /// Whether the executable has lost its symbol table, so that names may be missing.
        stripped: bool,
    },
    /// No function begins at an address of a file.
    #[error("{}", no_function_at(name, around.as_deref()))]
    NoFunctionAt {
        /// What was asked for.
        name: String,
        /// The function that the address is inside of.
        around: Option<String>,
    },
    /// It has been inlined everywhere.
    #[error("{}", only_inlined_text(name, *instances))]
    OnlyInlined {
        /// Its name.
        name: String,
        /// How often it is inlined.
        instances: u64,
    },
    /// It stands for another function, and nothing says for which.
    #[error("{0} cannot be probed: {UNTOLD_CHOICE}; {CHOSEN_ITSELF}")]
    Indirect(String),
    /// A name means too many functions.
    #[error("{name} matches {found} functions; at most {limit} can be probed at once: narrow it down")]
    TooMany {
        /// What was asked for.
        name: String,
        /// Functions that it means.
        found: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// None of the functions can be probed.
    #[error("{} cannot be probed: {}{}{}", .0.name, .0.reason, if .0.instead.is_empty() { "" } else { "; " }, .0.instead)]
    Unusable(Skipped),
}

/// Why an ifunc is not probed.
const UNTOLD_CHOICE: &str = "it is an ifunc, which stands for one of several functions of its file, and no reference that the \
                             process has bound says which was chosen";

/// What can be probed instead of one.
const CHOSEN_ITSELF: &str = "probe that one by its own name";

fn only_inlined_text(name: &str, instances: u64) -> String {
    let places = match instances {
        1 => "the one place that calls it".to_owned(),
        count => format!("all {count} places that call it"),
    };
    let instances = Place::Inlined(Name::Exact(name.to_owned()));
    format!(
        "{name} has no code of its own: it is inlined in {places}; probe a function that calls it instead, or its inlined instances: {instances}"
    )
}

fn no_function_at(name: &str, around: Option<&str>) -> String {
    let text = format!("neither a symbol nor unwind information say that a function begins at {name}");
    match around {
        Some(around) => format!("{text}: it is inside of {around}"),
        None => text,
    }
}

fn no_such_function(name: &str, nearest: &[String], stripped: bool) -> String {
    let mut text = format!("no function is called {name}");
    if nearest.is_empty() {
        text.push_str(" or similar: `profiler functions` lists the functions of the target");
    } else {
        let _ = write!(text, "; the nearest names are {}", nearest.join(", "));
    }
    if stripped {
        text.push_str(
            "; the executable's symbol table has been stripped, so that only exported names are known",
        );
    }
    text
}

/// Finds the functions that a name means in the modules of a target, and their sites. Of an ifunc these are those of what was chosen.
///
/// # Errors
/// [`PlanError`]: always with what could be asked for instead, where there is something.
pub fn plan(
    name: &Name,
    modules: &[&ModuleIndex],
    choices: &Choices,
    decision: &Decision,
    ability: KernelAbility,
    limits: Limits,
) -> Result<Plan, PlanError> {
    let mut found: Vec<(usize, usize, Match)> = Vec::new();
    for (number, module) in modules.iter().enumerate() {
        found.extend(
            module
                .matching(name)
                .into_iter()
                .map(|(at, kind)| (number, at, kind)),
        );
    }
    // A function whose whole name it is goes before those that only end in it.
    if matches!(name, Name::Exact(_)) && found.iter().any(|&(_, _, kind)| kind == Match::Full) {
        found.retain(|&(_, _, kind)| kind == Match::Full);
    }
    if found.is_empty() {
        return Err(missing(name, modules));
    }
    if found.len() > limits.functions {
        let name = name.to_string();
        return Err(PlanError::TooMany {
            name,
            found: found.len(),
            limit: limits.functions,
        });
    }
    let mut plan = Plan {
        functions: Vec::new(),
        skipped: Vec::new(),
        chosen: Vec::new(),
    };
    let mut indirect = None;
    let found = choose(found.into_iter(), modules, choices, &mut plan.chosen);
    let mut frames: Vec<Option<Frames<'_>>> = modules.iter().map(|_| None).collect();
    for (number, at) in found {
        let function = modules[number].function(at);
        let name = function.indirect_name().unwrap_or_else(|| function.name());
        let name = name.into_owned();
        if function.is_indirect() {
            indirect.get_or_insert_with(|| name.clone());
            plan.skipped.push(Skipped {
                name,
                reason: UNTOLD_CHOICE.to_owned(),
                instead: CHOSEN_ITSELF.to_owned(),
            });
            continue;
        }
        let frames = frames[number].get_or_insert_with(|| Frames::of(modules[number].files().program()));
        match sites(
            (modules[number], frames),
            &function,
            number,
            decision,
            (ability, Follow::Yes),
        ) {
            Ok(planned) => plan.functions.push(planned),
            Err(unusable) => plan.skipped.push(skipped(name, unusable)),
        }
    }
    follow_less(&mut plan, modules, decision, ability);
    if !plan.functions.is_empty() {
        return Ok(plan);
    }
    match (indirect, plan.skipped.into_iter().next()) {
        (Some(name), _) => Err(PlanError::Indirect(name)),
        (None, Some(skipped)) => Err(PlanError::Unusable(skipped)),
        (None, None) => Err(missing(name, modules)),
    }
}

/// Puts what was chosen into the place of ifuncs, each function once.
fn choose(
    found: impl Iterator<Item = (usize, usize, Match)>,
    modules: &[&ModuleIndex],
    choices: &Choices,
    chosen: &mut Vec<ChosenFunction>,
) -> BTreeSet<(usize, usize)> {
    let mut functions = BTreeSet::new();
    for (number, at, _) in found {
        let module = modules[number];
        let function = module.function(at);
        let resolver = Resolver {
            module: number,
            address: function.address(),
        };
        let mut is_chosen = false;
        if let Some(name) = function.indirect_name() {
            for address in choices.of(resolver) {
                let Some(at) = module.number_at(address) else {
                    continue;
                };
                is_chosen = true;
                functions.insert((number, at));
                let others = choices.others(resolver, address);
                let others = others.filter_map(|other| module.function_from(other.address)?.indirect_name());
                chosen.push(ChosenFunction {
                    ifunc: name.to_string(),
                    function: module.function(at).name().into_owned(),
                    shared_with: others.map(Cow::into_owned).collect(),
                });
            }
        }
        if !is_chosen {
            functions.insert((number, at));
        }
    }
    functions
}

/// Has calls of functions end at their jumps where many of them jump to the same: each return of that would be looked at for all of
/// them.
fn follow_less(plan: &mut Plan, modules: &[&ModuleIndex], decision: &Decision, ability: KernelAbility) {
    let mut shared: HashMap<(usize, u64), usize> = HashMap::new();
    let elsewhere = |function: &PlannedFunction| {
        let sites = function.ends.sites().iter().filter(|exit| exit.is_elsewhere);
        let at = sites.map(|exit| (function.module, exit.file_offset));
        at.collect::<Vec<_>>()
    };
    for place in plan.functions.iter().flat_map(elsewhere) {
        *shared.entry(place).or_default() += 1;
    }
    let functions = std::mem::take(&mut plan.functions);
    for function in functions {
        if elsewhere(&function)
            .iter()
            .all(|place| shared[place] <= MAX_SHARING)
        {
            plan.functions.push(function);
            continue;
        }
        let module = modules[function.module];
        let frames = Frames::of(module.files().program());
        let how = (ability, Follow::No);
        let planned = module
            .function_from(function.address)
            .ok_or_else(|| Unusable::of_code(&CodeError::NotInFile))
            .and_then(|known| sites((module, &frames), &known, function.module, decision, how));
        match planned {
            Ok(planned) => plan.functions.push(planned),
            Err(unusable) => plan.skipped.push(skipped(function.name, unusable)),
        }
    }
}

/// Whether a name that no function has is that of functions which exist only inlined: what to say
/// instead of [`PlanError::NoSuchFunction`]. It reads debug information.
#[must_use]
pub fn only_inlined(name: &Name, modules: &[&ModuleIndex]) -> Option<PlanError> {
    if modules.iter().any(|module| !module.matching(name).is_empty()) {
        return None;
    }
    let with_debug = modules.iter().filter(|module| module.has_debug_info());
    let mut found = with_debug.filter_map(|module| source::inlined_count(module, name));
    let (name, first) = found.next()?;
    let instances = found.fold(first, |sum, (_, count)| sum.saturating_add(count));
    Some(PlanError::OnlyInlined { name, instances })
}

fn missing(name: &Name, modules: &[&ModuleIndex]) -> PlanError {
    if let Some((module, address)) = name.as_address() {
        let mut modules = modules.iter().filter(|known| known.is_at_path(module));
        let around = modules.find_map(|module| module.function_around(address));
        return PlanError::NoFunctionAt {
            name: name.to_string(),
            around: around.map(|function| function.name().into_owned()),
        };
    }
    // Of names equally near, the executable's own come before its libraries'.
    let mut near: Vec<(usize, usize, String)> = Vec::new();
    for (number, module) in modules.iter().enumerate() {
        let found = module.nearest(name, NEAREST).into_iter();
        near.extend(found.map(|(distance, name)| (distance, number, name)));
    }
    near.sort();
    let mut nearest: Vec<String> = Vec::new();
    for (_, _, name) in near {
        if !nearest.contains(&name) {
            nearest.push(name);
        }
    }
    nearest.truncate(NEAREST);
    PlanError::NoSuchFunction {
        name: name.to_string(),
        nearest,
        // Libraries are often stripped, and their exported names are what one asks for.
        stripped: modules.first().is_some_and(|module| module.is_stripped()),
    }
}

fn skipped(name: String, Unusable { reason, instead }: Unusable) -> Skipped {
    Skipped {
        name,
        reason,
        instead,
    }
}

fn sites(
    (module, frames): (&ModuleIndex, &Frames<'_>),
    function: &Function<'_>,
    number: usize,
    decision: &Decision,
    (ability, follow): (KernelAbility, Follow),
) -> Result<PlannedFunction, Unusable> {
    if goroutines::run(module, function.address()) {
        return Err(Unusable::of_goroutines());
    }
    let place = || unusable::place_of(module, function);
    let body = Body::decode(module, frames, function).map_err(|error| Unusable::of_code(&error))?;
    let exits = all_exits(module, frames, &body, follow);
    let never = exits.as_ref().is_ok_and(|(exits, _)| exits.is_empty());
    // A return probe replaces the address that it reads; and is set anew at each turn where it loops to its entry.
    let loops = body.loops_to_entry();
    let can_return = || !never && !loops && !return_address::is_read(module, frames, &body);
    let by_return = decision.method == Method::Return && can_return();
    let (exits, tail_calls): (Vec<ExitPoint>, _) = if by_return {
        (Vec::new(), TailCalls::default())
    } else {
        exits.map_err(|error| Unusable::of_exits(&error, &place(), decision, can_return()))?
    };
    let taken: Vec<u64> = exits.iter().map(|exit| exit.address).collect();
    let entry = entry_point(
        body.hot(),
        Taken::Time,
        |address| body.jumps_to(address),
        ability.long_nops,
        |address| taken.binary_search(&address).is_ok(),
    )
    .ok_or_else(|| match taken.first() {
        Some(&exit) if exit == body.start() => Unusable::of_duration(
            "it ends with its first instruction: its calls have no duration",
            &place(),
        ),
        _ => Unusable::of_entry("the kernel refuses a probe on each of its first instructions"),
    })?;
    if never && loops {
        return Err(Unusable::of_duration(
            "it never returns and jumps back to its entry: a new call cannot be told from a turn of its loop",
            &place(),
        ));
    }
    let exits = exits
        .into_iter()
        .map(|exit| {
            let file_offset = module
                .offset_of(exit.address)
                .ok_or_else(|| Unusable::of_code(&CodeError::NotInFile))?;
            Ok(ExitSite {
                file_offset,
                action: exit.action,
                way: exit.way,
                condition: exit.condition,
                is_elsewhere: exit.is_elsewhere,
            })
        })
        .collect::<Result<_, Unusable>>()?;
    let entry_address = function.address() + entry.delta;
    Ok(PlannedFunction {
        module: number,
        name: function.name().into_owned(),
        linkage_name: function.linkage_name().into_owned(),
        address: function.address(),
        size: function.size(),
        entry_offset: module
            .offset_of(entry_address)
            .ok_or_else(|| Unusable::of_code(&CodeError::NotInFile))?,
        loops,
        entry,
        ends: match (by_return, never) {
            (_, true) => Ends::Never,
            (true, false) => Ends::ReturnProbe,
            (false, false) => Ends::At(exits),
        },
        tail_calls,
        same_code: function.same_code(),
        debugged: Debugged::default(),
    })
}

impl PlannedFunction {
    /// Moves its entry to the first instruction that can be probed, whatever that costs, because of what is inlined
    /// there. `module` is its own.
    pub fn enter_at_first(&mut self, module: &ModuleIndex, ability: KernelAbility) {
        self.enter_at(module, |body, is_exit| {
            let jumps_to = |address| body.jumps_to(address);
            first_point(body.hot(), jumps_to, ability.long_nops, is_exit)
        });
    }

    /// Moves its entry to where all registers are as the caller left them, whatever that costs, so that arguments can be
    /// read there; `false` where there is no such instruction that can be probed. `module` is its own.
    #[must_use]
    pub fn enter_with_values(&mut self, module: &ModuleIndex, ability: KernelAbility) -> bool {
        self.enter_at(module, |body, is_exit| {
            let jumps_to = |address| body.jumps_to(address);
            entry_point(body.hot(), Taken::Values, jumps_to, ability.long_nops, is_exit)
        })
    }

    /// Moves its entry to where `choose` puts it, by the function's body and by which addresses are exits; `false`
    /// where that is nowhere.
    fn enter_at(
        &mut self,
        module: &ModuleIndex,
        choose: impl FnOnce(&Body, &dyn Fn(u64) -> bool) -> Option<EntryPoint>,
    ) -> bool {
        let frames = Frames::of(module.files().program());
        let Some(Ok(body)) = module
            .function_from(self.address)
            .map(|function| Body::decode(module, &frames, &function))
        else {
            return false;
        };
        let exits: Vec<u64> = self.ends.sites().iter().map(|exit| exit.file_offset).collect();
        let is_exit = |address| {
            module
                .offset_of(address)
                .is_some_and(|offset| exits.contains(&offset))
        };
        let Some(entry) = choose(&body, &is_exit) else {
            return false;
        };
        let Some(offset) = module.offset_of(self.address + entry.delta) else {
            return false;
        };
        (self.entry, self.entry_offset) = (entry, offset);
        true
    }
}
