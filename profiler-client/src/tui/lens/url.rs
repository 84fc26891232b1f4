//! A lens as a URL: the flags of its command line as a query, `profiler:tui?pid=4211&scope=f%5B%3E%3D%20p95%5D&pane=diff`.

use std::str;

use super::command_line::has_next_word;

/// How such a URL begins.
pub const PREFIX: &str = "profiler:tui";

/// The name of what stands on the command line without one.
const SCOPE: &str = "scope";

/// A screen's command line as a URL.
#[must_use]
pub fn of(words: &[String]) -> String {
    let mut pairs = Vec::new();
    // Behind the program and its verb.
    let mut words = words.iter().skip(2);
    while let Some(word) = words.next() {
        let pair = |name: &str, value: &str| format!("{}={}", name.trim_start_matches('-'), encoded(value));
        pairs.push(match (word.as_str(), word.split_once('=')) {
            ("-p", _) => pair("pid", words.next().map_or("", String::as_str)),
            (flag, _) if has_next_word(flag) => pair(flag, words.next().map_or("", String::as_str)),
            (flag, Some((name, value))) if flag.starts_with("--") => pair(name, value),
            (flag, None) if flag.starts_with("--") => flag.trim_start_matches('-').to_owned(),
            (scope, _) => pair(SCOPE, scope),
        });
    }
    let query = pairs.join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{PREFIX}{mark}{query}")
}

/// The flags of a URL, as `tui` takes them.
///
/// # Errors
///
/// Says what of it is none.
pub fn words(url: &str) -> Result<Vec<String>, String> {
    let rest = url
        .strip_prefix(PREFIX)
        .ok_or_else(|| format!("not a URL that begins with `{PREFIX}`"))?;
    let query = match rest.strip_prefix('?') {
        Some(query) => query,
        None if rest.is_empty() => rest,
        None => return Err(format!("`?` is expected behind `{PREFIX}`")),
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Some(decoded(value)?)),
                None => (pair, None),
            };
            if name.is_empty()
                || !name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                || name.starts_with('-')
            {
                return Err("names of flags are letters".to_owned());
            }
            match value {
                Some(value) if name == SCOPE && value.starts_with('-') => {
                    Err("a scope does not begin with `-`".to_owned())
                }
                Some(value) if name == SCOPE => Ok(value),
                Some(value) => Ok(format!("--{name}={value}")),
                None => Ok(format!("--{name}")),
            }
        })
        .collect()
}

/// Text with all but a few letters as `%` and two digits for each byte (RFC 3986, 2.1).
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b',' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "`%` and two hexadecimal digits are expected".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    while let Some((&first, rest)) = left.split_first() {
        left = rest;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, rest) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
        bytes.push(
            digits
                .and_then(|text| u8::from_str_radix(text, 16).ok())
                .ok_or_else(wrong)?,
        );
        left = rest;
    }
    String::from_utf8(bytes).map_err(|_| "what is encoded is not text".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_command_line_is_a_url_and_back() {
        let line = owned(&[
            "profiler",
            "tui",
            "-p",
            "4211",
            "f[>= p95]/g",
            "--pane",
            "diff",
            "--heat",
            "--zoom=a b;é",
        ]);
        let url = of(&line);
        assert_eq!(
            url,
            "profiler:tui?pid=4211&scope=f%5B%3E%3D%20p95%5D/g&pane=diff&heat&zoom=a%20b%3B%C3%A9"
        );
        let again = words(&url).unwrap();
        assert_eq!(
            again,
            [
                "--pid=4211",
                "f[>= p95]/g",
                "--pane=diff",
                "--heat",
                "--zoom=a b;é"
            ]
        );
        assert_eq!(of(&owned(&["profiler", "tui"])), "profiler:tui");
        assert!(words("profiler:tui").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for url in [
            "https://a",
            "profiler:tuix",
            "profiler:tui?a=%4",
            "profiler:tui?a=%+4",
            "profiler:tui?a=%zz",
            "profiler:tui?a=%ff",
            "profiler:tui?=b",
            "profiler:tui?-p=3",
            "profiler:tui?A=3",
            "profiler:tui?scope=--from",
            "profiler:tui?%61=3",
        ] {
            assert!(words(url).is_err(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_of_plain_letters(text in ".*") {
            let url = of(&[String::new(), String::new(), format!("--search={text}")]);
            prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(words(&url).unwrap(), [format!("--search={text}")]);
            let _ = words(&text);
            let _ = words(&format!("{PREFIX}?{text}"));
        }
    }
}
