//! Which functions a name means.
//!
//! A name matches a function's linkage name, or its demangled name with or without parameters,
//! template arguments and hash, as a whole or as the last components of the path. A pattern
//! without `::` speaks of a function's own name, one with `::` of its path. A function without a name is meant by its file
//! and address alone, `libfoo.so+0x1a2b`, and by patterns of these, `libfoo.so+0x*`.

mod mentions;

use std::{borrow::Cow, ops::Range, thread};

use memchr::memmem::Finder;
use profiler_elf::Elf;
use profiler_scope::Name;

use self::mentions::Mentions;
use super::{
    demangle::{self, CloneKind},
    files::NameFile,
    functions::{Function, ModuleIndex, plain_linkage, unread_names},
};

/// How well a name matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Match {
    /// Only the last components of the path.
    Suffix,
    /// All of it.
    Full,
}

/// A name prepared for matching many functions.
pub struct Matcher<'a> {
    name: &'a Name,
    /// A piece of text that every linkage name of a match contains.
    needle: Option<Finder<'a>>,
}

/// Text that demangling adds without the linkage name containing it.
const INVENTED: [&str; 16] = [
    "std",
    "allocator",
    "basic_string",
    "string",
    "basic_istream",
    "basic_ostream",
    "basic_iostream",
    "char_traits",
    "operator",
    "anonymous",
    "namespace",
    "closure",
    "shim",
    "lambda",
    "this",
    "thunk",
];

impl<'a> Matcher<'a> {
    /// Prepares a name.
    #[must_use]
    pub fn new(name: &'a Name) -> Self {
        let candidate = match name {
            // Types among the arguments are mangled beyond recognition.
            Name::Exact(text) => own_name(text).split(['<', '(']).next().unwrap_or_default(),
            Name::Glob(text) => text,
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let needle = if name.text().contains("operator") || !name.text().is_ascii() {
            None
        } else {
            candidate
                .split(|c| !word(c))
                .max_by_key(|word| word.len())
                .filter(|word| word.len() >= 2 && !INVENTED.iter().any(|invented| invented.contains(word)))
        };
        Self {
            name,
            needle: needle.map(Finder::new),
        }
    }

    /// Whether a linkage name has to be made readable to tell whether it is matched, which takes long.
    pub(super) fn may_match(&self, linkage: &[u8]) -> bool {
        self.needle
            .as_ref()
            .is_none_or(|needle| needle.find(linkage).is_some())
    }

    /// Whether and how a linkage name is matched.
    #[must_use]
    pub fn matches(&self, linkage: &[u8]) -> Option<Match> {
        if !self.may_match(linkage) {
            return None;
        }
        let linkage = String::from_utf8_lossy(linkage);
        let (plain, kind) = plain_linkage(&linkage);
        if self.whole(&linkage) {
            return Some(Match::Full);
        }
        if matches!(kind, CloneKind::Part | CloneKind::Cold) {
            return None;
        }
        let Some(bare) = demangle::demangle(plain, false) else {
            return self.form(plain);
        };
        let mut best = self
            .form(plain)
            .max(self.form(&bare))
            .max(self.form(&without_arguments(&bare)));
        if matches!(self.name, Name::Exact(_)) && best != Some(Match::Full) {
            // Rust's name with its hash, or C++'s with its parameters.
            if let Some(hashed) = demangle::with_hash(plain) {
                best = best.max(self.form(&hashed));
            } else if let Some(full) = demangle::demangle(plain, true) {
                best = best.max(self.form(&full));
            }
        }
        best
    }

    /// Whether a function is matched whose name is readable already.
    #[must_use]
    pub fn matches_readable(&self, name: &str) -> bool {
        self.form(name).is_some()
    }

    /// One form of a name, as a whole or by its last components.
    fn form(&self, text: &str) -> Option<Match> {
        if let Name::Glob(pattern) = self.name
            && !pattern.contains("::")
        {
            let names = [Some(own_name(text)), of_lambda(text), behind_dots(text)];
            let is_meant = names.into_iter().flatten().any(|name| glob(pattern, name));
            return is_meant.then_some(Match::Full);
        }
        if self.whole(text) {
            return Some(Match::Full);
        }
        component_starts(text)
            .map(|start| &text[start..])
            .chain(behind_dots(text))
            .any(|end| self.whole(end))
            .then_some(Match::Suffix)
    }

    fn whole(&self, text: &str) -> bool {
        match self.name {
            Name::Exact(name) => name == text,
            Name::Glob(pattern) => glob(pattern, text),
        }
    }
}

/// How a name means a symbol of the kernel, which is C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meant {
    /// A function, or a clone of one.
    Whole,
    /// Its name is meant, but it is a part of that function alone.
    Part,
}

