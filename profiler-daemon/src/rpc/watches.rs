//! Several views in one stream, which clients change while it goes on.
//!
//! A page in a browser may have six connections and cannot send a stream: so one stream carries all views, and changes of it
//! are requests of their own (docs/decisions/0030-one-stream-of-many-views.md).

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{FutureExt as _, StreamExt as _, TryFutureExt as _, stream};
use profiler_proto::{
    limits::MAX_SUBSCRIPTIONS,
    v1::{self, subscription::View, watch_response::Message},
};
use tokio::sync::mpsc;
use tokio_stream::StreamMap;
use tonic::Status;
use tonic_types::StatusExt as _;

use super::{
    arguments::invalid,
    departures,
    streams::{Messages, Watched},
};
use crate::session::{Caller, Handle, Reason, SessionError};

/// Subscriptions of one user in all watches; root's are not counted.
const MAX_OF_A_USER: usize = 256;

/// Changes of a watch that wait for its stream to take them.
const MAX_CHANGES: usize = 16;

/// The watches that are open.
#[derive(Clone)]
pub struct Watches {
    handle: Handle,
    open: Arc<Mutex<Open>>,
}

/// Those of all users.
#[derive(Default)]
struct Open {
    watches: HashMap<WatchKey, OpenWatch>,
    /// How many watches each user has begun so far: the names tell nobody of others.
    begun: HashMap<u32, u64>,
    /// How many subscriptions there were so far.
    admitted: u64,
    /// The service stops.
    is_closed: bool,
}

/// What tells watches apart: each user's have names of their own.
#[derive(Clone, PartialEq, Eq, Hash)]
struct WatchKey {
    uid: u32,
    name: String,
}

struct OpenWatch {
    /// Subscriptions that it has, or is about to have, each with the number of its admission: another may have its id later.
    ids: HashMap<u32, u64>,
    changes: mpsc::Sender<Change>,
}

/// A view that was admitted to a watch.
struct Admitted {
    id: u32,
    number: u64,
    view: View,
}

/// A change of a watch: these go, and then those come.
struct Change {
    drop: Vec<u32>,
    add: Vec<Admitted>,
}

/// A watch in the list of those that are open; dropped with its stream.
struct Listed {
    key: WatchKey,
    open: Arc<Mutex<Open>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.open).watches.remove(&self.key);
    }
}

