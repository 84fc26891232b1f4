//! Scopes of several steps against what the target says was inside what.

use std::{collections::BTreeMap, time::Instant};

use profiler_daemon::session::{
    Capture, LatencyPicture, NewSession, Numbered, Purpose, ScopeEdit, SessionInfo, TraceBatch,
};
use serde_json::Value;

use super::{
    fixture::{Fixture, spec},
    service::{ROOT, Service, Side, ended, function, session_of, time_under},
};

/// What lay inside some calls of `outer`, by the target's own count.
type Inside = BTreeMap<String, u64>;

struct Truth {
    all: Inside,
    slow: Inside,
    /// Calls too close to the threshold to be told.
    unsure: Inside,
}

/// The number of the source line that has this comment.
fn line(comment: &str) -> usize {
    let source = include_str!("../fixtures/engine/paths.c");
    let at = source
        .lines()
        .position(|line| line.contains(&format!("/* {comment} */")));
    at.unwrap() + 1
}

fn scope(text: &str) -> String {
    text.replace("MARKED", &format!("paths.c:{}", line("the marked line")))
        .replace("SLOW", &format!("paths.c:{}", line("the slow line")))
        .replace("BEHIND", &format!("paths.c:{}", line("the marked line") + 1))
        .replace("JUMP", &format!("paths.c:{}", line("the jump")))
}

/// Lets it run to its end.
fn finish(mut target: Fixture) -> (Truth, Fixture) {
    let mut said: BTreeMap<String, Inside> = BTreeMap::new();
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if line.starts_with("truth ") {
            break;
        }
        if let Some((name, json)) = line.split_once(' ')
            && let Ok(Value::Object(counts)) = serde_json::from_str(json)
        {
            let counts = counts
                .into_iter()
                .map(|(name, count)| (name, count.as_u64().unwrap()));
            said.insert(name.to_owned(), counts.collect());
        }
    }
    let mut take = |name: &str| said.remove(name).unwrap();
    let truth = Truth {
        all: take("all"),
        slow: take("slow"),
        unsure: take("unsure"),
    };
    println!(
        "the target: {:?}, slow {:?}, unsure {:?}",
        truth.all, truth.slow, truth.unsure
    );
    (truth, target)
}

/// Between what is certain and what may be.
fn agrees(what: &str, ours: u64, truth: u64, unsure: u64) {
    println!("{what}: ours {ours}, the target's {truth} (+{unsure})");
    assert!(
        truth <= ours && ours <= truth + unsure,
        "{what}: ours {ours}, the target's {truth}, {unsure} of them unsure"
    );
}

fn calls(picture: &Numbered<LatencyPicture>, name: &str) -> u64 {
    calls_after(0, picture, name)
}

/// The same where the scope was edited so often.
fn calls_after(edits: u64, picture: &Numbered<LatencyPicture>, name: &str) -> u64 {
    let lost = |is_meant: fn(&str) -> bool| {
        let lost = picture.lost.iter().filter(|(reason, _)| is_meant(reason));
        lost.map(|(_, count)| count).sum::<u64>()
    };
    // What was in a call that was jumped over belongs to no side.
    let others = lost(|reason| !["join_abandoned", "join_expired"].contains(&reason));
    assert_eq!(others, 0, "{:?}", picture.lost);
    // The end of a call that is open at an edit is told to no step that the edit takes away. Its one thread has one such call.
    assert!(
        lost(|reason| reason == "join_expired") <= edits,
        "{:?}",
        picture.lost
    );
    let function = function(picture, name);
    assert_eq!(function.lost.values().sum::<u64>(), 0, "{:?}", function.lost);
    ended(function)
}