/// Whether and how a name means a symbol of the kernel.
#[must_use]
pub fn means_symbol(name: &Name, symbol: &str) -> Option<Meant> {
    let is_whole = |text: &str| match name {
        Name::Exact(name) => name == text,
        Name::Glob(pattern) => glob(pattern, text),
    };
    let (plain, kind) = plain_linkage(symbol);
    let is_part = matches!(kind, CloneKind::Part | CloneKind::Cold);
    if is_whole(symbol) && !(is_part && matches!(name, Name::Glob(_))) {
        return Some(Meant::Whole);
    }
    let meant = if is_part { Meant::Part } else { Meant::Whole };
    is_whole(plain).then_some(meant)
}

impl ModuleIndex {
    /// The numbers of the functions that a name means here, in order of address, and how each is
    /// matched; those without names behind the others. Spread over the available cores.
    #[must_use]
    pub fn matching(&self, name: &Name) -> Vec<(usize, Match)> {
        let matcher = Matcher::new(name);
        let mentions = matcher.needle.as_ref().map(|needle| self.mentions(needle));
        let mut found = self.in_parallel(|at, function| {
            unread_names(&function)
                .filter(|name| {
                    let mentions = mentions.as_ref().and_then(|of| of[name.file() as usize].as_ref());
                    mentions.is_none_or(|mentions| mentions.are_in(&name.range()))
                })
                .filter_map(|name| matcher.matches(name.bytes()))
                .max()
                .map(|kind| (at, kind))
        });
        if name.may_mean_unnamed() {
            found.extend(self.at_addresses(name).into_iter().map(|at| (at, Match::Full)));
        }
        found
    }

    /// The numbers of the functions that a name means by file and address: of an exact one whichever begins there, of a pattern
    /// those without names.
    fn at_addresses(&self, name: &Name) -> Vec<usize> {
        match name {
            Name::Exact(_) => {
                let here = name.as_address().filter(|(module, _)| self.is_at_path(module));
                here.and_then(|(_, address)| self.number_at(address))
                    .into_iter()
                    .collect()
            }
            Name::Glob(pattern) => {
                let unnamed = self.unnamed().iter().enumerate();
                let meant = unnamed.filter(|(_, range)| glob(pattern, &self.unnamed_name(range.start)));
                meant.map(|(at, _)| self.len() + at).collect()
            }
        }
    }

    /// Where the names of symbols contain a text, of each file that has some; `None` where that has to be looked for in
    /// each.
    fn mentions(&self, text: &Finder<'_>) -> [Option<Mentions>; NameFile::ALL.len()] {
        let place =
            |table: Range<u64>| Some(usize::try_from(table.start).ok()?..usize::try_from(table.end).ok()?);
        NameFile::ALL.map(|file| {
            let file = self.files().names(file);
            let elf = Elf::parse(file).ok()?;
            Mentions::find(file, elf.string_tables().filter_map(place), text)
        })
    }

