//! What has come from the service, and what is made of it once for each message.

mod bars;
mod calls;
mod graph;
mod heat;
mod hits;
mod losses;
mod picture;
mod processes;
mod recorded_source;
mod selected;
pub mod source;
mod threads;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use profiler_proto::v1;

pub use self::{
    bars::{Durations, SelectedBars, band, place},
    calls::{CallRow, Calls},
    graph::{Block, Graph, GraphNode, Largest},
    heat::{Heat, HeatColumn},
    hits::{HitRow, Hits},
    losses::Loss,
    picture::{Making, Picture},
    processes::ProcessRow,
    recorded_source::WantedSource,
    threads::{ThreadRow, ThreadTimes},
};
use super::lens::{FrameId, Item, Lens, Pane, Recorded, Suggestion, Target, Wanted, path};
use super::service::ranked;
use crate::{
    cli::request::Sides,
    departures::Departures,
    render::{
        explain,
        timeline::{self, Drawn},
        units, waits,
    },
    state::{
        end::End,
        flame::FlameState,
        functions::{FunctionRow, order},
        latency::LatencyState,
        lines::{LineKey, LineTime},
        syscalls::{self as syscalls_state, SyscallsState},
        timeline::TimelineState,
        waits::WaitsState,
    },
};

/// How often a step was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCount {
    /// Times, since the session looks at it.
    pub count: u64,
    /// Times a second, lately.
    pub rate_hz: Option<f64>,
    /// When it was counted.
    pub at: Instant,
}

/// What a stream of a pane's own is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsideOf {
    /// The pane.
    pub pane: Pane,
    /// The scope.
    pub scope: String,
}

/// What the pane shows that has a stream of its own.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// What it is of; of nothing before any is shown.
    pub of: AsideOf,
    /// Who waits for whom.
    pub waits: WaitsState,
    /// System calls.
    pub syscalls: SyscallsState,
    /// The slowest calls.
    pub calls: Calls,
    /// Counters over time.
    pub timeline: TimelineState,
    /// What slow calls do that the others do not.
    pub explained: Option<v1::WatchExplainResponse>,
    /// Why there is nothing.
    pub failure: Option<String>,
    /// Why nothing more comes.
    pub ended: Option<End>,
}

impl Aside {
    /// Nothing has come yet.
    #[must_use]
    pub fn begin(of: AsideOf) -> Self {
        Self {
            of,
            ..Self::default()
        }
    }

