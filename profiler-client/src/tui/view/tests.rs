//! Every screen, as text.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_proto::v1;
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

use super::{
    overlay::help,
    theme::{Depth, Theme},
};
use crate::render::units;
use crate::state::{
    end::End,
    lines::{LineKey, LineTime},
};
use crate::tui::{
    data::{AsideOf, Data, Hits, StepCount},
    lens::{Action, CostOfEdit, Input, Lens, Overlay, Pane, Purpose, Recorded, Target, update},
    sample,
    service::{Incoming, What},
    taken,
};
use crate::{cli::args::RecordedTime, failure::Failure};

fn lens(pane: Pane, scope: &str) -> Lens {
    let mut lens = Lens::on(Some(Target::Pid(4211)));
    lens.pane = pane;
    lens.scope = scope.to_owned();
    lens
}

fn buffer(lens: &Lens, data: &Data, size: (u16, u16), depth: Depth) -> Buffer {
    let mut lens = lens.clone();
    update(&mut lens, Action::Drawn, data);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal
        .draw(|frame| {
            super::draw(frame.buffer_mut(), &lens, data, Theme { depth });
        })
        .unwrap();
    terminal.backend().buffer().clone()
}

fn rows(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let symbols: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    symbols
        .chunks(width)
        .map(|row| row.concat().trim_end().to_owned())
        .collect()
}

