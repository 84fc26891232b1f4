//! What a call returns is read where the compiler has put it, or not at all.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use profiler_plan::{
    calls,
    values::{self, DebugFile, DebugSections, Refusal, Returns, Site},
};
use profiler_scope::Name;

use support::{Fixture, compile};

/// Whether what a function returns can be read; why not.
fn returned(fixture: &Fixture, function: &str) -> Result<(), Refusal> {
    let bytes = fixture.index.files().program();
    let sections = DebugSections::load(bytes, bytes).unwrap();
    let debug = DebugFile::new(&sections).of_module(&fixture.index);
    let found = fixture
        .index
        .functions()
        .find(|known| known.name().starts_with(function));
    let address = found.unwrap().address();
    let site = Site { address, bias: 0 };
    let expression = profiler_scope::expression::parse("return").unwrap();
    values::lower_with(&debug, site, Returns::OfFunction, &expression).map(|_| ())
}

#[track_caller]
fn is_refused(fixture: &Fixture, function: &str, why: &str) {
    let refusal = returned(fixture, function).unwrap_err().to_string();
    assert!(refusal.contains(why), "{function}: {refusal}");
}

#[test]
fn refuses_return_values_that_cannot_be_read() {
    for level in ["-O1", "-O2"] {
        let fixture = compile("gcc", "returned.c", &[level, "-g"]);
        returned(&fixture, "number").unwrap();
        is_refused(&fixture, "vector", "the debug information does not say how");
        is_refused(&fixture, "held", "in a vector register");
    }
    let fixture = compile("gcc", "returned.c", &["-O2", "-g"]);
    let names: Vec<String> = fixture
        .index
        .functions()
        .map(|function| function.linkage_name().into_owned())
        .collect();
    assert!(names.iter().any(|name| name.contains(".isra.")), "{names:?}");
    is_refused(&fixture, "dropped", "the compiler may have dropped it");
}

#[test]
fn uses_the_return_type_of_the_called_overload() {
    let fixture = compile("g++", "overloads.cc", &["-O2", "-g", "-shared", "-fPIC"]);
    let bytes = fixture.index.files().program();
    let sections = DebugSections::load(bytes, bytes).unwrap();
    let debug = DebugFile::new(&sections).of_module(&fixture.index);
    let text = std::fs::read_to_string(support::source("overloads.cc")).unwrap();
    let returned = |name: &str, word: &str| {
        let line = text.lines().position(|line| line.contains(word)).unwrap() as u64 + 1;
        let name_of = Name::Exact(name.to_owned());
        let found = calls::find(&fixture.index, "overloads.cc", line, &name_of).unwrap();
        let [site] = &*found.sites else {
            panic!("{found:?}")
        };
        let at = Site {
            address: site.call.address,
            bias: 0,
        };
        let expression = profiler_scope::expression::parse("return").unwrap();
        let returns = Returns::OfCallee {
            name: &site.callee,
            symbol: &site.symbol,
            address: site.callee_address,
        };
        let lowered = values::lower_with(&debug, at, returns, &expression);
        lowered
            .map(|lowered| lowered.shape.type_name)
            .map_err(|refusal| refusal.to_string())
    };
    assert_eq!(returned("pick", "of an int").unwrap(), "int");
    assert_eq!(returned("alone", "of an int").unwrap(), "int");
    let pair = returned("pick", "of a long").unwrap_err();
    assert!(pair.contains("pair is returned"), "{pair}");
    let vector = returned("pick", "of a double").unwrap_err();
    assert!(vector.contains("vector register"), "{vector}");
}

#[test]
fn arrays_of_rust_are_not_read() {
    let fixture = compile(
        "rustc",
        "returned.rs",
        &[
            "--edition=2021",
            "-g",
            "-Copt-level=2",
            "-Cforce-frame-pointers=yes",
        ],
    );
    returned(&fixture, "returned::number").unwrap();
    is_refused(
        &fixture,
        "returned::array",
        "the debug information does not say how",
    );
}
