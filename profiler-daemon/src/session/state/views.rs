//! The views of a session.
//!
//! Each is one file, which says what a client asks for, how that is opened at a live session and in a recording, what of the session
//! begins and ends with those who watch, and how its pictures are made. [`ALL`] is the one list of them.

mod explain;
mod flame;
mod latency;
mod records;
mod spans;
pub(in super::super) mod syscalls;
mod timeline;
mod trace;
pub(in super::super) mod unknown;
pub(in super::super) mod waits;

use std::{collections::BTreeMap, sync::Arc};

use profiler_scope::Step;
use profiler_symbolize::{FrameTable, Grouping};

pub(in super::super) use self::flame::UNIQUE;
pub use self::timeline::Closed;
use super::Session;
use crate::{
    kernel::{Engine, KernelError, Times},
    session::{
        backlog::Backlogs,
        command::{Caller, Command, Handle, Reply},
        ending::Ending,
        error::SessionError,
        flame::Moment,
        name::SessionName,
        owner::Owner,
        picture::{Cost, ExplainPicture, FlamePicture, FlameVariant, LatencyPicture},
        replay::{Player, not_recorded},
        running::{Running, answer},
        span_losses::OwnLosses,
        spans::{SpansPicture, SpansRequest},
        symbols::{Dropped, Wanted},
        system_calls::SyscallsPicture,
        waits::WaitsPicture,
        watchers::{Streams, Watchers},
    },
};

/// From the opening of a stream to its first picture: by then there are calls to show.
const FIRST_NS: u64 = 100_000_000;

