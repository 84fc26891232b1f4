//! What is written for speedscope, against what its schema asks for.

use profiler_export::{Frame, Label, Measure, Profile, Stack, Unit, speedscope};
use serde_json::Value;

#[test]
fn every_measure_and_side_is_a_profile_whose_weights_add_up() {
    let frame = |name: &str| Frame {
        name: name.to_owned(),
        ..Frame::default()
    };
    let stack = |frames: &[u32], weights: [u64; 2], side: &str| Stack {
        frames: frames.to_vec(),
        weights: weights.to_vec(),
        labels: vec![Label {
            key: "side".to_owned(),
            value: side.to_owned(),
        }],
    };
    let measure = |name: &str, unit| Measure {
        name: name.to_owned(),
        unit,
    };
    let profile = Profile {
        measures: vec![measure("samples", Unit::Count), measure("cpu", Unit::Nanoseconds)],
        frames: vec![frame("main"), frame("a \"quoted\"\nname\u{1b}")],
        stacks: vec![
            stack(&[0], [1, 10], "inside"),
            stack(&[0, 1], [2, 25], "inside"),
            stack(&[0, 1], [4, 41], "outside"),
        ],
        ..Profile::default()
    };
    let file: Value = serde_json::from_slice(&speedscope::write(&profile)).unwrap();
    assert_eq!(file["shared"]["frames"][1]["name"], "a \"quoted\"\nname\u{1b}");
    let shown: Vec<(String, u64)> = file["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| {
            assert_eq!(profile["type"], "sampled");
            let weights: Vec<u64> = profile["weights"]
                .as_array()
                .unwrap()
                .iter()
                .map(|weight| weight.as_u64().unwrap())
                .collect();
            assert_eq!(profile["samples"].as_array().unwrap().len(), weights.len());
            assert_eq!(profile["endValue"].as_u64(), Some(weights.iter().sum()));
            let name = format!(
                "{} {}",
                profile["name"].as_str().unwrap(),
                profile["unit"].as_str().unwrap()
            );
            (name, weights.iter().sum())
        })
        .collect();
    let expected = [
        ("cpu, side inside nanoseconds", 35),
        ("cpu, side outside nanoseconds", 41),
        ("samples, side inside none", 3),
        ("samples, side outside none", 4),
    ];
    assert_eq!(shown, expected.map(|(name, sum)| (name.to_owned(), sum)));
}
