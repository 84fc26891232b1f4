//! From linkage names to names that people write.

use std::borrow::Cow;

use super::mangling::{self, dlang};

/// Longest name that is made of a symbol: mangled substitutions can unfold exponentially.
const MAX_NAME_BYTES: usize = 16 * 1024;

/// The name as it is shown: Rust without hash, C++ with parameters but without the return type.
#[must_use]
pub fn display_name(linkage: &str) -> Cow<'_, str> {
    demangle(linkage, true).map_or(Cow::Borrowed(linkage), Cow::Owned)
}

/// Demangles one name; `None` where it is not mangled, or cannot be read.
#[must_use]
pub fn demangle(linkage: &str, parameters: bool) -> Option<String> {
    if !is_mangled(linkage) {
        return None;
    }
    if dlang::is_mangled(linkage) {
        let mangled = linkage.split_once('.').map_or(linkage, |(mangled, _)| mangled);
        return dlang::demangle(mangled, parameters, MAX_NAME_BYTES);
    }
    let (mangled, _) = split_clone(linkage);
    mangling::rust(linkage, false, MAX_NAME_BYTES)
        .or_else(|| mangling::demangle(mangled, parameters, MAX_NAME_BYTES))
        .or_else(|| {
            if parameters {
                None
            } else {
                mangling::template_name(mangled, MAX_NAME_BYTES)
            }
        })
}

/// Demangles a Rust name with its hash, as some tools show it.
#[must_use]
pub fn with_hash(linkage: &str) -> Option<String> {
    mangling::rust(linkage, true, MAX_NAME_BYTES)
}

/// Whether a symbol looks mangled by Rust, the Itanium C++ ABI, or D.
#[must_use]
pub fn is_mangled(linkage: &str) -> bool {
    let is_other = || linkage.starts_with("_R") || linkage.starts_with("__Z") || dlang::is_mangled(linkage);
    linkage.starts_with("_Z") || is_other()
}

/// What a compiler made of a function besides the function itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloneKind {
    /// The function.
    Original,
    /// A specialised copy, called in its place (`.isra.0`, `.constprop.0`, `.lto_priv.0`).
    Copy,
    /// A piece that the function calls (`.part.0`).
    Part,
    /// A piece that the function jumps to (`.cold`).
    Cold,
}

/// Splits a linkage name at its compiler-made suffix.
#[must_use]
pub fn split_clone(linkage: &str) -> (&str, CloneKind) {
    let Some(dot) = linkage.find('.').filter(|&dot| dot > 0) else {
        return (linkage, CloneKind::Original);
    };
    let mut kind = CloneKind::Original;
    for word in linkage[dot + 1..].split('.') {
        kind = match word {
            "cold" => return (&linkage[..dot], CloneKind::Cold),
            "part" => CloneKind::Part,
            "isra" | "constprop" | "lto_priv" | "localalias" | "llvm" | "clone" | "resolver"
                if kind == CloneKind::Original =>
            {
                CloneKind::Copy
            }
            _ => kind,
        };
    }
    if kind == CloneKind::Original {
        (linkage, kind)
    } else {
        (&linkage[..dot], kind)
    }
}

/// A linkage name without its symbol version (`name@@VERSION`).
#[must_use]
pub fn without_version(linkage: &str) -> &str {
    linkage
        .find('@')
        .filter(|&at| at > 0)
        .map_or(linkage, |at| &linkage[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_told_from_parts() {
        assert_eq!(split_clone("f"), ("f", CloneKind::Original));
        assert_eq!(split_clone("f.isra.0"), ("f", CloneKind::Copy));
        assert_eq!(split_clone("f.constprop.0.isra.1"), ("f", CloneKind::Copy));
        assert_eq!(split_clone("f.isra.0.cold"), ("f", CloneKind::Cold));
        assert_eq!(split_clone("f.part.0"), ("f", CloneKind::Part));
        assert_eq!(split_clone("f.part.0.isra.0"), ("f", CloneKind::Part));
        assert_eq!(split_clone("f.cold.1"), ("f", CloneKind::Cold));
        assert_eq!(split_clone("f.own"), ("f.own", CloneKind::Original));
        assert_eq!(split_clone(".L1"), (".L1", CloneKind::Original));
    }

    #[test]
    fn names_are_shown_without_hash_and_return_type() {
        assert_eq!(display_name("_ZN3foo3bar17h0123456789abcdefE"), "foo::bar");
        assert_eq!(display_name("_Z3addIiEvT_"), "add<int>(int)");
        assert_eq!(display_name("_Z3addi.isra.0"), "add(int)");
        assert_eq!(display_name("main"), "main");
        assert_eq!(display_name("_Zbroken"), "_Zbroken");
    }

    #[test]
    fn a_name_that_would_unfold_without_bound_is_left_as_it_is() {
        // Each template argument refers twice to the one before it.
        let mut name = String::from("_Z1fI1AIiiE");
        for n in 0..40 {
            let back = if n == 0 {
                "S1_".into()
            } else {
                format!("S{}_", (b'1' + (n % 8)) as char)
            };
            name.extend(["S_I", &back, &back, "E"]);
        }
        name += "EvT_";
        assert!(display_name(&name).len() <= MAX_NAME_BYTES.max(name.len()));
    }
}
