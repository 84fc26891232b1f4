//! `profiler source`.

use std::io::IsTerminal as _;

use profiler_proto::v1;

use crate::{
    cli::{args::Color, request::Host},
    connect::{Connection, connect},
    failure::Failure,
    live::screen::{self, Screen},
    output,
    render::{escape::terminal, source, source_json},
};

/// The source of all functions that a place means.
///
/// # Errors
/// Those of the request.
pub async fn sources(
    connection: &Connection,
    target: v1::Target,
    place: &str,
) -> Result<Vec<v1::SourceFunction>, Failure> {
    let request = v1::SourceRequest {
        target: Some(target),
        place: place.to_owned(),
    };
    let mut stream = connection.targets().source(request).await?.into_inner();
    let mut functions = Vec::new();
    while let Some(message) = stream.message().await? {
        functions.extend(message.function);
    }
    Ok(functions)
}

/// Shows functions as they arrive.
pub async fn show(
    host: &Host,
    target: v1::Target,
    place: String,
    json: bool,
    color: Color,
) -> Result<(), Failure> {
    let connection = connect(host).await?;
    let mut client = connection.targets();
    let request = v1::SourceRequest {
        target: Some(target),
        place: place.clone(),
    };
    let mut stream = client.source(request).await?.into_inner();
    let width = std::io::stdout().is_terminal().then(|| Screen::size().0);
    let colour = screen::is_coloured(color, width.is_some());
    let mut marks = source::Marks::default();
    let mut left_out = 0;
    let mut any = false;
    while let Some(message) = stream.message().await? {
        left_out += message.left_out;
        let Some(function) = message.function else {
            continue;
        };
        if json {
            output::ndjson(source_json::function(&function))?;
        } else {
            if any {
                output::stdout("\n")?;
            }
            output::warnings(&function.warnings);
            screen::print(&source::function(&function, width, &mut marks), colour)?;
        }
        any = true;
    }
    if !any {
        return Err(Failure::not_found(format!(
            "There is nothing to show for `{}`.",
            terminal(&place)
        )));
    }
    if !json {
        screen::print(&source::legend(marks, width), colour)?;
    }
    if left_out > 0 {
        output::note(&format!("{left_out} more functions match: narrow it down."));
    }
    Ok(())
}
