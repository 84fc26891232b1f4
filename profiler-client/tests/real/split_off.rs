//! Targets whose symbols and debug information are in a file of their own, as distributions build them.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    command::{profiler, run},
    daemon::Daemon,
    fixture::{self, Fixture},
    skipped,
    trace::{self, traced},
};

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// A fixture without symbols in a folder, and the name of the file that these are in.
pub fn stripped(folder: &TempDir, name: &str) -> (String, String) {
    let whole = fixture::directory().join(name);
    let (program, debug) = (folder.path().join(name), format!("{name}.debug"));
    done(
        Command::new("objcopy")
            .args(["--only-keep-debug", "--compress-debug-sections=zlib"])
            .args([&whole, &folder.path().join(&debug)]),
    );
    done(
        Command::new("objcopy")
            .current_dir(folder.path())
            .arg("--strip-all")
            .arg(format!("--add-gnu-debuglink={debug}"))
            .args([&whole, &program]),
    );
    (program.to_str().unwrap().to_owned(), debug)
}

#[test]
#[ignore = "needs root"]
fn what_was_split_off_serves_as_if_it_were_there() {
    let folder = tempfile::tempdir().unwrap();
    let (program, _) = stripped(&folder, "hits_o2");
    let scope = format!("{}[n >= 100]", trace::place());
    let arguments = [
        &scope,
        "--print",
        "n,request->name,*request",
        "--json",
        "--limit",
        "100000",
    ];
    let run = traced(&program, 300, true, &arguments);
    let mut hits = run.command.objects();
    hits.pop();
    let told: Vec<&Value> = run
        .told
        .iter()
        .filter(|told| told["n"].as_i64().unwrap() >= 100)
        .collect();
    assert!(!hits.is_empty() && hits.len() == told.len());
    for (hit, told) in hits.iter().zip(told) {
        let values = &hit["values"];
        assert_eq!(
            (
                &values["n"]["value"],
                &values["request->name"]["value"],
                &values["*request"]["value"]["kind"]
            ),
            (&told["n"], &told["name"], &told["kind"])
        );
        assert_eq!(hit["function"], "serve");
    }
}

#[test]
#[ignore = "needs root"]
fn debug_information_that_is_installed_later_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (program, debug) = stripped(&folder, "hits_o1");
    let (hidden, shown) = (folder.path().join("hidden"), folder.path().join(debug));
    fs::rename(&shown, &hidden).unwrap();
    let target = Fixture::start(&program, &["0".to_owned()]);
    let pid = target.pid().to_string();
    let daemon = Daemon::start();
    let source = |daemon: &Daemon| daemon.profiler(&["source", "-p", &pid, "serve", "--json"]);
    let refused = source(&daemon).status(3);
    println!("{}", refused.stderr());
    refused.says("debug package");
    // What is in its place is of another build.
    fs::copy(fixture::directory().join("slowpath"), &shown).unwrap();
    source(&daemon).status(3);
    fs::remove_file(&shown).unwrap();
    fs::rename(&hidden, &shown).unwrap();
    let objects = source(&daemon).status(0).objects();
    assert_eq!(
        (&objects[0]["function"], &objects[0]["has_text"]),
        (&json!("serve"), &json!(true))
    );
    target.finish();
    assert_eq!(daemon.stop(), Some(0));
}

/// The C library as the distribution builds it, with its debug package.
#[test]
#[ignore = "needs root"]
fn the_c_library_has_lines_and_variables() {
    if !Path::new("/usr/lib/debug/.build-id").exists() {
        return skipped("there is no debug package of the C library");
    }
    let target = Fixture::start("idle", &[]);
    let pid = target.pid().to_string();
    let objects = run(profiler(&["source", "-p", &pid, "malloc", "--json"]))
        .status(0)
        .objects();
    let first = &objects[0];
    assert!(
        first["file"].as_str().unwrap().ends_with("malloc/malloc.c"),
        "{first}"
    );
    let mut variables = first["variables"].as_array().unwrap().iter();
    let bytes = variables.find(|variable| variable["name"] == "bytes").unwrap();
    assert_eq!(
        (&bytes["type"], &bytes["kind"]),
        (&json!("size_t"), &json!("parameter"))
    );
    target.finish();
}
