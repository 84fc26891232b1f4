//! Functions that share their code: a linker or compiler keeps one of several with the same instructions (identical code folding), and all
//! their symbols are at its address. Whoever probes one sees the calls of all.

use super::{demangle::display_name, functions::Function};

/// Names of others that are told.
const MAX_TOLD: usize = 16;

impl Function<'_> {
    /// Other functions that have this one's code, by the names that are shown, the first sixteen. Names that differ in what C libraries
    /// put around them are those of one function: `malloc` and `__libc_malloc`.
    #[must_use]
    pub fn same_code(&self) -> Vec<String> {
        // Most have one name.
        if self.linkage_names().nth(1).is_none() || self.is_indirect() {
            return Vec::new();
        }
        let others = self.linkage_names().skip(1);
        others_than(&self.name(), others.map(|name| display_name(&name).into_owned()))
    }
}

/// Those of some names that are not a form of one of the others, or of `own`; in their order.
fn others_than(own: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let mut others: Vec<String> = Vec::new();
    for name in names {
        let is_known = is_form_of(&name, own) || others.iter().any(|other| is_form_of(&name, other));
        if !is_known {
            others.push(name);
            if others.len() == MAX_TOLD {
                break;
            }
        }
    }
    others
}

fn is_form_of(one: &str, other: &str) -> bool {
    bare(one) == bare(other)
}

/// A name without what C libraries put before and behind it.
fn bare(name: &str) -> &str {
    const BEFORE: [&str; 5] = ["libc_", "GI_", "IO_", "new_", "old_"];
    let mut bare = name.trim_start_matches('_');
    while let Some(rest) = BEFORE.iter().find_map(|before| bare.strip_prefix(before)) {
        bare = rest.trim_start_matches('_');
    }
    let bare = bare.strip_suffix("64").unwrap_or(bare);
    if bare.is_empty() { name } else { bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(own: &str, names: &[&str]) -> Vec<String> {
        others_than(own, names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn functions_with_one_code_are_told_from_names_of_one_function() {
        assert_eq!(others("get_a", &["get_a", "get_b"]), ["get_b"]);
        assert!(others("malloc", &["__libc_malloc", "malloc", "__malloc"]).is_empty());
        let vectors = [
            "std::vector<int>::push_back(int)",
            "std::vector<unsigned>::push_back(unsigned)",
        ];
        assert_eq!(others(vectors[0], &vectors), [vectors[1]]);
        // Constructors of whole objects and of bases are shown by one name.
        assert!(others("S::S(int)", &["S::S(int)", "S::S(int)"]).is_empty());
        assert_eq!(others("a", &["b", "b", "_b", "c"]), ["b", "c"]);
        assert_eq!(others("get", &["get_all", "_"]), ["get_all", "_"]);
        assert!(others("open", &["open64", "__open", "__GI___open64"]).is_empty());
    }

    #[test]
    fn only_so_many_names_are_told() {
        let names: Vec<String> = (10..99).map(|number| format!("f{number}")).collect();
        assert_eq!(others_than("main", names.into_iter()).len(), MAX_TOLD);
    }
}
