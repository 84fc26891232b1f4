//! The parser of scopes: hand-written, one character ahead, no recursion.

use super::{
    Bound, Comparison, MAX_STEPS, Name, Percentile, Place, Predicate, Scope, ScopeError, Step,
    value::Condition,
};

/// Longest text that is read; it bounds everything that comes of it.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Units of time and their nanoseconds, smallest first.
pub(super) const UNITS: [(&str, u64); 4] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Reads a scope.
///
/// # Errors
/// Says what is wrong at which byte: a syntax error, or a kind of place or condition that the
/// grammar has but this version does not.
pub fn parse(text: &str) -> Result<Scope, ScopeError> {
    let mut parser = Parser { text, at: 0 };
    if text.len() > MAX_TEXT_BYTES {
        let message = format!(
            "a scope is at most {MAX_TEXT_BYTES} bytes long, this has {}",
            text.len()
        );
        // The text itself is left out: an error must not be as large as what it refuses.
        return Err(ScopeError {
            message,
            offset: 0,
            text: String::new(),
        });
    }
    parser.skip_space();
    if parser.rest().is_empty() {
        return Ok(Scope::default());
    }
    let mut steps = vec![parser.step()?];
    while parser.peek().is_some() {
        // Calls have steps inside of them, an instruction has none.
        if let [first] = steps.as_mut_slice() {
            first.place.call_at_address();
        }
        if !steps.iter().any(|step| step.place.has_spans()) {
            return Err(parser.error(
                "steps cannot follow a line, address or tracepoint without a function around it: put that function first, as in f/main.cc:1310/g",
            ));
        }
        if steps.len() == MAX_STEPS {
            return Err(parser.error(format!("a scope has at most {MAX_STEPS} steps")));
        }
        parser.take("/");
        parser.skip_space();
        steps.push(parser.step()?);
    }
    Ok(Scope { steps })
}

