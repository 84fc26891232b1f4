//! `profiler explain --from`: what slow calls do is found in what was recorded of them.

use profiler_testkit::fixture::Fixture;
use serde_json::Value;

use super::command::{profiler, run};

#[test]
#[ignore = "needs root"]
fn what_slow_calls_of_a_recording_do_is_said() {
    let mut target = Fixture::start("explain", &["12000".to_owned()]);
    target.say("go");
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.profrec");
    let file = file.to_str().unwrap();
    let record = |more: &[&str]| {
        let words = ["record", "-p", &pid, "--duration", "3", "--force", "-o", file];
        run(profiler(&[&words[..], more].concat())).status(0)
    };
    let explain = |more: &[&str]| run(profiler(&[&["explain", "--from", file], more].concat()));
    let surest = |scope: &str| -> Value {
        let objects = explain(&[scope, "--json"]).status(0).objects();
        let [object] = objects.as_slice() else {
            panic!("{objects:?}");
        };
        assert!(!object["findings"][0].is_null(), "{object:#}");
        object.clone()
    };

    record(&["handle", "--print", "request->size,retry", "--limit", "100000"]);
    let said = explain(&["handle[> 1500us]"]).status(0);
    println!("{}{}", said.stdout(), said.stderr());
    said.says("not recorded: record with --waits");
    let object = surest("handle[> 1500us]");
    let findings = object["findings"].as_array().unwrap();
    let about = |text: &str| {
        let found = findings
            .iter()
            .find(|finding| finding["what"].as_str().unwrap().contains(text));
        found.unwrap_or_else(|| panic!("no {text}: {object:#}")).clone()
    };
    let size = about("request->size > ");
    assert!(size["difference"]["low"].as_f64().unwrap() > 0.5, "{size:#}");
    // Nothing of a call depends on it.
    let of_retry = |finding: &&Value| finding["what"].as_str().unwrap().contains("retry");
    for retry in findings.iter().filter(of_retry) {
        assert!(retry["difference"]["low"].as_f64().unwrap() < 0.1, "{retry:#}");
    }
    // All calls are compared; one may have ended as the recording began.
    let [looked_at, calls] = ["looked_at", "calls"].map(|key| object[key].as_u64().unwrap());
    assert!(calls > 100 && looked_at.abs_diff(calls) <= 2, "{object:#}");

    record(&["handle/compress", "--calls"]);
    let object = surest("handle[> 1500us]");
    let first = &object["findings"][0];
    println!("{first:#}");
    assert!(
        first["what"].as_str().unwrap().starts_with("compress[> "),
        "{first:#}"
    );
    assert!(first["difference"]["low"].as_f64().unwrap() > 0.5, "{first:#}");

    explain(&["handle"]).status(2).says("say which calls are slow");
    explain(&["handle[> 1500us]", "--time", "9h.."])
        .status(2)
        .says("only");
    target.say("exit");
    assert_eq!(target.finish().status, Some(0));
}
