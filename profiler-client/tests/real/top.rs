//! `profiler top` on a real target.

use super::{
    command::{profiler, run},
    verbs::{busy, unharmed},
};

#[test]
#[ignore = "needs root"]
fn functions_are_listed_by_their_time() {
    let target = busy();
    let pid = target.pid().to_string();
    let top = |arguments: &[&str]| {
        run(profiler(
            &[&["top", "-p", &pid, "--duration", "3"], arguments].concat(),
        ))
        .status(0)
    };

    let listed = top(&["--sort", "total"]);
    println!("{}", listed.stdout());
    let row = |name: &str| {
        listed
            .stdout()
            .lines()
            .position(|line| line.contains(&format!("  {name}  ")))
    };
    assert!(listed.stdout().lines().next().unwrap().contains("SELF"));
    assert!(
        row("main").unwrap() < row("slow_inner").unwrap(),
        "a caller has all that it calls"
    );

    let objects = top(&["--json", "f[>= p90]", "-n", "5"]).objects();
    let (summary, functions) = objects.split_last().unwrap();
    assert!(functions.len() <= 5 && !functions.is_empty());
    assert_eq!(
        (&summary["type"], &summary["scope"]),
        (&"summary".into(), &"f[>= p90]".into())
    );
    let all = summary["time_ns"].as_u64().unwrap();
    for function in functions {
        let (own, total) = (
            function["self_ns"].as_u64().unwrap(),
            function["total_ns"].as_u64().unwrap(),
        );
        assert!(own <= total && total <= all, "{function}");
    }
    run(profiler(&["top"])).status(2).says("Say what to look at");
    unharmed(target);
}
