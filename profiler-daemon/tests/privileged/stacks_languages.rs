//! Stacks of programs in other languages than C, held against those that they can have.

use profiler_daemon::session::ExitMethod;
use profiler_symbolize::Frame;

use super::{
    fixture::small_scale,
    skipped,
    stacks_target::{COMPLETE, EMULATED, Target, enough},
    stacks_truth::Truth,
};

/// What is below the functions that go through all acts, themselves included.
const CXX: [&str; 9] = [
    "read_line",
    "all_acts virtual_call Circle::area",
    "all_acts sorting - by_value",
    "all_acts calling - callee",
    "all_acts calling callee",
    "all_acts catching between throwing",
    "all_acts catching between Held::~Held",
    "all_acts catching caught",
    "Circle::~Circle",
];

const RUST: [&str; 5] = [
    "all_acts dynamic <Circle_as_Shape>::area",
    "all_acts sorting - by_value",
    "all_acts sorting by_value",
    "all_acts catching between panicking",
    "all_acts catching between <Held_as_core::ops::drop::Drop>::drop",
];

fn of_language(name: &str, truth: &Truth, leaves: &[&str]) {
    if small_scale() {
        return skipped(EMULATED);
    }
    let mut target = Target::start(name, &[], &[], ExitMethod::Ret);
    let judged = target.judge(truth, enough(), name);
    target.finish();
    judged.assert(COMPLETE);
    for leaf in leaves {
        assert!(judged.under(leaf) > 0, "{leaf} was not met");
    }
}

#[test]
#[ignore = "needs root"]
fn cxx() {
    // Templates of the library's are in the program's own file.
    let is_own = |frame: &Frame| {
        &*frame.module == "stacks_cxx"
            && !["std::", "__gnu_cxx::"]
                .iter()
                .any(|of| frame.function.contains(of))
    };
    let truth = Truth::new(is_own, &["_start - main", "-"], &CXX, &[], &[]);
    let leaves = ["Circle::area", "by_value", "callee", "Held::~Held", "caught"];
    of_language("stacks_cxx", &truth, &leaves);
}

#[test]
#[ignore = "needs root"]
fn rust() {
    let is_own = |frame: &Frame| {
        frame
            .function
            .trim_start_matches('<')
            .starts_with("stacks_rust::")
    };
    let full = RUST.map(|chain| {
        let words = chain.split(' ').map(|word| match word {
            "-" => word.to_owned(),
            word => match word.strip_prefix('<') {
                Some(implementation) => format!(
                    "<stacks_rust::{}",
                    implementation.replace("as_Shape", "as_stacks_rust::Shape")
                ),
                None => format!("stacks_rust::{word}"),
            },
        });
        words.collect::<Vec<_>>().join(" ")
    });
    let chains: Vec<&str> = full.iter().map(String::as_str).collect();
    let truth = Truth::new(
        is_own,
        &["- stacks_rust::main", "- stacks_rust::in_thread"],
        &chains,
        &[],
        &[],
    );
    of_language(
        "stacks_rust",
        &truth,
        &["stacks_rust::by_value", "stacks_rust::panicking"],
    );
}
