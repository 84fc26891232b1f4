//! Names in little room.

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
    let parts: Vec<&str> = plain.split("::").filter(|part| !part.is_empty()).collect();
    let kept = parts.len().saturating_sub(2);
    let shown = parts[kept..].join("::");
    if shown.is_empty() { name.to_owned() } else { shown }
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
    fn a_cut_is_marked() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("äbcd", 3), "äb…");
        assert_eq!(cut("abc", 0), "");
    }
}
