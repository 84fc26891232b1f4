//! `profiler session` and `profiler scope`.

use profiler_proto::v1::{self, session_service_client::SessionServiceClient};
use tonic::transport::Channel;

use crate::{
    attached,
    cli::request::{Host, ScopeEdit},
    connect::{connect, require_daemon},
    failure::Failure,
    live::screen,
    output,
    render::{escape::terminal, json, text},
};

/// `session new`: prints the name, for scripts to keep.
pub async fn new(host: &Host, create: &v1::CreateSessionRequest, json: bool) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    let session = attached::create(&mut client, create).await?;
    output::warnings(&session.warnings);
    if json {
        return output::ndjson(json::session(&session));
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
        return output::ndjson(sessions.iter().map(json::session).collect::<String>());
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
    let narrowed = text::Narrowed {
        cut: &[(4, 24)],
        left_out: &[2, 3],
    };
    output::stdout(text::narrowed_table(&rows, &[0, 1, 4], narrowed, screen::width()))
}

/// `session end`.
pub async fn end(host: &Host, name: String) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    client.end_session(v1::EndSessionRequest { name }).await?;
    Ok(())
}

/// `scope set`, `append`, `drop`, `undo`: prints the scope as the daemon understood it.
pub async fn edit_scope(host: &Host, name: String, edit: ScopeEdit) -> Result<(), Failure> {
    let mut client = sessions_of(host).await?;
    let edit = match edit {
        ScopeEdit::Set(scope) => {
            let request = v1::SetScopeRequest { name, scope };
            let response = client.set_scope(request).await?.into_inner();
            return edited(response.session);
        }
        ScopeEdit::Append(steps) => v1::edit_scope_request::Edit::Append(steps),
        ScopeEdit::Drop(steps) => v1::edit_scope_request::Edit::Drop(steps),
        ScopeEdit::Undo(edits) => v1::edit_scope_request::Edit::Undo(edits),
    };
    let request = v1::EditScopeRequest {
        name,
        edit: Some(edit),
    };
    edited(client.edit_scope(request).await?.into_inner().session)
}

fn edited(session: Option<v1::Session>) -> Result<(), Failure> {
    let session = session.unwrap_or_default();
    output::warnings(&session.warnings);
    output::stdout(format!("{}\n", terminal(&session.scope)))
}

async fn sessions_of(host: &Host) -> Result<SessionServiceClient<Channel>, Failure> {
    let connection = connect(host).await?;
    require_daemon(&connection)?;
    Ok(connection.sessions())
}
