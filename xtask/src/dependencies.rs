//! What crates may depend on: "pure" is a list of dependencies, and a client needs no eBPF.

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, process::Command};

    use crate::{sh, workspace};

    /// Crates that do no I/O, read no clock and know no kernel.
    const PURE: [&str; 6] = [
        "profiler-scope",
        "profiler-elf",
        "profiler-plan",
        "profiler-aggregate",
        "profiler-export",
        "profiler-recording",
    ];

    /// Crates by which others do.
    const IMPURE: [&str; 8] = [
        "aya",
        "aya-obj",
        "tokio",
        "tonic",
        "rustix",
        "perf-event2",
        "profiler-daemon",
        "profiler-target",
    ];

    /// All that is linked with a package.
    fn linked(package: &str, arguments: &[&str]) -> BTreeSet<String> {
        let mut command = Command::new(env!("CARGO"));
        command
            .current_dir(workspace::root())
            .args(["tree", "--edges=normal", "--prefix=none", "--locked", "--offline"])
            .args(["--package", package])
            .args(arguments);
        let tree = sh::read(&mut command).unwrap();
        let names = tree.lines().filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect()
    }

    #[test]
    fn pure_crates_depend_on_nothing_that_is_not() {
        for package in PURE {
            let linked = linked(package, &[]);
            assert!(linked.contains(package), "{linked:?}");
            let impure: Vec<_> = IMPURE.iter().filter(|name| linked.contains(**name)).collect();
            assert!(impure.is_empty(), "{package} depends on {impure:?}");
        }
    }

    #[test]
    fn a_client_without_the_service_links_no_part_of_a_daemon() {
        let all = linked("profiler-client", &[]);
        assert!(all.contains("aya") && all.contains("profiler-daemon"));
        let light = linked("profiler-client", &["--no-default-features"]);
        assert!(light.contains("tonic"), "{light:?}");
        for of_a_daemon in [
            "aya",
            "aya-obj",
            "perf-event2",
            "profiler-daemon",
            "profiler-unwind",
        ] {
            assert!(!light.contains(of_a_daemon), "{of_a_daemon}");
        }
    }
}
