//! What to read, as it is written: `n`, `req->len`, `p.x.y`, `*p`, `a[3]`, `s[0..4]`, `::global`, `Type::STATIC`,
//! `$rdi`, `$tid`, `$comm`, `return`, `arg0`, `(int)return`, `*(uint32_t*)arg1`, `str(arg0)`.
//!
//! ```text
//! expression = "*" expression | "(" type *"*" ")" expression | primary *postfix
//! primary    = path | "$" register | "$tid" | "$comm" | "return" | "(" expression ")" | "str" "(" expression ")"
//! path       = ["::"] name *("::" name)
//! postfix    = ("." | "->") name | "[" index [".." index] "]"
//! name       = identifier | '"' text '"'
//! ```

mod cast;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Formatter, Write as _};

pub use cast::{Cast, Number};
pub use parse::parse;

/// Longest text that is read.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Steps of one expression.
pub const MAX_STEPS: usize = 32;

/// Elements of a slice `[a..b]`.
pub const MAX_RANGE: u64 = 64;

/// What to read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Expression {
    /// Where it begins.
    pub root: Root,
    /// How it goes on from there.
    pub steps: Vec<Step>,
}

/// Where an expression begins.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Root {
    /// A variable by its name, with what it is in; at least one part.
    Variable {
        /// Whether only what is global is meant: it is written with `::` in front.
        global: bool,
        /// The name's parts, the variable's own last.
        path: Vec<String>,
    },
    /// A general register by its DWARF number.
    Register(u8),
    /// What the function returns, read where it does.
    Return,
    /// Something of the thread itself.
    Thread(OfThread),
}

/// What is known of the thread that a probe meets, whatever the program's debug information says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OfThread {
    /// Its number: `$tid`.
    Number,
    /// Its name: `$comm`.
    Name,
}

impl OfThread {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Number, Self::Name];

    /// What it is called behind the `$`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Number => "tid",
            Self::Name => "comm",
        }
    }
}

/// A step to a part, or to what something points to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A member of a structure, or of the structure that a pointer leads to.
    Member(String),
    /// An element of an array, or of what a pointer leads to.
    Index(u64),
    /// Elements from one up to before another.
    Range(u64, u64),
    /// What a pointer leads to.
    Dereference,
    /// The same bytes as another type.
    Cast(Cast),
    /// The text that a pointer leads to.
    Text,
}

/// An expression that does not parse.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    /// What is wrong and what is expected.
    pub message: String,
    /// Byte offset of the character at fault; the text's length where it ended early.
    pub offset: usize,
}

impl Display for ExpressionError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.message)
    }
}

impl std::error::Error for ExpressionError {}

/// The registers' names by their DWARF numbers.
const REGISTERS: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip",
];

/// A register's name.
#[must_use]
pub fn register_name(number: u8) -> &'static str {
    REGISTERS.get(usize::from(number)).copied().unwrap_or("?")
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = self.root.to_string();
        let mut is_prefixed = false;
        let mut steps = self.steps.iter().peekable();
        while let Some(step) = steps.next() {
            if let (Step::Dereference, Some(Step::Member(_))) = (step, steps.peek()) {
                enclose(&mut text, &mut is_prefixed);
                text.push_str("->");
                if let Some(Step::Member(name)) = steps.next() {
                    push_name(&mut text, name);
                }
                continue;
            }
            match step {
                Step::Dereference => {
                    text.insert(0, '*');
                    is_prefixed = true;
                }
                Step::Cast(cast) => {
                    text.insert_str(0, &format!("({cast})"));
                    is_prefixed = true;
                }
                Step::Text => {
                    text = format!("str({text})");
                    is_prefixed = false;
                }
                Step::Member(name) => {
                    enclose(&mut text, &mut is_prefixed);
                    text.push('.');
                    push_name(&mut text, name);
                }
                Step::Index(index) => {
                    enclose(&mut text, &mut is_prefixed);
                    write!(text, "[{index}]")?;
                }
                Step::Range(from, to) => {
                    enclose(&mut text, &mut is_prefixed);
                    write!(text, "[{from}..{to}]")?;
                }
            }
        }
        f.write_str(&text)
    }
}

/// Puts into brackets what a postfix would otherwise bind before.
fn enclose(text: &mut String, is_prefixed: &mut bool) {
    if *is_prefixed {
        text.insert(0, '(');
        text.push(')');
        *is_prefixed = false;
    }
}

fn push_name(text: &mut String, name: &str) {
    if parse::is_bare(name) {
        text.push_str(name);
        return;
    }
    text.push('"');
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
}

impl Display for Root {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(number) => write!(f, "${}", register_name(*number)),
            Self::Return => f.write_str("return"),
            Self::Thread(part) => write!(f, "${}", part.word()),
            Self::Variable { global, path } => {
                let mut text = String::new();
                for (index, name) in path.iter().enumerate() {
                    if index > 0 || *global {
                        text.push_str("::");
                    }
                    // A variable of the name `return` can only be meant in quotes.
                    if path.len() == 1 && !global && name == "return" {
                        text.push_str("\"return\"");
                    } else {
                        push_name(&mut text, name);
                    }
                }
                f.write_str(&text)
            }
        }
    }
}