fn text(lens: &Lens, data: &Data) -> String {
    rows(&buffer(lens, data, (80, 24), Depth::None)).join("\n")
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for words in words {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
}

const SLOW: &str = "handle[>= p95]";

#[test]
fn processes_are_listed_harmlessly() {
    let text = text(&Lens::default(), &sample::empty());
    says(
        &text,
        &[
            "     PID USER      THR   CPU  SYMBOLS  DEBUG    RUNTIME COMMAND",
            "    4211 www         6  125%  dynamic  separate native  server --listen \\u{1b}[…",
            "    4212 root        1     ?  ?        ?        ?       other",
            "Enter attach",
        ],
    );
}

#[test]
fn what_is_known_of_processes_gives_way_to_their_commands() {
    let shown = |width| {
        let drawn = buffer(&Lens::default(), &sample::empty(), (width, 24), Depth::None);
        rows(&drawn).join("\n")
    };
    says(
        &shown(120),
        &[
            "RUNTIME IN                   COMMAND",
            "native  docker 0123456789ab  server --listen",
            "?       -                    other",
        ],
    );
    let narrow = shown(64);
    says(&narrow, &["SYMBOLS  COMMAND", "125%  dynamic  server --listen"]);
    assert!(!narrow.contains("DEBUG"), "{narrow}");
    says(&shown(50), &["CPU  COMMAND", "125%  server --listen"]);
}

#[test]
fn commands_have_the_programs_name_first_and_the_selected_one_its_folders() {
    let shown = |lens: &Lens, width| {
        let drawn = buffer(lens, &sample::empty(), (width, 24), Depth::None);
        rows(&drawn)
    };
    let whole = "/opt/shop/releases/current/bin/server --listen \\u{1b}[31m";
    let narrow = shown(&Lens::default(), 80);
    let foot = |screen: &[String]| screen[screen.len() - 3].clone();
    assert_eq!(foot(&narrow), whole, "{narrow:#?}");
    assert!(
        !narrow[..21].iter().any(|row| row.contains("/opt")),
        "{narrow:#?}"
    );

    let mut lens = Lens::default();
    update(&mut lens, Action::Drawn, &sample::empty());
    update(
        &mut lens,
        Action::Move(crate::tui::lens::Move::Down),
        &sample::empty(),
    );
    assert_eq!(foot(&shown(&lens, 80)), "other", "the selection has moved");

    // Where there is room, every row has its folders.
    says(&shown(&lens, 140).join("\n"), &[&format!("  {whole}")]);
}

#[test]
fn what_a_costly_step_would_cost_is_asked_about() {
    let data = sample::busy();
    let mut lens = lens(Pane::Latency, "handle\x1b");
    let ask = |lens: &mut Lens, words: &str, over_budget: bool| {
        let action = Action::Costly {
            wanted: "handle\x1b".to_owned(),
            cost: CostOfEdit {
                words: words.to_owned(),
                over_budget,
            },
            scope: String::new(),
        };
        update(lens, action, &data);
    };
    ask(
        &mut lens,
        "1 place; the probes would take 66% of the target's CPU time, over the budget of 3%",
        true,
    );
    says(
        &text(&lens, &data),
        &[
            "handle\\u{1b}: 1 place; the probes would take 66% of the target's CPU time,",
            "Enter attaches it, K keeps it whatever it costs, e edits it, Esc leaves it.",
        ],
    );
    ask(
        &mut lens,
        "4,096 places, about 1% of the target's CPU time",
        false,
    );
    let many = text(&lens, &data);
    says(&many, &["Enter attaches it, e edits it, Esc leaves it."]);
    assert!(!many.contains("K keeps"), "{many}");
}

#[test]
fn sessions_stand_above_processes_and_are_joined() {
    let session = |name: &str, scope: &str| v1::Session {
        name: name.to_owned(),
        scope: scope.to_owned(),
        pids: vec![4211, 4212, 4213, 4214],
        watchers: 2,
        ..v1::Session::default()
    };
    let mut data = sample::empty();
    data.sessions = vec![session("1000/web\x1b", SLOW), session("batch", "")];
    let shown = text(&Lens::default(), &data);
    says(
        &shown,
        &[
            "SESSION                    PIDS WATCHERS  SCOPE",
            "1000/web\\u{1b}   4211,4212,421…        2  handle[>= p95]",
            "batch            4211,4212,421…        2  everything",
            "4211 www ",
        ],
    );
    let mut lens = Lens::default();
    update(&mut lens, Action::Drawn, &data);
    update(&mut lens, Action::Move(crate::tui::lens::Move::Down), &data);
    update(&mut lens, Action::Enter, &data);
    assert_eq!(lens.target, Some(Target::Session("batch".to_owned())));

    // However many there are, processes are in sight.
    data.sessions = (0..100).map(|at| session(&at.to_string(), "")).collect();
    says(&text(&Lens::default(), &data), &["4211 www "]);
}

#[test]
fn the_top_says_self_and_total() {
    let text = text(&lens(Pane::Top, ""), &sample::busy());
    says(
        &text,
        &[
            "profiler pid 4211 (server)  ! each return is single-stepped (and 1 more)",
            "▸ everything",
            "1,600 samples on the CPU",
            " 66.7%    600 ms   71.1%    640 ms  compress  server",
            "evil\\u{1b}[2J\\u{202e}name",
            "daemon 0.4% of a core, 16.0 MiB",
            "lost none",
        ],
    );
}

#[test]
fn the_path_has_counts_and_the_threshold() {
    let text = text(&lens(Pane::Latency, SLOW), &sample::busy());
    says(
        &text,
        &[
            "▸ handle[>= p95]",
            "2,000 calls, 200/s, 2.00 ms: 100 of 2,000 inside",
            "◀ slow",
            "p50",
            "probes 0.1% of a core",
        ],
    );
    let text = self::text(
        &lens(Pane::Source, "handle[>= p95]/server.cc:13!else"),
        &sample::busy(),
    );
    says(
        &text,
        &[
            "▸ handle[>= p95]",
            "▸ server.cc:13!else",
            "1,234×, 99.5/s, 2.00 ms: 100 of 2,000 inside",
        ],
    );
}

#[test]
fn bars_say_what_enter_does() {
    let data = sample::busy();
    let mut lens = lens(Pane::Latency, "handle");
    says(
        &text(&lens, &data),
        &["Enter: handle[>= p95]   ↑↓ choose durations"],
    );
    update(&mut lens, Action::Move(crate::tui::lens::Move::Down), &data);
    update(&mut lens, Action::Move(crate::tui::lens::Move::Up), &data);
    let shown = text(&lens, &data);
    says(&shown, &["Enter: handle[>= ", "][< ", "= slow from here on"]);
    let reversed = |buffer: &Buffer| {
        let is = |cell: &ratatui::buffer::Cell| cell.modifier.contains(ratatui::style::Modifier::REVERSED);
        buffer.content.chunks(80).filter(|row| row.iter().all(is)).count()
    };
    let drawn = buffer(&lens, &data, (80, 24), Depth::True);
    assert_eq!(reversed(&drawn), 1);
    update(&mut lens, Action::Mark, &data);
    update(&mut lens, Action::Move(crate::tui::lens::Move::Up), &data);
    assert_eq!(reversed(&buffer(&lens, &data, (80, 24), Depth::None)), 2);
}

#[test]
fn no_threshold_is_suggested_where_no_call_took_so_long() {
    use crate::tui::lens::Move;

    // Two modes, calls on both sides of an edge between bars, and one call far beyond all.
    let mut data = sample::busy();
    let function = data.latency.functions.get_mut(&1).unwrap();
    let bucket = |ns| u32::try_from(profiler_common::layout::bucket_of(ns)).unwrap();
    let modes = [
        (1_050_000, 5_000),
        (2_080_000, 3_000),
        (2_100_000, 3_000),
        (67_200_000, 4_000),
        (9_000_000_000, 1),
    ];
    let mut before = 0;
    let mut counts = v1::Histogram::default();
    for (ns, calls) in modes {
        counts.bucket_deltas.push(bucket(ns) - before);
        counts.counts.push(calls);
        before = bucket(ns);
    }
    function.since_start_counts = crate::state::histogram::Counts::read(&counts).unwrap();
    let has_calls = |bound: &profiler_scope::Predicate, ns: u64| {
        let profiler_scope::Bound::Duration(bound_ns) = bound.bound else {
            panic!("no time: {bound:?}")
        };
        match bound.comparison {
            profiler_scope::Comparison::Less => ns < bound_ns,
            _ => ns >= bound_ns,
        }
    };
    let mut lens = lens(Pane::Latency, "handle");
    let bars = data.bars(&lens);
    assert!(
        bars.iter().any(|bar| bar.count == 0),
        "the modes are apart: {bars:?}"
    );
    update(&mut lens, Action::Move(Move::First), &data);
    let mut of_bars = Vec::new();
    for (at, bar) in bars.iter().enumerate() {
        let mut entered = lens.clone();
        update(&mut entered, Action::Enter, &data);
        let mut from_here_on = lens.clone();
        update(&mut from_here_on, Action::Threshold, &data);
        let shown = text(&lens, &data);
        if bar.count == 0 {
            assert_eq!(entered.scope, "handle", "{bar:?}");
            says(&shown, &["No call took so long: select a bar that has calls."]);
        } else {
            assert_ne!(entered.scope, "handle", "{bar:?}");
            says(&shown, &[&format!("Enter: {}", entered.scope)]);
            of_bars.push(profiler_scope::parse(&entered.scope).unwrap());
        }
        // From the first bar on, they are all calls.
        assert_eq!(from_here_on.scope == "handle", at == 0, "{bar:?}");
        // What is asked for has exactly the calls of the bar; = those of it and all slower.
        for (lens, most_ns) in [(&entered, bar.high_ns), (&from_here_on, f64::MAX)] {
            if lens.scope == "handle" {
                continue;
            }
            let scope = profiler_scope::parse(&lens.scope).unwrap();
            let bounds = &scope.steps[0].predicates;
            for (ns, _) in modes {
                let is_meant = ns as f64 >= bar.low_ns && (ns as f64) < most_ns;
                let is_taken = bounds.iter().all(|bound| has_calls(bound, ns));
                assert_eq!(is_taken, is_meant, "{ns} ns by {} of {bar:?}", lens.scope);
            }
            assert!(
                modes
                    .iter()
                    .any(|(ns, _)| bounds.iter().all(|bound| has_calls(bound, *ns))),
                "{} has no call",
                lens.scope
            );
        }
        update(&mut lens, Action::Move(Move::Down), &data);
    }
    // Bars that lie side by side have each call once.
    for ns in (2_000_000..2_200_000).step_by(1000) {
        let takes = |scope: &&profiler_scope::Scope| {
            let mut bounds = scope.steps[0].predicates.iter();
            bounds.all(|bound| has_calls(bound, ns))
        };
        assert_eq!(of_bars.iter().filter(takes).count(), 1, "{ns} ns");
    }
}

#[test]
fn durations_over_time_are_denser_where_there_are_more_calls() {
    let mut data = sample::busy();
    let mut lens = lens(Pane::Latency, SLOW);
    lens.picture = crate::tui::lens::Picture::Heat;
    says(
        &text(&lens, &data),
        &["calls over time: the first come in a second"],
    );
    sample::go_on(&mut data);
    let shown = text(&lens, &data);
    says(&shown, &["calls of the last ", "the latest at the right"]);
    let row = |end: &str| shown.lines().any(|line| line.ends_with(end));
    assert!(row("██") && row(" ░"), "{shown}");
}

#[test]
fn the_graph_has_boxes_by_share() {
    let text = text(&lens(Pane::Graph, SLOW), &sample::busy());
    says(
        &text,
        &[
            "▏all",
            "▏handle",
            "▏compress",
            "▏parse",
            "98.9% 890 ms, 890 samples, self 0 ns",
        ],
    );
}

#[test]
fn the_difference_says_how_sure_it_is() {
    let mut data = sample::busy();
    let mut lens = lens(Pane::Difference, SLOW);
    let at = data
        .graph
        .nodes
        .iter()
        .position(|node| node.difference.is_some())
        .unwrap();
    lens.select(crate::tui::lens::Item::Stack(data.graph.path(&data.flame, at)));
    says(
        &text(&lens, &data),
        &[
            "inside 71.1%, outside 14.3%",
            "difference +57.0 points (95%: +50.0 to +64.0), 40",
            "compress has 71.1% of slow calls' time, 14.3% of the others'",
        ],
    );
    for difference in Arc::make_mut(&mut data.flame).differences.values_mut() {
        difference.low = -0.1;
    }
    data.stale = true;
    data.settle(&lens);
    says(
        &text(&lens, &data),
        &["no function surely has 1% more of slow calls' time"],
    );
    // Nothing is said before anything was compared.
    Arc::make_mut(&mut data.flame).differences.clear();
    assert!(!text(&lens, &data).contains("of slow calls' time"));
}

#[test]
fn the_source_says_what_enter_does() {
    let mut lens = lens(Pane::Source, "handle");
    lens.source = Some("handle".to_owned());
    let data = sample::busy();
    update(&mut lens, Action::Drawn, &data);
    update(&mut lens, Action::Move(crate::tui::lens::Move::Next), &data);
    let text = text(&lens, &data);
    says(
        &text,
        &[
            "handle  /src/server.cc:12–16",
            "13 ●?     if (n > 100) // \\u{1b}[31m",
            "Enter: server.cc:13!else (goes on at line 14)   ←/→ 1 of 3",
        ],
    );
}

#[test]
fn loops_are_steps_as_branches_are() {
    use crate::tui::lens::Move::{Next, Previous, Right};

    let mut data = sample::busy();
    let at = |line| {
        Some(v1::SourcePosition {
            address: 1,
            line,
            ..Default::default()
        })
    };
    let source = Arc::make_mut(data.source.as_mut().unwrap());
    let line = source.lines.iter_mut().find(|line| line.line == 15).unwrap();
    line.branches.push(v1::SourceBranch {
        taken: at(14),
        otherwise: at(16),
        is_loop: true,
        ..Default::default()
    });
    // No code of its own begins at the brace, and its jump back decides nothing.
    let brace = source.lines.iter_mut().find(|line| line.line == 16).unwrap();
    brace.branches.push(v1::SourceBranch {
        taken: at(12),
        is_loop: true,
        ..Default::default()
    });
    let mut lens = lens(Pane::Source, "handle");
    lens.source = Some("handle".to_owned());
    update(&mut lens, Action::Drawn, &data);
    let go = |lens: &mut Lens, towards| {
        update(lens, Action::Move(towards), &data);
        text(lens, &data)
    };
    go(&mut lens, Next);
    says(
        &go(&mut lens, Next),
        &[
            "15 ●↺",
            "Enter: server.cc:15!else (the loop ends, goes on at line 16)   ←/→ 1 of 3",
        ],
    );
    says(
        &go(&mut lens, Right),
        &["Enter: server.cc:15!taken (round again from line 14)   ←/→ 2 of 3"],
    );
    says(
        &go(&mut lens, Next),
        &["16  ↺", "Enter: server.cc:12 (each time round of the loop)"],
    );

    // A loop that may not begin at all has two branches at a line, which are one step.
    let mut twice = data.clone();
    let source = Arc::make_mut(twice.source.as_mut().unwrap());
    let line = source.lines.iter_mut().find(|line| line.line == 15).unwrap();
    line.branches.push(v1::SourceBranch {
        taken: at(16),
        otherwise: at(14),
        ..Default::default()
    });
    let wide = |lens: &Lens| rows(&buffer(lens, &twice, (110, 24), Depth::None)).join("\n");
    let mut chosen = lens.clone();
    update(&mut chosen, Action::Move(Previous), &twice);
    says(
        &wide(&chosen),
        &["(the loop ends, goes on at line 16, or goes on at line 14)"],
    );
    update(&mut chosen, Action::Move(Right), &twice);
    says(
        &wide(&chosen),
        &["15!taken (round again from line 14, or goes on at line 16)"],
    );
    update(&mut lens, Action::Enter, &data);
    assert_eq!(lens.scope, "handle/server.cc:12");
    let back = go(&mut lens, Previous);
    says(&back, &["Enter: server.cc:15!"]);
}

#[test]
fn hits_have_values_and_counts() {
    let text = text(&lens(Pane::Hits, "handle/server.cc:14"), &sample::lossy());
    says(
        &text,
        &[
            "handle server.cc:14",
            "n=102",
            "n = 102  int",
            "9 hits, 3 of them shown, 4 rejected by conditions; not shown: rate_limit 2",
        ],
    );
}

/// A scope whose hits are looked at.
const OF_HITS: &str = "handle[>= p95]/server.cc:14";

/// Hits are looked at, and none has come for a while.
fn without_hits(counts: &[(&str, u64)]) -> Data {
    let mut data = sample::busy();
    let ready_at = Instant::now();
    data.hits = Hits::of(OF_HITS.to_owned());
    data.hits.ready(ready_at);
    data.counts = counts
        .iter()
        .map(|&(step, count)| {
            let counted = StepCount {
                count,
                rate_hz: None,
                at: ready_at,
            };
            (step.to_owned(), counted)
        })
        .collect();
    data.hits.note_time(ready_at);
    assert!(!data.hits.is_quiet, "a hit is waited for");
    data.hits.note_time(ready_at + Duration::from_secs(4));
    data
}

#[test]
fn a_line_that_the_branch_before_passes_over_is_said_to_be_so_at_once() {
    let mut data = sample::busy();
    data.hits = Hits::default();
    let shown = |scope: &str| text(&lens(Pane::Hits, scope), &data);
    says(
        &shown("handle/server.cc:13!taken/server.cc:14"),
        &[
            "no hit yet",
            "`server.cc:14` seems to lie on the other way of `server.cc:13!taken`, which",
            "goes on at line 15",
            "What to do: e edits the scope; in the source (5)",
        ],
    );
    for scope in [
        // The line that the branch leads to, either way, is not ruled out; nor is one behind both.
        "handle/server.cc:13!else/server.cc:14",
        "handle/server.cc:13!taken/server.cc:15",
        "handle/server.cc:13!else/server.cc:15",
        "handle/other.cc:13!taken/server.cc:14",
        // The line is in another call than the branch.
        "handle/server.cc:13!taken/handle/server.cc:14",
        // The source that was shown is that of another function.
        "parse/server.cc:13!taken/server.cc:14",
    ] {
        let shown = shown(scope);
        assert!(!shown.contains("What to do"), "{shown}");
    }
    // What was counted is more certain than the text.
    data.hits.state.reached = 1;
    let shown = text(&lens(Pane::Hits, "handle/server.cc:13!taken/server.cc:14"), &data);
    assert!(!shown.contains("seems to lie"), "{shown}");
}

#[test]
fn a_step_is_taken_back_by_the_key_that_takes_the_edit_back_which_added_it() {
    let mut data = sample::busy();
    data.hits = Hits::default();
    let mut lens = lens(Pane::Source, "handle/server.cc:13!taken");
    lens.source = Some("handle".to_owned());
    let line = crate::tui::lens::LineId {
        file: "/src/server.cc".to_owned(),
        line: 14,
    };
    lens.select(crate::tui::lens::Item::Line(line));
    update(&mut lens, Action::Values, &data);
    assert_eq!(lens.scope, "handle/server.cc:13!taken/server.cc:14");
    says(&text(&lens, &data), &["What to do: u takes the step back"]);
    // The last edit is another one then.
    lens.scope = "handle[>= p95]/server.cc:13!taken/server.cc:14".to_owned();
    says(&text(&lens, &data), &["What to do: e edits the scope"]);
}

#[test]
fn where_no_hit_comes_for_a_while_it_is_said_why_that_may_be() {
    let shown = |data: &Data| text(&lens(Pane::Hits, OF_HITS), data);
    let data = without_hits(&[("handle[>= p95]", 1234), ("server.cc:14", 0)]);
    // All calls are counted, however long they take.
    says(
        &shown(&data),
        &[
            "`handle` was reached 1,234 times, and `server.cc:14` not once",
            "What to do: e edits the scope",
        ],
    );
    says(
        &shown(&without_hits(&[("handle[>= p95]", 0), ("server.cc:14", 0)])),
        &["`handle` was not reached so far", "What to do: wait"],
    );
    says(
        &shown(&without_hits(&[])),
        &["The place was not reached in such calls so far"],
    );
    let mut ended = data;
    ended.ended = Some(End::other("the target exited"));
    let words = shown(&ended);
    says(
        &words,
        &[
            "no hit came; the session has ended",
            "`handle` was reached 1,234 times",
        ],
    );
    assert!(!words.contains("What to do"), "{words}");
    // Hits of another scope say nothing about these.
    ended.hits.scope = "handle".to_owned();
    says(
        &shown(&ended),
        &["the session has ended, and nothing was watched here"],
    );
}

#[test]
fn hits_that_came_and_are_not_shown_are_said_with_what_became_of_them() {
    let shown = |scope: &str, reached: u64, rejected: u64, lost: &[(&str, u64)]| {
        let mut data = without_hits(&[]);
        let state = &mut data.hits.state;
        (state.reached, state.rejected) = (reached, rejected);
        let lost = lost.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
        state.lost = lost.collect();
        text(&lens(Pane::Hits, scope), &data)
    };
    // All were rejected: by what the scope asks for.
    says(
        &shown("handle/server.cc:14[n > 3]", 3, 3, &[]),
        &[
            "The place was reached 3 times, and the conditions of the scope",
            "e edits the conditions",
        ],
    );
    says(
        &shown(OF_HITS, 3, 3, &[]),
        &[
            "The place was reached 3 times, each time in a call whose duration",
            "< and > move the duration",
        ],
    );
    // Some, or none.
    says(
        &shown(OF_HITS, 10, 3, &[("ring_full", 7)]),
        &[
            "The place was reached 10 times, and no hit is shown: 3 not as",
            "ring_full 7",
            "What to do: L explains each reason",
        ],
    );
    says(
        &shown(OF_HITS, 10, 0, &[("ring_full", 4), ("join_open", 6)]),
        &[
            "The place was reached 10 times, and no hit is shown: join_open 6",
            "What to do: L explains each reason",
        ],
    );
    says(
        &shown(OF_HITS, 10, 0, &[("join_open", 10)]),
        &["What to do: wait: hits in calls whose duration"],
    );
    says(
        &shown(OF_HITS, 0, 0, &[("too_deep", 2)]),
        &["What came of the place was lost: too_deep 2."],
    );
    says(
        &shown(OF_HITS, 5, 1, &[]),
        &["The place was reached 5 times, and what became of 4 of these"],
    );
}

#[test]
fn the_end_of_the_hits_own_session_is_not_that_of_the_one_on_the_screen() {
    let mut data = sample::busy();
    let last = |cause: v1::EndCause, reason: &str| {
        What::Hits(Incoming::Message(Box::new(v1::WatchTraceResponse {
            info: Some(v1::StreamInfo {
                seq: 1,
                end: Some(v1::StreamEnd {
                    cause: cause.into(),
                    reason: reason.to_owned(),
                    signal: 0,
                }),
                ..v1::StreamInfo::default()
            }),
            ..v1::WatchTraceResponse::default()
        })))
    };
    let action = taken::take(
        &mut data,
        last(
            v1::EndCause::Budget,
            "its probes took 14%, over the budget of 3%.",
        ),
    );
    assert_eq!(action, None);
    assert!(!data.is_over());
    says(
        &text(&lens(Pane::Hits, SLOW), &data),
        &["no more hits come: its probes took 14%", "K attaches", "n=102"],
    );
    let top = text(&lens(Pane::Top, SLOW), &data);
    assert!(!top.contains("no more hits") && !top.contains("ended:"), "{top}");
    taken::take(&mut data, What::HitsBegin(SLOW.to_owned()));
    assert_eq!(data.hits.ended, None, "they begin anew");
    // Where the target ended, that is said once.
    let reason = "process 4211 (server) ended";
    taken::take(&mut data, last(v1::EndCause::Target, reason));
    let of_stacks = v1::WatchFlameResponse {
        info: Some(v1::StreamInfo {
            end: Some(v1::StreamEnd {
                cause: v1::EndCause::Target.into(),
                reason: reason.to_owned(),
                signal: 0,
            }),
            ..v1::StreamInfo::default()
        }),
        ..v1::WatchFlameResponse::default()
    };
    taken::take(&mut data, What::Flame(Incoming::Message(Box::new(of_stacks))));
    assert!(data.is_over());
    let shown = text(&lens(Pane::Hits, SLOW), &data);
    assert_eq!(shown.matches(reason).count(), 1, "{shown}");
    // A recording's hits are all there.
    let mut recorded = sample::busy();
    taken::take(
        &mut recorded,
        last(v1::EndCause::Recording, "the end of the recording"),
    );
    assert_eq!((recorded.hits.ended, recorded.ended), (None, None));
}

#[test]
fn no_other_values_are_asked_for_once_the_session_has_ended() {
    let mut data = sample::busy();
    data.ended = Some(End::other("the target exited"));
    let mut lens = lens(Pane::Hits, SLOW);
    update(&mut lens, Action::EditPrint, &data);
    assert!(lens.input.is_none());
    says(&text(&lens, &data), &["The session has ended: no other values"]);
}

#[test]
fn reasons_lead_to_the_next_step() {
    let text = text(&lens(Pane::Explain, SLOW), &sample::busy());
    says(
        &text,
        &[
            "100 slow calls of 3.00 ms on average",
            "99.0%    1.0%    +90.0%   server.cc:13!else",
            "Enter: handle[>= p95]/server.cc:13!else",
        ],
    );
}

#[test]
fn the_slowest_calls_are_listed_and_one_is_opened() {
    let mut lens = lens(Pane::Spans, SLOW);
    let data = sample::busy();
    let shown = text(&lens, &data);
    says(
        &shown,
        &[
            "the 2 slowest so far; 2,000 calls in the last 10 s",
            "    20.0 ms   6.00 ms   14.0 ms    1.000 s     4631  handle",
            "    the call  20.0 ms                    ██░░░░░░██░░░░░░░░░░░░░░░░░░░████░░████",
            "    read [sleeping]  11.0 ms in 2                 █████████████████████   ███",
            "    server.cc:13  at 12.0 µs             ▏",
            "name  5.00 ms                      ██████████",
            "    … and 7 more inside",
            "time:   6.00 ms on the CPU, 14.0 ms sleeping",
            "[sleeping] at +5.00 ms, the longest of 3",
            "read  server.cc:3",
            "Enter as slow",
        ],
    );
    update(&mut lens, Action::Drawn, &data);
    for _ in 0..2 {
        update(&mut lens, Action::Move(crate::tui::lens::Move::Down), &data);
    }
    says(&text(&lens, &data), &["the call  4.00 ms", "no sample hit it"]);
    update(&mut lens, Action::Enter, &data);
    assert_eq!((lens.scope.as_str(), lens.pane), ("handle[>= 4ms]", Pane::Graph));
}

#[test]
fn threads_are_listed_with_those_of_one_name_together() {
    let shown = text(&lens(Pane::Threads, ""), &sample::by_thread());
    says(
        &shown,
        &[
            "ON CPU    OFF CPU   SAMPLES  THREAD",
            "17.0 s          -        23  clerk-*  2 threads",
            "9.00 s          -        11    clerk-1 (4212)",
            "evil\\u{1b}[2J",
            "Enter these alone",
        ],
    );
}

#[test]
fn counters_are_drawn_over_time_and_lead_to_where_they_count() {
    let shown = text(&lens(Pane::Timeline, ""), &sample::busy());
    says(
        &shown,
        &[
            "counter",
            "0.50  task-clock (CPUs)",
            "page-faults (/s)   ▁",
            "Enter: where the selected counter",
        ],
    );
}

#[test]
fn losses_have_their_view_and_probes_their_cost() {
    let shown = text(&lens(Pane::Losses, SLOW), &sample::lossy());
    says(
        &shown,
        &[
            "200    7.00 µs        0.1%  handle",
            "not counted: probes of earlier steps; panes 6 to 9, 0 and events",
            "1,234  sample_ring_full  samples",
            "2  rate_limit  hits",
            "! each return is single-stepped",
            "! another",
            "daemon 0.4% of a core, 16.0 MiB",
        ],
    );
}

#[test]
fn how_near_probes_are_to_their_budget_is_said() {
    let mut data = sample::busy();
    let shown = |data: &Data| text(&lens(Pane::Latency, SLOW), data);
    says(&shown(&data), &["probes 0.1% of a core"]);
    let cost = Arc::make_mut(&mut data.flame).cost.as_mut().unwrap();
    cost.budget_use = Some(v1::BudgetUse {
        taken: 0.021,
        allowed: 0.03,
    });
    says(&shown(&data), &["probes 2.1% of the target's time (budget 3.0%)"]);
}

#[test]
fn a_scope_that_was_left_is_said_until_another_is_looked_at() {
    let data = sample::busy();
    let mut lens = lens(Pane::Top, "handle");
    let end = End {
        cause: v1::EndCause::Budget,
        reason: "its probes took 9%, over the budget of 3%".to_owned(),
    };
    update(&mut lens, Action::Ended(end), &data);
    let attached = |scope: &str| Action::Attached {
        scope: scope.to_owned(),
    };
    update(&mut lens, attached(""), &data);
    for action in [
        Action::Show(Pane::Graph),
        Action::Show(Pane::Threads),
        Action::Back,
    ] {
        update(&mut lens, action, &data);
        says(&text(&lens, &data), &["`handle` is left: its probes took 9%"]);
    }
    lens.scope = "parse".to_owned();
    assert!(!text(&lens, &data).contains("is left"));
}

#[test]
fn hits_are_searched_by_place_value_and_thread() {
    let data = sample::busy();
    let mut lens = lens(Pane::Hits, "handle/server.cc:14");
    for (search, found) in [("n=101", 1), ("handle", 3), ("7", 3), ("n=2", 0)] {
        lens.search = search.to_owned();
        assert_eq!(data.hits_shown(&lens).count(), found, "{search}");
    }
    says(
        &text(&lens, &data),
        &["matching `n=2`", "no hit matches the search"],
    );
    // What is selected is one of them.
    lens.search = "n=101".to_owned();
    update(&mut lens, Action::Move(crate::tui::lens::Move::Up), &data);
    assert_eq!(
        data.selected_value(&lens),
        Some(("n".to_owned(), "101".to_owned()))
    );
}

#[test]
fn findings_have_the_text_of_their_line() {
    let shown = text(&lens(Pane::Explain, SLOW), &sample::busy());
    says(&shown, &["server.cc:13!else   if (n > 100)"]);
}

fn over_budget(reason: &str) -> v1::TakenOff {
    v1::TakenOff {
        reason: reason.to_owned(),
        over_budget: true,
    }
}

#[test]
fn what_was_taken_off_has_the_cost_of_that_moment() {
    let mut data = sample::busy();
    let function = data.latency.functions.get_mut(&1).unwrap();
    function.taken_off = Some(over_budget(
        "20,000 calls a second took 14% of the target's CPU time, over the budget of 3%",
    ));
    // The window forgets the calls of before.
    function.window.rate_hz = 3.0;
    data.latency.scope = SLOW.to_owned();
    let shown = text(&lens(Pane::Losses, SLOW), &data);
    says(
        &shown,
        &[
            "2,000 calls, until taken off",
            "-    7.00 µs           -  handle  taken off",
            "handle was taken off: 20,000 calls a second took 14% of the target's CPU",
        ],
    );
    assert!(!shown.contains("3/s"), "{shown}");
    // Of several, the rate is that of those that are on.
    let mut on = data.latency.functions[&1].clone();
    on.taken_off = None;
    on.window.rate_hz = 70.0;
    data.latency.functions.insert(3, on);
    says(&text(&lens(Pane::Losses, SLOW), &data), &["4,000 calls, 70/s"]);
    // The selected one says its own reason.
    let mut other = data.latency.functions[&1].clone();
    other.function.name = "parse".to_owned();
    other.taken_off = Some(over_budget(
        "9,000 calls a second took 5% of the target's CPU time, over the budget of 3%",
    ));
    data.latency.functions.insert(2, other);
    let mut lens = lens(Pane::Losses, SLOW);
    lens.select(crate::tui::lens::Item::Probed(2));
    says(
        &text(&lens, &data),
        &[
            "handle (and 1 more) was taken off:",
            "parse was taken off: 9,000 calls a second took 5%",
        ],
    );
    // Its lines leave room for what stands below.
    let on = data.latency.functions[&3].clone();
    data.latency.functions.extend((4..40).map(|id| (id, on.clone())));
    says(
        &text(&lens, &data),
        &[
            "parse was taken off: 9,000 calls a second took 5%",
            "! each return is single-stepped",
            "! another",
            "nothing was lost",
        ],
    );
}

#[test]
fn all_losses_are_in_reach_below_the_warnings_and_the_selected_one_is_explained() {
    use crate::tui::lens::Move;

    let mut data = sample::lossy();
    let reasons = [
        "abandoned",
        "too_deep",
        "ring_full",
        "disturbed",
        "edited",
        "open",
        "end_lost",
        "join_limit",
        "join_full",
        "join_open",
        "join_expired",
        "batch_full",
        "slow_client",
        "symbols_behind",
    ];
    data.hits.state.lost = (20..)
        .zip(reasons)
        .map(|(count, reason)| (reason.to_owned(), count))
        .collect();
    let mut lens = lens(Pane::Losses, SLOW);
    update(&mut lens, Action::Drawn, &data);
    let shown = text(&lens, &data);
    says(
        &shown,
        &[
            "! each return is single-stepped",
            "! another",
            "  sample_ring_full: a sample that found no room. What to do:",
        ],
    );
    // The function with probes comes first, behind it as many losses as there are.
    for loss in data.losses_by_view() {
        update(&mut lens, Action::Move(Move::Down), &data);
        let shown = text(&lens, &data);
        let reason = loss.id.reason;
        says(
            &shown,
            &[
                &format!("  {reason}  {}", loss.id.view),
                &format!("  {reason}: "),
                "What to do:",
                "! each return is single-stepped",
                "200    7.00 µs        0.1%  handle",
            ],
        );
        assert_eq!(shown.matches("What to do:").count(), 1, "{shown}");
    }
    // Enter belongs to the functions.
    update(&mut lens, Action::Enter, &data);
    assert!(
        lens.notice
            .as_ref()
            .is_some_and(|notice| notice.starts_with("Select a function"))
    );
}

#[test]
fn what_does_not_fit_at_the_edges_of_the_screen_is_not_cut_in_a_word() {
    let mut data = sample::lossy();
    data.ended = Some(End::other("The daemon is gone: transport error"));
    let shown = text(&lens(Pane::Top, SLOW), &data);
    let heading = shown.lines().next().unwrap_or_default();
    assert!(heading.ends_with("transport error  ! L"), "{heading}");
    let foot = |shown: &str| shown.lines().nth(22).unwrap_or_default().trim_end().to_owned();
    // Probes and daemon cost nothing any more.
    assert_eq!(foot(&shown), "lost: rate_limit 2, sample_ring_full 1,234");
    for reason in ["ring_full", "symbols_behind", "slow_client", "join_expired"] {
        data.hits.state.lost.insert(reason.to_owned(), 1_000_000);
    }
    let shown = text(&lens(Pane::Top, SLOW), &data);
    assert_eq!(foot(&shown), "lost: for 6 reasons, L explains them");
}

#[test]
fn a_step_of_a_long_name_shows_what_it_asks_for() {
    let scope = "\"std::collections::hash::map::HashMap<alloc::string::String, alloc::vec::Vec<u64>>::insert\"[>= p95]";
    let shown = text(&lens(Pane::Top, scope), &sample::busy());
    let path = shown.lines().nth(1).unwrap_or_default();
    assert!(
        path.starts_with(" ▸ \"std::collections::") && path.ends_with("::insert\"[>= p95]"),
        "{path}"
    );
}

#[test]
fn a_step_of_many_functions_says_how_many_and_is_short() {
    let scope = format!("{}*[>= p95]", "ngx_http_upstream_".repeat(8));
    let mut data = sample::busy();
    data.latency.scope.clone_from(&scope);
    let one = data.latency.functions[&1].clone();
    data.latency.functions = (0..212).map(|id| (id, one.clone())).collect();
    let shown = text(&lens(Pane::Top, &scope), &data);
    says(
        &shown,
        &["▸ ngx_http_upstream_", "…", "_*[>= p95]  (212 functions)"],
    );
    assert!(!text(&lens(Pane::Top, SLOW), &sample::busy()).contains("functions)"));
}

#[test]
fn a_long_scope_is_typed_in_two_lines_with_the_cursor_in_sight() {
    use crate::tui::lens::Typing;

    let shown = |scope: &str, keys: &[Typing]| {
        let mut lens = lens(Pane::Top, scope);
        update(&mut lens, Action::EditScope, &Data::default());
        for key in keys {
            update(&mut lens, Action::Type(key.clone()), &Data::default());
        }
        let rows = rows(&buffer(&lens, &sample::busy(), (80, 24), Depth::None));
        (rows[1].clone(), rows[2].clone())
    };
    // Both lines have room for all of it.
    let names: Vec<String> = (10..28).map(|number| format!("f{number}")).collect();
    let fits = names.join("|");
    let (first, second) = shown(&fits, &[]);
    let whole = first.trim_start_matches("scope ▸ ").to_owned() + second.trim_start();
    assert_eq!(whole, fits.clone() + "▏");
    // More than that: the cursor stays in sight at both ends and within, and marks say where it goes on.
    let long = vec![fits; 5].join("|");
    let (first, second) = shown(&long, &[]);
    assert!(
        first.starts_with("scope ▸ …") && second.ends_with("f27▏"),
        "{first}\n{second}"
    );
    let (first, second) = shown(&long, &[Typing::Home]);
    assert!(
        first.starts_with("scope ▸ ▏f10|") && second.ends_with('…'),
        "{first}\n{second}"
    );
    let back = vec![Typing::Left; 180];
    let (first, second) = shown(&long, &back);
    assert!(
        first.starts_with("scope ▸ …") && second.ends_with('…'),
        "{first}\n{second}"
    );
    assert!(first.contains('▏') || second.contains('▏'), "{first}\n{second}");
}

#[test]
fn losses_stay_in_sight_below_many_warnings() {
    let mut data = sample::lossy();
    let mut session = v1::Session::clone(data.session.as_deref().unwrap());
    session.warnings = (0..30).map(|at| format!("warning {at}")).collect();
    data.session = Some(Arc::new(session));
    let shown = text(&lens(Pane::Losses, SLOW), &data);
    says(
        &shown,
        &[
            "! warning 0",
            "more lines of warnings: a higher terminal shows them",
            "1,234  sample_ring_full  samples",
            "200    7.00 µs        0.1%  handle",
        ],
    );
}

#[test]
fn sessions_are_in_reach_while_attached() {
    let mut data = sample::busy();
    data.sessions = vec![v1::Session {
        name: "web\x1b".to_owned(),
        watchers: 3,
        ..v1::Session::default()
    }];
    let shown = text(&lens(Pane::Sessions, ""), &data);
    says(
        &shown,
        &[
            "WATCHERS  SCOPE",
            "web\\u{1b}",
            "3  everything",
            "WATCHERS are the views that are open of a session",
            "Enter join",
        ],
    );
}

#[test]
fn what_is_not_shown_of_stacks_is_said() {
    let mut data = sample::busy();
    let mut lens = lens(Pane::Graph, "");
    lens.shape.hide = crate::state::shape::Patterns::read("compress");
    lens.at_least = 5;
    data.settle(&lens);
    let shown = text(&lens, &data);
    says(
        &shown,
        &["28.9% of all: without compress, at least 0.5%", "▏parse"],
    );
    assert!(!shown.contains("▏compress"), "{shown}");
    lens.pane = Pane::Difference;
    data.settle(&lens);
    says(
        &text(&lens, &data),
        &[
            "▏compress",
            "whole stacks are compared; on other panes only: without compress",
        ],
    );
}

#[test]
fn what_leaves_out_everything_is_said_with_the_way_back() {
    for pane in [Pane::Top, Pane::Graph] {
        let mut data = sample::busy();
        let mut lens = lens(pane, "");
        lens.shape.hide = crate::state::shape::Patterns::read("*");
        data.settle(&lens);
        says(&text(&lens, &data), &["without *", "H edits which"]);
    }
}

#[test]
fn nothing_of_another_view_is_shown_as_if_it_were_this_one() {
    let mut data = sample::busy();
    let mut lens = lens(Pane::Graph, "");
    lens.event = "page-faults".to_owned();
    data.settle(&lens);
    let shown = text(&lens, &data);
    says(&shown, &["of page-faults", "no sample so far"]);
}

#[test]
fn each_pane_has_its_key_on_the_smallest_screen() {
    for pane in Pane::ALL {
        let shown = text(&lens(pane, SLOW), &sample::busy());
        let tabs = shown.lines().nth(3).unwrap();
        for key in [
            "1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "T", "C", "S", "L",
        ] {
            assert!(tabs.split(' ').any(|tab| tab.starts_with(key)), "{key}: {tabs}");
        }
        assert!(tabs.contains(pane.name()) && tabs.chars().count() <= 80, "{tabs}");
    }
}

#[test]
fn what_a_pane_cannot_show_of_a_scope_is_said() {
    let mut data = sample::busy();
    data.aside.failure = Some("waits cannot be filtered by call duration".to_owned());
    let is_of_scope = |pane: &Pane| pane.is_aside() && *pane != Pane::Sessions;
    for pane in Pane::ALL.into_iter().filter(is_of_scope) {
        says(&text(&lens(pane, SLOW), &data), &["by call duration"]);
    }
}

#[test]
fn nothing_is_said_to_be_nothing() {
    for pane in Pane::ALL {
        let mut lens = lens(pane, SLOW);
        lens.source = Some("handle".to_owned());
        let text = text(&lens, &sample::empty());
        let words = match pane {
            Pane::Source => "reading the source",
            Pane::Hits => "no hit yet",
            Pane::Timeline => "counting",
            Pane::Losses => "no function has probes",
            pane if pane.is_aside() => "looking",
            _ => "no sample in these calls so far",
        };
        says(&text, &[words]);
    }
}

#[test]
fn a_recording_is_shown_with_its_length_and_the_panes_that_it_has() {
    let mut data = sample::busy();
    data.ended = Some(End {
        cause: v1::EndCause::Recording,
        reason: "the end of the recording".to_owned(),
    });
    data.session = Some(Arc::new(v1::Session {
        recorded: Some(prost_types::Duration {
            seconds: 90,
            nanos: 0,
        }),
        ..v1::Session::default()
    }));
    let mut lens = lens(Pane::Top, SLOW);
    lens.target = Some(Target::Recording(Recorded {
        path: "incident\x1b.profrec".to_owned(),
        time: RecordedTime::default(),
        without_scope: false,
    }));
    let shown = text(&lens, &data);
    says(
        &shown,
        &[
            "recording incident\\u{1b}.profrec  90.0 s",
            "1top 2graph 3latency 4diff 5source 6hits 7explain",
        ],
    );
    for absent in ["ended:", "sessions"] {
        assert!(!shown.contains(absent), "{absent} is in\n{shown}");
    }
    data.ended = Some(End::other("the scope was changed 3 s into the recording"));
    says(&text(&lens, &data), &["ended: the scope was changed"]);
    // The window is of the end alone.
    let function = data.latency.functions.get_mut(&1).unwrap();
    (function.since_start.rate_hz, function.window.rate_hz) = (22.0, 70.0);
    data.latency.scope = SLOW.to_owned();
    says(&text(&lens, &data), &["2,000 calls, 22/s"]);
}

#[test]
fn a_profile_of_another_tool_is_shown_as_stacks_and_nothing_is_said_of_calls() {
    let data = sample::busy();
    let mut lens = lens(Pane::Top, "");
    lens.target = Some(Target::Profile("before.pb.gz".to_owned()));
    let shown = text(&lens, &data);
    says(&shown, &["profile before.pb.gz", "1top 2graph", "samples"]);
    for absent in ["3latency", "on the CPU", "lost none", "time its calls", "edit"] {
        assert!(!shown.contains(absent), "{absent} is in\n{shown}");
    }
}

#[test]
fn a_target_that_ended_losses_and_refusals_are_on_every_screen() {
    let mut data = sample::lossy();
    data.ended = Some(End::other("the target exited\x1b[2J"));
    data.settle(&Lens::default());
    for pane in Pane::ALL {
        let mut lens = lens(pane, SLOW);
        lens.notice = Some("No function matches `handel`.\nNearest names:\n  handle".to_owned());
        let text = text(&lens, &data);
        says(
            &text,
            &[
                "ended: the target exited\\u{1b}[2J",
                "lost: ",
                "sample_ring_full 1,234",
                "Nearest names:",
            ],
        );
    }
}

#[test]
fn once_the_target_has_ended_panes_keep_their_last_pictures_and_others_name_those() {
    let aside = |pane, scope: &str| {
        let scope = scope.to_owned();
        What::AsideBegin(AsideOf { pane, scope })
    };
    let refused = || Failure::failed("session `s1` has ended");
    let mut data = sample::busy();
    let whole = data.clone();
    let waits = whole.aside.waits;
    // Waits were looked at, then system calls; then the target ends.
    taken::take(&mut data, aside(Pane::Waits, "handle"));
    data.aside.waits = waits;
    taken::take(&mut data, aside(Pane::Syscalls, "handle"));
    taken::take(&mut data, What::HitsBegin(SLOW.to_owned()));
    data.hits.rows = whole.hits.rows;
    data.ended = Some(End::other("the target exited"));
    let shown = |data: &Data, pane| text(&lens(pane, SLOW), data);
    says(
        &shown(&data, Pane::Syscalls),
        &[
            "nothing was watched here; still to be seen:",
            "latency (3)",
            "waits (8)",
        ],
    );
    // What is asked for is refused, and takes nothing away.
    taken::take(&mut data, What::Flame(Incoming::Broken(refused())));
    taken::take(&mut data, What::Counts(Vec::new()));
    taken::take(&mut data, What::HitsBegin(SLOW.to_owned()));
    taken::take(&mut data, What::Hits(Incoming::Broken(refused())));
    taken::take(&mut data, aside(Pane::Waits, "handle"));
    taken::take(&mut data, What::Waits(Incoming::Broken(refused())));
    for (pane, words) in [
        (Pane::Top, "compress"),
        (Pane::Graph, "compress"),
        (Pane::Latency, "calls since the start"),
        (Pane::Hits, "n=102"),
        (Pane::Waits, "clerk-*"),
    ] {
        let shown = shown(&data, pane);
        says(&shown, &[words]);
        assert!(!shown.contains("nothing was watched"), "{shown}");
    }
    taken::take(&mut data, aside(Pane::Explain, SLOW));
    taken::take(&mut data, What::Explained(Incoming::Broken(refused())));
    let of_another_view = "the stacks that came last are of another view";
    for (pane, why) in [
        (Pane::Explain, "nothing was watched here"),
        (Pane::Difference, of_another_view),
        (Pane::Threads, of_another_view),
    ] {
        let lens = lens(pane, SLOW);
        Arc::make_mut(&mut data.flame).differences.clear();
        data.settle(&lens);
        says(&text(&lens, &data), &[why, "graph (2)", "hits (6)"]);
    }
    // What was seen of another scope is not what is asked for.
    taken::take(&mut data, aside(Pane::Waits, "parse"));
    says(
        &text(&lens(Pane::Waits, "parse"), &data),
        &["nothing was watched here"],
    );
}

#[test]
fn why_a_pane_has_nothing_stays_true_when_the_session_has_ended() {
    let ended = |mut data: Data| {
        data.ended = Some(End::other("the target exited"));
        data
    };
    let mut left_out = ended(sample::busy());
    let mut lens_without = lens(Pane::Top, SLOW);
    lens_without.shape.hide = crate::state::shape::Patterns::read("*");
    left_out.settle(&lens_without);
    says(
        &text(&lens_without, &left_out),
        &["H edits which", "the session has ended"],
    );
    let mut without_samples = ended(sample::empty());
    let snapshot = v1::WatchFlameResponse {
        snapshot: true,
        ..v1::WatchFlameResponse::default()
    };
    Arc::make_mut(&mut without_samples.flame).apply(snapshot).unwrap();
    says(
        &text(&lens(Pane::Top, SLOW), &without_samples),
        &["no sample in these calls so far; the session has ended"],
    );
    says(
        &text(&lens(Pane::Top, ""), &without_samples),
        &["the process may have been idle; the session has ended"],
    );
    let mut without_calls = ended(sample::empty());
    let calls = v1::WatchSpansResponse::default();
    without_calls.aside.calls.apply(calls).unwrap();
    says(
        &text(&lens(Pane::Spans, SLOW), &without_calls),
        &["no call has ended in the window; the session has ended"],
    );
    for pane in [Pane::Top, Pane::Spans, Pane::Latency, Pane::Waits] {
        says(
            &text(&lens(pane, SLOW), &ended(sample::empty())),
            &["nothing was watched here"],
        );
    }
}

#[test]
fn the_source_that_was_shown_stays_when_the_session_has_ended_and_is_no_other_functions() {
    let mut data = sample::busy();
    data.ended = Some(End::other("the target exited"));
    let gone = |place: &str| What::Source(place.to_owned(), Err(Failure::failed("process 4211 is gone")));
    let shown = |data: &Data, function: &str| {
        let mut lens = lens(Pane::Source, SLOW);
        lens.source = Some(function.to_owned());
        text(&lens, data)
    };
    taken::take(&mut data, gone("parse"));
    let other = shown(&data, "parse");
    says(&other, &["process 4211 is gone"]);
    assert!(!other.contains("compress(n);"), "{other}");
    taken::take(&mut data, gone("handle"));
    says(&shown(&data, "handle"), &["compress(n);"]);
    // It is named as what can be seen where it is what would be shown.
    let named = |function: &str| {
        let mut lens = lens(Pane::Explain, SLOW);
        lens.source = Some(function.to_owned());
        data.panes_with_pictures(&lens).contains(&Pane::Source)
    };
    assert!(named("handle") && !named("parse"));
    // What there is no source of says why.
    let mut without = sample::empty();
    without.ended = Some(End::other("the target exited"));
    taken::take(&mut without, gone("handle"));
    says(&shown(&without, "handle"), &["process 4211 is gone"]);
}

/// A screen with its styles: each row's text, below it what is not plain, as columns and what they look like.
fn styled(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let mut text = String::new();
    for (row, cells) in rows(buffer).iter().zip(buffer.content.chunks(width)) {
        text.push_str(row);
        text.push('\n');
        let mut styles: Vec<String> = Vec::new();
        let mut begin = 0;
        for at in 1..=cells.len() {
            let look = |cell: &ratatui::buffer::Cell| (cell.fg, cell.bg, cell.modifier);
            if at < cells.len() && look(&cells[at]) == look(&cells[begin]) {
                continue;
            }
            let (fg, bg, modifier) = look(&cells[begin]);
            if look(&cells[begin]) != look(&ratatui::buffer::Cell::EMPTY) {
                styles.push(format!("{begin}-{} {fg} on {bg} {modifier:?}", at - 1));
            }
            begin = at;
        }
        if !styles.is_empty() {
            text.push_str(&format!("    {}\n", styles.join(", ")));
        }
    }
    text
}

/// What has happened.
struct Situation {
    name: &'static str,
    data: Data,
    notice: Option<&'static str>,
}

/// What a service may have sent.
fn situations() -> Vec<Situation> {
    let mut missing = sample::busy();
    let flame = Arc::make_mut(&mut missing.flame);
    for frame in flame.frames.values_mut() {
        frame.function = format!("[server+{:#x}]", frame.id);
        frame.unresolved = "no symbols".to_owned();
    }
    missing.stale = true;
    missing.source = None;
    missing.source_failure = Some("There is no debug information of server.".to_owned());
    let mut ended = sample::lossy();
    ended.ended = Some(End::other("the target exited"));
    let mut gone = sample::busy();
    gone.ended = Some(End::other("The daemon is gone: transport error"));
    let of = |name, data| Situation {
        name,
        data,
        notice: None,
    };
    let mut refused = of("refused", sample::busy());
    refused.notice = Some("No function matches `handel`.\nNearest names:\n  handle");
    vec![
        of("empty", sample::empty()),
        of("busy", sample::busy()),
        of("symbols missing", missing),
        of("losses", sample::lossy()),
        of("target ended", ended),
        of("host gone", gone),
        refused,
    ]
}

/// Compares a pane's screens with those of before, which `UPDATE_SNAPSHOTS=1` replaces.
#[test]
fn every_pane_looks_as_before_whatever_happens() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tui/view/snapshots");
    for pane in Pane::ALL {
        let mut text = String::new();
        for Situation {
            name,
            mut data,
            notice,
        } in situations()
        {
            let mut lens = lens(pane, SLOW);
            lens.source = Some("handle".to_owned());
            lens.notice = notice.map(str::to_owned);
            if pane == Pane::Threads && data.flame.started {
                data.flame = sample::by_thread().flame;
                data.stale = true;
            }
            data.settle(&lens);
            let drawn = buffer(&lens, &data, (80, 24), Depth::Sixteen);
            text.push_str(&format!("=== {name}\n{}", styled(&drawn)));
        }
        let file = folder.join(format!("{}.txt", pane.name()));
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        let differs = before
            .lines()
            .zip(text.lines())
            .position(|(before, now)| before != now);
        let at = differs.unwrap_or_else(|| before.lines().count().min(text.lines().count()));
        assert!(
            before == text,
            "{} line {}: `{}` was `{}`; UPDATE_SNAPSHOTS=1 takes the screens as they are",
            file.display(),
            at + 1,
            text.lines().nth(at).unwrap_or_default(),
            before.lines().nth(at).unwrap_or_default()
        );
    }
}