impl Listed {
    /// Forgets a subscription that has ended, unless another has its id by now.
    fn forget(&self, id: u32, number: u64) {
        if let Some(watch) = lock(&self.open).watches.get_mut(&self.key)
            && watch.ids.get(&id) == Some(&number)
        {
            watch.ids.remove(&id);
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watches {
    /// None yet.
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            open: Arc::default(),
        }
    }

    /// Lets each end with the last of its views, and begins no others.
    pub fn close(&self) {
        let mut open = lock(&self.open);
        open.is_closed = true;
        open.watches.clear();
    }

    /// Begins a watch.
    ///
    /// # Errors
    /// Where a subscription is wrong, or they are too many.
    pub fn begin(
        &self,
        caller: Caller,
        subscriptions: Vec<v1::Subscription>,
    ) -> Result<Messages<v1::WatchResponse>, SessionError> {
        let subscriptions = parsed(subscriptions)?;
        let (changes, changed) = mpsc::channel(MAX_CHANGES);
        let (listed, add) = {
            let mut open = lock(&self.open);
            if open.is_closed {
                return Err(SessionError::new(Reason::Stopping, "the daemon is stopping"));
            }
            let add = open.admit(caller, &HashMap::new(), subscriptions)?;
            let key = open.next_key(caller);
            let ids = add.iter().map(|added| (added.id, added.number)).collect();
            open.watches.insert(key.clone(), OpenWatch { ids, changes });
            let listed = Listed {
                key,
                open: Arc::clone(&self.open),
            };
            (listed, add)
        };
        let begun = message(
            0,
            Message::Begun(v1::WatchBegun {
                watch: listed.key.name.clone(),
            }),
        );
        let mut watch = Watch {
            caller,
            handle: self.handle.clone(),
            listed,
            views: StreamMap::new(),
            changed: Some(changed),
        };
        watch.add(add);
        let following = stream::unfold(watch, |mut watch| async {
            let message = watch.next().await?;
            Some((Ok(message), watch))
        });
        Ok(Box::pin(stream::iter([Ok(begun)]).chain(following)))
    }

    /// Changes a watch.
    ///
    /// # Errors
    /// Where there is none of that name that the caller's user began, a subscription is wrong, or they are too many.
    pub async fn change(&self, caller: Caller, change: v1::ChangeWatchRequest) -> Result<(), SessionError> {
        let v1::ChangeWatchRequest {
            watch: name,
            add,
            drop,
        } = change;
        let subscriptions = parsed(add)?;
        let changes = lock(&self.open).watch(caller, &name)?.changes.clone();
        // From its place in the queue on nothing is waited for: what is admitted comes, in this order.
        let place = changes.reserve().await.map_err(|_| gone(&name))?;
        let mut open = lock(&self.open);
        let mut ids = open.watch(caller, &name)?.ids.clone();
        let drop: Vec<u32> = drop.into_iter().filter(|id| ids.remove(id).is_some()).collect();
        // What goes makes room for what comes.
        let before = std::mem::replace(&mut open.watch(caller, &name)?.ids, ids.clone());
        match open.admit(caller, &ids, subscriptions) {
            Ok(add) => {
                let watch = open.watch(caller, &name)?;
                watch.ids.extend(add.iter().map(|added| (added.id, added.number)));
                place.send(Change { drop, add });
                Ok(())
            }
            Err(error) => {
                open.watch(caller, &name)?.ids = before;
                Err(error)
            }
        }
    }
}

impl Open {
    /// A watch that a caller's user began. One of somebody else's is not told from one that does not exist.
    fn watch(&mut self, caller: Caller, name: &str) -> Result<&mut OpenWatch, SessionError> {
        let key = WatchKey {
            uid: caller.uid,
            name: name.to_owned(),
        };
        self.watches.get_mut(&key).ok_or_else(|| gone(name))
    }

    /// The next watch of a caller's user.
    fn next_key(&mut self, caller: Caller) -> WatchKey {
        let begun = self.begun.entry(caller.uid).or_default();
        *begun += 1;
        WatchKey {
            uid: caller.uid,
            name: begun.to_string(),
        }
    }

