//! Reads mangled names of the D language, by its ABI (<https://dlang.org/spec/abi.html#name_mangling>).
//!
//! A name is a row of identifiers, each perhaps with the parameters of a function that the next one is declared in. Identifiers and
//! types that came before are written as a distance back from where they are meant. A short name can so stand for an endless one, or
//! take endless time: what is written, how deep it nests and how much is read are bounded.

/// Steps that are taken for one name: those of the standard library take some hundred.
const STEPS_MAX: u32 = 20_000;

/// Deepest nesting that is followed.
const NESTING_MAX: u32 = 128;

/// Whether a symbol looks mangled by a compiler of D.
#[must_use]
pub fn is_mangled(name: &str) -> bool {
    name == MAIN || thunk(name).is_some() || name.strip_prefix("_D").is_some_and(begins_identifier)
}

/// The symbol of the program's `main`, which the runtime calls.
const MAIN: &str = "_Dmain";

/// Where the name is of the function that a thunk calls: one that is called by an interface. What it adds to the object's address stands
/// before, as GCC writes it.
fn thunk(name: &str) -> Option<usize> {
    let offset = name.strip_prefix("_DT")?.trim_start_matches(['i', 'N']);
    let called = offset.trim_start_matches(|digit: char| digit.is_ascii_digit());
    called.starts_with("_D").then(|| name.len() - called.len())
}

fn begins_identifier(rest: &str) -> bool {
    rest.starts_with(|first: char| first.is_ascii_digit())
        || ["Q", "__T", "__U"].iter().any(|begin| rest.starts_with(begin))
}

/// Demangles a function's name without its return type, to at most `max_bytes`; `None` where it cannot be read.
///
/// With `parameters`, those of the function, and of functions that it is declared in, are part of it.
#[must_use]
pub fn demangle(mangled: &str, parameters: bool, max_bytes: usize) -> Option<String> {
    if mangled == MAIN {
        return Some("D main".to_owned());
    }
    if !is_mangled(mangled) {
        return None;
    }
    let mut reader = Reader {
        text: mangled.as_bytes(),
        at: 0,
        out: String::new(),
        parameters,
        max_bytes,
        steps: 0,
        depth: 0,
    };
    if let Some(at) = thunk(mangled) {
        reader.at = at;
        reader.write("thunk to ")?;
    }
    reader.symbol()?;
    let is_whole = reader.at == reader.text.len() && reader.out.len() <= max_bytes;
    is_whole.then_some(reader.out)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    out: String,
    parameters: bool,
    max_bytes: usize,
    steps: u32,
    depth: u32,
}

