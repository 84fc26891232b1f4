//! speedscope: its schema, and its page in Chromium, which saves a profile as it has read it.

use profiler_export::speedscope;
use profiler_testkit::has_program;

use super::*;

/// Of the page's own file, the stacks of each profile; times in nanoseconds.
fn saved(file: &Value) -> BTreeMap<String, Stacks> {
    let frames = file["shared"]["frames"].as_array().unwrap();
    let name = |frame: &Value| {
        let frame = usize::try_from(frame.as_u64().unwrap()).unwrap();
        frames[frame]["name"].as_str().unwrap().to_owned()
    };
    let profiles = file["profiles"].as_array().unwrap().iter();
    let of_profile = |profile: &Value| {
        let (mut stack, mut stacks, mut last) = (Vec::new(), Stacks::new(), 0);
        let unit = if profile["unit"] == "seconds" { 1e9 } else { 1.0 };
        for event in profile["events"].as_array().unwrap() {
            let at = (event["at"].as_f64().unwrap() * unit).round() as u64;
            if at > last {
                *stacks.entry(stack.clone()).or_default() += at - last;
                last = at;
            }
            if event["type"] == "O" {
                stack.push(name(&event["frame"]));
            } else {
                assert_eq!(stack.pop(), Some(name(&event["frame"])));
            }
        }
        (profile["name"].as_str().unwrap().to_owned(), stacks)
    };
    profiles.map(of_profile).collect()
}

/// What the page saves of a file; `None` where it cannot run.
fn through_the_page(file: &str, bytes: &[u8]) -> Option<Value> {
    let package = npm_package("speedscope")?;
    npm_package("playwright-core")?;
    if !has_program("chromium") {
        return None;
    }
    let written = Written::new(file, bytes);
    let mut command = Command::new("node");
    command.arg(script("speedscope.mjs"));
    let text = printed(command.arg(package.parent().unwrap()).arg(&written.path));
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
fn the_schema_is_kept_to() {
    let (Some(package), Some(_)) = (npm_package("speedscope"), npm_package("ajv")) else {
        return;
    };
    let written = Written::new("profile.json", &speedscope::write(&support::profile()));
    let mut command = Command::new("node");
    command.arg(script("schema.mjs")).arg(package.parent().unwrap());
    command.arg("speedscope/dist/release/file-format-schema.json");
    assert_eq!(printed(command.arg(&written.path)), "valid\n");
}

#[test]
fn the_page_has_every_stack_and_weight_of_each_measure_and_side() {
    let profile = support::profile();
    let Some(file) = through_the_page("profile.json", &speedscope::write(&profile)) else {
        return;
    };
    assert_eq!(saved(&file), by_measure_and_side(&profile));
}

/// It weighs records by the times between them.
#[test]
fn the_page_has_every_stack_of_the_text_of_perf_script() {
    let profile = support::plain();
    let Some(file) = through_the_page("profile.perf", &perf_script_of(&profile)) else {
        return;
    };
    let read = saved(&file);
    let stacks: usize = read.values().map(BTreeMap::len).sum();
    assert_eq!(stacks, profile.stacks.len());
    for ((stack, side), weights) in by_stack(&profile) {
        let (_, stacks) = read.iter().find(|(thread, _)| thread.starts_with(&side)).unwrap();
        assert!(stacks[&stack].abs_diff(weights[1]) <= 1, "{stack:?}: {stacks:?}");
    }
}
