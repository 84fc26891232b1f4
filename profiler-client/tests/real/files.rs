//! Places that cannot be written to.

use std::{
    fs::{self, File},
    time::{Duration, Instant},
};

use super::{
    command::{as_program, on_a_small_disk, profiler, program, run},
    verbs::{busy, unharmed},
};

#[test]
#[ignore = "needs root"]
fn a_file_that_cannot_be_written_is_noticed_before_the_run() {
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().to_str().unwrap();
    let since = Instant::now();
    for (file, words) in [
        (
            "/nonexistent/a.svg",
            "Cannot write /nonexistent/a.svg: No such file or directory",
        ),
        (
            "/proc/a.svg",
            "Cannot write /proc/a.svg: No such file or directory",
        ),
        (directory, "is a directory"),
    ] {
        let arguments = [
            "flame",
            "-p",
            &pid,
            "--format",
            "svg",
            "--duration",
            "50",
            "-o",
            file,
        ];
        let ended = run(profiler(&arguments)).status(1).says(words);
        println!("{}", ended.stderr().trim_end());
    }
    let arguments = ["flame", "-p", &pid, "--duration", "50", "-o", "a.png"];
    run(profiler(&arguments))
        .status(2)
        .says(".folded .ndjson .json .svg");
    assert!(since.elapsed() < Duration::from_secs(50), "only after the run");
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_is_said_and_leaves_what_was_there() {
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    // Two pages, with a file on it.
    let script = "echo before > a.svg || exit 9
        \"$0\" flame -p \"$1\" -F 999 --duration 0.3 -o a.svg; status=$?
        ls -A; cat a.svg; exit $status";
    let full = on_a_small_disk(directory.path(), "8k", &pid, script);
    let ended = run(full)
        .status(1)
        .says("Cannot write")
        .says("No space left on device");
    println!("{}", ended.stderr().trim_end());
    assert_eq!(ended.stdout(), "a.svg\nbefore\n", "what was there before");
    // Where standard output is the file.
    for arguments in [
        &["flame", "-p", &pid, "-f", "-F", "999", "--duration", "2"][..],
        &["latency", "-p", &pid, "f", "--duration", "5"],
        &["functions", "-p", &pid],
        &["ps"],
    ] {
        let mut command = as_program(
            &program("profiler"),
            "/nonexistent/profilerd.sock".as_ref(),
            arguments,
        );
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        run(command)
            .status(1)
            .says("Cannot write to standard output: No space left on device");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    unharmed(target);
}
