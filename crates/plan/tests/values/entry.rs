//! Arguments where their function is entered.

use std::{path::Path, process::Command, sync::Arc};

use profiler_common::values::Operation;
use profiler_plan::{
    ModuleIndex,
    values::{DebugFile, DebugSections, Lowered, Refusal, Returns, Site, lower_with},
};
use profiler_scope::expression::parse;

/// A program compiled from a text, and its functions' arguments.
struct Compiled {
    bytes: Vec<u8>,
    module: ModuleIndex,
}

impl Compiled {
    fn of(flags: &[&str], text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (source, path) = (directory.path().join("entry.c"), directory.path().join("entry"));
        std::fs::write(&source, text).unwrap();
        let mut compiler = Command::new("gcc");
        compiler
            .arg("-g")
            .args(flags)
            .args([Path::new("-o"), &path, &source]);
        assert!(compiler.status().unwrap().success(), "{compiler:?}");
        let bytes = std::fs::read(&path).unwrap();
        let module = ModuleIndex::new(Arc::new(bytes.clone())).unwrap();
        Self { bytes, module }
    }

    /// How an expression is read at a function's entry.
    fn at_entry(&self, function: &str, expression: &str, returns: Returns<'_>) -> Result<Lowered, Refusal> {
        let sections = DebugSections::load(&self.bytes, &self.bytes).unwrap();
        let file = DebugFile::new(&sections).of_module(&self.module);
        let mut functions = self.module.functions();
        let address = functions
            .find(|known| known.name() == function)
            .unwrap()
            .address();
        let site = Site { address, bias: 0 };
        lower_with(&file, site, returns, &parse(expression).unwrap())
    }
}

/// Whether a plan begins with a register, by its DWARF number.
fn reads_register(lowered: &Lowered, register: u8) -> bool {
    let first = lowered.plan.instructions[0];
    first.operation == Operation::Register as u8 && first.register == register
}

/// What is inlined where a function begins can have the same names for others of its arguments.
#[test]
fn an_argument_at_the_entry_is_the_functions_own_where_it_begins_with_inlined_code() {
    let text = "volatile long sink;\n\
        static inline __attribute__((always_inline)) void swapped(long two, long one) {\n\
        if (two > 800) sink += one * 3;\n}\n\
        __attribute__((noinline)) void outer(long one, long two) { swapped(one, two); }\n\
        int main(int argc, char **argv) { outer(argc, (long)argv); return 0; }\n";
    let program = Compiled::of(&["-O2"], text);
    for (name, register) in [("one", 5), ("two", 4)] {
        let lowered = program.at_entry("outer", name, Returns::OfFunction).unwrap();
        assert!(reads_register(&lowered, register), "{name}: {lowered:?}");
    }
}

/// Where GCC aligns the stack anew, it says where arguments are from a register that the first instruction sets.
#[test]
fn an_argument_on_the_stack_is_found_where_the_stack_is_aligned_anew() {
    let text = "struct large { long v[3]; int n; };\nextern void take(char *, long);\nvoid take(char *to, long n) { to[0] = (char)n; }\n\
        __attribute__((noinline)) long aligned(long n, struct large large) {\n\
        char room[64] __attribute__((aligned(64)));\n\
        ((void (*volatile)(char *, long))take)(room, n); return large.v[1] + large.n + room[0];\n}\n\
        int main(int argc, char **argv) { (void)argv; struct large large = {{argc, 2, 3}, 4}; return (int)aligned(argc, large); }\n";
    for flags in [&["-O1"][..], &["-O2"], &["-O2", "-fcf-protection"]] {
        let program = Compiled::of(flags, text);
        let lowered = program
            .at_entry("aligned", "large.v[1]", Returns::OfFunction)
            .unwrap();
        let first = lowered.plan.instructions[0];
        // The return address, and then what the caller has put there.
        assert!(reads_register(&lowered, 7), "{flags:?}: {lowered:?}");
        assert_eq!(first.immediate, 8 + 8, "{flags:?}");
    }
}

/// Copies apart, GCC's callers pass what the declaration says, used or not.
#[test]
fn an_argument_on_the_stack_is_read_whether_it_is_used_or_not() {
    let text = "__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long used, long unused) {\n\
        return a + b + c + d + e + f + used;\n}\n\
        int main(int argc, char **argv) { (void)argv; return (int)many(argc, 2, 3, 4, 5, 6, argc + 7, argc + 8); }\n";
    // Copies are made for what callers pass, which -fno-ipa-sra and -fno-ipa-cp leave out.
    let program = Compiled::of(&["-O2", "-fno-ipa-sra", "-fno-ipa-cp"], text);
    for name in ["used", "unused"] {
        let lowered = program.at_entry("many", name, Returns::OfFunction);
        assert!(lowered.is_ok(), "{name}: {lowered:?}");
    }
}
