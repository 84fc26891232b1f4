//! Which start of the daemon answers. It is asked once for each connection to it, which all views share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use profiler_proto::v1;
use tokio::sync::Mutex;
use tonic::Status;

use crate::connect::Connection;

/// The connections that were made to a daemon, one in the place of another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many were made so far, from the moment on that each is begun.
    count: AtomicU64,
    /// What answers, as far as that was asked.
    answering: Mutex<Option<Answering>>,
}

#[derive(Debug)]
struct Answering {
    /// How many connections there were then.
    count: u64,
    instance: String,
}

impl Made {
    /// Notes that one is begun.
    pub fn note(&self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
    }

    /// How many there are. Where that is the same before and behind a request, the same daemon has answered it.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::SeqCst)
    }
}

/// Which start of the daemon it is that is connected to.
///
/// # Errors
/// What the daemon says.
pub(crate) async fn of(connection: &Connection) -> Result<String, Status> {
    let made = connection.made();
    let mut answering = made.0.answering.lock().await;
    let count = made.count();
    if let Some(known) = answering.as_ref().filter(|known| known.count == count) {
        return Ok(known.instance.clone());
    }
    let info = connection.about().get_info(v1::GetInfoRequest {}).await?;
    let instance = info.into_inner().instance;
    // The request itself may have made one: the next view asks again then.
    *answering = Some(Answering {
        count,
        instance: instance.clone(),
    });
    Ok(instance)
}
