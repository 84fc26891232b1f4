//! `profiler tui`: the drill-down in a terminal.
//!
//! [`lens`] is the model: what is looked at, and how an action changes that. [`data`] is what has come. [`view`] draws the
//! one on the other. `service` alone talks to the service, [`mod@terminal`] alone to the terminal. This file is the loop
//! around them: it waits for a key, a message or a signal, and draws what they have changed. Nothing is drawn by a clock.

pub mod data;
#[cfg(test)]
mod figures;
mod keyboard;
pub mod keys;
pub mod lens;
mod mouse;
mod moves;
mod processes;
#[cfg(test)]
mod sample;
mod service;
mod taken;
pub mod terminal;
pub mod view;

use std::{
    io::{self, IsTerminal as _},
    path::Path,
    sync::Arc,
};

use crossterm::event::{Event, KeyEventKind};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};

use self::{
    data::{Data, Making as PictureMaking, Picture},
    keyboard::Keyboard,
    lens::{Action, Effect, Lens, Recorded, Target, Wanted, update},
    service::{Inbox, Making, Service, What},
    terminal::Screen,
    view::{Spots, theme::Theme},
};
use crate::{
    attached::Owned,
    cli::{
        args::RecordedTime,
        request::{Host, Tui},
    },
    connect::{Connection, connect},
    failure::Failure,
    output::note,
    render::escape::terminal,
    stop::Stop,
    verb::{self, imported},
};

/// Runs it.
///
/// # Errors
///
/// Where there is no terminal, or no service.
pub async fn run(host: &Host, request: Tui, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return Err(Failure::usage(
            "`profiler tui` needs a terminal for its keys and its screen: for scripts there are `profiler top`, `latency`, \
             `flame` and `trace`.",
        ));
    }
    let theme = Theme::of_environment(request.color);
    // The decision was made; crossterm would look at NO_COLOR again.
    crossterm::style::force_color_output(theme.depth != view::theme::Depth::None);
    let mut lens = if request.says_what_is_shown {
        request.lens
    } else {
        as_recorded(request.lens)
    };
    let imported = imported::picture(host)?;
    if let (Some(_), Some(Target::Recording(Recorded { path, time, .. }))) = (&imported, &lens.target) {
        if *time != RecordedTime::default() {
            return Err(Failure::usage(
                "A profile of another tool has no times: leave out --time.",
            ));
        }
        lens.target = Some(Target::Profile(path.clone()));
    }
    let connection = match &imported {
        Some(_) => Connection::to_nothing(),
        None => connect(host).await?,
    };
    let making = Making {
        template: request.template,
    };
    let (service, inbox) = Service::new(connection, owned, making, imported);
    let mut app = App {
        lens,
        live: Data::default(),
        frozen: None,
        maker: Maker::default(),
        service,
        spots: Spots::default(),
        dirty: true,
    };
    app.begin();
    let screen = Screen::enter(app.lens.mouse).map_err(|error| failed(&error))?;
    let ended = app.run(screen, inbox, theme, &mut stop).await;
    for recorded in app.service.end_recordings().await {
        note(&terminal(&recorded));
    }
    ended
}

