use super::*;
use proptest::prelude::*;

fn canonical(text: &str) -> String {
    parse(text).unwrap().to_string()
}

fn fails(text: &str, offset: usize, message: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!(error.offset, offset, "{text}: {error}");
    assert!(error.message.contains(message), "{text}: {error}");
}

#[test]
fn prints_expressions_as_written() {
    for text in [
        "n",
        "req->len",
        "p.x.y",
        "*p",
        "**p",
        "a[3]",
        "s[0..4]",
        "::global",
        "Type::STATIC",
        "$rdi",
        "return",
        "(*p)[3]",
        "*p[3]",
        "(*p)[3]->next->value",
        "return.x",
        "*return",
        "a.0.1",
        "\"a b\".\"x\\\"y\"",
        "\"return\"",
        "::return",
        "\"Map<K, V>\"::size",
        "(int)return",
        "*(uint32_t*)arg1",
        "((unsigned long**)$rdi)[2]",
        "(int)(*p)[3]",
        "str(arg0)",
        "str(req->name)",
        "(char*)::buffer",
        "str",
        "str.x",
    ] {
        assert_eq!(canonical(text), text);
    }
    assert_eq!(canonical(" ( * p ) . x "), "p->x");
    assert_eq!(canonical("((p))"), "p");
    assert_eq!(canonical("\"n\""), "n");
    assert_eq!(
        parse("*a::b.c[2]").unwrap(),
        Expression {
            root: Root::Variable {
                global: false,
                path: vec!["a".into(), "b".into()]
            },
            steps: vec![Step::Member("c".into()), Step::Index(2), Step::Dereference],
        }
    );
    assert_eq!(parse("$rbp").unwrap().root, Root::Register(6));
    assert_eq!(parse("$tid").unwrap().root, Root::Thread(OfThread::Number));
    assert_eq!(canonical(" $comm "), "$comm");
    assert_eq!(canonical("( unsigned  int * ) arg0"), "(unsigned int*)arg0");
    assert_eq!(canonical("str ( arg0 )"), "str(arg0)");
    // A variable of the name of a type.
    assert_eq!(canonical("(int)"), "int");
    assert_eq!(canonical("(u8).x"), "u8.x");
}

#[test]
fn errors_point_at_the_character() {
    fails("", 0, "variable is expected");
    fails("  ", 2, "variable is expected");
    fails("*", 1, "variable is expected");
    fails("a.", 2, "member");
    fails("a->", 3, "member");
    fails("a[", 2, "number");
    fails("a[x]", 2, "number");
    fails("a[1", 3, "']'");
    fails("a[99999999999999999999]", 2, "too large");
    fails("a[3..3]", 2, "1 to 64");
    fails("a[0..100]", 2, "1 to 64");
    fails("a[0..2].x", 9, "a range of elements ends the expression");
    fails("(a", 0, "not closed");
    fails("(a b)", 3, "')'");
    fails("a)", 1, "not opened");
    fails("f(x)", 1, "called");
    fails("str(x).y", 8, "text ends the expression");
    fails("(void)x", 6, "is expected");
    fails("a + b", 2, "arithmetic");
    fails("a-", 1, "in quotes");
    fails("&a", 1, "'&' is not supported");
    fails("$eax", 1, "64-bit");
    fails("\"a", 0, "not closed");
    fails("\"\"", 0, "empty");
    fails("\"a\\n\"", 2, "backslash");
    fails("a::", 3, "after '::'");
    fails(&"*".repeat(40), 32, "nested more than 32 deep");
    fails(&"a.b".repeat(400), 0, "long");
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_][a-z0-9_]{0,6}", "\\PC{1,8}"]
}

fn expressions() -> impl Strategy<Value = Expression> {
    let root = prop_oneof![
        (any::<bool>(), prop::collection::vec(names(), 1..4))
            .prop_map(|(global, path)| Root::Variable { global, path }),
        (0_u8..17).prop_map(Root::Register),
        Just(Root::Return),
        prop::sample::select(OfThread::ALL.to_vec()).prop_map(Root::Thread),
    ];
    let step = prop_oneof![
        names().prop_map(Step::Member),
        any::<u64>().prop_map(Step::Index),
        (0..5_usize).prop_map(|pointers| Step::Cast(Cast::named("unsigned int", pointers).unwrap())),
        Just(Step::Dereference),
    ];
    let range = (any::<u32>(), 1..=MAX_RANGE).prop_map(|(from, count)| {
        let from = u64::from(from);
        Step::Range(from, from + count)
    });
    (root, prop::collection::vec(step, 0..10), prop::option::of(range)).prop_map(
        |(root, mut steps, range)| {
            steps.extend(range);
            Expression { root, steps }
        },
    )
}

proptest! {
    #[test]
    fn printing_and_parsing_are_inverse(expression in expressions()) {
        let text = expression.to_string();
        let parsed = parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(parsed, expression);
    }

    #[test]
    fn any_text_parses_or_fails_inside_it(text in prop_oneof!["\\PC*", "[a-c0-9:.*()\\[\\]\">$& -]{0,30}"]) {
        match parse(&text) {
            Ok(expression) => prop_assert_eq!(parse(&expression.to_string()).unwrap(), expression),
            Err(error) => prop_assert!(text.is_char_boundary(error.offset)),
        }
    }
}