/// A view that a client asks for.
pub trait View: Send + Sized + 'static {
    /// As the audit log calls it.
    const NAME: &'static str;

    /// The target is sampled while somebody watches: the view opens once the sampler runs and stacks can be walked.
    const IS_SAMPLED: bool = false;

    /// Its pictures show what the programs have counted by then, which is read before.
    const IS_OF_COUNTS: bool = true;

    /// What whoever asks for it reads.
    type Stream: Send + 'static;

    /// Opens it at a live session.
    ///
    /// # Errors
    /// Where the session cannot be shown so.
    fn open(self, live: Live<'_>) -> Result<Self::Stream, SessionError>;

    /// Opens it at a session of a recording, as long as somebody waits for it.
    ///
    /// # Errors
    /// Where a recording does not have it, or not for this scope.
    fn replay(
        self,
        _player: &mut Player,
        _session: &str,
        _is_awaited: &dyn Fn() -> bool,
    ) -> Result<Self::Stream, SessionError> {
        Err(not_recorded())
    }

    /// Its open streams.
    fn streams(session: &Session) -> &dyn Streams;

    /// The same, to be swept.
    fn streams_mut(session: &mut Session) -> &mut dyn Streams;

    /// In which times the target is sampled for those who watch.
    fn times(_session: &Session) -> Times {
        Times::default()
    }

    /// Which records have to be named for those who watch, and how.
    fn wanted(_session: &Session) -> Wanted {
        Wanted::default()
    }

    /// Refuses other steps for the session, which could not be shown to those who watch.
    ///
    /// # Errors
    /// Where somebody watches.
    fn accepts(_session: &Session, _steps: &[&Step]) -> Result<(), SessionError> {
        Ok(())
    }

    /// Begins and ends what the session keeps for those who watch.
    ///
    /// # Errors
    /// Where the kernel or a bound refuses it.
    fn settle(_session: &mut Session, _engine: &mut Engine, _at: At) -> Result<(), KernelError> {
        Ok(())
    }

    /// Goes on with another scope.
    fn renew(_session: &mut Session, _engine: &mut Engine, _at: At, _renewed: Renewed) {}

    /// Gives streams that are due their pictures.
    fn publish(session: &mut Session, tick: &Tick<'_>);
}

/// All views.
pub const ALL: [ViewKind; 9] = [
    ViewKind::of::<trace::Trace>(),
    ViewKind::of::<records::Records>(),
    ViewKind::of::<explain::Explain>(),
    ViewKind::of::<latency::Latency>(),
    ViewKind::of::<flame::Flame>(),
    ViewKind::of::<spans::Spans>(),
    ViewKind::of::<waits::Waits>(),
    ViewKind::of::<syscalls::Syscalls>(),
    ViewKind::of::<timeline::Timelines>(),
];

/// What a session does for one of its views, whoever watches: see [`View`].
pub struct ViewKind {
    is_sampled: bool,
    is_of_counts: bool,
    streams: fn(&Session) -> &dyn Streams,
    streams_mut: fn(&mut Session) -> &mut dyn Streams,
    times: fn(&Session) -> Times,
    wanted: fn(&Session) -> Wanted,
    accepts: fn(&Session, &[&Step]) -> Result<(), SessionError>,
    settle: fn(&mut Session, &mut Engine, At) -> Result<(), KernelError>,
    renew: fn(&mut Session, &mut Engine, At, Renewed),
    publish: fn(&mut Session, &Tick<'_>),
}

impl ViewKind {
    const fn of<V: View>() -> Self {
        Self {
            is_sampled: V::IS_SAMPLED,
            is_of_counts: V::IS_OF_COUNTS,
            streams: V::streams,
            streams_mut: V::streams_mut,
            times: V::times,
            wanted: V::wanted,
            accepts: V::accepts,
            settle: V::settle,
            renew: V::renew,
            publish: V::publish,
        }
    }
}

/// The open streams of views that show pictures.
#[derive(Default)]
pub struct OpenStreams {
    explain: Watchers<ExplainPicture, ()>,
    latency: Watchers<LatencyPicture, ()>,
    flame: Watchers<FlamePicture, FlameVariant>,
    spans: Watchers<SpansPicture, SpansRequest>,
    waits: Watchers<WaitsPicture, ()>,
    syscalls: Watchers<SyscallsPicture, Grouping>,
}

/// A live session at which a view is opened.
pub struct Live<'a> {
    /// The session.
    pub session: &'a mut Session,
    /// The other sessions.
    pub others: &'a mut BTreeMap<SessionName, Session>,
    /// What looks at all targets.
    pub running: &'a mut Running,
    /// What waits for clients.
    pub backlogs: &'a mut Backlogs,
    /// Now.
    pub now_ns: u64,
}

/// A moment at which what is kept for views changes.
#[derive(Clone, Copy)]
pub struct At {
    /// What was dropped until then.
    pub dropped: Dropped,
    /// The time.
    pub now_ns: u64,
}

/// What an edit of the scope has changed.
#[derive(Clone, Copy)]
pub struct Renewed {
    /// Samples lie in the same spans as before.
    pub has_same_nesting: bool,
}

/// A moment at which pictures are given out.
pub struct Tick<'a> {
    /// The programs' counts.
    pub engine: &'a Engine,
    /// Frames by number.
    pub frames: &'a FrameTable,
    /// What was dropped until then.
    pub dropped: Dropped,
    /// What the daemon costs.
    pub cost: Cost,
    /// The time.
    pub now_ns: u64,
    /// Why these are the last pictures, if they are.
    pub ended: Option<&'a Ending>,
}

impl Tick<'_> {
    /// Whether no other pictures come.
    pub fn is_last(&self) -> bool {
        self.ended.is_some()
    }

    /// For a picture of a scope.
    fn moment<'t>(&'t self, scope: &'t Arc<str>, own: &OwnLosses) -> Moment<'t> {
        Moment {
            now_ns: self.now_ns,
            scope,
            frames: self.frames,
            cost: self.cost,
            dropped: self.dropped,
            also_lost: own.by_reason().collect(),
            ended: self.ended,
        }
    }
}

/// A client's request for a view, whichever it is.
pub trait Request: Send {
    /// Opens it at a live session, and answers.
    fn open(self: Box<Self>, owner: &mut Owner, caller: Caller, session: &str);

    /// Opens it at a session of a recording, and answers.
    fn replay(self: Box<Self>, player: &mut Player, session: &str);
}

