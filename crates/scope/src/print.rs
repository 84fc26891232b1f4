//! The canonical text of a scope.

use super::{Bound, Comparison, Name, Percentile, Place, Predicate, Scope, Step, parse};
use std::fmt::{self, Display, Formatter, Write as _};

impl Display for Scope {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "/" })?;
            step.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)?;
        self.predicates
            .iter()
            .try_for_each(|predicate| predicate.fmt(f))?;
        self.conditions.iter().try_for_each(|condition| condition.fmt(f))
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => name.fmt(f),
            Self::Inlined(name) => {
                name.fmt(f)?;
                f.write_str("@inlined")
            }
            Self::Line { file, line } => at_line(f, file, *line),
            Self::Branch { file, line, taken } => {
                at_line(f, file, *line)?;
                f.write_str(if *taken { "!taken" } else { "!else" })
            }
            Self::Call { callee, file, line } => {
                callee.fmt(f)?;
                f.write_char('@')?;
                at_line(f, file, *line)
            }
            Self::Address { module, address } => {
                path(f, module)?;
                write!(f, "+{address:#x}")
            }
            Self::SystemCall(name) => {
                f.write_str("syscall:")?;
                of_kernel(f, name)
            }
            Self::KernelFunction(name) => {
                f.write_str("kernel:")?;
                match name {
                    Name::Exact(name) => of_kernel(f, name),
                    Name::Glob(_) => name.fmt(f),
                }
            }
            Self::Tracepoint { category, name } => {
                f.write_str("tracepoint:")?;
                of_kernel(f, category)?;
                f.write_char(':')?;
                behind_colon(f, name)
            }
        }
    }
}

fn at_line(f: &mut Formatter<'_>, file: &str, line: u32) -> fmt::Result {
    path(f, file)?;
    write!(f, ":{line}")
}

/// A name behind `syscall:` and its like: with digits there, these would be files and their lines.
fn of_kernel(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        quoted(f, name)
    } else {
        behind_colon(f, name)
    }
}

/// A name whose own colons cannot be told from the one before it.
fn behind_colon(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    if name.contains(':') {
        quoted(f, name)
    } else {
        path(f, name)
    }
}

fn path(f: &mut Formatter<'_>, path: &str) -> fmt::Result {
    if parse::is_bare(path) {
        f.write_str(path)
    } else {
        quoted(f, path)
    }
}

/// Writes a text in double quotes.
fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_char('"')
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) if !parse::is_bare(text) => quoted(f, text),
            Self::Exact(text) | Self::Glob(text) => f.write_str(text),
        }
    }
}

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "[{} {}]", self.comparison, self.bound)
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Percentile(percentile) => percentile.fmt(f),
            Self::Duration(duration_ns) => {
                let (unit, unit_ns) = parse::UNITS
                    .iter()
                    .rev()
                    .find(|(_, ns)| *ns <= duration_ns)
                    .unwrap_or(&parse::UNITS[0]);
                decimal(f, duration_ns, *unit_ns)?;
                f.write_str(unit)
            }
        }
    }
}

impl Display for Percentile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('p')?;
        decimal(f, self.millionths().into(), Self::UNITS.into())
    }
}

/// Writes `value / one` exactly, `one` being a power of ten.
fn decimal(f: &mut Formatter<'_>, value: u64, one: u64) -> fmt::Result {
    write!(f, "{}", value / one)?;
    if value.is_multiple_of(one) {
        return Ok(());
    }
    let digits = one.ilog10() as usize;
    let fraction = format!("{:0digits$}", value % one);
    write!(f, ".{}", fraction.trim_end_matches('0'))
}
