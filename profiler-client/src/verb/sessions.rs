//! `profiler session` and `profiler scope`.

use profiler_proto::v1::{self, session_service_client::SessionServiceClient};
use tonic::transport::Channel;

use crate::{
    attached,
    cli::{exit::Failure, request::Host},
    connect::{connect, require_daemon},
    output,
    render::{escape::terminal, json, text},
};

/// `session new`: prints the name, for scripts to keep.
pub async fn new(host: &Host, create: &v1::CreateSessionRequest, json: bool) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    let session = attached::create(&mut client, create).await?;
    output::warnings(&session.warnings);
    if json {
        return output::stdout(json::session(&session));
    }
    output::stdout(format!("{}\n", terminal(&session.name)))
}

/// `session list`.
pub async fn list(host: &Host, json: bool) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    let sessions = client
        .list_sessions(v1::ListSessionsRequest {})
        .await?
        .into_inner()
        .sessions;
    if json {
        return output::stdout(sessions.iter().map(json::session).collect::<String>());
    }
    let mut rows = vec![
        ["NAME", "PIDS", "FUNCTIONS", "WATCHERS", "SCOPE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(sessions.iter().map(|session| {
        let mut pids: Vec<String> = session.pids.iter().take(3).map(u32::to_string).collect();
        if session.pids.len() > pids.len() {
            pids.push("…".to_owned());
        }
        vec![
            terminal(&session.name).into_owned(),
            pids.join(","),
            session.sites.len().to_string(),
            session.watchers.to_string(),
            terminal(&session.scope).into_owned(),
        ]
    }));
    output::stdout(text::table(&rows, &[0, 1, 4]))
}

/// `session end`.
pub async fn end(host: &Host, name: String) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    client.end_session(v1::EndSessionRequest { name }).await?;
    Ok(())
}

/// `scope set`: prints the scope as the daemon understood it.
pub async fn set_scope(host: &Host, name: String, scope: String) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    let response = client
        .set_scope(v1::SetScopeRequest { name, scope })
        .await?
        .into_inner();
    let session = response.session.unwrap_or_default();
    output::warnings(&session.warnings);
    output::stdout(format!("{}\n", terminal(&session.scope)))
}

async fn sessions_of(host: &Host) -> Result<SessionServiceClient<Channel>, Failure> {
    let connection = connect(host).await?;
    require_daemon(&connection)?;
    Ok(SessionServiceClient::new(connection.channel))
}
