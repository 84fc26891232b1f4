//! Goes one step further in while a session runs, and back:
//!
//!     cargo run --example edit_scope -- SOCKET PID SCOPE STEP
//!
//! SOCKET is that of a daemon (`profilerd --socket SOCKET`). STEP is put behind SCOPE, as `handler.rs:73!else` behind
//! `'handle_request[>= p95]'`, and taken away again after three seconds. Nothing is attached anew but what the step adds.

use std::{env, error::Error, path::PathBuf, time::Duration};

use profiler_client::{
    attached::{Attached, Owned, SessionChoice},
    connect::{Host, connect},
};
use profiler_proto::v1::{self, edit_scope_request::Edit};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [socket, pid, scope, step] = &arguments[..] else {
        return Err("usage: edit_scope SOCKET PID SCOPE STEP".into());
    };
    let connection = connect(&Host::Socket(PathBuf::from(socket))).await?;
    let owned = Owned::default();
    let choice = SessionChoice::of_process(pid.parse()?, scope);
    let attached = Attached::open(&connection, &choice, &owned).await?;
    let edited = async {
        for edit in [Edit::Append(step.clone()), Edit::Drop(1)] {
            let request = v1::EditScopeRequest {
                name: attached.session.name.clone(),
                edit: Some(edit),
            };
            let edited = connection.sessions().edit_scope(request).await?.into_inner();
            println!(
                "{}",
                edited.session.map(|session| session.scope).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        Ok::<(), Box<dyn Error>>(())
    }
    .await;
    owned.end().await;
    edited
}
