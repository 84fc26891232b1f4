use super::*;
use proptest::prelude::*;

fn exact(name: &str, linkage: &str) -> Option<Match> {
    Matcher::new(&Name::Exact(name.into())).matches(linkage.as_bytes())
}

fn glob_match(name: &str, linkage: &str) -> bool {
    Matcher::new(&Name::Glob(name.into()))
        .matches(linkage.as_bytes())
        .is_some()
}

#[test]
fn c_names() {
    assert_eq!(exact("handle", "handle"), Some(Match::Full));
    assert_eq!(exact("handle", "handle.isra.0"), Some(Match::Full));
    assert_eq!(exact("handle", "handle.constprop.0.isra.1"), Some(Match::Full));
    assert_eq!(exact("handle", "handle.cold"), None);
    assert_eq!(exact("handle", "handle.part.0"), None);
    assert_eq!(exact("handle.part.0", "handle.part.0"), Some(Match::Full));
    assert_eq!(exact("handle", "handler"), None);
}

#[test]
fn cpp_names() {
    let linkage = "_ZN6server14handle_requestEi";
    assert_eq!(exact("server::handle_request", linkage), Some(Match::Full));
    assert_eq!(exact("server::handle_request(int)", linkage), Some(Match::Full));
    assert_eq!(exact("handle_request", linkage), Some(Match::Suffix));
    assert_eq!(exact("handle_request(int)", linkage), Some(Match::Suffix));
    assert_eq!(exact(linkage, linkage), Some(Match::Full));
    assert_eq!(exact("request", linkage), None);
    // ns::Box<int>::get<char>(int)
    let linkage = "_ZN2ns3BoxIiE3getIcEEvi";
    for name in [
        "ns::Box::get",
        "ns::Box<int>::get<char>",
        "ns::Box<int>::get<char>(int)",
    ] {
        assert_eq!(exact(name, linkage), Some(Match::Full), "{name}");
    }
    assert_eq!(exact("Box::get", linkage), Some(Match::Suffix));
    assert_eq!(exact("ns::T::~T", "_ZN2ns1TD1Ev"), Some(Match::Full));
    assert_eq!(exact("ns::operator<<", "_ZN2nslsERii"), Some(Match::Full));
    assert_eq!(exact("operator<<", "_ZN2nslsERii"), Some(Match::Suffix));
}

#[test]
fn names_with_dots() {
    assert_eq!(exact("handle", "zz.handle"), Some(Match::Suffix));
    assert_eq!(exact("zz.handle", "zz.handle"), Some(Match::Full));
    assert_eq!(exact("serve", "net/http.serve"), Some(Match::Suffix));
    assert!(glob_match("handle*", "zz.handle_all") && glob_match("zz.*", "zz.handle_all"));
    // Copies that compilers make, and counters of names.
    assert_eq!(exact("part", "handle.part.0"), None);
    assert_eq!(exact("0", "handle.0"), None);
    assert_eq!(exact("handle", "handle.constprop.0"), Some(Match::Full));
}

#[test]
fn rust_names() {
    let linkage = "_ZN4demo6server14handle_request17h0123456789abcdefE";
    assert_eq!(exact("demo::server::handle_request", linkage), Some(Match::Full));
    assert_eq!(
        exact("demo::server::handle_request::h0123456789abcdef", linkage),
        Some(Match::Full)
    );
    assert_eq!(exact("handle_request", linkage), Some(Match::Suffix));
    assert_eq!(exact("server::handle_request", linkage), Some(Match::Suffix));
    let closure = "_ZN4demo5serve28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE";
    assert_eq!(exact("serve", closure), None);
    assert_eq!(exact("serve::{{closure}}", closure), Some(Match::Suffix));
    let method = "_ZN46_$LT$demo..Server$u20$as$u20$demo..Handler$GT$6handle17h0123456789abcdefE";
    for name in ["handle", "Server::handle"] {
        assert_eq!(exact(name, method), Some(Match::Suffix), "{name}");
    }
    for name in ["demo::Server::handle", "<demo::Server as demo::Handler>::handle"] {
        assert_eq!(exact(name, method), Some(Match::Full), "{name}");
    }
    // The newer mangling: <demo::Server>::new
    let v0 = "_RNvMCs1234_4demoNtB2_6Server3new";
    assert_eq!(exact("demo::Server::new", v0), Some(Match::Full));
    assert_eq!(exact("Server::new", v0), Some(Match::Suffix));
}

#[test]
fn globs() {
    let linkage = "_ZN4json11parse_valueEi";
    assert!(glob_match("parse_*", linkage));
    assert!(glob_match("json::*", linkage));
    assert!(glob_match("j*::parse_*", linkage));
    assert!(glob_match("*", linkage));
    assert!(glob_match("*_val?e", linkage));
    assert!(!glob_match("parse_", "parse"));
    assert!(!glob_match("json*", linkage));
    assert!(!glob_match("parse_*", "_ZN11parse_value5innerEi"));
    assert!(glob_match("parse_value::*", "_ZN11parse_value5innerEi"));
    // Lambdas are called `operator()` for themselves.
    for pattern in ["*lambda*", "*lambda(int)*", "operator()*", "*run*::*lambda*"] {
        assert!(glob_match(pattern, "_ZZN6Worker3runEvENKUliE_clEi"), "{pattern}");
    }
    assert!(!glob_match("*lambda*", "_ZNK6WorkerclEi"));
}

#[test]
fn distances() {
    assert_eq!(distance("handle_requst", "handle_request", 5), Some(1));
    assert_eq!(distance("abc", "xyz", 2), None);
    assert_eq!(distance("", "", 2), Some(0));
}

/// The definition, by recursion.
fn glob_slow(pattern: &[char], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some(('*', rest)), _) => (0..=text.len()).any(|n| glob_slow(rest, &text[n..])),
        (Some((p, rest)), Some((t, text))) => (p == t || *p == '?') && glob_slow(rest, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn globs_equal_their_definition(pattern in "[ab*?]{0,8}", text in "[abé]{0,8}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(glob(&pattern, &text), glob_slow(&chars(&pattern), &chars(&text)));
    }

    #[test]
    fn any_name_and_linkage(name in "\\PC{1,30}", linkage in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Matcher::new(&Name::Exact(name.clone())).matches(&linkage);
        let _ = Matcher::new(&Name::Glob(name)).matches(&linkage);
    }

    #[test]
    fn paths_of_brackets(path in "[<>(){}a:\\-é]{0,30}(operator\\(\\))?") {
        let _ = (
            without_arguments(&path),
            own_name(&path),
            of_lambda(&path),
            behind_dots(&path),
        );
    }
}
