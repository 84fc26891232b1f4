//! `profiler ps`.

use profiler_proto::v1;

use crate::{
    cli::request::Host,
    connect::{Connection, connect},
    failure::Failure,
    live::screen,
    output,
    render::{escape::terminal, json, process, text},
};

/// Lists processes.
pub async fn list(host: &Host, pattern: String, json: bool) -> Result<(), Failure> {
    let processes = fetch(&connect(host).await?, pattern.clone()).await?;
    if processes.is_empty() && !pattern.is_empty() {
        return Err(Failure::not_found(format!(
            "No process that you may profile matches `{}`.",
            terminal(&pattern)
        )));
    }
    if json {
        return output::ndjson(processes.iter().map(json::process).collect::<String>());
    }
    let heading = [
        "PID", "UID", "THREADS", "SYMBOLS", "DEBUG", "RUNTIME", "IN", "COMMAND",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(processes.iter().map(|process| {
        vec![
            process.pid.to_string(),
            process.uid.to_string(),
            process.threads.to_string(),
            known(&process.symbols, "?"),
            known(&process.debug_info, "?"),
            known(&process.runtime, "?"),
            known(process::place(process), "-"),
            terminal(process::command(process)).into_owned(),
        ]
    }));
    let narrowed = text::Narrowed {
        cut: &[(6, 16), (7, 24)],
        left_out: &[1, 2],
    };
    output::stdout(text::narrowed_table(
        &rows,
        &[3, 4, 5, 6, 7],
        narrowed,
        screen::width(),
    ))
}

/// What is known of a process, or what stands for that it is not.
fn known(text: &str, otherwise: &str) -> String {
    let text = if text.is_empty() { otherwise } else { text };
    terminal(text).into_owned()
}

/// Processes that match a pattern; all where it is empty.
pub async fn fetch(connection: &Connection, pattern: String) -> Result<Vec<v1::Process>, Failure> {
    let mut client = connection.targets();
    let mut processes = client
        .list_processes(v1::ListProcessesRequest { pattern })
        .await?
        .into_inner()
        .processes;
    // The pattern stands in this command's own line, too, and in that of a `sudo` before it.
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let own = arguments.collect::<Vec<_>>().join(" ");
    processes.retain(|process| process.pid != std::process::id() && !process.command.ends_with(&own));
    Ok(processes)
}
