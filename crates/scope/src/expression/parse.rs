//! The parser of expressions: hand-written, one character ahead.

use super::{
    Cast, Expression, ExpressionError, MAX_RANGE, MAX_STEPS, MAX_TEXT_BYTES, OfThread, REGISTERS, Root, Step,
};

/// Brackets and stars that may be open at once.
const MAX_NESTING: usize = 32;

/// Reads an expression.
///
/// # Errors
/// Says what is wrong at which byte.
pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
    let mut parser = Parser { text, at: 0 };
    if text.len() > MAX_TEXT_BYTES {
        return Err(ExpressionError {
            message: format!(
                "an expression is at most {MAX_TEXT_BYTES} bytes long, this has {}",
                text.len()
            ),
            offset: 0,
        });
    }
    let expression = parser.expression(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(expression),
        Some(c) => Err(parser.error(match c {
            '(' => "functions cannot be called, but for str(…)".into(),
            ')' => "this bracket was not opened".into(),
            '-' if parser.rest() == "-" => {
                "'>' is missing after '-': put the expression in quotes, or the shell takes the '>' of '->' as a redirection"
                    .into()
            }
            '+' | '-' | '/' | '%' | '&' | '|' | '<' | '>' | '=' | '!' => {
                "an expression names one value: arithmetic and comparisons are not supported".into()
            }
            _ => format!("'.', '->', '[' or the end is expected, not {c:?}"),
        })),
    }
}