    /// Others beside the subscriptions that a watch has.
    fn admit(
        &mut self,
        caller: Caller,
        has: &HashMap<u32, u64>,
        more: Vec<(u32, View)>,
    ) -> Result<Vec<Admitted>, SessionError> {
        let mut ids: HashSet<u32> = has.keys().copied().collect();
        for (id, _) in &more {
            if !ids.insert(*id) {
                return Err(invalid(format!("the watch has a subscription {id} already")));
            }
        }
        let refuse = |message: String| Err(SessionError::new(Reason::LimitReached, message));
        if ids.len() > MAX_SUBSCRIPTIONS {
            return refuse(format!("a watch has up to {MAX_SUBSCRIPTIONS} subscriptions"));
        }
        let own = self.watches.iter().filter(|(key, _)| key.uid == caller.uid);
        let all: usize = own.map(|(_, watch)| watch.ids.len()).sum();
        if !caller.is_root() && all + more.len() > MAX_OF_A_USER {
            return refuse(format!(
                "your watches have {all} subscriptions, and up to {MAX_OF_A_USER} are allowed: end others"
            ));
        }
        let admitted = more.into_iter().map(|(id, view)| {
            self.admitted += 1;
            Admitted {
                id,
                number: self.admitted,
                view,
            }
        });
        Ok(admitted.collect())
    }
}

fn gone(name: &str) -> SessionError {
    SessionError::new(
        Reason::WatchNotFound,
        format!("there is no watch `{name}`: its stream has ended"),
    )
}

fn parsed(subscriptions: Vec<v1::Subscription>) -> Result<Vec<(u32, View)>, SessionError> {
    let parse = |subscription: v1::Subscription| match subscription.view {
        _ if subscription.id == 0 => Err(invalid("subscriptions are numbered from 1 on")),
        Some(view) => Ok((subscription.id, view)),
        None => Err(invalid(format!("subscription {} names no view", subscription.id))),
    };
    subscriptions.into_iter().map(parse).collect()
}

fn message(id: u32, message: Message) -> v1::WatchResponse {
    v1::WatchResponse {
        id,
        message: Some(message),
    }
}

/// One watch.
struct Watch {
    caller: Caller,
    handle: Handle,
    listed: Listed,
    views: StreamMap<u32, Messages<(u64, Message)>>,
    /// `None` once the service stops: it ends with its views.
    changed: Option<mpsc::Receiver<Change>>,
}

impl Watch {
    /// The next message of any view.
    async fn next(&mut self) -> Option<v1::WatchResponse> {
        loop {
            let has_views = !self.views.is_empty();
            if self.changed.is_none() && !has_views {
                return None;
            }
            let change = async {
                match &mut self.changed {
                    Some(changed) => changed.recv().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                change = change => match change {
                    Some(Change { drop, add }) => {
                        for id in drop {
                            self.views.remove(&id);
                        }
                        self.add(add);
                    }
                    None => self.changed = None,
                },
                Some((id, told)) = self.views.next(), if has_views => {
                    // What fails tells its number too.
                    let Ok((number, told)) = told else { continue };
                    if is_last(&told) {
                        self.views.remove(&id);
                        self.listed.forget(id, number);
                    }
                    return Some(message(id, told));
                }
            }
        }
    }

    fn add(&mut self, add: Vec<Admitted>) {
        for Admitted { id, number, view } in add {
            let messages = open(view, self.caller, self.handle.clone());
            let numbered = messages.map(move |told| {
                let told = told.unwrap_or_else(|status| failed(&status));
                Ok((number, told))
            });
            self.views.insert(id, Box::pin(numbered));
        }
    }
}

/// Whether nothing more comes of a subscription.
fn is_last(told: &Message) -> bool {
    let info = match told {
        Message::Begun(_) => return false,
        Message::Failed(_) => return true,
        Message::Latency(message) => &message.info,
        Message::Flame(message) => &message.info,
        Message::Trace(message) => &message.info,
        Message::Explain(message) => &message.info,
        Message::Spans(message) => &message.info,
        Message::Waits(message) => &message.info,
        Message::Timeline(message) => &message.info,
        Message::Syscalls(message) => &message.info,
        Message::Records(message) => &message.info,
    };
    info.as_ref().is_some_and(|info| info.end.is_some())
}

fn failed(status: &Status) -> Message {
    let details = status.get_error_details();
    Message::Failed(v1::SubscriptionFailed {
        code: status.code().into(),
        message: status.message().to_owned(),
        reason: details
            .error_info()
            .map_or_else(String::new, |info| info.reason.clone()),
    })
}

/// The messages of a view, which is opened once the first is asked for.
fn open(view: View, caller: Caller, handle: Handle) -> Messages<Message> {
    match view {
        View::Latency(asked) => opened(asked, caller, handle, Message::Latency),
        View::Flame(asked) => opened(asked, caller, handle, Message::Flame),
        View::Trace(asked) => opened(asked, caller, handle, Message::Trace),
        View::Explain(asked) => opened(asked, caller, handle, Message::Explain),
        View::Spans(asked) => opened(asked, caller, handle, Message::Spans),
        View::Waits(asked) => opened(asked, caller, handle, Message::Waits),
        View::Timeline(asked) => opened(asked, caller, handle, Message::Timeline),
        View::Syscalls(asked) => opened(asked, caller, handle, Message::Syscalls),
        View::Records(asked) => opened(asked, caller, handle, Message::Records),
    }
}

fn opened<R: Watched + Send + 'static>(
    asked: R,
    caller: Caller,
    handle: Handle,
    of: fn(R::Message) -> Message,
) -> Messages<Message> {
    let messages = async move { departures::open(asked, caller, &handle).await };
    let messages = messages.boxed().try_flatten_stream();
    // Behind a message that says that it is the last, nobody asks for more.
    let broken = stream::iter([Err(Status::unavailable(
        "the view has ended without a last message",
    ))]);
    Box::pin(messages.map(move |told| told.map(of)).chain(broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Caller = Caller {
        uid: 65_534,
        gid: 65_534,
    };
    const ROOT: Caller = Caller { uid: 0, gid: 0 };

    fn views(ids: std::ops::Range<u32>) -> Vec<(u32, View)> {
        ids.map(|id| (id, View::Latency(v1::WatchLatencyRequest::default())))
            .collect()
    }

    /// Puts a watch with so many subscriptions into the list, where that is allowed.
    fn begin(open: &mut Open, caller: Caller, count: u32) -> Result<(), SessionError> {
        let admitted = open.admit(caller, &HashMap::new(), views(1..1 + count))?;
        let ids = admitted
            .iter()
            .map(|admitted| (admitted.id, admitted.number))
            .collect();
        let (changes, _) = mpsc::channel(1);
        let key = open.next_key(caller);
        open.watches.insert(key, OpenWatch { ids, changes });
        Ok(())
    }

    #[test]
    fn subscriptions_of_a_user_are_bounded_and_roots_only_those_of_a_watch() {
        let mut open = Open::default();
        for _ in 0..4 {
            begin(&mut open, NOBODY, 64).unwrap();
            begin(&mut open, ROOT, 64).unwrap();
        }
        let refused = begin(&mut open, NOBODY, 1).unwrap_err();
        assert_eq!(refused.reason, Reason::LimitReached);
        begin(&mut open, NOBODY, 0).unwrap();
        begin(&mut open, ROOT, 64).unwrap();
        let refused = begin(&mut open, ROOT, 65).unwrap_err();
        assert_eq!(refused.reason, Reason::LimitReached);
        let other = Caller { uid: 1, gid: 1 };
        begin(&mut open, other, 64).unwrap();
    }

    #[test]
    fn names_of_watches_tell_nothing_of_other_users() {
        let mut open = Open::default();
        let names = [ROOT, NOBODY, ROOT, NOBODY].map(|caller| open.next_key(caller).name);
        assert_eq!(names, ["1", "1", "2", "2"]);
        begin(&mut open, ROOT, 1).unwrap();
        assert!(open.watch(ROOT, "3").is_ok());
        assert_eq!(
            open.watch(NOBODY, "3").err().unwrap().reason,
            Reason::WatchNotFound
        );
    }

    #[test]
    fn a_subscription_has_a_number_of_its_own() {
        let mut open = Open::default();
        let has = HashMap::from([(3, 1)]);
        let admitted = open.admit(NOBODY, &has, views(1..3)).unwrap();
        let numbers: HashSet<u64> = admitted.iter().map(|admitted| admitted.number).collect();
        assert_eq!(numbers.len(), 2);
        let refused = open.admit(NOBODY, &has, views(2..4)).err().unwrap();
        assert_eq!(refused.reason, Reason::ArgumentInvalid);
        let view = |id, view| v1::Subscription { id, view };
        let latency = || Some(View::Latency(v1::WatchLatencyRequest::default()));
        assert!(parsed(vec![view(0, latency())]).is_err());
        assert!(parsed(vec![view(1, None)]).is_err());
        assert!(parsed(vec![view(1, latency())]).is_ok());
    }
}
