//! Why an expression has no plan.

use profiler_elf::ElfError;

/// Why an expression has no plan at an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No variable of that name is visible there; with the nearest names.
    #[error("no variable {name} is visible here{}", listed(.nearest))]
    NoVariable {
        /// The name asked for.
        name: String,
        /// Names like it, the most alike first.
        nearest: Vec<String>,
    },
    /// Its type has no such member; with those it has.
    #[error("{of} has no member {name}{}", listed(.members))]
    NoMember {
        /// The type.
        of: String,
        /// The name asked for.
        name: String,
        /// Names like it, the most alike first.
        members: Vec<String>,
    },
    /// Several variables are meant.
    #[error("{name} is ambiguous: {}", .candidates.join(", "))]
    Ambiguous {
        /// The name asked for.
        name: String,
        /// What it could mean.
        candidates: Vec<String>,
    },
    /// The compiler left no value there.
    #[error("optimized out: {0}")]
    OptimizedOut(String),
    /// It may have a value, which cannot be read; says by which operation or type.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The function has no value to return.
    #[error("the function returns nothing")]
    ReturnsNothing,
    /// There is no debug information for the address.
    #[error(
        "no debug information for the code at {0:#x}; without it registers can be read ($rdi), and where a function is entered its \
         arguments: (int)arg0, str(arg1)"
    )]
    NoDebugInformation(u64),
    /// The debug information is damaged.
    #[error("damaged debug information: {0}")]
    Damaged(String),
    /// The file is not one that can be read.
    #[error(transparent)]
    File(#[from] ElfError),
}

impl From<gimli::Error> for Refusal {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        String::new()
    } else {
        format!("; there is {}", names.join(", "))
    }
}

/// What cannot be done, in words.
pub(super) fn unsupported<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unsupported(what.into()))
}

/// Why there is no value, in words.
pub(super) fn optimized_out<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::OptimizedOut(why.into()))
}