/// What a function's type is made of beside its return type, in words.
#[derive(Default)]
struct Signature {
    linkage: &'static str,
    parameters: String,
    attributes: String,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn takes(&mut self, prefix: &str) -> bool {
        let is_there = self
            .text
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(prefix.as_bytes()));
        if is_there {
            self.at += prefix.len();
        }
        is_there
    }

    fn write(&mut self, text: &str) -> Option<()> {
        if self.out.len() + text.len() > self.max_bytes {
            return None;
        }
        self.out.push_str(text);
        Some(())
    }

    /// What `read` writes, which is kept apart.
    fn apart(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<String> {
        let before = std::mem::take(&mut self.out);
        let is_read = read(self);
        let written = std::mem::replace(&mut self.out, before);
        is_read.map(|()| written)
    }

    /// One step deeper, within bounds.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.steps += 1;
        if self.steps > STEPS_MAX || self.depth >= NESTING_MAX {
            return None;
        }
        self.depth += 1;
        let is_read = read(self);
        self.depth -= 1;
        is_read
    }

    /// `_D`, a name, and its type; `Z` in the place of that where the compiler made it up.
    fn symbol(&mut self) -> Option<()> {
        if !self.takes("_D") {
            return None;
        }
        self.qualified(true)?;
        if self.takes("Z") {
            return Some(());
        }
        // The type of a method that came before as that of another function.
        let modifiers = if self.takes("M") {
            self.modifiers()
        } else {
            String::new()
        };
        if self.peek() == b'Q' {
            let to = self.back_reference()?;
            return self.at_place(to, |reader| match reader.signature() {
                Some(signature) if reader.parameters => {
                    reader.write(&format!("({}){modifiers}", signature.parameters))
                }
                // Of a variable, whose type is not shown.
                _ => Some(()),
            });
        }
        self.apart(Self::of_type).map(drop)
    }

    fn number(&mut self) -> Option<usize> {
        let begin = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        std::str::from_utf8(&self.text[begin..self.at]).ok()?.parse().ok()
    }

    /// `Q` and a distance in base 26, whose last digit is a small letter: where that leads to, always before itself.
    fn back_reference(&mut self) -> Option<usize> {
        let from = self.at;
        self.at += 1;
        let mut distance = 0_usize;
        loop {
            let digit = self.peek();
            self.at += 1;
            let (begin, is_last) = match digit {
                b'A'..=b'Z' => (b'A', false),
                b'a'..=b'z' => (b'a', true),
                _ => return None,
            };
            distance = distance
                .checked_mul(26)?
                .checked_add(usize::from(digit - begin))?;
            if is_last {
                break;
            }
        }
        from.checked_sub(distance).filter(|to| *to < from)
    }

    /// Reads at a place before, and comes back.
    fn at_place(&mut self, to: usize, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let back = std::mem::replace(&mut self.at, to);
        self.nested(read)?;
        self.at = back;
        Some(())
    }

    /// Whether an identifier follows: a `Q` may lead to a type as well.
    fn is_at_identifier(&self) -> bool {
        match self.peek() {
            b'0'..=b'9' => true,
            b'_' => matches!((self.peek_at(1), self.peek_at(2)), (b'_', b'T' | b'U')),
            b'Q' => {
                let mut ahead = Reader {
                    out: String::new(),
                    ..*self
                };
                let to = ahead.back_reference();
                to.is_some_and(|to| self.text[to].is_ascii_digit())
            }
            _ => false,
        }
    }

    /// A row of identifiers. Of a method `qualifies` writes what its object may be.
    fn qualified(&mut self, qualifies: bool) -> Option<()> {
        self.nested(|reader| {
            let mut is_first = true;
            loop {
                // `0`: a part without a name.
                while reader.takes("0") {}
                let before = reader.out.len();
                if !is_first {
                    reader.write(".")?;
                }
                let named = reader.out.len();
                reader.identifier()?;
                if reader.out.len() == named {
                    reader.out.truncate(before);
                } else {
                    is_first = false;
                }
                reader.enclosing_function(qualifies);
                if !reader.is_at_identifier() {
                    return Some(());
                }
            }
        })
    }

    /// The parameters of a function, if what was named is one; at the very end it is something else's type.
    fn enclosing_function(&mut self, qualifies: bool) {
        let (at, depth, length) = (self.at, self.depth, self.out.len());
        let mut read = || {
            let is_method = self.takes("M");
            let modifiers = if is_method {
                self.modifiers()
            } else {
                String::new()
            };
            let signature = self.signature()?;
            if self.at >= self.text.len() {
                return None;
            }
            if self.parameters {
                self.write(&format!("({})", signature.parameters))?;
                if qualifies {
                    self.write(&modifiers)?;
                }
            }
            Some(())
        };
        if read().is_none() {
            self.at = at;
            self.depth = depth;
            self.out.truncate(length);
        }
    }

    fn identifier(&mut self) -> Option<()> {
        self.nested(|reader| {
            if reader.peek() == b'Q' {
                let to = reader.back_reference()?;
                return reader.at_place(to, Self::named);
            }
            if reader.takes("__T") || reader.takes("__U") {
                return reader.template_instance();
            }
            reader.named()
        })
    }

    /// Its length and its letters; of an older compiler, those may be a template's instance.
    fn named(&mut self) -> Option<()> {
        let length = self.number().filter(|length| *length > 0)?;
        let end = self.at.checked_add(length)?;
        let name = self.text.get(self.at..end)?;
        if name.starts_with(b"__T") || name.starts_with(b"__U") {
            self.at += 3;
            self.template_instance()?;
            return (self.at == end).then_some(());
        }
        let name = std::str::from_utf8(name).ok()?;
        self.at = end;
        // Numbers that tell declarations of one name in one function apart.
        let is_made_up = |name: &str| {
            name.strip_prefix("__S")
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        match name {
            "__ctor" => self.write("this"),
            "__dtor" => self.write("~this"),
            name if is_made_up(name) => Some(()),
            name => self.write(name),
        }
    }

    fn template_instance(&mut self) -> Option<()> {
        self.identifier()?;
        self.write("!(")?;
        let mut is_first = true;
        while !self.takes("Z") {
            if !std::mem::take(&mut is_first) {
                self.write(", ")?;
            }
            // `H`: the argument is of a specialisation.
            self.takes("H");
            self.nested(Self::template_argument)?;
        }
        self.write(")")
    }

    fn template_argument(&mut self) -> Option<()> {
        if self.takes("T") {
            self.of_type()
        } else if self.takes("V") {
            // A type may be a reference to an earlier one.
            let kind = self.kind_of_value()?;
            let name = self.apart(Self::of_type)?;
            self.value(kind, &name)
        } else if self.takes("S") {
            self.template_symbol()
        } else if self.takes("X") {
            let length = self.number()?;
            let end = self.at.checked_add(length)?;
            let name = std::str::from_utf8(self.text.get(self.at..end)?).ok()?;
            self.at = end;
            self.write(name)
        } else {
            None
        }
    }

    /// A name, or of an older compiler the length of a mangled name, and that.
    fn template_symbol(&mut self) -> Option<()> {
        let at = self.at;
        if self.peek().is_ascii_digit() {
            let length = self.number()?;
            let end = self.at.checked_add(length)?;
            let length_out = self.out.len();
            if self.text.get(self.at..self.at + 2) == Some(b"_D")
                && self.nested(Self::symbol).is_some()
                && self.at == end
            {
                return Some(());
            }
            self.out.truncate(length_out);
            self.at = at;
        }
        if self.text.get(self.at..self.at + 2) == Some(b"_D") {
            return self.nested(Self::symbol);
        }
        self.qualified(false)
    }

    /// The letter that the type of a value begins with.
    fn kind_of_value(&self) -> Option<u8> {
        let mut ahead = Reader {
            out: String::new(),
            ..*self
        };
        for _ in 0..NESTING_MAX {
            if ahead.peek() != b'Q' {
                return Some(ahead.peek());
            }
            ahead.at = ahead.back_reference()?;
        }
        None
    }

    fn value(&mut self, kind: u8, type_name: &str) -> Option<()> {
        self.nested(|reader| match reader.peek() {
            b'n' => {
                reader.at += 1;
                reader.write("null")
            }
            b'N' => {
                reader.at += 1;
                reader.write("-")?;
                reader.integer(kind)
            }
            b'i' => {
                reader.at += 1;
                reader.integer(kind)
            }
            b'0'..=b'9' => reader.integer(kind),
            b'e' => {
                reader.at += 1;
                reader.real()
            }
            b'c' => {
                reader.at += 1;
                reader.real()?;
                reader.write("+")?;
                if !reader.takes("c") {
                    return None;
                }
                reader.real()?;
                reader.write("i")
            }
            b'a' | b'w' | b'd' => reader.text_value(),
            b'A' => {
                reader.at += 1;
                let ends = if kind == b'H' { Some(":") } else { None };
                reader.values("[", "]", ends)
            }
            b'S' => {
                reader.at += 1;
                reader.write(type_name)?;
                reader.values("(", ")", None)
            }
            b'f' => {
                reader.at += 1;
                reader.symbol()
            }
            _ => None,
        })
    }

    /// A number of values; of a map, each a key and what it leads to.
    fn values(&mut self, open: &str, close: &str, between: Option<&str>) -> Option<()> {
        let count = self.number()?;
        self.write(open)?;
        for index in 0..count {
            if index > 0 {
                self.write(", ")?;
            }
            self.value(0, "")?;
            if let Some(between) = between {
                self.write(between)?;
                self.value(0, "")?;
            }
        }
        self.write(close)
    }

    /// A whole number, as it is written of such a type.
    fn integer(&mut self, kind: u8) -> Option<()> {
        let begin = self.at;
        let value = self.number()?;
        let digits = std::str::from_utf8(&self.text[begin..self.at]).ok()?;
        match kind {
            b'a' | b'u' | b'w' => {
                let written = match (kind, u8::try_from(value)) {
                    (b'a', Ok(byte @ 0x20..=0x7e)) => char::from(byte).to_string(),
                    (b'a', _) => format!("\\x{value:02x}"),
                    (b'u', _) => format!("\\u{value:04x}"),
                    _ => format!("\\U{value:08x}"),
                };
                self.write(&format!("'{written}'"))
            }
            b'b' => self.write(if value == 0 { "false" } else { "true" }),
            b'h' | b't' | b'k' => self.write(&format!("{digits}u")),
            b'l' => self.write(&format!("{digits}L")),
            b'm' => self.write(&format!("{digits}uL")),
            _ => self.write(digits),
        }
    }

    /// A number in hexadecimal with its exponent, or none of the finite ones.
    fn real(&mut self) -> Option<()> {
        for (mangled, written) in [("NAN", "NaN"), ("INF", "Inf"), ("NINF", "-Inf")] {
            if self.takes(mangled) {
                return self.write(written);
            }
        }
        if self.takes("N") {
            self.write("-")?;
        }
        let first = self.hex_digits(1)?;
        let others = self.hex_digits(usize::MAX).unwrap_or_default();
        self.write(&format!("0x{first}.{others}p"))?;
        if !self.takes("P") {
            return None;
        }
        if self.takes("N") {
            self.write("-")?;
        }
        let begin = self.at;
        self.number()?;
        let exponent = std::str::from_utf8(&self.text[begin..self.at]).ok()?;
        self.write(exponent)
    }

    fn hex_digits(&mut self, most: usize) -> Option<String> {
        let begin = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'A'..=b'F') && self.at - begin < most {
            self.at += 1;
        }
        let digits = std::str::from_utf8(&self.text[begin..self.at]).ok()?;
        (!digits.is_empty()).then(|| digits.to_owned())
    }

    /// The width of its characters, its length in bytes, `_`, and those in hexadecimal.
    fn text_value(&mut self) -> Option<()> {
        let width = self.peek();
        self.at += 1;
        let length = self.number()?;
        if !self.takes("_") {
            return None;
        }
        self.write("\"")?;
        for _ in 0..length {
            let pair = self.text.get(self.at..self.at + 2)?;
            let byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            self.at += 2;
            match byte {
                b'\t' => self.write("\\t")?,
                b'\n' => self.write("\\n")?,
                b'\r' => self.write("\\r")?,
                0x0c => self.write("\\f")?,
                0x0b => self.write("\\v")?,
                0x20..=0x7e => self.write(char::from(byte).encode_utf8(&mut [0; 4]))?,
                _ => self.write(&format!("\\x{}", std::str::from_utf8(pair).ok()?))?,
            }
        }
        self.write("\"")?;
        if width == b'a' {
            Some(())
        } else {
            self.write(char::from(width).encode_utf8(&mut [0; 4]))
        }
    }

    /// What the object of a method or a delegate may be.
    fn modifiers(&mut self) -> String {
        let mut words = String::new();
        loop {
            words.push_str(match self.peek() {
                b'x' => " const",
                b'y' => " immutable",
                b'O' => " shared",
                b'N' if self.peek_at(1) == b'g' => {
                    self.at += 1;
                    " inout"
                }
                _ => return words,
            });
            self.at += 1;
        }
    }

    /// The type of a function up to what it returns.
    fn signature(&mut self) -> Option<Signature> {
        let linkage = match self.peek() {
            b'F' => "",
            b'U' => "extern(C) ",
            b'W' => "extern(Windows) ",
            b'V' => "extern(Pascal) ",
            b'R' => "extern(C++) ",
            b'Y' => "extern(Objective-C) ",
            _ => return None,
        };
        self.at += 1;
        let mut attributes = String::new();
        while self.peek() == b'N' {
            attributes.push_str(match self.peek_at(1) {
                b'a' => "pure ",
                b'b' => "nothrow ",
                b'c' => "ref ",
                b'd' => "@property ",
                b'e' => "@trusted ",
                b'f' => "@safe ",
                b'i' => "@nogc ",
                b'j' => "return ",
                b'l' => "scope ",
                b'm' => "@live ",
                // Those of its first parameter.
                b'g' | b'h' | b'k' | b'n' => break,
                _ => return None,
            });
            self.at += 2;
        }
        let parameters = self.apart(|reader| reader.nested(Self::parameters))?;
        Some(Signature {
            linkage,
            parameters,
            attributes,
        })
    }

    fn parameters(&mut self) -> Option<()> {
        let mut is_first = true;
        loop {
            match self.peek() {
                b'X' => {
                    self.at += 1;
                    return self.write("...");
                }
                b'Y' => {
                    self.at += 1;
                    return self.write(if is_first { "..." } else { ", ..." });
                }
                b'Z' => {
                    self.at += 1;
                    return Some(());
                }
                _ => {}
            }
            if !std::mem::take(&mut is_first) {
                self.write(", ")?;
            }
            self.parameter_classes()?;
            self.of_type()?;
        }
    }

    fn parameter_classes(&mut self) -> Option<()> {
        if self.takes("M") {
            self.write("scope ")?;
        }
        if self.takes("Nk") {
            self.write("return ")?;
        }
        // The two in the other order.
        if self.takes("M") {
            self.write("scope ")?;
        }
        for (mangled, written) in [("I", "in "), ("J", "out "), ("K", "ref "), ("L", "lazy ")] {
            if self.takes(mangled) {
                self.write(written)?;
                // Of `in ref`.
                if mangled == "I" && self.takes("K") {
                    self.write("ref ")?;
                }
                break;
            }
        }
        Some(())
    }

    fn of_type(&mut self) -> Option<()> {
        self.nested(Self::type_here)
    }

    fn type_here(&mut self) -> Option<()> {
        let kind = self.peek();
        if kind == b'Q' {
            let to = self.back_reference()?;
            return self.at_place(to, Self::of_type);
        }
        if matches!(kind, b'F' | b'U' | b'W' | b'V' | b'R' | b'Y') {
            return self.function_type("function", "");
        }
        self.at += 1;
        match kind {
            b'x' => self.wrapped("const("),
            b'y' => self.wrapped("immutable("),
            b'O' => self.wrapped("shared("),
            b'N' => match self.peek() {
                b'g' => {
                    self.at += 1;
                    self.wrapped("inout(")
                }
                b'h' => {
                    self.at += 1;
                    self.wrapped("__vector(")
                }
                b'n' => {
                    self.at += 1;
                    self.write("typeof(*null)")
                }
                _ => None,
            },
            b'A' => {
                self.of_type()?;
                self.write("[]")
            }
            b'G' => {
                let length = self.number()?;
                self.of_type()?;
                self.write(&format!("[{length}]"))
            }
            b'H' => {
                let key = self.apart(Self::of_type)?;
                self.of_type()?;
                self.write(&format!("[{key}]"))
            }
            b'P' if matches!(self.peek(), b'F' | b'U' | b'W' | b'V' | b'R' | b'Y') => {
                self.function_type("function", "")
            }
            b'P' => {
                self.of_type()?;
                self.write("*")
            }
            b'D' => {
                let modifiers = self.modifiers();
                if self.peek() == b'Q' {
                    let to = self.back_reference()?;
                    return self.at_place(to, |reader| reader.function_type("delegate", &modifiers));
                }
                self.function_type("delegate", &modifiers)
            }
            b'C' | b'S' | b'E' | b'T' | b'I' => self.qualified(false),
            b'B' => self.tuple(),
            _ => self.basic_type(kind),
        }
    }

    fn wrapped(&mut self, open: &str) -> Option<()> {
        self.write(open)?;
        self.of_type()?;
        self.write(")")
    }

    fn function_type(&mut self, word: &str, modifiers: &str) -> Option<()> {
        let Signature {
            linkage,
            parameters,
            attributes,
        } = self.signature()?;
        self.write(linkage)?;
        self.of_type()?;
        self.write(&format!("({parameters}) {attributes}{word}{modifiers}"))
    }

    /// Types up to a `Z`; of an older compiler their number and they.
    fn tuple(&mut self) -> Option<()> {
        self.write("Tuple!(")?;
        if self.peek().is_ascii_digit() {
            let count = self.number()?;
            for index in 0..count {
                if index > 0 {
                    self.write(", ")?;
                }
                self.of_type()?;
            }
        } else {
            self.parameters()?;
        }
        self.write(")")
    }

    fn basic_type(&mut self, kind: u8) -> Option<()> {
        let name = match kind {
            b'v' => "void",
            b'g' => "byte",
            b'h' => "ubyte",
            b's' => "short",
            b't' => "ushort",
            b'i' => "int",
            b'k' => "uint",
            b'l' => "long",
            b'm' => "ulong",
            b'z' if self.takes("i") => "cent",
            b'z' if self.takes("k") => "ucent",
            b'f' => "float",
            b'd' => "double",
            b'e' => "real",
            b'o' => "ifloat",
            b'p' => "idouble",
            b'j' => "ireal",
            b'q' => "cfloat",
            b'r' => "cdouble",
            b'c' => "creal",
            b'b' => "bool",
            b'a' => "char",
            b'u' => "wchar",
            b'w' => "dchar",
            b'n' => "typeof(null)",
            _ => return None,
        };
        self.write(name)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 16 * 1024;

    #[test]
    fn names_of_the_standard_library_read_as_binutils_read_them() {
        for (mangled, with_parameters, plain) in [
            (
                "_D3std6mmfile6MmFile5unmapMFZv",
                "std.mmfile.MmFile.unmap()",
                "std.mmfile.MmFile.unmap",
            ),
            (
                "_D3std3net4curl4SMTP9__mixin139onReceiveMFNdDFAhZmZv",
                "std.net.curl.SMTP.__mixin13.onReceive(ulong(ubyte[]) delegate)",
                "std.net.curl.SMTP.__mixin13.onReceive",
            ),
            (
                "_D4core4time8Duration__T8toStringTDFNaNbNfIAaZvZQyMxFMQuZ10appListSepFNaNbNfQBqkbZv",
                "core.time.Duration.toString!(void(in char[]) pure nothrow @safe delegate).toString(scope void(in char[]) pure nothrow @safe delegate) const.appListSep(void(in char[]) pure nothrow @safe delegate, uint, bool)",
                "core.time.Duration.toString!(void(in char[]) pure nothrow @safe delegate).toString.appListSep",
            ),
            (
                "_D4core6thread10threadbase10ThreadBase6__ctorMFNaNbNiNfPFZvmZCQCiQCgQCcQBt",
                "core.thread.threadbase.ThreadBase.this(void() function, ulong)",
                "core.thread.threadbase.ThreadBase.this",
            ),
            (
                "_D2rt6dmain212_d_run_main2UAAamPUQgZiZ6runAllMFZ9__lambda2MFZv",
                "rt.dmain2._d_run_main2(char[][], ulong, extern(C) int(char[][]) function).runAll().__lambda2()",
                "rt.dmain2._d_run_main2.runAll.__lambda2",
            ),
            (
                "_D3std3uni__T19PackedArrayViewImplTSQBiQBh__T9BitPackedTkVmi8ZQrVmi8ZQCe7opSliceMNgFNaNbNiNfmmZNgSQDsQDr__TQDqTQCyVmi8ZQEc",
                "std.uni.PackedArrayViewImpl!(std.uni.BitPacked!(uint, 8uL).BitPacked, 8uL).PackedArrayViewImpl.opSlice(ulong, ulong) inout",
                "std.uni.PackedArrayViewImpl!(std.uni.BitPacked!(uint, 8uL).BitPacked, 8uL).PackedArrayViewImpl.opSlice",
            ),
            (
                "_D4core4time__T20splitUnitsFromHNSecsVAyaa7_7365636f6e6473ZQBsFNaNbNiNfKlZl",
                "core.time.splitUnitsFromHNSecs!(\"seconds\").splitUnitsFromHNSecs(ref long)",
                "core.time.splitUnitsFromHNSecs!(\"seconds\").splitUnitsFromHNSecs",
            ),
            (
                "_D3std6digest3sha__T3SHAVki512Vki224ZQr7T_40_59FNaNbNiNfiKG16kkKkkkkKkZv",
                "std.digest.sha.SHA!(512u, 224u).SHA.T_40_59(int, ref uint[16], uint, ref uint, uint, uint, uint, ref uint)",
                "std.digest.sha.SHA!(512u, 224u).SHA.T_40_59",
            ),
            (
                "_D3std6base64__T10Base64ImplVai45Vai95Vai0Z12encodeLengthFNaNbNiNfImZm",
                "std.base64.Base64Impl!('-', '_', '\\x00').encodeLength(in ulong)",
                "std.base64.Base64Impl!('-', '_', '\\x00').encodeLength",
            ),
            (
                "_D3std6digest3crc__T3CRCVki64VmN2882303761517117440ZQBg3putMFNaNbNiNeMAxhXv",
                "std.digest.crc.CRC!(64u, -2882303761517117440uL).CRC.put(scope const(ubyte)[]...)",
                "std.digest.crc.CRC!(64u, -2882303761517117440uL).CRC.put",
            ),
            (
                "_D3std9exception__T7enforceZ__TQmTPSQBi11concurrency__T4ListTSQCiQBa7MessageZQw4NodeZQCoFNaNfQChLAxaAyamZQCt",
                "std.exception.enforce!().enforce!(std.concurrency.List!(std.concurrency.Message).List.Node*).enforce(std.concurrency.List!(std.concurrency.Message).List.Node*, lazy const(char)[], immutable(char)[], ulong)",
                "std.exception.enforce!().enforce!(std.concurrency.List!(std.concurrency.Message).List.Node*).enforce",
            ),
            (
                "_D3std5regex8internal2ir__T15SmallFixedArrayTSQBsQBrQBoQBi__T5GroupTmZQjVki3ZQBy6__dtorMFNaNbNiNfZv",
                "std.regex.internal.ir.SmallFixedArray!(std.regex.internal.ir.Group!(ulong).Group, 3u).SmallFixedArray.~this()",
                "std.regex.internal.ir.SmallFixedArray!(std.regex.internal.ir.Group!(ulong).Group, 3u).SmallFixedArray.~this",
            ),
            (
                "_D3std12experimental9allocator15building_blocks14null_allocator13NullAllocator22resolveInternalPointerMOxFNaNbNiNfxPvKAvZSQEq8typecons7Ternary",
                "std.experimental.allocator.building_blocks.null_allocator.NullAllocator.resolveInternalPointer(const(void*), ref void[]) shared const",
                "std.experimental.allocator.building_blocks.null_allocator.NullAllocator.resolveInternalPointer",
            ),
        ] {
            assert_eq!(
                demangle(mangled, true, MAX).as_deref(),
                Some(with_parameters),
                "{mangled}"
            );
            assert_eq!(demangle(mangled, false, MAX).as_deref(), Some(plain), "{mangled}");
        }
    }

    /// Versions of binutils before 2.41 do not read the first one, and none the others.
    #[test]
    fn names_that_other_tools_leave_mangled() {
        for (mangled, plain) in [
            ("_Dmain", "D main"),
            (
                "_D3std3uni7toLowerFNaNfNkMAyaZQe",
                "std.uni.toLower(return scope immutable(char)[])",
            ),
            (
                "_D3std11concurrency14FiberScheduler6createMFNbDFZvZ4wrapMQk",
                "std.concurrency.FiberScheduler.create(void() delegate).wrap()",
            ),
            (
                "_DTi16_D4core8internal2gc4impl6manualQp8ManualGC7collectMFNbZv",
                "thunk to core.internal.gc.impl.manual.gc.ManualGC.collect()",
            ),
        ] {
            assert_eq!(demangle(mangled, true, MAX).as_deref(), Some(plain), "{mangled}");
        }
    }

    #[test]
    fn what_is_no_name_of_d_is_left() {
        for other in [
            "_DYNAMIC", "_D", "_Dmain2", "_D3ab", "_D3abcFi", "_D3abcQa", "_DTi16", "main", "_D1aFZvx",
        ] {
            assert_eq!(demangle(other, true, MAX), None, "{other}");
        }
    }

    #[test]
    fn names_that_unfold_without_end_stay_mangled() {
        // Each type is the one before, twice.
        let mut mangled = "_D1fFHii".to_owned();
        for _ in 0..200 {
            mangled.push_str("HQdQd");
        }
        mangled.push_str("Zv");
        assert_eq!(demangle(&mangled, true, MAX), None);
        for part in ["P", "DF", "__T1a", "x", "S1a", "VAyaA1"] {
            for count in [10, 100, 1000, 10_000] {
                let _ = demangle(&format!("_D1fF{}", part.repeat(count)), true, MAX);
            }
        }
        // What leads to itself.
        assert_eq!(demangle("_D1aFQaZv", true, MAX), None);
    }

    /// All functions of this machine's standard library that `c++filt` reads.
    #[test]
    fn binutils_agree() {
        let found = Command::new("gdc").arg("-print-file-name=libgphobos.a").output();
        let library = found.map(|found| String::from_utf8_lossy(&found.stdout).trim().to_owned());
        let Ok(library) = library.and_then(std::fs::canonicalize) else {
            profiler_testkit::skipped("gdc and its library are not installed");
            return;
        };
        let symbols = Command::new("nm")
            .arg("--defined-only")
            .arg(library)
            .output()
            .unwrap();
        let symbols = String::from_utf8_lossy(&symbols.stdout);
        let mut functions: Vec<&str> = symbols
            .lines()
            .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [_, "t" | "T" | "w" | "W", name] if is_mangled(name) => Some(name),
                _ => None,
            })
            .collect();
        functions.sort_unstable();
        functions.dedup();
        let mut list = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut list, functions.join("\n").as_bytes()).unwrap();
        std::io::Seek::rewind(&mut list).unwrap();
        let read = Command::new("c++filt")
            .args(["-s", "dlang"])
            .stdin(Stdio::from(list))
            .output()
            .unwrap();
        let read = String::from_utf8_lossy(&read.stdout);
        let pairs: Vec<(&str, &str)> = functions
            .iter()
            .copied()
            .zip(read.lines())
            .filter(|(name, read)| name != read)
            .collect();
        assert!(pairs.len() > 1000, "{} names", pairs.len());
        let differs = |(name, read): &&(&str, &str)| {
            let own = demangle(name, true, usize::MAX).unwrap_or_default();
            // They write a constructor of copies in two ways, and do not read a type that is referred to.
            let as_theirs = own.replace(".__postblit()", ".this(this)");
            let is_longer = own.starts_with(read) && own.ends_with(')');
            own != *read && as_theirs != *read && !is_longer
        };
        let different: Vec<_> = pairs.iter().filter(differs).collect();
        assert!(
            different.len() * 500 < pairs.len(),
            "{} of {}: {different:#?}",
            different.len(),
            pairs.len()
        );
    }

    proptest! {
        #[test]
        fn no_name_panics_or_grows_past_its_bound(mangled in "_D[0-9]{1,2}[A-Za-z0-9_]{0,80}", parameters: bool) {
            prop_assert!(demangle(&mangled, parameters, 200).is_none_or(|name| name.len() <= 200));
        }

        #[test]
        fn no_damage_panics(at in 0..200_usize, letter in "[A-Za-z0-9_]", parameters: bool) {
            let mut mangled = "_D4core4time8Duration__T8toStringTDFNaNbNfIAaZvZQyMxFMQuZ10appListSepFNaNbNfQBqkbZv".to_owned();
            let at = at % mangled.len();
            mangled.replace_range(at..=at, &letter);
            let _ = demangle(&mangled, parameters, MAX);
            let _ = demangle(&mangled[..at], parameters, MAX);
        }
    }
}