    /// The names nearest to one that matches nothing: how far they are and how they are shown. What begins with
    /// the name is as near as one with a letter too many, what contains it is a step farther.
    #[must_use]
    pub fn nearest(&self, name: &Name, count: usize) -> Vec<(usize, String)> {
        let wanted = own_name(name.text()).trim_matches(['*', '?']);
        let length = wanted.chars().count();
        let limit = (length / 3).max(if length < 4 { 1 } else { 2 });
        let mut near = self.in_parallel(|_, function: Function<'_>| {
            let linkage = function.linkage_name();
            let (plain, kind) = plain_linkage(&linkage);
            if kind != CloneKind::Original {
                return None;
            }
            let shown = demangle::demangle(plain, false).map_or(Cow::Borrowed(plain), Cow::Owned);
            let own = own_name(&shown);
            let part = match own.find(wanted) {
                Some(0) if length > 2 => Some(1),
                Some(_) if length > 2 => Some(2),
                _ => None,
            };
            let whole = distance(wanted, own, limit);
            part.into_iter()
                .chain(whole)
                .min()
                .map(|distance| (distance, shown.into_owned()))
        });
        near.sort();
        near.dedup();
        near.truncate(count);
        near
    }

    fn in_parallel<T: Send>(&self, visit: impl Fn(usize, Function<'_>) -> Option<T> + Sync) -> Vec<T> {
        // Below this, starting threads costs more than it saves.
        const FUNCTIONS_PER_THREAD: usize = 4096;
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = cores.min(self.len() / FUNCTIONS_PER_THREAD + 1);
        let share = self.len().div_ceil(threads).max(1);
        let visit = &visit;
        let part = |first: usize| -> Vec<T> {
            (first..self.len().min(first + share))
                .filter_map(|at| visit(at, self.function(at)))
                .collect()
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|n| scope.spawn(move || part(n * share)))
                .collect();
            let mut found = part(0);
            for other in others {
                match other.join() {
                    Ok(mut more) => found.append(&mut more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            found
        })
    }
}

/// Where the components of a path begin, the first left out; `::` in brackets does not separate.
fn component_starts(path: &str) -> impl Iterator<Item = usize> {
    let bytes = path.as_bytes();
    let mut depth = 0usize;
    (0..bytes.len()).filter(move |&at| {
        match bytes[at] {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            // The arrow of `->` closes nothing.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && at >= 2 && &bytes[at - 2..at] == b"::"
    })
}

/// The name that a function has for itself, of which debug information speaks; `None` where it can be written in other ways
/// as well.
pub(super) fn own(name: &Name) -> Option<&str> {
    let Name::Exact(name) = name else { return None };
    let own = own_name(name);
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Rust's names may end in a hash.
    let is_hash = own.len() == 17 && own.starts_with('h');
    (!own.is_empty() && own.chars().all(word) && !is_hash && own != "operator").then_some(own)
}

/// The last component of a path.
fn own_name(path: &str) -> &str {
    component_starts(path).last().map_or(path, |start| &path[start..])
}

/// The last two components of the path of one of C++'s lambdas, which are all called `operator()` for themselves:
/// `{lambda(int)#1}::operator()`, or `'lambda'(int)::operator()`.
fn of_lambda(path: &str) -> Option<&str> {
    let (before, own) = path.split_at(component_starts(path).last()?);
    let lambda = before.rfind("{lambda").or_else(|| before.rfind("'lambda"))?;
    own.starts_with("operator()").then(|| &path[lambda..])
}

/// The last component of a path that has dots between its components, as Zig and Go have it: `handle` of `server.handle`.
fn behind_dots(path: &str) -> Option<&str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let first = |c: char| c.is_alphabetic() || c == '_';
    let (before, own) = path.rsplit_once('.')?;
    let is_path = before.starts_with(first) && before.chars().all(|c| word(c) || matches!(c, '.' | '/'));
    (is_path && own.starts_with(first) && own.chars().all(word)).then_some(own)
}

/// A path without template arguments, and with `<T as Trait>` written as `T`.
fn without_arguments(path: &str) -> String {
    // Operators made of angle brackets are names, not arguments.
    let (path, operator) = match path.find("operator") {
        Some(at) if path[at + 8..].starts_with(['<', '>', '-', '(']) => path.split_at(at),
        _ => (path, ""),
    };
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    // Rust: the path begins with the type that it is about.
    if let Some(inner) = path.strip_prefix('<')
        && let Some(end) = closing(inner)
    {
        let subject = inner[..end].split(" as ").next().unwrap_or_default();
        out.push_str(subject.split('<').next().unwrap_or_default());
        rest = &inner[end + 1..];
    }
    let mut depth = 0usize;
    for c in rest.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.push_str(operator);
    // Rust writes `path::<T>::f`.
    out.replace("::::", "::").trim_end_matches("::").to_owned()
}

/// Where the bracket closes that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && text.as_bytes()[at - 1] == b'-' => {}
            b'>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Whether `*` (any text) and `?` (one character) make the pattern equal the text. Linear in
/// practice, never worse than the product of the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (before_pattern, before_text) = (pattern.clone(), text.clone());
        match (pattern.next(), text.next()) {
            (Some('*'), _) => {
                text = before_text;
                retry = Some((pattern.clone(), text.clone()));
                if before_pattern.as_str().len() == 1 {
                    return true;
                }
            }
            (Some('?'), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            (None, None) => return true,
            _ => {
                let Some((after_star, from)) = retry.as_mut() else {
                    return false;
                };
                if from.next().is_none() {
                    return false;
                }
                pattern = after_star.clone();
                text = from.clone();
            }
        }
    }
}

/// Levenshtein's edit distance, case ignored; `None` beyond `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    const MAX_CHARS: usize = 128;
    let chars = |text: &str| -> Vec<char> {
        text.chars()
            .take(MAX_CHARS)
            .map(|c| c.to_ascii_lowercase())
            .collect()
    };
    let (a, b) = (chars(a), chars(b));
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
        if row.iter().all(|&d| d > limit) {
            return None;
        }
    }
    Some(row[b.len()]).filter(|&d| d <= limit)
}

#[cfg(test)]
mod tests;
