//! Why an address has no function.

use std::fmt;

/// Why an address has no function. Clients show the text, and count samples by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Neither the file nor what belongs to it has symbols, but for those that other files may call.
    NoSymbols,
    /// There are symbols, and none of them reaches the address.
    NoSymbolHere,
    /// The name is in a file that the debug information refers to (`.gnu_debugaltlink`), and that is not there.
    NoSupplement,
    /// The file is cut short, or its headers or debug information contradict themselves.
    Damaged,
    /// The file cannot be opened: it is gone, was replaced, or may not be read.
    NotReadable,
    /// Others may write to the file, so it would have to be copied, and it is too large for that.
    TooLarge,
    /// What is mapped is no ELF file for x86-64.
    NotElf,
    /// Memory without a file: code made while the program runs.
    NoFile,
    /// The process keeps its mappings or its file from being looked at: it is starting another program, or its file system does not
    /// answer.
    NotAnswering,
    /// Nothing is mapped there.
    NotMapped,
    /// The kernel does not say where its functions are (`kernel.kptr_restrict`).
    Hidden,
}

impl Reason {
    const ALL: [Self; 11] = [
        Self::NoSymbols,
        Self::NoSymbolHere,
        Self::NoSupplement,
        Self::Damaged,
        Self::NotReadable,
        Self::TooLarge,
        Self::NotElf,
        Self::NoFile,
        Self::NotAnswering,
        Self::NotMapped,
        Self::Hidden,
    ];

    /// The reason that has these words.
    #[must_use]
    pub fn of_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.text() == text)
    }

    /// Whether a file with debug information would help.
    #[must_use]
    pub fn is_of_missing_files(self) -> bool {
        matches!(self, Self::NoSymbols | Self::NoSupplement)
    }

    /// A few words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NoSymbols => "no symbols",
            Self::NoSymbolHere => "no symbol here",
            Self::NoSupplement => "no dwz file",
            Self::Damaged => "damaged",
            Self::NotReadable => "not readable",
            Self::TooLarge => "too large to copy",
            Self::NotElf => "not an ELF file",
            Self::NoFile => "no file",
            Self::NotAnswering => "not answering",
            Self::NotMapped => "not mapped",
            Self::Hidden => "hidden",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
