//! `profiler functions`.

use profiler_proto::v1;

use crate::{
    cli::request::Host,
    connect::connect,
    failure::Failure,
    output,
    render::{escape::terminal, json, text},
};

/// Lists functions, as they arrive: large programs have a million of them.
pub async fn list(host: &Host, target: v1::Target, pattern: String, json: bool) -> Result<(), Failure> {
    let connection = connect(host).await?;
    let mut client = connection.targets();
    let request = v1::ListFunctionsRequest {
        target: Some(target),
        pattern: pattern.clone(),
    };
    let mut stream = client.list_functions(request).await?.into_inner();
    let mut any = false;
    let mut unnamed = Vec::new();
    while let Some(message) = stream.message().await? {
        unnamed.extend(message.unnamed);
        if message.functions.is_empty() {
            continue;
        }
        let content: String = if json {
            message.functions.iter().map(json::function).collect()
        } else {
            let heading = if any { "" } else { "    SIZE  INLINED  FUNCTION\n" };
            let titles = text::distinct(&message.functions, text::title);
            message
                .functions
                .iter()
                .zip(titles)
                .fold(heading.to_owned(), |lines, (function, title)| {
                    lines + &line(function, &title)
                })
        };
        any = true;
        if json {
            output::ndjson(content)?;
        } else {
            output::stdout(content)?;
        }
    }
    if json {
        output::ndjson(unnamed.iter().map(json::unnamed_functions).collect::<String>())?;
    } else {
        for note in text::unnamed_functions(&unnamed) {
            output::note(&note);
        }
    }
    if any {
        return Ok(());
    }
    Err(Failure::not_found(if pattern.is_empty() {
        "The target has no functions with known names.".to_owned()
    } else {
        format!("No function matches `{}`.", terminal(&pattern))
    }))
}

fn line(function: &v1::Function, title: &str) -> String {
    let inlined = if function.inlined == 0 {
        String::new()
    } else {
        function.inlined.to_string()
    };
    let unnamed = if text::is_unnamed(function) {
        "  (no symbol)"
    } else {
        ""
    };
    let is_async = if function.is_async { "  (async)" } else { "" };
    let is_copied = if function.is_copied {
        "  (copied: no probe reaches it)"
    } else {
        ""
    };
    let same_code = function
        .same_code
        .iter()
        .fold(String::new(), |named, other| named + "  = " + &terminal(other));
    format!(
        "{:>8} {inlined:>8}  {title}{unnamed}{is_async}{is_copied}{same_code}\n",
        function.size
    )
}
