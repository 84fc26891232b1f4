use super::*;
use proptest::prelude::*;

fn step(text: &str) -> Step {
    parse(text).unwrap().step.unwrap()
}

fn fails(text: &str, offset: usize, message: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!(error.offset, offset, "{error}");
    assert!(error.message.contains(message), "{error}");
}

#[test]
fn the_empty_text_is_everything() {
    assert_eq!(parse("").unwrap(), Scope { step: None });
    assert_eq!(parse("  ").unwrap().to_string(), "");
}

#[test]
fn names() {
    assert_eq!(step("handle_request").place, Name::Exact("handle_request".into()));
    assert_eq!(
        step("ns::Type::~Type").place,
        Name::Exact("ns::Type::~Type".into())
    );
    assert_eq!(step("parse_*").place, Name::Glob("parse_*".into()));
    assert_eq!(step("\"parse_*\"").place, Name::Exact("parse_*".into()));
    assert_eq!(step("\"plain\"").to_string(), "plain");
    assert_eq!(
        step(r#""<T as \"q\" \\>::f""#).place,
        Name::Exact(r#"<T as "q" \>::f"#.into())
    );
}

#[test]
fn predicates() {
    let two = step("f[>= p50] [<p90 ]");
    assert_eq!(two.to_string(), "f[>= p50][< p90]");
    let bound = |text| step(text).predicates[0].bound;
    assert_eq!(bound("f[> 5ms]"), Bound::Duration(5_000_000));
    assert_eq!(bound("f[<= 2.5us]"), Bound::Duration(2_500));
    assert_eq!(bound("f[> 0.5s]"), Bound::Duration(500_000_000));
    assert_eq!(bound("f[> 5 ms]"), Bound::Duration(5_000_000));
    let Bound::Percentile(p) = bound("f[> p99.9]") else {
        panic!()
    };
    assert!((p.quantile() - 0.999).abs() < 1e-12);
    assert_eq!(step("f[> 0.500ms]").to_string(), "f[> 500us]");
}

#[test]
fn errors_point_at_the_character() {
    fails("f/g", 1, "second step");
    fails("f /g", 2, "second step");
    fails("main.cc:1310", 7, "FILE:LINE");
    fails("recv@main.cc:12", 4, "'@'");
    fails("kernel:vfs_read", 6, "kernel: places");
    fails("\"libfoo.so\"+0x12", 11, "addresses");
    fails("f[n > 100]", 2, "values");
    fails("f[>= p95", 1, "not closed");
    fails("f[>= p95]]", 9, "not opened");
    fails("f[>= p100]", 5, "below 100");
    fails("f[>= p0]", 5, "above 0");
    fails("f[>= p]", 6, "number");
    fails("f[>= p99.1234567]", 15, "six decimals");
    fails("f[> 5]", 5, "unit");
    fails("f[> 5m]", 5, "unit");
    fails("f[> 5 m]", 6, "unit");
    fails("f[> 0.5ns]", 6, "whole number");
    fails("f[> 1.2.3ms]", 7, "decimal point");
    fails("f[> 99999999999999999999s]", 4, "too large");
    fails("f[== 5ms]", 2, "compared by");
    fails("f[]", 2, "empty");
    fails("[>= p95]", 0, "function before it");
    fails("\"f", 0, "not closed");
    fails("\"f\\n\"", 2, "backslash");
    fails("f(int)", 1, "double quotes");
    fails("é[> x]", 5, "percentile");
}

#[test]
fn the_caret_counts_characters() {
    let text = parse("é[> x]").unwrap_err().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "  é[> x]");
    assert_eq!(lines[2], "      ^");
}

fn scopes() -> impl Strategy<Value = Scope> {
    let exact = "\\PC{1,20}".prop_map(Name::Exact);
    let glob = "[a-z_.$~]{0,5}(::)?[*?][a-zé:]{0}[a-z*?]{0,5}".prop_map(Name::Glob);
    let comparison = prop_oneof![
        Just(Comparison::Less),
        Just(Comparison::LessOrEqual),
        Just(Comparison::Greater),
        Just(Comparison::GreaterOrEqual),
    ];
    let bound = prop_oneof![
        any::<u64>().prop_map(Bound::Duration),
        (0u64..10_000_000_000).prop_map(Bound::Duration),
        (1u32..100_000_000).prop_map(|n| Bound::Percentile(Percentile::from_millionths(n).unwrap())),
    ];
    let predicate = (comparison, bound).prop_map(|(comparison, bound)| Predicate { comparison, bound });
    let step = (prop_oneof![exact, glob], prop::collection::vec(predicate, 0..4))
        .prop_map(|(place, predicates)| Step { place, predicates });
    prop::option::of(step).prop_map(|step| Scope { step })
}

proptest! {
    #[test]
    fn printing_and_parsing_are_inverse(scope in scopes()) {
        let text = scope.to_string();
        prop_assert_eq!(&parse(&text).map_err(|e| TestCaseError::fail(e.to_string()))?, &scope);
    }

    #[test]
    fn any_text_parses_or_fails_inside_it(text in "\\PC*") {
        if let Err(error) = parse(&text) {
            prop_assert!(text.is_char_boundary(error.offset));
            let _ = error.to_string();
        }
    }

    #[test]
    fn text_like_a_scope_never_panics(text in "[a-z\"\\\\:*?/@\\[\\]<>=p0-9. é\u{0}-\u{1f}]{0,40}") {
        if let Err(error) = parse(&text) {
            let _ = error.to_string();
        }
    }
}