/// Whether an exact name can be written without quotes.
pub(super) fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.replace("::", "").chars().all(is_name_char)
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '~')
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
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn error(&self, message: impl Into<String>) -> ScopeError {
        Self::error_at(self.text, self.at, message)
    }

    fn error_at(text: &str, offset: usize, message: impl Into<String>) -> ScopeError {
        ScopeError {
            message: message.into(),
            offset,
            text: text.to_owned(),
        }
    }

    /// A place and its conditions, up to the `/` of the next step or the end.
    fn step(&mut self) -> Result<Step, ScopeError> {
        let mut place = self.place()?;
        let mut predicates = Vec::new();
        let mut conditions = Vec::new();
        loop {
            self.skip_space();
            if self.peek() == Some('[') && self.is_of_call() {
                place.call_at_address();
            }
            match self.peek() {
                None | Some('/') => break,
                Some('[') if place.has_spans() && self.is_of_duration() => {
                    predicates.push(self.predicate()?);
                }
                Some('[') => conditions.push(self.condition()?),
                Some(other) => return Err(self.after_place(other)),
            }
        }
        Ok(Step {
            place,
            predicates,
            conditions,
        })
    }

    /// A function's name, with what of it is inlined, a file and a line, a branch there, or calls made there.
    fn place(&mut self) -> Result<Place, ScopeError> {
        if let Some(place) = self.kernel_place()? {
            return Ok(place);
        }
        let name = self.name()?;
        if self.is_at_line() {
            let (file, line) = self.line(name)?;
            let taken = match () {
                () if self.take("!taken") => true,
                () if self.take("!else") => false,
                () if self.peek() == Some('!') => {
                    return Err(self.error("a branch is written !taken or !else"));
                }
                () => return Ok(Place::Line { file, line }),
            };
            return Ok(Place::Branch { file, line, taken });
        }
        if self.peek() == Some('@') {
            self.at += 1;
            let file = self.name()?;
            if !self.is_at_line() {
                return match file {
                    Name::Exact(word) if word == "inlined" => Ok(Place::Inlined(name)),
                    _ => Err(self.error(
                        "the calls made at a line are written f@main.cc:1312, inlined instances f@inlined",
                    )),
                };
            }
            let (file, line) = self.line(file)?;
            return Ok(Place::Call {
                callee: name,
                file,
                line,
            });
        }
        if self.peek() == Some('+') {
            return self.address(&name);
        }
        Ok(Place::Function(name))
    }

    /// A system call, a function of the kernel or a tracepoint, where the text begins with that word. A file may be called so, and have lines.
    fn kernel_place(&mut self) -> Result<Option<Place>, ScopeError> {
        let is_name = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit() || c == ':');
        let mut begins_with = |word: &str| {
            let rest = self.rest().strip_prefix(word);
            let found = rest.is_some_and(is_name);
            found && self.take(word)
        };
        if begins_with("syscall:") {
            return Ok(Some(Place::SystemCall(self.kernel_name("a system call")?)));
        }
        if begins_with("kernel:") {
            return match self.peek() {
                None | Some('/' | '[' | ':') => {
                    Err(self.error("the name of a function of the kernel is missing"))
                }
                _ => Ok(Some(Place::KernelFunction(self.name()?))),
            };
        }
        if !begins_with("tracepoint:") {
            return Ok(None);
        }
        let category = self.kernel_name("a category of tracepoints")?;
        if !self.take(":") {
            return Err(self.error(
                "a tracepoint is written tracepoint:CATEGORY:NAME, as in tracepoint:sched:sched_switch",
            ));
        }
        let name = self.kernel_name("a tracepoint")?;
        Ok(Some(Place::Tracepoint { category, name }))
    }

    /// The exact name of something of the kernel.
    fn kernel_name(&mut self, of: &str) -> Result<String, ScopeError> {
        let start = self.at;
        match self.peek() {
            None | Some('/' | '[' | ':') => Err(self.error(format!("the name of {of} is missing"))),
            _ => match self.name()? {
                Name::Exact(name) => Ok(name),
                Name::Glob(_) => {
                    let message = format!("the name of {of} cannot contain '*' or '?': write it in full");
                    Err(Self::error_at(self.text, start, message))
                }
            },
        }
    }

    /// The address behind a module's name.
    fn address(&mut self, module: &Name) -> Result<Place, ScopeError> {
        let plus = self.at;
        self.at += 1;
        let start = self.at;
        let number = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '*' | '?'));
        if number.contains(['*', '?']) || matches!(module, Name::Glob(_)) {
            let glob = format!("{}+{number}", module.text());
            if number.starts_with("0x") && is_bare(&module.text().replace(['*', '?'], "_")) {
                return Ok(Place::Function(Name::Glob(glob)));
            }
            let message =
                "functions without names are matched by their file's name and 0x, as in libfoo.so+0x*";
            return Err(Self::error_at(self.text, plus, message));
        }
        let module = module.text().to_owned();
        let address = match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => number.parse(),
        };
        let Ok(address) = address else {
            let message = "an address in the file is expected, as in libfoo.so+0x1a2b";
            return Err(Self::error_at(self.text, start, message));
        };
        Ok(Place::Address { module, address })
    }

    /// Whether a colon and a line's number follow.
    fn is_at_line(&self) -> bool {
        self.rest()
            .strip_prefix(':')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// The line behind a file's name.
    fn line(&mut self, file: Name) -> Result<(String, u32), ScopeError> {
        let Name::Exact(file) = file else {
            return Err(
                self.error("a file's name has no '*' or '?'; in double quotes they stand for themselves")
            );
        };
        self.at += 1;
        let start = self.at;
        let line = self.take_while(|c| c.is_ascii_digit()).parse().ok();
        let Some(line) = line.filter(|line| *line > 0) else {
            return Err(Self::error_at(self.text, start, "lines are counted from 1"));
        };
        Ok((file, line))
    }

    /// Whether the condition in the bracket that follows is one that calls alone can have: on the duration or on what is
    /// returned.
    fn is_of_call(&self) -> bool {
        let inside = self.rest().trim_start_matches('[').trim_start();
        let is_returned = inside
            .strip_prefix("return")
            .is_some_and(|behind| !behind.starts_with(is_name_char));
        is_returned || inside.starts_with(['<', '>'])
    }

    /// Whether the condition in the bracket that follows begins with a comparison: then it is one on the duration.
    fn is_of_duration(&self) -> bool {
        let inside = self.rest().trim_start_matches('[').trim_start();
        inside.is_empty() || inside.starts_with(['<', '>', '=', '!', ']'])
    }

    /// `[` expression comparison constant `]`
    fn condition(&mut self) -> Result<Condition, ScopeError> {
        let open = self.at;
        self.at += 1;
        let mut depth = 0_usize;
        let mut is_quoted = false;
        let mut is_escaped = false;
        let end = self.rest().char_indices().find_map(|(at, c)| {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if is_quoted => is_escaped = true,
                '"' => is_quoted = !is_quoted,
                _ if is_quoted => {}
                '[' => depth += 1,
                ']' if depth == 0 => return Some(at),
                ']' => depth -= 1,
                _ => {}
            }
            None
        });
        let Some(end) = end else {
            return Err(Self::error_at(self.text, open, "this bracket is not closed"));
        };
        let inside = &self.rest()[..end];
        let condition = Condition::parse(inside)
            .map_err(|error| Self::error_at(self.text, self.at + error.offset, error.message))?;
        self.at += end + 1;
        Ok(condition)
    }

    /// A function's name, quoted or bare.
    fn name(&mut self) -> Result<Name, ScopeError> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let start = self.at;
        loop {
            let part = self.take_while(|c| is_name_char(c) || matches!(c, '*' | '?'));
            if !self.take("::") && part.is_empty() {
                break;
            }
        }
        let name = &self.text[start..self.at];
        if name.is_empty() {
            return Err(self.no_name());
        }
        if name.contains(['*', '?']) {
            Ok(Name::Glob(name.to_owned()))
        } else {
            Ok(Name::Exact(name.to_owned()))
        }
    }

    fn no_name(&self) -> ScopeError {
        match self.peek() {
            None => self.error("a function's name is missing"),
            Some('[') => self.error("a condition needs a function before it, as in f[>= p95]"),
            Some('/') => self.error("a function's name is missing before this '/'"),
            Some(c) if c == '<' || c == '{' || c == '(' => self.error(format!(
                "a name with '{c}' in it goes in double quotes, as in \"<T as Trait>::f\""
            )),
            Some(_) => self.error("a function's name cannot begin with this character; quote it if it does"),
        }
    }

    fn quoted(&mut self) -> Result<Name, ScopeError> {
        let open = self.at;
        self.at += 1;
        let mut name = String::new();
        loop {
            name.push_str(self.take_while(|c| !matches!(c, '"' | '\\')));
            if self.take("\"") {
                break;
            }
            if self.take("\\\"") {
                name.push('"');
            } else if self.take("\\\\") {
                name.push('\\');
            } else if self.rest().is_empty() {
                return Err(Self::error_at(self.text, open, "this quote is not closed"));
            } else {
                return Err(self.error("in quotes a backslash can only precede \" or another backslash"));
            }
        }
        if name.is_empty() {
            return Err(Self::error_at(
                self.text,
                open,
                "the name in these quotes is empty",
            ));
        }
        Ok(Name::Exact(name))
    }

    /// What follows a place and is not a condition.
    fn after_place(&self, c: char) -> ScopeError {
        match c {
            '@' => self.error("the calls made at a line are written f@main.cc:1312"),
            '!' => self.error("a branch needs a line before it, as in main.cc:1310!taken"),
            '+' => self.error("an address needs a file before it, as in libfoo.so+0x1a2b"),
            ':' => {
                let after = self.rest()[1..].chars().next();
                if after.is_some_and(|c| c.is_ascii_digit()) {
                    return self.error("a step names one line: a second is not allowed");
                }
                self.error("a name cannot contain a single ':': write '::' between the parts of a path")
            }
            '<' | '>' | '=' => self.error("a condition goes in brackets, as in f[>= p95]"),
            '"' => self.error("quote the whole name or no part of it"),
            ']' => self.error("this bracket was not opened"),
            '(' | '{' | ',' | '&' | ' ' => {
                self.error(format!("a name with '{c}' in it goes in double quotes"))
            }
            _ => self.error("unexpected here: a condition in brackets or the end is expected"),
        }
    }

    /// `[` comparison bound `]`
    fn predicate(&mut self) -> Result<Predicate, ScopeError> {
        let open = self.at;
        self.at += 1;
        self.skip_space();
        let comparison = self.comparison()?;
        self.skip_space();
        let bound = self.bound()?;
        self.skip_space();
        if self.take("]") {
            Ok(Predicate { comparison, bound })
        } else if self.rest().is_empty() {
            Err(Self::error_at(self.text, open, "this bracket is not closed"))
        } else {
            Err(self.error("']' is expected here"))
        }
    }

    fn comparison(&mut self) -> Result<Comparison, ScopeError> {
        for (token, comparison) in [
            (">=", Comparison::GreaterOrEqual),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            ("<", Comparison::Less),
        ] {
            if self.take(token) {
                return Ok(comparison);
            }
        }
        Err(match self.peek() {
            None => self.error("a comparison is missing: >=, >, <= or <"),
            Some('=' | '!') => self.error("a duration is compared with >=, >, <= or <"),
            Some(']') => self.error("this condition is empty; write for example [>= p95]"),
            Some(_) => self.error("a comparison is expected: >=, >, <= or <"),
        })
    }

    fn bound(&mut self) -> Result<Bound, ScopeError> {
        let start = self.at;
        if self.take("p") {
            let value = self.decimal(
                u64::from(Percentile::UNITS),
                "a percentile has at most six decimals",
            )?;
            let percentile = u32::try_from(value).ok().and_then(Percentile::from_millionths);
            return percentile.map(Bound::Percentile).ok_or_else(|| {
                Self::error_at(
                    self.text,
                    start,
                    "a percentile is above 0 and below 100, as in p95 or p99.9",
                )
            });
        }
        if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Err(self.error("a percentile (p95) or a time (5ms) is expected"));
        }
        // The unit comes after the number and says how many decimals that may have.
        self.take_while(|c| c.is_ascii_digit() || c == '.');
        let number_end = self.at;
        self.skip_space();
        let unit_at = self.at;
        let unit = self.take_while(char::is_alphanumeric);
        let Some((_, unit_ns)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(Self::error_at(
                self.text,
                unit_at,
                "a time needs a unit: ns, us, ms or s; a percentile is written p95",
            ));
        };
        let end = self.at;
        self.at = start;
        let duration_ns = self.decimal(*unit_ns, "a time must be a whole number of nanoseconds")?;
        if self.at != number_end {
            return Err(self.error("a number has at most one decimal point"));
        }
        self.at = end;
        Ok(Bound::Duration(duration_ns))
    }

    /// A decimal number times `one`, a power of ten, which is exact or an error.
    fn decimal(&mut self, one: u64, too_fine: &str) -> Result<u64, ScopeError> {
        let start = self.at;
        let too_large = |at| Self::error_at(self.text, at, "this number is too large");
        let whole = self.take_while(|c| c.is_ascii_digit());
        if whole.is_empty() {
            return Err(self.error("a number is expected"));
        }
        let mut value = whole
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(one))
            .ok_or_else(|| too_large(start))?;
        if self.take(".") {
            let at = self.at;
            let fraction = self.take_while(|c| c.is_ascii_digit());
            if fraction.is_empty() {
                return Err(self.error("digits are expected after the decimal point"));
            }
            let mut digit_value = one;
            for (index, digit) in fraction.bytes().map(|b| u64::from(b - b'0')).enumerate() {
                digit_value /= 10;
                if digit_value == 0 && digit != 0 {
                    return Err(Self::error_at(self.text, at + index, too_fine));
                }
                value = value
                    .checked_add(digit * digit_value)
                    .ok_or_else(|| too_large(start))?;
            }
        }
        Ok(value)
    }
}