/// Whether a name can be written without quotes.
pub(super) fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_name_char)
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn error(&self, message: impl Into<String>) -> ExpressionError {
        ExpressionError {
            message: message.into(),
            offset: self.at,
        }
    }

    fn expression(&mut self, nesting: usize) -> Result<Expression, ExpressionError> {
        if nesting == MAX_NESTING {
            return Err(self.error(format!(
                "stars and brackets are nested more than {MAX_NESTING} deep here"
            )));
        }
        if self.take("*") {
            let mut inner = self.expression(nesting + 1)?;
            self.push(&mut inner, Step::Dereference)?;
            return Ok(inner);
        }
        if self.take("&") {
            return Err(
                self.error("'&' is not supported: a pointer's value shows the address that it points to")
            );
        }
        if let Some(cast) = self.cast() {
            let mut inner = self.expression(nesting + 1)?;
            self.push(&mut inner, Step::Cast(cast))?;
            return Ok(inner);
        }
        let is_text = self.text_call();
        let mut expression = if self.take("(") {
            let open = self.at - 1;
            let inner = self.expression(nesting + 1)?;
            if !self.take(")") {
                let (message, offset) = if self.rest().is_empty() {
                    ("this bracket is not closed", open)
                } else {
                    ("')' is expected here", self.at)
                };
                return Err(ExpressionError {
                    message: message.into(),
                    offset,
                });
            }
            let mut inner = inner;
            if is_text {
                self.push(&mut inner, Step::Text)?;
            }
            inner
        } else {
            Expression {
                root: self.root()?,
                steps: Vec::new(),
            }
        };
        loop {
            let arrow = self.take("->");
            if arrow || self.take(".") {
                let name = self.name("a member's name is expected here")?;
                if arrow {
                    self.push(&mut expression, Step::Dereference)?;
                }
                self.push(&mut expression, Step::Member(name))?;
            } else if self.take("[") {
                let step = self.index()?;
                self.push(&mut expression, step)?;
            } else {
                return Ok(expression);
            }
        }
    }

    /// Takes a type in brackets with an expression behind it; nothing of anything else.
    fn cast(&mut self) -> Option<Cast> {
        let rest = self.rest().strip_prefix('(')?;
        let (written, behind) = rest.split_once(')')?;
        let name = written.trim_end_matches(|c: char| c == '*' || c.is_whitespace());
        let pointers = written[name.len()..].matches('*').count();
        let name: Vec<&str> = name.split_whitespace().collect();
        let cast = Cast::named(&name.join(" "), pointers)?;
        // Else it is a variable of such a name.
        let begins = |c: char| is_name_char(c) || matches!(c, '$' | '(' | '*' | '"' | ':');
        if !behind.trim_start().starts_with(begins) {
            return None;
        }
        self.at = self.text.len() - behind.len();
        Some(cast)
    }

    /// Takes `str` with a bracket behind it, which is left.
    fn text_call(&mut self) -> bool {
        let behind = self.rest().strip_prefix("str").map(str::trim_start);
        let Some(behind) = behind.filter(|behind| behind.starts_with('(')) else {
            return false;
        };
        self.at = self.text.len() - behind.len();
        true
    }

    fn push(&self, expression: &mut Expression, step: Step) -> Result<(), ExpressionError> {
        if expression.steps.len() == MAX_STEPS {
            return Err(self.error(format!("an expression has at most {MAX_STEPS} steps")));
        }
        if let Some(Step::Range(..)) = expression.steps.last() {
            return Err(self.error("a range of elements ends the expression: nothing can follow it"));
        }
        if expression.steps.last() == Some(&Step::Text) {
            return Err(self.error("text ends the expression: nothing can follow it"));
        }
        expression.steps.push(step);
        Ok(())
    }

    fn root(&mut self) -> Result<Root, ExpressionError> {
        self.skip_space();
        if self.take("$") {
            let start = self.at;
            let end = self
                .rest()
                .find(|c| !is_name_char(c))
                .unwrap_or(self.rest().len());
            let name = &self.rest()[..end];
            if let Some(part) = OfThread::ALL.into_iter().find(|part| part.word() == name) {
                self.at += end;
                return Ok(Root::Thread(part));
            }
            let Some(number) = REGISTERS.iter().position(|register| *register == name) else {
                return Err(ExpressionError {
                    message:
                        "a 64-bit register is expected, rax, rbx, …, r15 or rip, or of the thread tid or comm"
                            .into(),
                    offset: start,
                });
            };
            self.at += end;
            // Seventeen of them.
            #[expect(clippy::cast_possible_truncation, reason = "below 17")]
            return Ok(Root::Register(number as u8));
        }
        let global = self.take("::");
        let quoted = self.peek() == Some('"');
        let mut path = vec![self.name("a variable is expected here, such as n or req->len")?];
        while self.take("::") {
            path.push(self.name("a name is expected after '::'")?);
        }
        if path.len() > MAX_STEPS {
            return Err(self.error(format!("a path has at most {MAX_STEPS} parts")));
        }
        if !global && !quoted && path == ["return"] {
            return Ok(Root::Return);
        }
        Ok(Root::Variable { global, path })
    }

    fn name(&mut self, expected: &str) -> Result<String, ExpressionError> {
        self.skip_space();
        let start = self.at;
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let end = self
            .rest()
            .find(|c| !is_name_char(c))
            .unwrap_or(self.rest().len());
        if end == 0 {
            return Err(self.error(expected));
        }
        self.at += end;
        Ok(self.text[start..self.at].to_owned())
    }

    fn quoted(&mut self) -> Result<String, ExpressionError> {
        let open = self.at;
        self.at += 1;
        let mut name = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((offset, c)) = characters.next() {
            match c {
                '"' if name.is_empty() => {
                    return Err(ExpressionError {
                        message: "this name is empty".into(),
                        offset: open,
                    });
                }
                '"' => {
                    self.at += offset + 1;
                    return Ok(name);
                }
                '\\' => match characters.next() {
                    Some((_, c @ ('"' | '\\'))) => name.push(c),
                    _ => {
                        return Err(ExpressionError {
                            message: "a backslash can only precede \" or another backslash".into(),
                            offset: self.at + offset,
                        });
                    }
                },
                c => name.push(c),
            }
        }
        Err(ExpressionError {
            message: "this quote is not closed".into(),
            offset: open,
        })
    }

    /// `[` is taken: `index ["..." index] "]"`.
    fn index(&mut self) -> Result<Step, ExpressionError> {
        self.skip_space();
        let start = self.at;
        let from = self.number()?;
        let step = if self.take("..") {
            let to = self.number()?;
            if to <= from || to - from > MAX_RANGE {
                return Err(ExpressionError {
                    message: format!("a range has 1 to {MAX_RANGE} elements"),
                    offset: start,
                });
            }
            Step::Range(from, to)
        } else {
            Step::Index(from)
        };
        if self.take("]") {
            Ok(step)
        } else {
            Err(self.error("']' is expected here"))
        }
    }

    fn number(&mut self) -> Result<u64, ExpressionError> {
        self.skip_space();
        let digits = self
            .rest()
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.rest().len());
        if digits == 0 {
            return Err(self.error("an index must be a number: variables are not supported"));
        }
        let number = self.rest()[..digits]
            .parse()
            .map_err(|_| self.error("this number is too large"))?;
        self.at += digits;
        Ok(number)
    }
}
