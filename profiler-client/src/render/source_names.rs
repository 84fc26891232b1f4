//! Names in little room.

use crate::live::line::cut_middle;

/// A path's last two components, without parameters and template arguments: what fits beside a line.
#[must_use]
pub fn short(name: &str) -> String {
    // Operators are made of what brackets are made of.
    if name.contains("operator") {
        return name.to_owned();
    }
    let mut plain = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut before = ' ';
    for c in name.chars() {
        match c {
            '<' | '(' => depth += 1,
            // The arrow of `->` closes nothing.
            '>' if before == '-' => {}
            '>' | ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
        before = c;
    }
    let shown = last_two(&plain);
    if shown.is_empty() { name.to_owned() } else { shown }
}

/// Words and names, each name as [`short`] has it: `woken at a::b::c(int) < d<e>` is `woken at b::c < d`.
#[must_use]
pub fn brief(text: &str) -> String {
    if text.contains("operator") || !text.contains("::") {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut word = String::new();
    let mut depth = 0usize;
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_between = c == '<' && before == ' ' && rest.peek() == Some(&' ');
        match c {
            '<' | '(' if !is_between => depth += 1,
            // The arrow of `->` closes nothing.
            '>' if before == '-' => {}
            '>' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => {
                shown.push_str(&last_two(&word));
                word.clear();
                shown.push(' ');
            }
            c if depth == 0 => word.push(c),
            _ => {}
        }
        before = c;
    }
    shown.push_str(&last_two(&word));
    shown
}

/// A name, or functions each called by the next, in so many columns: as it is, briefly, or cut.
#[must_use]
pub fn in_columns(name: &str, columns: usize) -> String {
    if name.chars().count() <= columns {
        return name.to_owned();
    }
    let brief = brief(name);
    if brief.contains(FROM) && brief.chars().count() > columns {
        chain_in_columns(&brief, columns)
    } else {
        cut_middle(&brief, columns)
    }
}

/// What stands between a function and the one that called it.
const FROM: &str = " < ";

/// Columns of a function that is cut, at least: less says nothing.
const LEAST_LINK: usize = 12;

/// Functions, each called by the next: the first of them, as many as there is room for, the last of these cut in its middle.
fn chain_in_columns(chain: &str, columns: usize) -> String {
    const MORE: &str = " < …";
    let length = |text: &str| text.chars().count();
    let room = columns.saturating_sub(length(MORE));
    let mut links = chain.split(FROM);
    let mut shown = cut_middle(links.next().unwrap_or_default(), room);
    for link in links {
        let left = room.saturating_sub(length(&shown) + length(FROM));
        if length(link) > left && left < LEAST_LINK {
            break;
        }
        shown = format!("{shown}{FROM}{}", cut_middle(link, left));
    }
    let shown = shown.strip_suffix(MORE).unwrap_or(&shown);
    format!("{shown}{MORE}")
}

/// The last two components of a path.
fn last_two(path: &str) -> String {
    let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    let kept = parts.len().saturating_sub(2);
    parts.get(kept..).unwrap_or_default().join("::")
}

/// Text of so many columns at most.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept = text.chars().take(columns.saturating_sub(1));
    kept.chain((columns > 0).then_some('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_to_what_tells_them_apart() {
        for (name, expected) in [
            ("read", "read"),
            ("ns::Type<int>::method(char const*)", "Type::method"),
            ("a::b::c::d", "c::d"),
            ("<alloc::vec::Vec<T> as Drop>::drop", "drop"),
            ("call<fn(u32) -> u32>", "call"),
            ("operator<<(A&, int)", "operator<<(A&, int)"),
            ("main::{{closure}}", "main::{{closure}}"),
            ("<()>", "<()>"),
        ] {
            assert_eq!(short(name), expected, "{name}");
        }
    }

    #[test]
    fn names_among_words_are_shortened() {
        for (text, expected) in [
            (
                "woken at a::b::c(int) < d::e<f, g> < …",
                "woken at b::c < d::e < …",
            ),
            (
                " [sleeping] [lock rows+8] a::b<c>::d",
                " [sleeping] [lock rows+8] b::d",
            ),
            ("application::(anonymous namespace)::f(int)", "application::f"),
            ("ns::operator<<(A&, int)", "ns::operator<<(A&, int)"),
            ("t (2 threads)", "t (2 threads)"),
            ("a::call<fn(u32) -> u32> < main", "a::call < main"),
        ] {
            assert_eq!(brief(text), expected, "{text}");
        }
        assert_eq!(
            in_columns("std::vec::Vec<int>::push", 30),
            "std::vec::Vec<int>::push"
        );
        assert_eq!(in_columns("std::vec::Vec<int>::push", 12), "Vec::push");
        assert_eq!(in_columns("std::vec::Vec<int>::push", 5), "Ve…sh");
    }

    #[test]
    fn of_a_chain_the_first_functions_are_shown() {
        let chain = "usleep < application::handle_a_request(int) < worker < std::thread::run < …";
        for (columns, expected) in [
            (100, chain),
            (60, "usleep < application::handle_a_request < worker < …"),
            (50, "usleep < application::handle_a_request < …"),
            (40, "usleep < application::…dle_a_request < …"),
            (20, "usleep < …"),
            (8, "u…ep < …"),
        ] {
            assert_eq!(in_columns(chain, columns), expected, "{columns}");
        }
        for columns in 5..80 {
            assert!(in_columns(chain, columns).chars().count() <= columns, "{columns}");
        }
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("äbcd", 3), "äb…");
        assert_eq!(cut("abc", 0), "");
    }
}
