//! Conditions on values: `n > 100`, `req->kind == READ`, `rate < 0.5`, `req->name == "get"`.

use std::fmt::{self, Display, Formatter, Write as _};

use profiler_common::values::Comparison;

use crate::expression::{self, Expression};

/// A condition on a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Condition {
    /// What is compared.
    pub expression: Expression,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub constant: Constant,
}

/// A constant, as it is written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Constant {
    /// A whole number, decimal or hexadecimal.
    Integer(i128),
    /// A number with a decimal point; its digits.
    Decimal(String),
    /// `true` or `false`.
    Boolean(bool),
    /// An enumerator.
    Name(String),
    /// Text, which is compared as a whole; without NULs.
    Text(String),
}

/// What is wrong with a condition, at which byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ConditionError {
    pub message: String,
    pub offset: usize,
}

const OPERATORS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
];

impl Condition {
    /// Reads a condition, without its brackets.
    pub(super) fn parse(text: &str) -> Result<Self, ConditionError> {
        let error = |offset: usize, message: &str| ConditionError {
            message: message.to_owned(),
            offset,
        };
        let (at, length, comparison) = operator(text).ok_or_else(|| {
            error(
                text.len(),
                "a comparison with a value is expected, as in n > 100: ==, !=, <, <=, > or >=",
            )
        })?;
        let left = &text[..at];
        if left.trim().is_empty() {
            return Err(error(
                at,
                "this place has no duration: a condition here compares a value, as in [n > 100]",
            ));
        }
        let expression = expression::parse(left).map_err(|wrong| ConditionError {
            message: wrong.message.clone(),
            offset: wrong.offset,
        })?;
        let right = &text[at + length..];
        let constant_at = at + length + (right.len() - right.trim_start().len());
        let constant = if right.trim_start().starts_with('"') {
            let text = quoted(right.trim()).map_err(|message| error(constant_at, message))?;
            if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
                return Err(error(at, "text can only be compared with == and !="));
            }
            Constant::Text(text)
        } else {
            Constant::parse(right.trim()).ok_or_else(|| {
                error(
                    constant_at,
                    "a number, true, false, an enumerator or text in double quotes is expected",
                )
            })?
        };
        Ok(Self {
            expression,
            comparison,
            constant,
        })
    }
}

/// The first operator outside of brackets that is no part of `->`.
fn operator(text: &str) -> Option<(usize, usize, Comparison)> {
    let mut depth = 0_i32;
    let mut at = 0;
    let mut is_quoted = false;
    while let Some(c) = text[at..].chars().next() {
        match c {
            // What follows is not what it seems.
            '\\' if is_quoted => at += 1,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '[' => depth += 1,
            ']' => depth -= 1,
            _ if text[at..].starts_with("->") => {
                at += 2;
                continue;
            }
            _ => {}
        }
        if depth == 0
            && !is_quoted
            && let Some((token, comparison)) =
                OPERATORS.iter().find(|(token, _)| text[at..].starts_with(token))
        {
            return Some((at, token.len(), *comparison));
        }
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    None
}

/// Text in double quotes, in which a backslash stands before `"` and `\`.
fn quoted(text: &str) -> Result<String, &'static str> {
    let mut inside = String::new();
    let mut characters = text.chars().skip(1);
    loop {
        match characters.next() {
            None => return Err("this quote is not closed"),
            Some('"') => break,
            Some('\\') => match characters.next() {
                Some(c @ ('"' | '\\')) => inside.push(c),
                _ => return Err("in quotes a backslash can only precede \" or another backslash"),
            },
            Some('\0') => return Err("text cannot contain a NUL"),
            Some(c) => inside.push(c),
        }
    }
    match characters.next() {
        None => Ok(inside),
        Some(_) => Err("nothing can follow the text: the condition ends with it"),
    }
}

impl Constant {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "true" => return Some(Self::Boolean(true)),
            "false" => return Some(Self::Boolean(false)),
            _ => {}
        }
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            let whole = match digits.strip_prefix("0x") {
                Some(hexadecimal) => i128::from_str_radix(hexadecimal, 16).ok(),
                None => digits.parse().ok(),
            };
            if let Some(whole) = whole {
                return Some(Self::Integer(if negative { -whole } else { whole }));
            }
            let is_decimal = digits.parse::<f64>().is_ok_and(f64::is_finite);
            return is_decimal.then(|| Self::Decimal(text.to_owned()));
        }
        let is_name = !negative
            && !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
        is_name.then(|| Self::Name(text.to_owned()))
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (operator, _) = OPERATORS
            .iter()
            .find(|(_, comparison)| *comparison == self.comparison)
            .unwrap_or(&OPERATORS[0]);
        write!(f, "[{} {operator} {}]", self.expression, self.constant)
    }
}

impl Display for Constant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Decimal(text) | Self::Name(text) => f.write_str(text),
            Self::Boolean(value) => value.fmt(f),
            Self::Text(text) => {
                f.write_char('"')?;
                for c in text.chars() {
                    if matches!(c, '"' | '\\') {
                        f.write_char('\\')?;
                    }
                    f.write_char(c)?;
                }
                f.write_char('"')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_written() {
        for (text, canonical) in [
            ("n>100", "[n > 100]"),
            (" req->len == 0 ", "[req->len == 0]"),
            ("a[3] != -1", "[a[3] != -1]"),
            ("kind == READ", "[kind == READ]"),
            ("*p <= 0x10", "[*p <= 16]"),
            ("rate < 0.5", "[rate < 0.5]"),
            ("done == true", "[done == true]"),
            (r#"req->name=="get""#, r#"[req->name == "get"]"#),
            (r#"name != """#, r#"[name != ""]"#),
            (
                r#"name == "a \"b\" \\ ] == é""#,
                r#"[name == "a \"b\" \\ ] == é"]"#,
            ),
            (r#""a\" b".name == "==""#, r#"["a\" b".name == "=="]"#),
        ] {
            let condition = Condition::parse(text).unwrap();
            assert_eq!(condition.to_string(), canonical);
            let inside = &canonical[1..canonical.len() - 1];
            assert_eq!(Condition::parse(inside), Ok(condition));
        }
    }

    #[test]
    fn errors_have_the_offset_of_the_mistake() {
        for (text, offset) in [
            ("n", 1),
            ("> 5", 0),
            ("n >", 3),
            ("n > 5 6", 4),
            ("n > -x", 4),
            ("n < \"a\"", 2),
            ("n == \"a", 5),
            ("n == \"a\" b", 5),
            ("n == \"\\a\"", 5),
            ("n == \"\0\"", 5),
        ] {
            assert_eq!(Condition::parse(text).unwrap_err().offset, offset, "{text}");
        }
    }
}
