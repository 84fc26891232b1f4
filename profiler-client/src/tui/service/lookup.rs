//! Functions and sources, as they are asked for.

use profiler_proto::v1;

use crate::{
    cli::exit::{ExitStatus, Failure},
    connect::Connection,
    render::escape::terminal,
};

/// Functions that are looked at for suggestions, and those that are made of them.
const LOOKED_AT: usize = 2000;
const SUGGESTED: usize = 50;

/// The source of the first function that a place means.
pub async fn source(
    connection: &Connection,
    target: v1::Target,
    place: &str,
) -> Result<v1::SourceFunction, Failure> {
    all_sources(connection, target, place)
        .await?
        .into_iter()
        .next()
        .ok_or_else(|| Failure {
            status: ExitStatus::NotFound,
            message: format!("No function or line matches `{}`.", terminal(place)),
        })
}

/// The source of all functions that a place means.
pub async fn all_sources(
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

/// Functions that have all words of a fragment in their names, in this order; those that begin with it first.
pub async fn functions(
    connection: &Connection,
    target: v1::Target,
    fragment: &str,
) -> Result<Vec<String>, Failure> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | ':');
    let words: Vec<&str> = fragment
        .split(|c| !is_plain(c))
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let request = v1::ListFunctionsRequest {
        target: Some(target),
        pattern: format!("*{}*", words.join("*")),
    };
    let mut stream = connection.targets().list_functions(request).await?.into_inner();
    let mut names: Vec<String> = Vec::new();
    while let Some(message) = stream.message().await? {
        names.extend(message.functions.into_iter().map(|function| function.name));
        if names.len() >= LOOKED_AT {
            break;
        }
    }
    Ok(ranked(names, words[0]))
}

fn ranked(mut names: Vec<String>, first: &str) -> Vec<String> {
    let rank = |name: &str| {
        let last = name.rsplit("::").next().unwrap_or(name);
        (!name.starts_with(first), !last.starts_with(first), name.len())
    };
    names.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    names.dedup();
    names.truncate(SUGGESTED);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_so_comes_first_and_short_names_before_long_ones() {
        let names = ["re::handle", "unhandle", "handle_all", "handle", "handle"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            ranked(names, "handle"),
            ["handle", "handle_all", "re::handle", "unhandle"]
        );
    }
}
