//! `profiler functions`.

use profiler_proto::v1;

use crate::{
    cli::request::Host,
    connect::connect,
    failure::Failure,
    live::screen,
    output,
    render::{
        escape::terminal,
        json,
        source_names::{brief, in_columns},
        text,
    },
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
    let width = screen::width();
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
                    lines + &line(function, &title, width)
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

fn line(function: &v1::Function, title: &str, width: Option<usize>) -> String {
    let inlined = if function.inlined == 0 {
        String::new()
    } else {
        function.inlined.to_string()
    };
    let marks = marks(function);
    let numbers = format!("{:>8} {inlined:>8}  ", function.size);
    let room = |taken: usize| width.map_or(usize::MAX, |width| width.saturating_sub(taken));
    let title = short_title(title, room(numbers.len() + marks.len()));
    let same_code = if function.same_code.is_empty() {
        String::new()
    } else {
        let names: Vec<_> = function.same_code.iter().map(|name| terminal(name)).collect();
        let line = format!("= {}", names.join(", "));
        format!(
            "{:>1$}{2}\n",
            "",
            numbers.len(),
            in_columns(&line, room(numbers.len()))
        )
    };
    format!("{numbers}{title}{marks}\n{same_code}")
}

/// What a function's calls are that its name does not say.
fn marks(function: &v1::Function) -> String {
    let marks = [
        (text::is_unnamed(function), "  (no symbol)"),
        (function.is_async, "  (async)"),
        (function.is_copied, "  (copied: no probe reaches it)"),
    ];
    let meant = marks.into_iter().filter(|(is_meant, _)| *is_meant);
    meant.map(|(_, mark)| mark).collect()
}

/// Columns that the place of a function is left beside its name.
const PLACE: usize = 24;

/// A function's name and its place in so many columns: of the place the end is kept, of the name what tells it from others.
fn short_title(title: &str, columns: usize) -> String {
    let length = |text: &str| text.chars().count();
    if length(title) <= columns {
        return title.to_owned();
    }
    let Some((name, place)) = title.split_once("  ") else {
        return in_columns(title, columns);
    };
    let brief = brief(name);
    let beside = columns.saturating_sub(length(&brief) + 2);
    let place = cut_begin(place, beside.max(PLACE.min(columns / 2)));
    let room = columns.saturating_sub(length(&place) + 2);
    format!("{}  {place}", in_columns(name, room))
}

/// The end of a text, in so many columns.
fn cut_begin(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let end = text.chars().skip(length + 1 - columns.max(1));
    std::iter::once('…').chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_takes_a_line_of_the_terminal() {
        let function = v1::Function {
            size: 120,
            ..v1::Function::default()
        };
        let title =
            "std::map<std::string, std::vector<int>>::insert  /usr/src/project/server/include/map.h:120";
        let line = |width| line(&function, title, width);
        assert_eq!(line(None), format!("     120           {title}\n"));
        for width in 40..160 {
            let line = line(Some(width));
            assert!(line.trim_end().chars().count() <= width, "{line}");
            assert!(line.ends_with("map.h:120\n"), "{line}");
        }
        assert_eq!(
            line(Some(80)),
            "     120           map::insert  /usr/src/project/server/include/map.h:120\n"
        );
    }

    #[test]
    fn what_calls_are_that_a_name_does_not_say_is_said_beside_it_and_below() {
        let function = v1::Function {
            size: 120,
            is_async: true,
            same_code: vec!["other".to_owned(), "third".to_owned()],
            ..v1::Function::default()
        };
        assert_eq!(
            line(&function, "handle  a.rs:3", Some(80)),
            "     120           handle  a.rs:3  (async)\n                   = other, third\n"
        );
    }
}