/// The same with the view's own type.
struct Asked<V: View> {
    view: V,
    reply: Reply<V::Stream>,
}

impl<V: View> Request for Asked<V> {
    fn open(self: Box<Self>, owner: &mut Owner, caller: Caller, session: &str) {
        owner.watch(caller, session, self.view, self.reply);
    }

    fn replay(self: Box<Self>, player: &mut Player, session: &str) {
        let Self { view, reply } = *self;
        // Who asks one question after the other does not wait for the ones before.
        if reply.is_closed() {
            return;
        }
        let replayed = view.replay(player, session, &|| !reply.is_closed());
        answer(reply, replayed);
    }
}

impl Handle {
    /// Opens a view of a session; dropping the stream ends it.
    async fn watch<V: View>(&self, caller: Caller, name: String, view: V) -> Result<V::Stream, SessionError> {
        self.ask(caller, |reply| Command::Watch {
            caller,
            name,
            request: Box::new(Asked { view, reply }),
        })
        .await
    }
}

impl Session {
    /// Number of open streams.
    pub fn watchers(&self) -> usize {
        ALL.iter().map(|view| (view.streams)(self).len()).sum()
    }

    /// Forgets streams that nobody reads any more.
    pub fn sweep(&mut self) {
        for view in &ALL {
            (view.streams_mut)(self).sweep();
        }
    }

    /// Whether samples are wanted.
    pub fn samples(&self) -> bool {
        let mut sampled = ALL.iter().filter(|view| view.is_sampled);
        self.explains() || sampled.any(|view| !(view.streams)(self).is_empty())
    }

    /// In which times its target is to be sampled.
    pub fn times(&self) -> Times {
        ALL.iter()
            .map(|view| (view.times)(self))
            .fold(Times::default(), Times::or)
    }

    /// What is looked at of what is recorded.
    pub fn wanted(&self) -> Wanted {
        ALL.iter().map(|view| (view.wanted)(self)).collect()
    }

    /// Refuses steps that could not be shown to those who watch.
    ///
    /// # Errors
    /// By the first view that cannot show them.
    pub fn accepts(&self, steps: &[&Step]) -> Result<(), SessionError> {
        ALL.iter().try_for_each(|view| (view.accepts)(self, steps))
    }

    /// Begins and ends what is kept for those who watch.
    pub fn settle_views(&mut self, engine: &mut Engine, at: At) {
        for view in &ALL {
            if let Err(error) = (view.settle)(self, engine, at) {
                tracing::warn!(session = %self.name, %error, "a view shows nothing");
            }
        }
    }

    /// Has all views go on with another scope.
    pub(super) fn renew_views(&mut self, engine: &mut Engine, at: At, renewed: Renewed) {
        for view in &ALL {
            (view.renew)(self, engine, at, renewed);
        }
    }

    /// Gives watchers their pictures; the last ones where `ended` says why.
    pub fn publish(
        &mut self,
        engine: &Engine,
        frames: &FrameTable,
        dropped: Dropped,
        now_ns: u64,
        ended: Option<&Ending>,
    ) {
        if ended.is_some() {
            self.read(engine, now_ns);
        }
        self.set_limits(engine);
        let is_due = |view: &&ViewKind| {
            let streams = (view.streams)(self);
            !streams.is_empty() && (ended.is_some() || streams.is_due(now_ns))
        };
        let (counted, others): (Vec<&ViewKind>, Vec<&ViewKind>) =
            ALL.iter().filter(is_due).partition(|view| view.is_of_counts);
        if counted.is_empty() && others.is_empty() {
            return;
        }
        let tick = Tick {
            engine,
            frames,
            dropped,
            cost: self.cost(now_ns),
            now_ns,
            ended,
        };
        for view in others {
            (view.publish)(self, &tick);
        }
        if !counted.is_empty() {
            // A picture shows the calls of this moment, not those of the last reading.
            self.read(engine, now_ns);
        }
        for view in counted {
            (view.publish)(self, &tick);
        }
    }
}
