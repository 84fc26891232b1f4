//! Views that are opened through one connection, as a screen opens them.

use profiler_client::{
    attached::{Attached, Owned, SessionChoice},
    connect::{Connection, Host, connect},
    view::View,
};
use profiler_proto::v1;
use tokio::runtime::Runtime;
use tonic::{Code, Status};

use super::fake::{Fake, Script};

/// A daemon of this start.
fn started(instance: &str) -> Script {
    Script {
        instance: instance.to_owned(),
        ..Script::default()
    }
}

async fn open(
    connection: &Connection,
    session: &v1::Session,
) -> Result<View<v1::WatchLatencyRequest>, Status> {
    let request = v1::WatchLatencyRequest {
        session: session.name.clone(),
        ..v1::WatchLatencyRequest::default()
    };
    View::open(connection, session, request).await
}

async fn connected(fake: &Fake) -> (Connection, v1::Session) {
    let connection = connect(&Host::Socket(fake.socket.clone())).await.unwrap();
    let choice = SessionChoice::of_process(7, "handle");
    let attached = Attached::open(&connection, &choice, &Owned::default()).await;
    (connection, attached.unwrap().session)
}

#[test]
fn which_daemon_answers_is_asked_once_for_all_views() {
    let fake = Fake::start(started("first"));
    Runtime::new().unwrap().block_on(async {
        let (connection, session) = connected(&fake).await;
        for _ in 0..3 {
            let mut view = open(&connection, &session).await.unwrap();
            assert!(view.message(|_| {}).await.unwrap().is_some());
        }
    });
    assert_eq!(fake.seen.lock().unwrap().infos, 1);
}

#[test]
fn a_view_is_not_opened_again_at_a_daemon_that_was_started_anew() {
    let fake = Fake::start(started("first"));
    Runtime::new().unwrap().block_on(async {
        let (connection, session) = connected(&fake).await;
        let mut view = open(&connection, &session).await.unwrap();
        assert!(view.message(|_| {}).await.unwrap().is_some());
        // One more, so that what is known of the connection is known of the other.
        let mut other = open(&connection, &session).await.unwrap();
        let fake = tokio::task::spawn_blocking(|| fake.start_anew(started("second")));
        let fake = fake.await.unwrap();
        for view in [&mut view, &mut other] {
            let refused = loop {
                match view.message(|_| {}).await {
                    Ok(message) => assert!(message.is_some()),
                    Err(status) => break status,
                }
            };
            assert_eq!(refused.code(), Code::NotFound, "{refused}");
        }
        // What is opened from now on is the other's.
        assert!(open(&connection, &session).await.is_ok());
        assert!(fake.seen.lock().unwrap().infos <= 2);
        tokio::task::spawn_blocking(|| drop(fake)).await.unwrap();
    });
}
