//! What another tool wrote in the place of a session: one picture, whose scope cannot be edited.

use profiler_proto::v1;
use tokio::sync::mpsc;

use super::{Edit, Incoming, Reports, What};
use crate::{attached::Attached, failure::Failure, tui::lens::NO_SCOPE, verb::imported::Picture};

/// All that its task has.
pub struct Task {
    pub picture: Picture,
    /// The scope that the command line asked for.
    pub scope: String,
    pub reports: Reports,
    pub edits: mpsc::Receiver<Edit>,
}

impl Task {
    /// Shows it, and refuses edits until nobody wants it any more.
    pub async fn run(mut self) {
        if !self.scope.is_empty() {
            let refused = What::NotAttached(Failure::usage(NO_SCOPE));
            self.reports.send(refused).await;
            return;
        }
        let session = v1::Session {
            recorded: (!self.picture.length.is_zero())
                .then(|| self.picture.length.try_into().ok())
                .flatten(),
            ..v1::Session::default()
        };
        let attached = Box::new(Attached { session, own: true });
        let message = Incoming::Message(self.picture.message);
        self.reports.send(What::Attached(attached, String::new())).await;
        self.reports.send(What::Flame(message)).await;
        while self.edits.recv().await.is_some() {
            let refused = What::Refused(Failure::usage(NO_SCOPE), String::new());
            self.reports.send(refused).await;
        }
    }
}