#[test]
fn every_size_and_colour_is_drawn_without_control_characters() {
    for pane in Pane::ALL {
        for size in [
            (80, 24),
            (120, 36),
            (300, 80),
            (20, 4),
            (1, 1),
            (5, 100),
            (300, 3),
        ] {
            for depth in [Depth::None, Depth::Sixteen, Depth::Indexed, Depth::True] {
                for data in [sample::empty(), sample::busy()] {
                    let mut lens = lens(pane, "handle[>= p95]/server.cc:13!else");
                    lens.search = "a".to_owned();
                    let drawn = buffer(&lens, &data, size, depth);
                    let is_harmless = |c: char| !c.is_control() && c != '\u{202e}';
                    assert!(
                        drawn
                            .content
                            .iter()
                            .all(|cell| cell.symbol().chars().all(is_harmless))
                    );
                    if depth == Depth::None {
                        use ratatui::style::Color::Reset;
                        assert!(
                            drawn
                                .content
                                .iter()
                                .all(|cell| cell.fg == Reset && cell.bg == Reset)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn help_fits_on_the_smallest_screen() {
    for screen in Pane::ALL.map(Some).into_iter().chain([None]) {
        let mut lens = screen.map_or_else(Lens::default, |pane| lens(pane, SLOW));
        // Without the frame and the two lines at the foot.
        for (overlay, of_screen) in [(Overlay::Help, true), (Overlay::MoreHelp, false)] {
            let lines = help(&lens, of_screen);
            assert!(
                (1..=20).contains(&lines.len()),
                "{} lines on {screen:?}",
                lines.len()
            );
            for line in lines {
                assert!(line.width() <= 76, "{}", line.text());
            }
            lens.overlay = overlay;
            says(&text(&lens, &sample::busy()), &[" keys of ", "any key closes) "]);
        }
    }
}

#[test]
fn the_scope_is_typed_with_suggestions() {
    let mut lens = lens(Pane::Top, "");
    lens.input = Some(Input::new(Purpose::Scope, "hand"));
    let text = text(&lens, &sample::busy());
    says(
        &text,
        &[
            "scope ▸ hand▏",
            " Tab completes, ↑↓ choose ",
            "a::<b>::handle",
            "Enter done",
        ],
    );
}

#[test]
fn the_source_of_a_recording_stays_while_samples_of_another_scope_are_to_come() {
    let mut data = sample::by(v1::Grouping::Line);
    let mut lens = lens(Pane::Source, "");
    lens.target = Some(Target::Recording(Recorded {
        path: "a.profrec".to_owned(),
        time: RecordedTime::default(),
        without_scope: false,
    }));
    lens.source = Some("handle".to_owned());
    data.source = None;
    data.settle(&lens);
    says(
        &text(&lens, &data),
        &["handle  /src/server.cc:2–2", "where samples were taken"],
    );
    (data.flame, data.stale) = (Arc::default(), true);
    data.settle(&lens);
    says(&text(&lens, &data), &["handle  /src/server.cc:2–2"]);
    lens.source = Some("compress".to_owned());
    data.settle(&lens);
    says(&text(&lens, &data), &["reading the source"]);
}

#[test]
fn lines_of_the_source_have_their_time() {
    let mut data = sample::by(v1::Grouping::Line);
    let mut lens = lens(Pane::Source, "");
    lens.source = Some("handle".to_owned());
    data.settle(&lens);
    let key = LineKey {
        file: "/src/server.cc".to_owned(),
        line: 14,
    };
    let time = LineTime {
        all_ns: data.graph.total.inside_ns / 2,
        off_cpu_ns: data.graph.total.inside_ns / 8,
    };
    data.lines = Arc::new([(key, time)].into());
    let line_of = |width| {
        let drawn = rows(&buffer(&lens, &data, (width, 24), Depth::None));
        let heading = drawn.iter().position(|row| row.trim_end().ends_with("SHARE"));
        let heading = drawn[heading.unwrap()].trim_end().to_owned();
        let line = drawn.into_iter().find(|row| row.contains("compress(n);"));
        (heading, line.unwrap())
    };
    let (heading, line) = line_of(80);
    assert_eq!(heading, "    TIME  SHARE");
    let all = units::duration(time.all_ns as f64);
    assert!(line.starts_with(&format!("{all:>8}  50.0%  14 ")), "{line}");
    let (heading, line) = line_of(120);
    assert_eq!(heading, "  ON CPU OFF CPU  SHARE");
    let [on, off] = [time.all_ns - time.off_cpu_ns, time.off_cpu_ns].map(|ns| units::duration(ns as f64));
    assert!(
        line.starts_with(&format!("{on:>8}{off:>8}  50.0%  14 ")),
        "{line}"
    );
}