#[test]
#[ignore = "needs root"]
fn what_is_inside_is_counted_to_the_call() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &spec("paths").args);
    target.prefer();
    let sessions: Vec<(&str, SessionInfo)> = [
        "outer/inner",
        "outer[> 1500us]/inner",
        "outer/MARKED/inner",
        "outer[> 1500us]/MARKED/inner",
        "outer/SLOW/inner",
        "inner/outer",
        "outer[> 1500us]/inner[> 1s]/inner",
    ]
    .into_iter()
    .map(|text| (text, service.attach(target.pid(), &scope(text)).unwrap()))
    .collect();
    target.say("go");
    let (Truth { all, slow, unsure }, target) = finish(target);
    let seen: BTreeMap<&str, u64> = sessions
        .iter()
        .map(|(text, session)| {
            let name = text.rsplit('/').next().unwrap();
            (*text, calls(&service.last_latency(session), name))
        })
        .collect();
    assert_eq!(seen["outer/inner"], all["inner"]);
    assert_eq!(seen["outer/MARKED/inner"], all["behind"]);
    assert_eq!(seen["inner/outer"], 0);
    assert_eq!(seen["outer[> 1500us]/inner[> 1s]/inner"], 0);
    let of_slow = |text: &str, what: &str| agrees(text, seen[text], slow[what], unsure[what]);
    of_slow("outer[> 1500us]/inner", "inner");
    of_slow("outer[> 1500us]/MARKED/inner", "behind");
    // Behind the slow line there is one call more, whatever becomes of the one that it is in.
    let all_slow = (0..all["calls"]).filter(|n| n % 10 == 3).count() as u64;
    assert_eq!(seen["outer/SLOW/inner"], all_slow);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn calls_are_timed_where_they_are_made() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &spec("paths").args);
    target.prefer();
    let texts = [
        "inner@BEHIND",
        "jumper@JUMP",
        "outer[> 1500us]/inner@BEHIND",
        "inner",
        "outer",
    ];
    if let Err(error) = service.attach(target.pid(), &scope(texts[0])) {
        assert!(error.message.contains("before Linux 6.10"), "{error}");
        assert_eq!(target.finish().status, Some(0));
        return;
    }
    let sessions = texts.map(|text| service.attach(target.pid(), &scope(text)).unwrap());
    target.say("go");
    let (Truth { all, slow, unsure }, target) = finish(target);
    let [behind, jumped, of_slow, inner, outer] = sessions.map(|session| service.last_latency(&session));
    let only = |picture: &Numbered<LatencyPicture>| (*picture.functions.first().unwrap()).clone();
    for seen in [&behind, &jumped, &of_slow, &inner, &outer] {
        let only = only(seen);
        println!(
            "{}: {} abandoned, {} open, {:?}, {:?}",
            only.function.name, only.abandoned, only.open, only.lost, seen.lost
        );
    }
    // Each call of that line returns, and each is within a call of inner itself.
    assert_eq!(ended(&only(&behind)), all["marked"]);
    agrees(
        "of slow",
        ended(&only(&of_slow)),
        slow["marked"],
        unsure["marked"],
    );
    // No call of that line returns. What is behind it is reached without a call too.
    let truth = &spec("paths").truth;
    let jumped = only(&jumped);
    assert_eq!(ended(&jumped), 0);
    assert!(
        jumped.abandoned + jumped.open >= truth["jumper"].calls,
        "{jumped:?}"
    );
    for seen in [&only(&behind), &jumped, &only(&of_slow)] {
        assert_eq!(seen.lost.get("open_at_attach"), None, "{:?}", seen.lost);
    }
    // Others at the same calls lose none of theirs.
    assert_eq!(ended(function(&inner, "inner")), truth["inner"].returned);
    assert_eq!(ended(function(&outer, "outer")), truth["outer"].returned);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn edits_of_a_running_scope_lose_no_calls() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &spec("paths").args);
    target.prefer();
    let session = service.attach(target.pid(), "outer").unwrap();
    target.say("go");
    let edit = |edit: ScopeEdit| {
        let begun = Instant::now();
        let editing = service
            .handle
            .edit_scope(ROOT, session.name.clone(), edit.clone());
        let info = service.runtime.block_on(editing).unwrap();
        println!(
            "{edit:?}: {} ({:.1} ms)",
            info.scope,
            begun.elapsed().as_secs_f64() * 1e3
        );
        info.scope
    };
    let marked = scope("MARKED");
    assert_eq!(edit(ScopeEdit::Append("inner".into())), "outer/inner");
    assert_eq!(edit(ScopeEdit::Drop(1)), "outer");
    assert_eq!(
        edit(ScopeEdit::Append(scope("/MARKED/inner"))),
        format!("outer/{marked}/inner")
    );
    assert_eq!(edit(ScopeEdit::Undo(2)), "outer/inner");
    assert_eq!(
        edit(ScopeEdit::Set("outer[> 1500us]/inner".into())),
        "outer[> 1.5ms]/inner"
    );
    assert_eq!(edit(ScopeEdit::Undo(1)), "outer/inner");
    assert_eq!(edit(ScopeEdit::Undo(1)), "outer");
    for wrong in [
        ScopeEdit::Drop(2),
        ScopeEdit::Undo(1),
        ScopeEdit::Append(" ".into()),
    ] {
        let editing = service.handle.edit_scope(ROOT, session.name.clone(), wrong);
        println!("{}", service.runtime.block_on(editing).unwrap_err());
    }
    let (_, target) = finish(target);
    let seen = calls_after(7, &service.last_latency(&session), "outer");
    let truth = spec("paths").truth["outer"];
    assert_eq!(seen, truth.returned);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_the_kernel_single_steps_is_warned_of() {
    let service = Service::start();
    let target = Fixture::start("paths", &spec("paths").args);
    let warnings = |text: &str| service.attach(target.pid(), &scope(text)).unwrap().warnings;
    // It adds to memory, which no kernel emulates.
    let of_line = warnings("outer/MARKED/inner");
    assert!(
        of_line.iter().any(|warning| {
            warning.starts_with(&scope("MARKED (add) is single-stepped by the kernel"))
                && warning.ends_with("reaching it costs about ten times as much")
        }),
        "{of_line:?}"
    );
    let of_function = warnings("outer/inner");
    assert!(
        !of_function.iter().any(|warning| warning.contains("reaching it")),
        "{of_function:?}"
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn two_who_edit_at_once_both_get_their_steps() {
    let service = Service::start();
    let target = Fixture::start("paths", &spec("paths").args);
    let session = service.attach(target.pid(), "outer").unwrap();
    let append = |step: &str| {
        let edit = ScopeEdit::Append(step.to_owned());
        service.handle.edit_scope(ROOT, session.name.clone(), edit)
    };
    let (one, other) = service
        .runtime
        .block_on(async { tokio::join!(append("inner"), append("jumper")) });
    let scopes = [one.unwrap().scope, other.unwrap().scope];
    let longest = scopes.iter().max_by_key(|scope| scope.len()).unwrap();
    assert!(
        ["outer/inner/jumper", "outer/jumper/inner"].contains(&longest.as_str()),
        "{scopes:?}"
    );
    assert_eq!(target.finish().status, Some(0));
}

/// What is counted of the last step, and of how many calls.
fn counted_of_line(service: &Service, pid: u32, step: &str) -> u64 {
    let counted = service.handle.counted(ROOT, vec![pid]);
    let counted = service.runtime.block_on(counted).unwrap();
    let of_step = counted.iter().filter(|counted| counted.step == step);
    of_step.map(|counted| counted.count).sum()
}

#[test]
#[ignore = "needs root"]
fn a_line_at_the_entry_of_its_function_is_inside_of_it() {
    let source = include_str!("../fixtures/engine/paths.c");
    let entry = source
        .lines()
        .position(|line| line.contains("void inner("))
        .unwrap()
        + 1;
    let step = format!("paths.c:{entry}");
    for appended in [false, true] {
        for print in [&[][..], &["n"]] {
            let service = Service::start();
            let mut target = Fixture::start("paths", &["200".to_owned()]);
            let pid = target.pid();
            let both = format!("inner/{step}");
            let capture = (!print.is_empty()).then(|| Capture {
                print: print
                    .iter()
                    .map(|text| profiler_scope::expression::parse(text).unwrap())
                    .collect(),
                hits_per_second: 1_000_000,
                stack: false,
                purpose: Purpose::Shown,
            });
            let request = NewSession {
                capture,
                ..session_of(pid, if appended { "inner" } else { &both })
            };
            let session = service
                .runtime
                .block_on(service.handle.create(ROOT, request))
                .unwrap();
            if appended {
                let edit = ScopeEdit::Append(step.clone());
                let edited = service.handle.edit_scope(ROOT, session.name.clone(), edit);
                assert_eq!(service.runtime.block_on(edited).unwrap().scope, both);
            }
            let calls = target.run()["inner"].calls;
            assert_eq!(
                counted_of_line(&service, pid, &step),
                calls,
                "appended {appended}, {print:?}"
            );
            assert_eq!(counted_of_line(&service, pid, "inner"), calls);
            service.end(&session);
            assert_eq!(target.finish().status, Some(0));
        }
    }
}

#[test]
#[ignore = "needs root"]
fn hits_in_slow_calls_are_traced_with_their_values() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &spec("paths").args);
    target.prefer();
    let request = NewSession {
        capture: Some(Capture {
            print: vec![profiler_scope::expression::parse("n").unwrap()],
            hits_per_second: 1_000_000,
            stack: false,
            purpose: Purpose::Shown,
        }),
        ..session_of(target.pid(), &scope("outer[> 1500us]/MARKED"))
    };
    let session = service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap();
    let watching = service.handle.watch_trace(ROOT, session.name.clone());
    let mut batches = service.runtime.block_on(watching).unwrap();
    target.say("go");
    let (Truth { slow, unsure, .. }, target) = finish(target);
    service.end(&session);
    let mut hits = Vec::new();
    let last: TraceBatch = loop {
        let batch = batches.blocking_recv().unwrap();
        hits.extend(batch.hits.iter().cloned());
        if batch.ended.is_some() {
            break batch;
        }
    };
    agrees("hits", hits.len() as u64, slow["marked"], unsure["marked"]);
    for hit in &hits {
        let n: u64 = match &hit.values[0].reading {
            profiler_plan::values::Reading::Ok(value) => value.to_string().parse().unwrap(),
            other => panic!("n is {other}"),
        };
        assert_eq!(n % 4, 1, "only such calls pass the line");
    }
    let lost: u64 = last.lost.values().sum();
    println!(
        "{} reached, {} rejected, {:?}",
        last.reached, last.rejected, last.lost
    );
    assert_eq!(last.reached, hits.len() as u64 + last.rejected + lost);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn samples_are_drawn_inside_all_steps() {
    let service = Service::start();
    for (text, under) in [("outer[> 1500us]/inner", "inner"), ("outer/SLOW", "outer")] {
        let mut target = Fixture::start("paths", &spec("paths").args);
        target.prefer();
        let session = service.attach(target.pid(), &scope(text)).unwrap();
        let mut pictures = service.watch_flame(&session);
        target.say("go");
        let (_, target) = finish(target);
        service.end(&session);
        let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
        let summary = &picture.picture.summary;
        println!("{text}: {summary:?}");
        let (under_ns, all_ns) = time_under(&picture, Side::Inside, under);
        // A sample in the probe at its first instruction has no frame of it yet.
        assert!(
            all_ns - under_ns <= (all_ns / 50).max(3_000_000),
            "{under_ns} of {all_ns} ns"
        );
        // Of inner there are some milliseconds in all.
        assert!(summary.inside > 0 || under == "inner");
        assert!(summary.inside < summary.samples);
        assert_eq!(
            summary.samples,
            summary.inside + summary.outside + summary.elsewhere + summary.open
        );
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn hits_of_a_scope_that_is_edited_are_accounted_for() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &["until-told".to_owned()]);
    let request = NewSession {
        capture: Some(Capture {
            print: Vec::new(),
            hits_per_second: 1_000_000,
            stack: false,
            purpose: Purpose::Shown,
        }),
        ..session_of(target.pid(), "inner")
    };
    let created = service.handle.create(ROOT, request);
    let session = service.runtime.block_on(created).unwrap();
    let watching = service.handle.watch_trace(ROOT, session.name.clone());
    let mut batches = service.runtime.block_on(watching).unwrap();
    target.say("go");
    let (mut shown, mut reached) = (0, 0);
    let mut next = || {
        let batch = batches.blocking_recv().unwrap();
        assert!(batch.reached >= reached, "{} after {reached}", batch.reached);
        reached = batch.reached;
        shown += batch.hits.len() as u64;
        (batch, shown)
    };
    // Each edit, once something was shown since the one before.
    for scope in ["outer", &scope("outer/MARKED"), "inner"] {
        let (_, before) = next();
        while next().1 <= before + 5 {}
        let edited = service
            .handle
            .set_scope(ROOT, session.name.clone(), scope.to_owned());
        service.runtime.block_on(edited).unwrap();
    }
    target.say("enough");
    let (_, target) = finish(target);
    service.end(&session);
    let (last, shown) = loop {
        let (batch, shown) = next();
        if batch.ended.is_some() {
            break (batch, shown);
        }
    };
    let lost: u64 = last.lost.values().sum();
    println!(
        "{shown} of {} shown, {} rejected, {:?}",
        last.reached, last.rejected, last.lost
    );
    assert_eq!(last.reached, shown + last.rejected + lost);
    assert_eq!(target.finish().status, Some(0));
}
