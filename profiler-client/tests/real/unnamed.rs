//! Functions of a stripped program, by where its unwind rows say that they begin.

use std::{fs, process::Command};

use serde_json::json;

use super::{
    command::{Running, profiler, run, through},
    daemon::Daemon,
    fixture::{self, Fixture},
    split_off,
};

const CALLS: u64 = 700;

/// Where a function of a fixture begins, as its own symbols say.
fn address_of(fixture: &str, function: &str) -> u64 {
    let listed = Command::new("nm")
        .arg(fixture::directory().join(fixture))
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let line = listed
        .lines()
        .find(|line| line.ends_with(&format!(" {function}")));
    u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap()
}

#[test]
#[ignore = "needs root"]
fn all_calls_of_a_function_without_a_name_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let (program, debug) = split_off::stripped(&folder, "hits_o2");
    fs::remove_file(folder.path().join(debug)).unwrap();
    let place = format!("hits_o2+{:#x}", address_of("hits_o2", "serve"));
    for scope in [place.clone(), format!("\"{place}\""), format!("{place}[> 0ns]")] {
        let mut target = Fixture::start(&program, &[CALLS.to_string()]);
        let daemon = Daemon::start();
        let pid = target.pid().to_string();
        let command = Running::start(through(
            &daemon.socket,
            &["latency", "-p", &pid, &scope, "--json"],
        ));
        daemon.until_watched();
        assert_eq!(target.run()["serve"].calls, CALLS);
        assert_eq!(target.finish().status, Some(0));
        let objects = command.end().status(0).says(" ended").objects();
        let last = objects.last().unwrap();
        assert_eq!(
            (&last["function"], &last["final"], &last["since_start"]["count"]),
            (&json!(place), &json!(true), &json!(CALLS)),
            "{scope}: {last}"
        );
        assert_eq!(daemon.stop(), Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn functions_without_names_are_counted_and_listed_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (program, debug) = split_off::stripped(&folder, "hits_o2");
    fs::remove_file(folder.path().join(debug)).unwrap();
    let target = Fixture::start(&program, &["1".to_owned()]);
    let pid = target.pid().to_string();
    let place = format!("hits_o2+{:#x}", address_of("hits_o2", "serve"));
    let all = run(profiler(&["functions", "-p", &pid]))
        .status(0)
        .says("in hits_o2: `hits_o2+0x*` lists them");
    assert!(!all.stdout().contains("hits_o2+0x"), "{}", all.stdout());
    let listed = run(profiler(&["functions", "-p", &pid, "hits_o2+0x*", "--json"])).status(0);
    let objects = listed.objects();
    assert!(objects.len() > 3);
    assert!(
        objects.iter().all(|function| function["named"] == false),
        "{objects:?}"
    );
    let own = objects.iter().find(|function| function["name"] == json!(place));
    assert_eq!(own.unwrap()["linkage_name"], json!(place));
    let named = run(profiler(&["functions", "-p", &pid, "memcpy", "--json"])).status(0);
    assert!(named.objects().iter().all(|function| function["named"] == true));
    // Inside of it nothing begins, and it is said where it does.
    let inside = format!("hits_o2+{:#x}", address_of("hits_o2", "serve") + 1);
    run(profiler(&["latency", "-p", &pid, &inside]))
        .status(3)
        .says(&format!("it is inside of {place}"));
    // Behind another step it is an instruction, unless it is in quotes.
    run(profiler(&[
        "latency",
        "-p",
        &pid,
        &format!("\"{place}\"/{place}"),
    ]))
    .status(2)
    .says(&format!(
        "\"{place}\" is the calls of the function that begins there"
    ));
    target.end();
}
