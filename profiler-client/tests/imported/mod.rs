//! `profiler flame --from` and `diff` of what other tools have written: without a daemon, privileges or a process.

use std::{fs, path::Path, process::Command};

use super::{assert_status, stderr, stdout};

pub fn profiler(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_profiler"))
        .args(arguments)
        .output()
        .unwrap()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

const FOLDED: &str = "main;f 30\nmain;f;g;h 40\nmain;other 5\n";

#[test]
fn folded_stacks_become_every_format_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let before = path(folder.path(), "before.folded");
    fs::write(&before, FOLDED).unwrap();
    let shown = profiler(&["flame", "--from", &before]);
    assert_status(&shown, 0);
    assert!(stdout(&shown).contains("93.3%"), "{}", stdout(&shown));
    assert_eq!(stderr(&shown), "profiler: 75 samples\n");
    for name in ["x.pb.gz", "x.perf", "x.folded"] {
        let written = path(folder.path(), name);
        assert_status(&profiler(&["flame", "--from", &before, "-o", &written]), 0);
        let again = profiler(&["flame", "--from", &written, "--folded"]);
        assert_status(&again, 0);
        let mut lines: Vec<&str> = stdout(&again).lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.join("\n") + "\n", FOLDED, "{name}");
    }
}

#[test]
fn two_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let [before, after, drawn] = ["before", "after", "d.svg"].map(|name| path(folder.path(), name));
    fs::write(&before, "main;f 500\nmain;g 500\n").unwrap();
    fs::write(&after, "main;f 900\nmain;g 100\n").unwrap();
    let compared = profiler(&["diff", &before, &after]);
    assert_status(&compared, 0);
    assert_eq!(
        stderr(&compared),
        "profiler: 2,000 samples, 1,000 of after and 1,000 of before\n"
    );
    assert!(stdout(&compared).contains("+40.0"), "{}", stdout(&compared));
    assert_status(&profiler(&["diff", &before, &after, "-o", &drawn]), 0);
    assert!(fs::read_to_string(&drawn).unwrap().contains("<svg"));
}

#[test]
fn what_only_recordings_have_is_refused_and_so_is_what_is_no_profile() {
    let folder = tempfile::tempdir().unwrap();
    let [profile, nothing] = ["a.folded", "nothing"].map(|name| path(folder.path(), name));
    fs::write(&profile, FOLDED).unwrap();
    fs::write(&nothing, "hello\n").unwrap();
    for asked in [&["f"][..], &["--by", "line"], &["--off-cpu"], &["--time", "1s.."]] {
        let refused = profiler(&[&["flame", "--from", &profile], asked].concat());
        assert_status(&refused, 2);
        assert!(stderr(&refused).contains("stacks alone"), "{}", stderr(&refused));
    }
    let refused = profiler(&["flame", "--from", &nothing]);
    assert_status(&refused, 1);
    let said = stderr(&refused);
    assert!(
        said.contains("is not a recording, nor a profile") && said.contains("line 1"),
        "{said}"
    );
}
