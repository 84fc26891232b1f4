//! Reads mangled names within bounds, including forms that the C++ demangler does not read, or writes differently
//! from compilers.

pub mod dlang;

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Deepest nesting that is followed: names of containers of containers in the standard library reach 80. It takes
/// stack.
const NESTING_MAX: u32 = 96;

/// Demangles a Rust name, with or without its hash, to at most `max_bytes`; `None` where it is none.
#[must_use]
pub fn rust(mangled: &str, hash: bool, max_bytes: usize) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(mangled).ok()?;
    let mut name = Bounded::new(max_bytes);
    if hash {
        write!(name, "{demangled}").ok()?;
    } else {
        write!(name, "{demangled:#}").ok()?;
    }
    Some(name.text)
}

/// Demangles a C++ function's name without its return type, to at most `max_bytes`; `None` where it cannot be read.
///
/// With `parameters`, what the name says of them is part of it.
#[must_use]
pub fn demangle(mangled: &str, parameters: bool, max_bytes: usize) -> Option<String> {
    let limits = ParseOptions::default().recursion_limit(NESTING_MAX);
    let symbol = Symbol::new_with_options(mangled, &limits).ok()?;
    write(&symbol, parameters, max_bytes)
}

/// The name of a template's instance whose return type or parameters cannot be read, without them.
///
/// The demangler reads a symbol whole or not at all, and of a type such as `std::enable_if<!std::is_array<T>::value,
/// …>` it cannot read every spelling; `std::make_shared<T>` returns one. The name stands before both (Itanium C++ ABI,
/// 5.1.1: `<encoding> ::= <function name> <bare-function-type>`) and is complete where it ends with its arguments.
#[must_use]
pub fn template_name(mangled: &str, max_bytes: usize) -> Option<String> {
    let (symbol, unread) = Symbol::with_tail(mangled).ok()?;
    let is_operator = |name: &str| {
        ["operator>", "operator>>", "operator->"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    write(&symbol, false, max_bytes)
        .filter(|name| !unread.is_empty() && name.ends_with('>') && !is_operator(name))
}

fn write(symbol: &Symbol<impl AsRef<[u8]>>, parameters: bool, max_bytes: usize) -> Option<String> {
    let mut show = DemangleOptions::new()
        .no_return_type()
        .recursion_limit(NESTING_MAX);
    if !parameters {
        show = show.no_params();
    }
    let mut name = Bounded::new(max_bytes);
    symbol.structured_demangle(&mut name, &show).ok()?;
    Some(match without_empty_packs(&name.text) {
        Cow::Borrowed(_) => name.text,
        Cow::Owned(shorter) => shorter,
    })
}

/// Takes out what the demangler writes for a parameter pack without members: a comma beside nothing, and the
/// reference to nothing of `T&&...`.
fn without_empty_packs(name: &str) -> Cow<'_, str> {
    let mut name = Cow::Borrowed(name);
    for (written, meant) in [
        // Of a type it stands behind a space: `void (&&)(int)`.
        (">(&&)", ">()"),
        (", &&)", ")"),
        (", , ", ", "),
        ("<, ", "<"),
        ("(, ", "("),
        (", )", ")"),
        // Two closing brackets stand apart, as in the rest of such names.
        (">, >", "> >"),
        (", >", ">"),
    ] {
        // As many packs as there are can be empty; each turn makes the name shorter.
        while name.contains(written) {
            name = Cow::Owned(name.replace(written, meant));
        }
    }
    name
}

/// Text that refuses to grow past a length: a short mangled name can stand for an endless one.
struct Bounded {
    text: String,
    max_bytes: usize,
}

impl Bounded {
    /// An empty text that can grow to `max_bytes`.
    const fn new(max_bytes: usize) -> Self {
        Self {
            text: String::new(),
            max_bytes,
        }
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.max_bytes {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_whose_return_type_cannot_be_read_has_its_name() {
        let returns = "St10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_";
        for (arguments, name) in [
            ("I1AJiEE", "std::make_shared<A, int>"),
            ("I1AJEE", "std::make_shared<A>"),
        ] {
            let mangled = format!("_ZSt11make_shared{arguments}{returns}");
            assert_eq!(demangle(&mangled, true, 4096), None);
            assert_eq!(template_name(&mangled, 4096).as_deref(), Some(name));
        }
        // What is read as a whole, and what is no template.
        assert_eq!(template_name("_Z3addIiEvT_", 4096), None);
        assert_eq!(template_name("_Z3addBAD", 4096), None);
        assert_eq!(template_name("main", 4096), None);
        // Its arguments were not read.
        assert_eq!(
            template_name("_ZgtI1AXntsr8is_arrayIT_E5valueEEbT_S1_", 4096),
            None
        );
    }

    #[test]
    fn empty_packs_leave_nothing() {
        for (mangled, name) in [
            ("_Z5afterIiJEEiT_DpT0_", "after<int>(int)"),
            (
                "_Z5afterI1PIJEEJS0_IJS1_EEEEiT_DpT0_",
                "after<P<>, P<P<> > >(P<>, P<P<> >)",
            ),
            (
                "_ZSt11make_uniqueI1AJEENSt8__detail9_MakeUniqIT_E15__single_objectEDpOT0_",
                "std::make_unique<A>()",
            ),
            ("_ZN1PIJiEE1gIJiEEEiDpT_", "P<int>::g<int>(int)"),
            ("_Z1fOFviE", "f(void (&&)(int))"),
            ("_Z1fOA3_i", "f(int (&&) [3])"),
        ] {
            assert_eq!(demangle(mangled, true, 4096).as_deref(), Some(name));
        }
        assert_eq!(without_empty_packs("f<P<int>, , , >(, )"), "f<P<int> >()");
        assert_eq!(without_empty_packs("f<, int>(, int)"), "f<int>(int)");
    }
}