    /// Whether there is something to see.
    #[must_use]
    pub fn has_picture(&self) -> bool {
        match self.of.pane {
            Pane::Waits => self.waits.started,
            Pane::Syscalls => self.syscalls.started,
            Pane::Spans => !self.calls.rows.is_empty(),
            Pane::Timeline => !self.timeline.buckets.is_empty(),
            Pane::Explain => self.explained.is_some(),
            _ => false,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// Sessions of the daemon.
    pub sessions: Vec<v1::Session>,
    /// Processes, the busiest first.
    pub processes: Vec<ProcessRow>,
    /// The target's name.
    pub target: String,
    /// The session; `None` before there is one.
    pub session: Option<Arc<v1::Session>>,
    /// The flame view.
    pub flame: Arc<FlameState>,
    /// The latency view.
    pub latency: LatencyState,
    /// Calls by duration, as they came.
    pub heat: Heat,
    /// The hits.
    pub hits: Hits,
    /// What a pane with a stream of its own shows.
    pub aside: Aside,
    /// What other such panes showed last, which is looked at again once nothing more comes.
    pub asides_before: BTreeMap<Pane, Aside>,
    /// The source that was asked for last.
    pub source: Option<Arc<v1::SourceFunction>>,
    /// The place that it is the source of.
    pub source_of: String,
    /// Why there is none.
    pub source_failure: Option<String>,
    /// Steps by their text.
    pub counts: BTreeMap<String, StepCount>,
    /// Suggestions for what is typed.
    pub completions: Vec<Suggestion>,
    /// Others are being looked for.
    pub completing: bool,
    /// Why the session ended.
    pub ended: Option<End>,
    /// Which of its processes have left the session before.
    pub departures: Departures,
    /// The connection to the daemon is being made again.
    pub is_connection_lost: bool,
    /// What is recorded, and into which file.
    pub recording: Option<String>,
    /// What is drawn of the flame view.
    pub graph: Arc<Graph>,
    /// The same, by function.
    pub functions: Arc<Vec<FunctionRow>>,
    /// The same, by line, where it tells them apart.
    pub lines: Arc<HashMap<LineKey, LineTime>>,
    /// The same, by thread, where it tells them apart.
    pub threads: Arc<Vec<ThreadRow>>,
    /// The share of the time that is not in there.
    pub share_left_out: f64,
    /// The flame view has changed since.
    pub stale: bool,
    /// How it was made.
    pub made: Making,
}

impl Data {
    /// Whether nothing more comes of the session: it has ended, and is none of a recording, where each part ends as soon as it is there.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_recorded = |session: &Arc<v1::Session>| session.recorded.is_some();
        self.ended.is_some() && !self.session.as_ref().is_some_and(is_recorded)
    }

    /// Whether something of the scope has come for the pane that is shown, if only that there was nothing.
    #[must_use]
    pub fn was_watched(&self, lens: &Lens) -> bool {
        let has_stacks = || self.flame.started && self.fits(lens);
        match lens.pane {
            Pane::Top | Pane::Graph | Pane::Threads => has_stacks(),
            // Stacks of other panes are not compared.
            Pane::Difference => {
                has_stacks() && (self.flame.summary.warming || !self.flame.differences.is_empty())
            }
            Pane::Latency => self.latency.started,
            Pane::Source => self.source_shown(lens).is_some(),
            Pane::Hits => {
                self.hits.scope == lens.scope && (self.hits.ready_at.is_some() || self.hits.state.started)
            }
            Pane::Sessions | Pane::Losses => true,
            Pane::Spans => self.aside.calls.state.started,
            _ => self.aside.has_picture(),
        }
    }

    /// The source that the screen shows. Once nothing more comes, another one may be asked for, and does not take its place.
    #[must_use]
    pub fn source_shown(&self, lens: &Lens) -> Option<&v1::SourceFunction> {
        let source = self.source.as_deref();
        source.filter(|_| !self.is_over() || lens.source.as_ref() == Some(&self.source_of))
    }

    /// The source that was shown last, where it is that of a scope's innermost function.
    #[must_use]
    pub fn source_of_scope(&self, scope: &str) -> Option<&v1::SourceFunction> {
        let source = self.source.as_deref()?;
        let name = path::function(scope)?;
        let shown = source.function.as_ref();
        let is_of_it = self.source_of == path::quoted(&name)
            || shown.is_some_and(|function| is_called(&function.name, &name));
        is_of_it.then_some(source)
    }

    /// Another pane with a stream of its own is shown: what this one showed is kept, and comes back where nothing new does.
    pub fn turn_aside(&mut self, of: AsideOf) {
        let last = self.asides_before.remove(&of.pane);
        let last = last.filter(|last| self.is_over() && last.of == of);
        if self.is_over() && self.aside.of == of && self.aside.has_picture() {
            return;
        }
        let before = std::mem::replace(&mut self.aside, last.unwrap_or_else(|| Aside::begin(of)));
        if before.has_picture() {
            self.asides_before.insert(before.of.pane, before);
        }
    }

    /// The panes that have something of the scope to see, once nothing more comes.
    #[must_use]
    pub fn panes_with_pictures(&self, lens: &Lens) -> Vec<Pane> {
        let fits = |pane| {
            let mut other = lens.clone();
            other.pane = pane;
            !self.flame.nodes.is_empty() && self.fits(&other)
        };
        let has = |pane: &Pane| match pane {
            Pane::Top | Pane::Graph | Pane::Threads => fits(*pane),
            Pane::Difference => fits(*pane) && !self.flame.differences.is_empty(),
            Pane::Latency => !self.latency.functions.is_empty(),
            Pane::Source => self.source_shown(lens).is_some(),
            Pane::Hits => self.hits.scope == lens.scope && !self.hits.rows.is_empty(),
            Pane::Sessions | Pane::Losses => false,
            pane => {
                let shown = Some(&self.aside).filter(|aside| aside.of.pane == *pane);
                let last = shown.or_else(|| self.asides_before.get(pane));
                last.is_some_and(|last| last.has_picture() && last.of.scope == lens.scope_aside(*pane))
            }
        };
        Pane::ALL
            .into_iter()
            .filter(|pane| lens.has(*pane) && has(pane))
            .collect()
    }

    /// Why probes of the scope were taken off the target, with the function's name; `None` where all are there.
    #[must_use]
    pub fn taken_off(&self) -> Option<String> {
        let functions = self.latency.functions.values();
        let mut taken_off = functions.filter_map(|function| Some((function, function.taken_off.as_ref()?)));
        let (function, why) = taken_off.next()?;
        let others = match taken_off.count() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        let (name, reason) = (&function.function.name, &why.reason);
        Some(format!("{name}{others} was taken off: {reason}"))
    }

    /// Whether that, or the end of what the pane shows, is for what the probes cost.
    #[must_use]
    pub fn is_over_budget(&self, lens: &Lens) -> bool {
        let of_aside = self
            .aside
            .ended
            .iter()
            .filter(|_| self.aside.of.pane == lens.pane);
        let of_hits = self.hits.ended.iter().filter(|_| lens.pane == Pane::Hits);
        let mut of_calls = self.latency.functions.values();
        of_aside.chain(of_hits).any(End::is_over_budget)
            || of_calls.any(|function| function.taken_off.as_ref().is_some_and(|why| why.over_budget))
    }

    /// What is to be made of messages, if the screen does not show it yet.
    pub fn unmade(&mut self, lens: &Lens) -> Option<Making> {
        let wanted = self.wanted(lens);
        if !wanted.fits && self.made != wanted {
            // What has come is another view: nothing of it is shown as if it were this one.
            self.accept(Picture::default(), wanted.clone());
        }
        let is_unmade = self.stale && wanted.fits || self.made != wanted;
        is_unmade.then_some(wanted)
    }

    /// Takes what was made; gives back what was drawn before, which takes long to be freed where it is large.
    pub fn accept(&mut self, picture: Picture, made: Making) -> Replaced {
        self.share_left_out = picture.share_left_out;
        // That of a process is asked of the service.
        if made.source.is_some() {
            match picture.source {
                Some(Ok(source)) => (self.source, self.source_failure) = (Some(Arc::new(source)), None),
                Some(Err(why)) => (self.source, self.source_failure) = (None, Some(why)),
                // Samples of another scope are still to come: the lines are the same, and one of them is selected.
                None if self.made.source == made.source => {}
                None => (self.source, self.source_failure) = (None, None),
            }
        }
        self.made = made;
        Replaced {
            _graph: std::mem::replace(&mut self.graph, Arc::new(picture.graph)),
            _lines: std::mem::replace(&mut self.lines, Arc::new(picture.lines)),
            _functions: std::mem::replace(&mut self.functions, Arc::new(picture.functions)),
            _threads: std::mem::replace(&mut self.threads, Arc::new(picture.threads)),
        }
    }

    /// Whether what is drawn is what the screen says, and not yet what was asked for before.
    #[must_use]
    pub fn is_made(&self, lens: &Lens) -> bool {
        self.made == self.wanted(lens)
    }

    /// Makes at once what there is to be made.
    #[cfg(test)]
    pub fn settle(&mut self, lens: &Lens) {
        if let Some(making) = self.unmade(lens) {
            self.stale = false;
            let picture = Picture::of(&self.flame, &making);
            self.accept(picture, making);
        }
    }

    fn wanted(&self, lens: &Lens) -> Making {
        Making {
            shape: lens.shape_shown(),
            fits: self.fits(lens),
            by_thread: lens.pane == Pane::Threads,
            source: Self::wanted_source(lens),
        }
    }

    /// The source that is made of a recording's samples.
    fn wanted_source(lens: &Lens) -> Option<WantedSource> {
        let Some(Target::Recording(Recorded { path, .. })) = &lens.target else {
            return None;
        };
        let place = lens.source.clone().filter(|_| lens.pane == Pane::Source)?;
        Some(WantedSource {
            place,
            recording: path.clone(),
        })
    }

    /// Whether the flame view that has come is the one that the screen is made of.
    fn fits(&self, lens: &Lens) -> bool {
        let wanted = lens.flame_view();
        lens.has_stacks_alone()
            || !self.flame.started
            || self.flame.grouping() == wanted.by.grouping() && self.flame.event == wanted.event
    }

    /// Suggests functions that there are samples of.
    pub fn suggest(&mut self, wanted: &Wanted) {
        let Wanted::Step { fragment, .. } = wanted else {
            self.completions.clear();
            return;
        };
        let frames = self.functions.iter().filter_map(|row| path::place_of(&row.frame));
        let names: BTreeSet<String> = frames.map(|place| place.to_string()).collect();
        let names = names.into_iter().map(|text| Suggestion {
            text,
            about: String::new(),
        });
        self.completions = ranked(names.collect(), fragment);
    }

    /// The functions of the screen, in no order.
    fn functions_found(&self, lens: &Lens) -> impl Iterator<Item = &FunctionRow> {
        let least = lens.least_share() * self.graph.total.inside_ns as f64;
        let functions = self.functions.iter();
        functions
            .filter(|row| row.total.inside_ns > 0 && is_found(&row.frame, &lens.search))
            .filter(move |row| row.total.inside_ns as f64 >= least)
    }

    /// The functions of the screen, in order.
    pub fn functions_shown(&self, lens: &Lens) -> impl Iterator<Item = &FunctionRow> {
        let mut rows: Vec<&FunctionRow> = self.functions_found(lens).collect();
        // Who types a name in full means that one.
        let is_meant =
            |row: &FunctionRow| !lens.search.is_empty() && is_called(&row.frame.function, &lens.search);
        // Of what is found, the program's own functions stand before the kernel's: these can be looked inside of by everybody.
        let is_kernels = |row: &FunctionRow| !lens.search.is_empty() && row.frame.kernel;
        rows.sort_by(|a, b| {
            let meant = is_meant(b).cmp(&is_meant(a));
            let own = is_kernels(a).cmp(&is_kernels(b));
            meant.then(own).then_with(|| order(lens.sort, a, b))
        });
        rows.into_iter()
    }

    /// The processes of the screen.
    pub fn processes_shown(&self, lens: &Lens) -> impl Iterator<Item = &ProcessRow> {
        let texts = |row: &ProcessRow| {
            let ProcessRow {
                command,
                user,
                runtime,
                place,
                ..
            } = row;
            [command, user, runtime, place].map(|text| is_match(text, &lens.search))
        };
        self.processes
            .iter()
            .filter(move |row| texts(row).contains(&true) || row.pid.to_string() == lens.search)
    }

    /// The sessions of the screen.
    pub fn sessions_shown(&self, lens: &Lens) -> impl Iterator<Item = &v1::Session> {
        let is_shown = |session: &&v1::Session| {
            is_match(&session.name, &lens.search) || is_match(&session.scope, &lens.search)
        };
        self.sessions.iter().filter(is_shown)
    }

    /// What can be looked at, in the order of the screen.
    pub fn choices(&self, lens: &Lens) -> impl Iterator<Item = Item> {
        let sessions = self.sessions_shown(lens);
        let sessions = sessions.map(|session| Item::Session(session.name.clone()));
        sessions.chain(self.processes_shown(lens).map(|row| Item::Process(row.pid)))
    }

    /// A frame of a function.
    #[must_use]
    pub fn frame_of(&self, id: &FrameId) -> Option<&v1::Frame> {
        self.flame.frames.values().find(|frame| id.is(frame))
    }

    /// Whether samples have a function below another, which a scope calls so; of a box of the graph, whether it is itself
    /// below it.
    #[must_use]
    pub fn is_called_in(&self, frame: &FrameId, lens: &Lens, outer: &str) -> bool {
        let is_outer = |frame: u32| {
            let frame = self.flame.frames.get(&frame);
            frame.is_some_and(|frame| is_called(&frame.function, outer))
        };
        if let (Some(Item::Stack(stack)), None) = (lens.selection(), &self.made.shape.around) {
            let found = self.graph.find(&self.flame, stack);
            return found.is_some_and(|at| {
                let mut above = self.graph.upwards(at).skip(1);
                above.any(|at| is_outer(self.graph.nodes[at].frame))
            });
        }
        let nodes = &self.flame.nodes;
        let of_frame = nodes.values().filter(|node| {
            let node = self.flame.frames.get(&node.frame);
            node.is_some_and(|node| frame.is(node))
        });
        let parent = |node: &&v1::FlameNode| nodes.get(&node.parent);
        let mut of_frame = of_frame.map(|node| std::iter::successors(Some(node), parent).skip(1));
        of_frame.any(|mut above| above.any(|node| is_outer(node.frame)))
    }

    /// What a graph compares.
    #[must_use]
    pub const fn sides(pane: Pane) -> Sides {
        match pane {
            Pane::Difference => Sides::Difference,
            _ => Sides::Inside,
        }
    }

    /// The boxes of the graph.
    #[must_use]
    pub fn layout(&self, lens: &Lens) -> Vec<Block> {
        let zoom = self.graph.find(&self.flame, &lens.zoom);
        self.graph
            .layout(Self::sides(lens.pane), zoom, lens.least_share())
    }

    /// Where a recording begins, which its times count from, in nanoseconds on the kernel's clock; `None` of a process.
    #[must_use]
    pub fn recorded_begin_ns(&self) -> Option<u64> {
        let began_ns = self.session.as_ref().map(|session| session.recorded_begin_ns);
        began_ns.filter(|ns| *ns > 0)
    }

    /// What slow calls do that the others do not, where that is certain enough.
    pub fn findings(&self) -> impl Iterator<Item = &v1::Finding> {
        self.aside.explained.iter().flat_map(explain::worth_saying)
    }

    /// Counters over time, as they are drawn.
    #[must_use]
    pub fn counters(&self) -> Vec<Drawn> {
        timeline::View::live(&self.aside.timeline).drawn(&self.aside.timeline)
    }

    /// The time in a line or in what it calls, and its share of all; `None` of one without samples, and while samples are told
    /// apart by something else.
    #[must_use]
    pub fn time_of_line(&self, file: &str, line: u32) -> Option<(LineTime, f64)> {
        let key = LineKey {
            file: file.to_owned(),
            line,
        };
        let time = *self.lines.get(&key).filter(|time| time.all_ns > 0)?;
        Some((time, units::ratio(time.all_ns, self.graph.total.inside_ns)))
    }

    /// The rows of a list, in the order of the screen; none where it shows no such.
    #[must_use]
    pub fn items(&self, lens: &Lens) -> Vec<Item> {
        match lens.screen() {
            None => self.choices(lens).collect(),
            Some(Pane::Top) => {
                let rows = self.functions_shown(lens);
                rows.map(|row| Item::Function(self.id_of(&row.frame))).collect()
            }
            Some(Pane::Explain) => {
                let findings = self.findings();
                findings
                    .map(|finding| Item::Finding(finding.text.clone()))
                    .collect()
            }
            Some(Pane::Spans) => {
                let calls = self.aside.calls.rows.iter();
                calls.map(|row| Item::Call(row.id())).collect()
            }
            Some(Pane::Threads) => {
                let rows = self.threads_shown(lens);
                rows.map(|row| Item::Threads(row.patterns.clone())).collect()
            }
            Some(Pane::Timeline) => {
                let rows = self.counters().into_iter();
                rows.map(|drawn| Item::Counter(drawn.label)).collect()
            }
            Some(Pane::Sessions) => {
                let rows = self.sessions_shown(lens);
                rows.map(|session| Item::Session(session.name.clone())).collect()
            }
            Some(Pane::Waits) => {
                let rows = waits::rows(&self.aside.waits).into_iter();
                let numbers = rows.filter_map(|row| row.node);
                numbers
                    .map(|number| Item::Wait(self.aside.waits.path(number)))
                    .collect()
            }
            Some(Pane::Syscalls) => {
                let syscalls = self.aside.syscalls.syscalls.iter();
                syscalls
                    .map(|syscall| Item::SystemCall(syscalls_state::name(syscall)))
                    .collect()
            }
            Some(Pane::Losses) => {
                let probed = self.latency.functions.keys().map(|id| Item::Probed(*id));
                let lost = self.losses_by_view().into_iter();
                probed.chain(lost.map(|loss| Item::Loss(loss.id))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The threads of the screen.
    pub fn threads_shown(&self, lens: &Lens) -> impl Iterator<Item = &ThreadRow> {
        self.threads
            .iter()
            .filter(|row| is_match(&row.name, &lens.search))
    }

    /// Which function a frame of the view is of.
    #[must_use]
    pub fn id_of(&self, frame: &v1::Frame) -> FrameId {
        FrameId::of_view(frame, self.flame.by)
    }

    /// What is selected where nothing has been.
    #[must_use]
    pub fn first_item(&self, lens: &Lens) -> Option<Item> {
        match lens.screen() {
            Some(Pane::Graph | Pane::Difference) => self.outermost(lens).map(Item::Stack),
            Some(Pane::Source) => {
                let source = self.source_shown(lens)?;
                let marked = || source::lines(source).find(|line| line.marked);
                // A line that was asked for comes first.
                let asked = marked().filter(|_| source.marked_line > 0);
                let line = asked
                    .or_else(|| self.line_of_scope(source))
                    .or_else(marked)
                    .or_else(|| source::lines(source).next());
                line.map(|line| Item::Line(source::id(source, line)))
            }
            // The last hit is, or the slowest call, as long as no other is chosen.
            Some(Pane::Latency | Pane::Hits | Pane::Spans) => None,
            _ => self.items(lens).into_iter().next(),
        }
    }

    /// The box that a graph is looked at from: the widest of the scope's innermost function, or all.
    fn outermost(&self, lens: &Lens) -> Option<Vec<FrameId>> {
        if self.graph.nodes.is_empty() {
            return None;
        }
        let Some(name) = path::function(&lens.scope) else {
            return Some(Vec::new());
        };
        let frames = self.flame.frames.values();
        let of_it = frames.filter(|frame| is_called(&frame.function, &name));
        let of_it: HashSet<u32> = of_it.map(|frame| frame.id).collect();
        if of_it.is_empty() {
            return None;
        }
        let nodes = self.graph.nodes.iter().enumerate();
        let of_function = nodes.filter(|(_, node)| of_it.contains(&node.frame));
        let sides = Self::sides(lens.pane);
        let share = |node: &GraphNode| self.graph.share(node.total, sides);
        let widest = of_function.max_by(|(a, x), (b, y)| share(x).total_cmp(&share(y)).then(b.cmp(a)));
        // Samples of it may be still to come.
        widest.map(|(at, _)| self.graph.path(&self.flame, at))
    }

    /// Whether an item is on the screen.
    #[must_use]
    pub fn has(&self, lens: &Lens, item: &Item) -> bool {
        match item {
            Item::Threads(_)
            | Item::Counter(_)
            | Item::Probed(_)
            | Item::Loss(_)
            | Item::Wait(_)
            | Item::SystemCall(_) => self.items(lens).contains(item),
            Item::Session(name) => self.sessions_shown(lens).any(|session| session.name == *name),
            Item::Process(pid) => self.processes_shown(lens).any(|row| row.pid == *pid),
            Item::Function(id) => self.functions_found(lens).any(|row| id.is(&row.frame)),
            // What is not there any more is found as far as it is; so is a bar, as others come and go beside it.
            Item::Stack(_) | Item::Bar(_) => true,
            Item::Line(id) => {
                let source = self.source_shown(lens);
                source.is_some_and(|source| source::lines(source).any(|line| source::id(source, line) == *id))
            }
            Item::Hit(id) => self.hits_shown(lens).any(|row| row.id() == *id),
            Item::Call(id) => self.aside.calls.rows.iter().any(|row| row.id() == *id),
            Item::Finding(text) => self.findings().any(|finding| finding.text == *text),
        }
    }

    /// What the daemon costs, by the view that said so last.
    #[must_use]
    pub fn cost(&self) -> Option<&v1::Cost> {
        self.flame.cost.as_ref().or(self.latency.cost.as_ref())
    }
}

/// What was drawn before something else was.
#[derive(Debug)]
pub struct Replaced {
    _graph: Arc<Graph>,
    _functions: Arc<Vec<FunctionRow>>,
    _lines: Arc<HashMap<LineKey, LineTime>>,
    _threads: Arc<Vec<ThreadRow>>,
}

/// Whether a name has what is searched for, whatever the case.
#[must_use]
pub fn is_match(text: &str, search: &str) -> bool {
    search.is_empty() || text.to_lowercase().contains(&search.to_lowercase())
}

/// Whether a frame's function has what is searched for, or it is its library by name.
fn is_found(frame: &v1::Frame, search: &str) -> bool {
    is_match(&frame.function, search) || frame.module.rsplit('/').next() == Some(search)
}

/// Whether a function has a name as a scope has it: as a whole, or as the last components of a path.
fn is_called(function: &str, name: &str) -> bool {
    function == name
        || function
            .strip_suffix(name)
            .is_some_and(|path| path.ends_with("::"))
}
