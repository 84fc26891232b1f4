use std::iter;

use super::*;
use proptest::prelude::*;

fn step(text: &str) -> Step {
    parse(text).unwrap().steps.swap_remove(0)
}

fn fails(text: &str, offset: usize, message: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!(error.offset, offset, "{error}");
    assert!(error.message.contains(message), "{error}");
}

#[test]
fn the_empty_text_is_everything() {
    assert_eq!(parse("").unwrap(), Scope { steps: Vec::new() });
    assert_eq!(parse("  ").unwrap().to_string(), "");
}

#[test]
fn names() {
    let exact = |name: &str| Place::Function(Name::Exact(name.to_owned()));
    assert_eq!(step("handle_request").place, exact("handle_request"));
    assert_eq!(step("ns::Type::~Type").place, exact("ns::Type::~Type"));
    assert_eq!(
        step("parse_*").place,
        Place::Function(Name::Glob("parse_*".into()))
    );
    assert_eq!(step("\"parse_*\"").place, exact("parse_*"));
    assert_eq!(step("\"plain\"").to_string(), "plain");
    assert_eq!(step(r#""<T as \"q\" \\>::f""#).place, exact(r#"<T as "q" \>::f"#));
}

#[test]
fn lines() {
    let line = |file: &str, line| Place::Line {
        file: file.to_owned(),
        line,
    };
    assert_eq!(step("main.cc:1310").place, line("main.cc", 1310));
    assert_eq!(step("\"src/a.c\":1").place, line("src/a.c", 1));
    assert_eq!(step("\"/src/a.c\":1").place, line("/src/a.c", 1));
    assert_eq!(step("\"a b.c\":7").place, line("a b.c", 7));
    assert_eq!(step("\"a b.c\":7").to_string(), "\"a b.c\":7");
    let two = step("a.c:1[n>100] [ req->kind == READ ]");
    assert_eq!(two.to_string(), "a.c:1[n > 100][req->kind == READ]");
    assert!(two.predicates.is_empty());
    assert_eq!(two.conditions[0].constant, Constant::Integer(100));
    assert_eq!(two.conditions[1].constant, Constant::Name("READ".into()));
    assert_eq!(step("a.c:1[a[3] != -0x10]").to_string(), "a.c:1[a[3] != -16]");
    assert_eq!(
        step("a.c:1[x < 0.5][ok == true]").to_string(),
        "a.c:1[x < 0.5][ok == true]"
    );
}

#[test]
fn places_of_the_kernel() {
    let call = |name: &str| Place::SystemCall(name.to_owned());
    assert_eq!(step("syscall:read").place, call("read"));
    let two = parse("f[>= p95]/syscall:fdatasync[fd == 3][> 1ms]/g").unwrap();
    assert_eq!(two.to_string(), "f[>= p95]/syscall:fdatasync[> 1ms][fd == 3]/g");
    assert_eq!(two.steps[1].place, call("fdatasync"));
    let tracepoint = step("tracepoint:block:block_rq_issue[nr_sector > 8]");
    assert_eq!(
        tracepoint.to_string(),
        "tracepoint:block:block_rq_issue[nr_sector > 8]"
    );
    let (category, name) = ("block".to_owned(), "block_rq_issue".to_owned());
    assert_eq!(tracepoint.place, Place::Tracepoint { category, name });
    let function = |name: &str| Place::KernelFunction(Name::Exact(name.to_owned()));
    assert_eq!(step("kernel:vfs_read").place, function("vfs_read"));
    let three = "kernel:ext4_*[>= p95]/kernel:foo.isra.0[count > 4]/tracepoint:a:b";
    assert_eq!(parse(three).unwrap().to_string(), three);
    assert_eq!(
        step("kernel:ext4_*").place,
        Place::KernelFunction(Name::Glob("ext4_*".to_owned()))
    );
    // Functions and files may be called so.
    assert_eq!(
        step("syscall").place,
        Place::Function(Name::Exact("syscall".into()))
    );
    assert!(matches!(step("syscall:12").place, Place::Line { .. }));
    for text in [
        "syscall:\"22\"",
        "syscall:\"::\"",
        "tracepoint:\"a::\":\"::b\"",
        "kernel:\"2f\"",
        "tracepoint:\"9p\":9p_client_req",
    ] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    assert!(matches!(step("syscall::read").place, Place::Function(_)));
    fails("syscall:", 8, "missing");
    fails("syscall:read*", 8, "write it in full");
    fails("tracepoint:sched", 16, "tracepoint:CATEGORY:NAME");
    fails("tracepoint:sched:", 17, "missing");
    fails("tracepoint:a:b/f", 14, "put that function first");
    fails("tracepoint:a:b[> 2ms]", 15, "no duration");
}

#[test]
fn inlined_instances() {
    let inlined = |name: &str| Place::Inlined(Name::Exact(name.into()));
    assert_eq!(step("f@inlined").place, inlined("f"));
    assert_eq!(
        step("\"a b\"@inlined[>= p95][n > 1]").to_string(),
        "\"a b\"@inlined[>= p95][n > 1]"
    );
    assert_eq!(
        step("*::f@inlined").place,
        Place::Inlined(Name::Glob("*::f".into()))
    );
    let path = parse("outer/f@inlined[> 1ms]/f.c:7").unwrap();
    assert_eq!(path.steps[1].place, inlined("f"));
    assert_eq!(path.to_string(), "outer/f@inlined[> 1ms]/f.c:7");
    // A file may be called so.
    assert!(matches!(step("f@inlined:7").place, Place::Call { line: 7, .. }));
}

#[test]
fn addresses() {
    let address = |module: &str, address| Place::Address {
        module: module.to_owned(),
        address,
    };
    assert_eq!(step("libfoo.so+0x1a2b").place, address("libfoo.so", 0x1a2b));
    assert_eq!(step("shop+4480").to_string(), "shop+0x1180");
    assert_eq!(
        step("\"libstdc++.so.6\"+0x10[n > 1]").to_string(),
        "\"libstdc++.so.6\"+0x10[n > 1]"
    );
    assert_eq!(
        step("f/\"a/b\"+0x10/g").place,
        Place::Function(Name::Exact("f".into()))
    );
    fails("shop+0x", 5, "as in libfoo.so+0x1a2b");
    fails("shop+main", 5, "as in libfoo.so+0x1a2b");
    fails("sh*+10", 3, "as in libfoo.so+0x*");
    fails("shop+1*", 4, "as in libfoo.so+0x*");
    fails("shop+0x10000000000000000", 5, "an address in the file");
    fails("f.c:7/f", 5, "put that function first");
}

#[test]
fn calls_of_functions_without_names() {
    let call = |text: &str| Place::Function(Name::Exact(text.to_owned()));
    for text in [
        "shop+0x10[>= p95]",
        "shop+0x10 [> 1ms]",
        "shop+0x10[return < 0]",
        "shop+16/f",
    ] {
        assert_eq!(parse(text).unwrap().steps[0].place, call("shop+0x10"), "{text}");
    }
    assert_eq!(step("\"shop+0x10\"").place, call("shop+0x10"));
    assert_eq!(step("shop+0x10[>= p95]").to_string(), "\"shop+0x10\"[>= p95]");
    assert_eq!(
        step("\"lib/x.so\"+0x10[> 1ms]").to_string(),
        "\"lib/x.so+0x10\"[> 1ms]"
    );
    // What a hit can have is asked of the instruction.
    assert!(matches!(
        step("shop+0x10[returned > 0]").place,
        Place::Address { .. }
    ));
    for glob in ["shop+0x*", "sh?p+0x1*", "*+0x10"] {
        assert_eq!(step(glob).place, Place::Function(Name::Glob(glob.to_owned())));
        assert_eq!(step(glob).to_string(), glob);
    }
    let Place::Function(name) = step("\"lib/x.so+0x1f\"").place else {
        panic!("not a function");
    };
    assert_eq!(name.as_address(), Some(("lib/x.so", 0x1f)));
    assert!(name.may_mean_unnamed());
    assert!(!Name::Glob("*".to_owned()).may_mean_unnamed());
}

#[test]
fn paths() {
    let text = "handle_request[>= p95]/main.cc:1310!taken[n > 100]/recv@main.cc:1312[n == 7][>= p50]";
    let path = parse(text).unwrap();
    assert_eq!(
        path.steps[1].place,
        Place::Branch {
            file: "main.cc".into(),
            line: 1310,
            taken: true
        }
    );
    assert_eq!(
        path.steps[2].place,
        Place::Call {
            callee: Name::Exact("recv".into()),
            file: "main.cc".into(),
            line: 1312
        }
    );
    assert_eq!(
        path.to_string(),
        "handle_request[>= p95]/main.cc:1310!taken[n > 100]/recv@main.cc:1312[>= p50][n == 7]"
    );
    assert_eq!(
        parse(" f / g [n > 1] / \"a/b.c\":3!else ").unwrap().to_string(),
        "f/g[n > 1]/\"a/b.c\":3!else"
    );
    assert_eq!(
        parse("f[\"a]b\"::n > 1]/g").unwrap().steps.len(),
        2,
        "brackets within quotes are none"
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
    fails("f/", 2, "missing");
    fails("f//g", 2, "missing before this '/'");
    fails("a.c:7/f", 5, "put that function first");
    fails("f/f/f/f/f/f/f/f/f", 15, "at most 8");
    fails("a.c:1!token", 5, "!taken");
    fails("f!taken", 1, "main.cc:1310!taken");
    fails("f@inlined@g", 9, "f@main.cc:1312");
    fails("f@inlin", 7, "f@inlined");
    fails("f@main.cc", 9, "f@main.cc:1312");
    fails("f@main.cc:0", 10, "counted from 1");
    fails("main.cc:0", 8, "counted from 1");
    fails("main.cc:1310:7", 12, "one line");
    fails("*.cc:1310", 4, "file's name");
    fails("a.c:1[>= p95]", 6, "no duration");
    fails("a.c:1[n]", 7, "comparison");
    fails("a.c:1[n > ]", 10, "number");
    fails("a.c:1[n > 1", 5, "not closed");
    fails("kernel:", 7, "name of a function of the kernel");
    fails("kernel:/f", 7, "name of a function of the kernel");
    fails("kernel:vfs:read", 10, "single ':'");
    fails("f[n >]", 5, "number");
    fails("f[n]", 3, "comparison");
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
    fails("f[== 5ms]", 2, "compared with");
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
    let name = prop_oneof![exact, glob].boxed();
    let text = prop_oneof!["[a-z_]{1,5}(->[a-z]{1,3}|[.][a-z]{1,3}|\\[[0-9]{1,3}\\])?"];
    let comparison = prop_oneof![
        Just("=="),
        Just("!="),
        Just("<"),
        Just("<="),
        Just(">"),
        Just(">=")
    ];
    let constant = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (any::<i32>(), 0..1000u32).prop_map(|(whole, part)| format!("{whole}.{part}")),
        "[A-Z]{1,5}",
        any::<bool>().prop_map(|b| b.to_string()),
    ];
    let condition = (text, comparison, constant).prop_map(|(left, comparison, right)| {
        self::step(&format!("a.c:1[{left} {comparison} {right}]")).conditions[0].clone()
    });
    let conditions = prop::collection::vec(condition, 0..3).boxed();
    let predicates = prop::collection::vec(predicate, 0..4).boxed();
    let line = ("\\PC{1,20}", 1..u32::MAX);
    let function = name.clone().prop_map(Place::Function);
    let inlined = name.clone().prop_map(Place::Inlined);
    let call = (name, line.clone()).prop_map(|(callee, (file, line))| Place::Call { callee, file, line });
    let spans = prop_oneof![function, inlined, call].boxed();
    let branch =
        (line.clone(), any::<bool>()).prop_map(|((file, line), taken)| Place::Branch { file, line, taken });
    let line = line.prop_map(|(file, line)| Place::Line { file, line });
    let address =
        ("\\PC{1,20}", any::<u64>()).prop_map(|(module, address)| Place::Address { module, address });
    let points = prop_oneof![line, branch, address];
    let span = (spans, predicates, conditions.clone()).prop_map(|(place, predicates, conditions)| Step {
        place,
        predicates,
        conditions,
    });
    let point = (points, conditions).prop_map(|(place, conditions)| Step {
        place,
        predicates: Vec::new(),
        conditions,
    });
    let span = span.boxed();
    let point = point.boxed();
    let path = (
        span.clone(),
        prop::collection::vec(prop_oneof![span, point.clone()], 0..4),
    )
        .prop_map(|(first, others)| iter::once(first).chain(others).collect());
    prop_oneof![path, point.prop_map(|only| vec![only]), Just(Vec::new())].prop_map(|steps| Scope { steps })
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
