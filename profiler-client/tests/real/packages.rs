//! The package that has the debug information of a program without any.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use object::Object as _;
use profiler_debug_files::installed_path;

use super::{
    command::{profiler, run},
    fixture::{self, Fixture},
    skipped,
};

/// A program of the distribution's, which is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `dpkg` says a file is of, by its path or as that was before `/bin` became a link to `/usr/bin`.
fn package_of(path: &Path) -> Option<String> {
    let before_merge = path.strip_prefix("/usr").map(|path| Path::new("/").join(path));
    let mut paths = [Some(path.to_owned()), before_merge.ok()].into_iter().flatten();
    paths.find_map(|path| {
        let asked = Command::new("dpkg-query")
            .arg("--search")
            .arg(path)
            .output()
            .ok()?;
        let answer = String::from_utf8(asked.stdout).ok()?;
        let (package, _) = answer.split_once(": ")?;
        Some(package.split(':').next()?.to_owned())
    })
}

/// Whether the debug information of a program is installed.
fn is_installed(program: &Path) -> bool {
    let program = fs::read(program).unwrap();
    let parsed = object::File::parse(&*program).unwrap();
    let build_id = parsed.build_id().unwrap();
    build_id.is_some_and(|build_id| installed_path(build_id).exists())
}

#[test]
#[ignore = "needs root"]
fn a_program_of_debian_is_refused_with_its_package_and_its_build() {
    let server = ["--port", "0", "--unixsocket", "listening", "--save", ""];
    let programs = [
        ("/usr/bin/redis-server", &server[..]),
        ("/usr/bin/sleep", &["1000"]),
    ];
    let Some((program, arguments, path)) = programs
        .iter()
        .find_map(|(program, arguments)| Some((program, arguments, fs::canonicalize(program).ok()?)))
    else {
        return skipped("there is neither redis-server nor sleep");
    };
    let Some(package) = package_of(&path) else {
        return skipped("it was not installed by dpkg");
    };
    if is_installed(&path) {
        return skipped("its debug information is installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let target = Running(
        Command::new(program)
            .args(*arguments)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let pid = target.0.id().to_string();
    // Before that, it is the program that starts it.
    while fs::read_link(format!("/proc/{pid}/exe")).unwrap() != path {
        std::thread::yield_now();
    }
    let debug_package = format!("install its debug package {package}-dbgsym (build-id ");
    let refused = run(profiler(&["trace", "-p", &pid, "nowhere.c:100"])).status(3);
    println!("{}", refused.stderr());
    let refused = refused
        .says(&format!(
            "{} has no debug information about lines",
            path.display()
        ))
        .says(&debug_package)
        .says("functions can be named, and instructions by their address");
    assert!(!refused.stderr().contains("debuginfod"), "{}", refused.stderr());
    let refused = run(profiler(&["latency", "-p", &pid, "no_such_function"])).status(3);
    refused
        .says(&debug_package)
        .says("a function can be named by its address");
    let mut with_server = profiler(&["trace", "-p", &pid, "nowhere.c:100"]);
    with_server.env("DEBUGINFOD_URLS", "https://debuginfod.invalid");
    run(with_server)
        .status(3)
        .says(&debug_package)
        .says("install -D -m 644 \"$(debuginfod-find debuginfo ")
        .says(".debug");
}

/// Of a container's process, the host's packages say nothing.
#[test]
#[ignore = "needs root"]
fn a_container_is_asked_for_its_own_packages() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    for folder in ["old", "usr/bin", "var/lib/dpkg/info"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::copy(
        fixture::directory().join("idle_static_stripped"),
        at("usr/bin/served"),
    )
    .unwrap();
    fs::write(
        at("var/lib/dpkg/info/made-up:amd64.list"),
        "/.\n/usr/bin/served\n",
    )
    .unwrap();
    let script = r#"mount --bind "$0" "$0" && cd "$0" && pivot_root . old && exec /usr/bin/served"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(root.path());
    let target = Fixture::start_by(&mut command);
    let pid = target.pid().to_string();
    let asked = || run(profiler(&["latency", "-p", &pid, "no_such_function"])).status(3);
    asked().says("install its debug package made-up-dbgsym in its container (build-id ");
    // What would lead out of its root is the container's own folder.
    fs::rename(at("var/lib/dpkg"), at("var/lib/moved")).unwrap();
    std::os::unix::fs::symlink("/var/lib/moved", at("var/lib/dpkg")).unwrap();
    asked().says("install its debug package made-up-dbgsym in its container (build-id ");
    fs::remove_file(at("var/lib/dpkg")).unwrap();
    let refused = asked().says("install its debug package (build-id ");
    assert!(!refused.stderr().contains("dbgsym"), "{}", refused.stderr());
    target.finish();
}
