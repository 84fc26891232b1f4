//! Values where no debug information tells their types: arguments by the calling convention, casts, text.

use serde_json::{Value, json};

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

const PRINTS: &str =
    "str(arg0),(int)arg1,*(double*)arg2,(char)arg3,((uint16_t*)arg4)[0..3],(unsigned long)arg5,(int)return";

/// What a program without debug information said that it had passed, and what `trace` of its function printed.
fn traced(scope: &str, prints: &str) -> (Vec<Vec<String>>, Ended) {
    let daemon = Daemon::start();
    let mut target = Fixture::start("untold", &["100".to_owned()]);
    let pid = target.pid().to_string();
    let arguments = [
        "trace", "-p", &pid, scope, "--print", prints, "--json", "--limit", "100000",
    ];
    let command = Running::start(through(&daemon.socket, &arguments));
    daemon.until_watched();
    target.run();
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    let lines = ended.output.lines().filter_map(|line| line.strip_prefix("call "));
    let told = lines
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    (told, command.end())
}

fn values(hit: &Value) -> Vec<&Value> {
    PRINTS
        .split(',')
        .map(|expression| &hit["values"][expression]["value"])
        .collect()
}

#[test]
#[ignore = "needs root"]
fn arguments_are_read_by_the_calling_convention() {
    let (told, ended) = traced("untold", PRINTS);
    let mut hits = ended.status(0).objects();
    hits.pop();
    assert_eq!((told.len(), hits.len()), (100, 100));
    for (told, hit) in told.iter().zip(&hits) {
        let number = |at: usize| told[at].parse::<f64>().unwrap();
        let word = told[4].parse::<u64>().unwrap();
        let expected = [
            json!(format!("call {}", told[0])),
            json!(told[1].parse::<i64>().unwrap()),
            json!(number(2)),
            json!(i64::from(told[3].as_bytes()[0])),
            json!([word, word + 1, word + 2]),
            json!(told[6].parse::<u64>().unwrap()),
            json!(told[7].parse::<i64>().unwrap()),
        ];
        for ((read, expected), expression) in values(hit).into_iter().zip(expected).zip(PRINTS.split(',')) {
            let same = *read == expected || read.as_f64().is_some() && read.as_f64() == expected.as_f64();
            // Whole numbers that a double has not are text.
            let same_text = read.as_str() == Some(&expected.to_string());
            assert!(same || same_text, "{expression}: {hit}, told {told:?}");
        }
    }
    assert_eq!(hits[0]["values"]["(int)arg1"]["type"], "int");
}

#[test]
#[ignore = "needs root"]
fn a_register_that_may_be_a_negative_int_says_so() {
    let (told, ended) = traced("untold", "return,arg1,(int)return");
    let mut hits = ended.status(0).objects();
    hits.pop();
    let mut negative = 0;
    for (told, hit) in told.iter().zip(&hits) {
        let returned: i64 = told[7].parse().unwrap();
        let value = &hit["values"]["return"];
        assert_eq!(value["type"], "long in rax");
        if value["value"].as_i64() == Some(returned) {
            assert!(value.get("as_int").is_none(), "{value}");
        } else {
            assert_eq!(value["as_int"], json!(returned), "{hit}, told {told:?}");
            negative += 1;
        }
        assert!(hit["values"]["(int)return"].get("as_int").is_none());
    }
    assert_eq!(negative, 20);
}

#[test]
#[ignore = "needs root"]
fn conditions_on_arguments_have_a_type() {
    for (scope, expected) in [
        ("untold[(int)arg1 < 0]", 20),
        ("untold[(int)return < 0]", 20),
        ("untold[str(arg0) == \"call 3\"]", 10),
        ("untold[(int)arg1 == 7][(char)arg3 == 106]", 10),
    ] {
        let (_, ended) = traced(scope, "(int)arg1");
        let mut hits = ended.status(0).objects();
        hits.pop();
        assert_eq!(hits.len(), expected, "{scope}");
    }
    // The upper half of a register that holds an `int` is anything.
    for (scope, named) in [("untold[arg1 < 0]", "rsi"), ("untold[return < 0]", "rax")] {
        let target = Fixture::start("untold", &["100".to_owned()]);
        let pid = target.pid().to_string();
        run(profiler(&["trace", "-p", &pid, scope]))
            .status(1)
            .says(&format!("all of {named}, of which"))
            .says("say its type, (int)");
        assert_eq!(target.finish().status, Some(0));
    }
}
