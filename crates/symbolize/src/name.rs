//! Demangling, bounded: a short mangled name can stand for an endless one.

use std::borrow::Cow;

use profiler_plan::{
    demangle::without_version,
    mangling::{self, dlang},
};

/// Longest name that is shown, in bytes; longer ones are shown mangled, and cut.
pub(super) const NAME_MAX: usize = 4096;

/// A name as a frame shows it.
#[must_use]
pub fn demangle(mangled: &[u8]) -> String {
    let cut = &mangled[..mangled.len().min(NAME_MAX)];
    let text = String::from_utf8_lossy(cut);
    let text = without_version(&text);
    if mangled.len() < NAME_MAX
        && let Some(plain) = mangling::rust(text, false, NAME_MAX).or_else(|| cpp(text).or_else(|| d(text)))
    {
        return plain;
    }
    text.to_owned()
}

/// Whether the name says more than an unmangled one would.
pub(super) fn is_mangled(name: &[u8]) -> bool {
    let is_d = || std::str::from_utf8(name).is_ok_and(dlang::is_mangled);
    name.starts_with(b"_Z") || name.starts_with(b"_R") || is_d()
}

fn d(name: &str) -> Option<String> {
    let (mangled, clone) = name.split_at(name.find('.').unwrap_or(name.len()));
    let plain = dlang::demangle(mangled, false, NAME_MAX)?;
    Some(marked(plain, clone))
}

/// A name with the mark of what compilers make of a function besides the function itself, if it has one.
fn marked(plain: String, clone: &str) -> String {
    if clone.is_empty() {
        plain
    } else {
        format!("{plain} [clone {clone}]")
    }
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    if let Some(signature) = mangling::demangle(name, true, NAME_MAX) {
        return Some(without_parameters(&signature).into_owned());
    }
    let (name, clone) = name.split_at(name.find('.').unwrap_or(name.len()));
    let plain = mangling::template_name(name, NAME_MAX)?;
    Some(marked(plain, clone))
}

/// Cuts the parameter list off a C++ signature: the last parentheses outside template arguments, with what
/// follows them (`const`, `&&`, a clone's mark is kept).
fn without_parameters(signature: &str) -> Cow<'_, str> {
    let (signature, clone) = match signature.find(" [clone ") {
        Some(at) => signature.split_at(at),
        None => (signature, ""),
    };
    let qualifiers = [" const", " volatile", " &&", " &", " noexcept"];
    let mut body = signature;
    while let Some(shorter) = qualifiers
        .iter()
        .find_map(|qualifier| body.strip_suffix(qualifier))
    {
        body = shorter;
    }
    if !body.ends_with(')') {
        return Cow::Borrowed(signature);
    }
    let mut depth = 0_usize;
    for (at, byte) in body.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth -= 1;
                if depth == 0 {
                    return match (at, clone) {
                        (0, _) => Cow::Borrowed(signature),
                        (_, "") => Cow::Borrowed(&body[..at]),
                        _ => Cow::Owned(format!("{}{clone}", &body[..at])),
                    };
                }
            }
            _ => {}
        }
    }
    Cow::Borrowed(signature)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names() {
        for (mangled, plain) in [
            ("main", "main"),
            ("foo.isra.0", "foo.isra.0"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_ZN2ns4Type6methodEv", "ns::Type::method"),
            ("_ZNK2ns4Type6methodEi", "ns::Type::method"),
            ("_ZN2ns3addIiEET_S1_S1_", "ns::add<int>"),
            (
                "_ZNSt8functionIFviEEclEi",
                "std::function<void (int)>::operator()",
            ),
            ("_ZN12_GLOBAL__N_13fooEv", "(anonymous namespace)::foo"),
            ("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()"),
            (
                "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
                "core::ptr::drop_in_place",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN2ns4Type6methodEv.cold", "ns::Type::method [clone .cold]"),
            (
                "_ZSt11make_sharedI1AJEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_.cold",
                "std::make_shared<A> [clone .cold]",
            ),
            ("_D3std6mmfile6MmFile5unmapMFZv", "std.mmfile.MmFile.unmap"),
            (
                "_D3gcc8sections3elf12decThreadRefFPSQBiQBhQBb3DSObZv.localalias",
                "gcc.sections.elf.decThreadRef [clone .localalias]",
            ),
        ] {
            assert_eq!(demangle(mangled.as_bytes()), plain);
        }
    }

    #[test]
    fn endless_names_stay_short() {
        let mut mangled = String::from("_Z1fI1aE");
        for _ in 0..200 {
            mangled.push_str("S_IS_S_S_E");
        }
        assert!(demangle(mangled.as_bytes()).len() <= NAME_MAX);
        assert!(demangle(&vec![b'a'; 1 << 20]).len() <= NAME_MAX);
    }

    #[test]
    fn names_of_nested_containers() {
        let name = "_ZNSt6vectorISt4pairIlS_INSt7__cxx119sub_matchIN9__gnu_cxx17__normal_iteratorIPKcNS1_12basic_stringI\
            cSt11char_traitsIcESaIcEEEEEEESaISD_EEESaISG_EE17_M_realloc_insertIJRlRKSF_EEEvNS4_IPSG_SI_EEDpOT_";
        let plain = demangle(name.as_bytes());
        assert!(
            plain.starts_with("std::vector<std::pair<long, ") && plain.contains(">::_M_realloc_insert<"),
            "{plain}"
        );
    }

    #[test]
    fn deep_nesting_takes_little_stack() {
        let run = || {
            for (before, part, after) in [
                ("_Z1f", "P", "i"),
                ("_Z1f", "N1aI", ""),
                ("_Z1fI", "XadL_Z1fI", ""),
                ("_Z1f", "F", "vE"),
            ] {
                for count in [10, 50, 100, 1000] {
                    let _ = demangle(format!("{before}{}{after}", part.repeat(count)).as_bytes());
                }
            }
        };
        // As much as threads have by default.
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        thread.spawn(run).unwrap().join().unwrap();
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_short_name(prefix in "(_Z|_R|_ZN)?", name in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut mangled = prefix.into_bytes();
            mangled.extend(name);
            prop_assert!(demangle(&mangled).len() <= NAME_MAX * 3);
        }

        #[test]
        fn mangled_like_text_gives_a_short_name(name in "_ZN?[0-9A-Za-z_]{0,60}E?[a-zS_0-9]{0,20}") {
            prop_assert!(demangle(name.as_bytes()).len() <= NAME_MAX);
        }
    }
}