/// A recording is looked at on the screen that it was begun on, where it was begun on one.
fn as_recorded(lens: Lens) -> Lens {
    let Some(target @ Target::Recording(Recorded { path, .. })) = &lens.target else {
        return lens;
    };
    match verb::target::about(Path::new(path)).and_then(|about| about.lens) {
        Some(message) => {
            let mut recorded = lens::message::look_at_recording(target.clone(), &message);
            (recorded.mouse, recorded.making) = (lens.mouse, lens.making);
            recorded
        }
        None => lens,
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::failed(format!("Cannot use the terminal: {error}."))
}

/// All of it.
struct App {
    lens: Lens,
    /// What has come. It is taken whatever is shown.
    live: Data,
    /// What is shown while nothing new is.
    frozen: Option<Box<Data>>,
    maker: Maker,
    service: Service,
    /// What of the last frame can be pointed at.
    spots: Spots,
    dirty: bool,
}

/// Messages of the flame view that wait for the one who reads it; with more, it gets a copy.
const WAITING: usize = 64;

/// Something that is being made.
struct Task {
    making: PictureMaking,
    /// The screen stands still, and this is for it.
    is_of_frozen: bool,
    handle: JoinHandle<Picture>,
}

/// What is made of the flame view, beside everything else.
#[derive(Default)]
struct Maker {
    task: Option<Task>,
    /// What has come of the flame view meanwhile, which the task reads.
    waiting: Vec<What>,
}

impl Maker {
    /// What is being made, once it is; never, while nothing is. `None`, where it could not be.
    async fn next(&mut self) -> Option<Picture> {
        match &mut self.task {
            Some(task) => (&mut task.handle).await.ok(),
            None => std::future::pending().await,
        }
    }
}

impl App {
    /// Asks for what the command line asks for.
    fn begin(&mut self) {
        match self.lens.target.clone() {
            Some(target) => {
                self.lens.attaching = true;
                let scope = self.lens.scope.clone();
                self.service.attach(target, scope);
            }
            None => self.service.list_choices(),
        }
    }

    async fn run(
        &mut self,
        mut screen: Screen,
        mut inbox: Inbox,
        theme: Theme,
        stop: &mut Stop,
    ) -> Result<(), Failure> {
        let mut keyboard = Keyboard::listen().map_err(|error| failed(&error))?;
        let mut sizes = signal(SignalKind::window_change()).map_err(|error| failed(&error))?;
        let mut stops = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))
            .map_err(|error| failed(&error))?;
        loop {
            self.draw(&mut screen, theme).map_err(|error| failed(&error))?;
            let effects = tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                _ = stops.recv() => vec![Effect::Suspend],
                _ = sizes.recv() => {
                    self.dirty = true;
                    Vec::new()
                }
                event = keyboard.next() => match event {
                    Some(Ok(event)) => self.event(&event),
                    Some(Err(error)) => return Err(failed(&error)),
                    // Nobody types any more.
                    None => return Ok(()),
                },
                picture = self.maker.next() => self.made(picture),
                what = inbox.next(&self.service) => {
                    let mut effects = what.map(|what| self.take(what)).unwrap_or_default();
                    // What has come meanwhile is drawn with it.
                    while let Some(what) = inbox.ready(&self.service) {
                        effects.extend(self.take(what));
                    }
                    effects
                }
            };
            for effect in effects {
                if matches!(effect, Effect::Attach { .. } | Effect::Detach) {
                    self.maker = Maker::default();
                    // Nothing of one process is shown as another's.
                    self.live = Data {
                        processes: std::mem::take(&mut self.live.processes),
                        sessions: std::mem::take(&mut self.live.sessions),
                        ..Data::default()
                    };
                }
                let effect = match effect {
                    // Nobody is asked about what was recorded: what it has is here.
                    Effect::Complete(wanted) if self.lens.is_of_recording() => {
                        self.live.suggest(&wanted);
                        self.dirty = true;
                        continue;
                    }
                    Effect::Complete(wanted) => {
                        self.live.completing = wanted != Wanted::Nothing;
                        Effect::Complete(wanted)
                    }
                    effect => effect,
                };
                match self.service.perform(effect) {
                    None => {}
                    Some(Effect::Copy(text)) => screen.copy(&text).map_err(|error| failed(&error))?,
                    Some(Effect::Mouse(mouse)) => Screen::set_mouse(mouse).map_err(|error| failed(&error))?,
                    Some(Effect::Suspend) => {
                        screen.suspend().await.map_err(|error| failed(&error))?;
                        self.dirty = true;
                    }
                    Some(_) => return Ok(()),
                }
            }
        }
    }

    /// Has the picture made that the screen lacks, one at a time.
    fn make(&mut self) {
        if self.maker.task.is_some() {
            return;
        }
        let is_of_frozen = self.frozen.is_some();
        let data = self.frozen.as_deref_mut().unwrap_or(&mut self.live);
        let Some(making) = data.unmade(&self.lens) else {
            return;
        };
        data.stale = false;
        let (flame, how) = (Arc::clone(&data.flame), making.clone());
        let handle = tokio::task::spawn_blocking(move || {
            let mut picture = Picture::of(&flame, &how);
            if let (Some(Ok(source)), Some(wanted)) = (&mut picture.source, &how.source) {
                service::source_text::add(source, wanted);
            }
            picture
        });
        self.maker.task = Some(Task {
            making,
            is_of_frozen,
            handle,
        });
    }

    /// Takes a picture, and then what has come while it was made.
    fn made(&mut self, picture: Option<Picture>) -> Vec<Effect> {
        let task = self.maker.task.take();
        if let (Some(task), Some(picture)) = (task, picture) {
            self.dirty = true;
            let data = match (task.is_of_frozen, &mut self.frozen) {
                (true, Some(frozen)) => Some(&mut **frozen),
                (false, _) => Some(&mut self.live),
                // It moves on again: what it stood at is nothing any more.
                (true, None) => None,
            };
            if let Some(data) = data {
                let before = data.accept(picture, task.making);
                tokio::task::spawn_blocking(move || drop(before));
            }
        }
        let waiting = std::mem::take(&mut self.maker.waiting);
        waiting.into_iter().flat_map(|what| self.take(what)).collect()
    }

    fn draw(&mut self, screen: &mut Screen, theme: Theme) -> io::Result<()> {
        if !std::mem::take(&mut self.dirty) {
            return Ok(());
        }
        self.make();
        let size = screen.size()?;
        self.act(Action::Resized(size));
        self.act(Action::Drawn);
        let (lens, data) = (&self.lens, self.frozen.as_deref().unwrap_or(&self.live));
        let spots = &mut self.spots;
        screen.draw(|frame| *spots = view::draw(frame.buffer_mut(), lens, data, theme))
    }

    fn event(&mut self, event: &Event) -> Vec<Effect> {
        match event {
            // Whatever is drawn over the screen.
            Event::Key(key) if keys::is_interrupt(key) && self.lens.input.is_none() => vec![Effect::Quit],
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let action = keys::action(key, &self.lens);
                self.dirty = true;
                match action {
                    Some(action) => self.act(action),
                    // It takes away what is drawn over the screen.
                    None => self.act(Action::Nothing),
                }
            }
            Event::Mouse(event) => {
                // All that has come is drawn before an event is taken: this is what was drawn.
                let data = self.frozen.as_deref().unwrap_or(&self.live);
                let action = mouse::action(*event, &self.spots, &self.lens, data);
                self.dirty |= action.is_some();
                action.map(|action| self.act(action)).unwrap_or_default()
            }
            Event::Paste(text) => {
                self.dirty = true;
                let typed = text.chars().map(|c| Action::Type(lens::Typing::Insert(c)));
                typed.flat_map(|action| self.act(action)).collect()
            }
            Event::Resize(..) => {
                self.dirty = true;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn act(&mut self, action: Action) -> Vec<Effect> {
        let data = self.frozen.as_deref().unwrap_or(&self.live);
        let effects = update(&mut self.lens, action, data);
        match (self.lens.frozen, self.frozen.is_some()) {
            (true, false) => self.frozen = Some(Box::new(self.live.clone())),
            (false, true) => self.frozen = None,
            _ => {}
        }
        effects
    }

    /// Takes a report; what follows from it.
    fn take(&mut self, what: What) -> Vec<Effect> {
        if self.maker.task.is_some() && self.maker.waiting.len() < WAITING && matches!(what, What::Flame(_)) {
            self.maker.waiting.push(what);
            return Vec::new();
        }
        // What is drawn over a screen that stands still, and what it says of itself, goes on.
        let is_data = matches!(
            what,
            What::Flame(_)
                | What::Latency(_)
                | What::NoLatency
                | What::Hits(_)
                | What::Waits(_)
                | What::Syscalls(_)
                | What::Timeline(_)
                | What::Spans(_)
                | What::Explained(_)
                | What::Counts(_)
        );
        if let What::Attached(attached, target) = &what {
            self.service.session = Some(service::Session {
                name: attached.session.name.clone(),
                target: target.clone(),
                first_pid: attached.session.pids.first().copied(),
            });
        }
        // That it is time to count the lines of the source anew changes nothing else.
        let is_mere_tick =
            matches!(&what, What::Counts(counts) if counts.is_empty() && self.live.counts.is_empty());
        let action = taken::take(&mut self.live, what);
        if let Some(frozen) = self.frozen.as_deref_mut().filter(|_| !is_data) {
            taken::follow(frozen, &self.live);
        }
        self.dirty |= !(is_data && self.frozen.is_some() || is_mere_tick);
        match action {
            Some(Action::NotAttached { message }) => {
                self.service.leave();
                self.service.list_choices();
                self.act(Action::NotAttached { message })
            }
            Some(action) => self.act(action),
            None => Vec::new(),
        }
    }
}
