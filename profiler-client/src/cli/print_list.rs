//! `--print`: a list of expressions, which the daemon parses.

use crate::failure::Failure;

/// Expressions that one session reads at a hit, as the daemon limits them.
pub const MAX_EXPRESSIONS: usize = 16;

/// The expressions of one `--print`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrintList(pub Vec<String>);

/// Splits at commas that are not within brackets or double quotes.
///
/// # Errors
///
/// Where there is nothing between two commas, as a phrase for clap's message.
pub fn parse(text: &str) -> Result<PrintList, String> {
    let mut expressions = Vec::new();
    let mut begin = 0;
    for end in commas(text) {
        expressions.push(expression(text, begin, Some(end))?);
        begin = end + 1;
    }
    expressions.push(expression(text, begin, None)?);
    Ok(PrintList(expressions))
}

/// Takes the one expression of `--by`.
///
/// # Errors
///
/// Where there is none, or more than one, as a phrase for clap's message.
pub fn parse_one(text: &str) -> Result<String, String> {
    let PrintList(mut expressions) = parse(text)?;
    match (expressions.pop(), expressions.is_empty()) {
        (Some(expression), true) => Ok(expression),
        _ => Err("calls can be divided by one expression only".to_owned()),
    }
}

/// All that `--print` was given, in order.
///
/// # Errors
///
/// A usage failure where they are more than [`MAX_EXPRESSIONS`].
pub fn join(lists: Vec<PrintList>) -> Result<Vec<String>, Failure> {
    let expressions: Vec<String> = lists.into_iter().flat_map(|list| list.0).collect();
    if expressions.len() > MAX_EXPRESSIONS {
        return Err(Failure::usage(format!(
            "--print has {} expressions; at most {MAX_EXPRESSIONS} can be read at a hit. Print a structure to \
             have all of its members.",
            expressions.len()
        )));
    }
    Ok(expressions)
}

fn expression(text: &str, begin: usize, comma: Option<usize>) -> Result<String, String> {
    let expression = text[begin..comma.unwrap_or(text.len())].trim();
    match comma {
        _ if !expression.is_empty() => Ok(expression.to_owned()),
        Some(comma) => Err(format!("there is no expression before the comma at byte {comma}")),
        None if begin > 0 => Err("there is no expression after the last comma".to_owned()),
        None => Err("an expression is expected, such as n or req->len".to_owned()),
    }
}

/// Where the commas are that separate. An unclosed bracket or quote takes all that follows: what is wrong with it
/// is for the daemon to say.
fn commas(text: &str) -> Vec<usize> {
    let mut commas = Vec::new();
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quoted => {
                chars.next();
            }
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => commas.push(at),
            _ => {}
        }
    }
    commas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &str) -> Vec<String> {
        parse(text).unwrap().0
    }

    #[test]
    fn commas_separate_but_within_brackets_and_quotes() {
        assert_eq!(split("n"), ["n"]);
        assert_eq!(split("n, req->len ,*p"), ["n", "req->len", "*p"]);
        assert_eq!(split("a[1,2],(b,c).d"), ["a[1,2]", "(b,c).d"]);
        assert_eq!(
            split(r#""f<a,b>"::n,"q\",r",m"#),
            [r#""f<a,b>"::n"#, r#""q\",r""#, "m"]
        );
        assert_eq!(split("a->b,c"), ["a->b", "c"], "an arrow opens nothing");
        assert_eq!(
            split("a[1,b"),
            ["a[1,b"],
            "the daemon points at what is not closed"
        );
        assert_eq!(split("a],b"), ["a]", "b"]);
    }

    #[test]
    fn calls_are_divided_by_one_expression() {
        assert_eq!(parse_one(" a[1,2] ").unwrap(), "a[1,2]");
        assert!(parse_one("n,m").unwrap_err().contains("one expression"));
        assert!(parse_one("").unwrap_err().contains("an expression is expected"));
    }

    #[test]
    fn nothing_between_commas_is_refused() {
        for (text, words) in [
            ("", "an expression is expected"),
            (" ", "an expression is expected"),
            (",n", "before the comma at byte 0"),
            ("n,,m", "before the comma at byte 2"),
            ("n,", "after the last comma"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn sixteen_are_the_most() {
        let of = |count| {
            vec![
                PrintList(vec!["n".to_owned(); count]),
                PrintList(vec!["m".to_owned()]),
            ]
        };
        assert_eq!(join(of(15)).unwrap().len(), 16);
        assert!(join(of(16)).unwrap_err().message.contains("17 expressions"));
        assert_eq!(join(Vec::new()).unwrap(), Vec::<String>::new());
    }

    /// An expression whose commas, if any, are within brackets or quotes.
    fn whole() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-z*.>-]{1,4}",
            r"\[[a-z0-9,]{0,4}\]",
            r"\([a-z,]{0,3}\)",
            r#""([a-z,\[()]|\\["\\]){0,5}""#,
        ];
        prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn what_is_joined_comes_apart_again(expressions in prop::collection::vec(whole(), 1..6)) {
            prop_assert_eq!(split(&expressions.join(",")), expressions);
        }

        #[test]
        fn any_text_is_survived_and_nothing_is_lost(text in ".*") {
            if let Ok(PrintList(list)) = parse(&text) {
                let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                prop_assert_eq!(bare(&list.join(",")), bare(&text));
                prop_assert!(list.iter().all(|expression| !expression.is_empty()));
            }
        }
    }
}
