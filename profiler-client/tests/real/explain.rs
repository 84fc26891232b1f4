//! `profiler explain` on a real target.

use super::{
    bpf,
    command::{profiler, run},
    fixture::Fixture,
};

#[test]
#[ignore = "needs root"]
fn what_slow_calls_do_is_said() {
    // More calls than there is time for, some of them slow because of what is asked of them.
    let mut target = Fixture::start("explain", &["100000000".to_owned()]);
    target.say("go");
    let pid = target.pid().to_string();
    let explain = |arguments: &[&str]| run(profiler(&[&["explain", "-p", &pid], arguments].concat()));

    let said = explain(&["handle[> 1500us]", "--duration", "3"]).status(0);
    println!("{}", said.stdout());
    let first = said.stdout().lines().nth(3).unwrap().to_owned();
    assert!(
        first.contains("explain.c:") || first.contains("request->size > "),
        "{first}"
    );
    let next = "look at those: 'handle[> 1.5ms]";
    assert!(said.stdout().contains(next), "{}", said.stdout());
    said.says("branches, calls, values and waits in them");

    let objects = explain(&["handle[> 1500us]", "--duration", "3", "--json"])
        .status(0)
        .objects();
    let [object] = objects.as_slice() else {
        panic!("{objects:?}");
    };
    assert_eq!(
        (&object["type"], &object["warming"]),
        (&"explain".into(), &false.into())
    );
    let first = &object["findings"][0];
    println!("{first:#}");
    assert!(first["difference"]["low"].as_f64().unwrap() > 0.5, "{first}");

    explain(&["handle"]).status(2).says("say which calls are slow");
    explain(&[]).status(2).says("Say which calls are slow");
    explain(&["nosuch[> 1ms]"]).status(3);
    let nothing = explain(&["handle[> 1000s]", "--duration", "1"]).status(0);
    assert!(
        nothing.stdout().contains("nothing to compare"),
        "{}",
        nothing.stdout()
    );
    bpf::wait_until_unchanged(target.pid());
}
