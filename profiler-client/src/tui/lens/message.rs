//! A lens as a message of the protocol, both ways: what recordings and other clients share.

use std::time::Duration;

use profiler_proto::v1;
use prost::Message as _;

use super::{
    Band, FrameId, Lens, MAX_MARKED, Pane, Picture, Recorded, Target,
    path::{self, read},
};
use crate::{
    cli::{
        args::{By, RecordedTime},
        validate::recorded_time,
    },
    state::{
        functions::Sort,
        shape::{Around, Patterns, Shape},
    },
};

/// The largest message that is taken, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// Frames of a zoom, and expressions, that are taken of a message at most.
const MAX_TAKEN: usize = 1024;

/// The longest text that is taken of a message, in bytes: all that is listed is searched for it each time that it is drawn.
const MAX_TEXT_BYTES: usize = 4096;

/// Patterns of one text that are taken of a message at most: every function is held against each of them.
const MAX_PATTERNS: usize = 64;

/// The largest share below which something is left out, in tenths of a percent.
const WHOLE: u16 = 1000;

/// A lens as a message. What is looked at is not in it, nor what is being typed, nor what is selected.
#[must_use]
pub fn of(lens: &Lens) -> v1::Lens {
    let time = match &lens.target {
        Some(Target::Recording(Recorded { time, .. })) if *time != RecordedTime::default() => {
            Some(recorded_time(Some(*time)))
        }
        _ => None,
    };
    v1::Lens {
        scope: lens.scope.clone(),
        pane: pane_to_message(lens.pane).into(),
        time,
        by: lens.by.grouping().into(),
        event: lens.event.clone(),
        zoom: lens.zoom.iter().map(frame_to_message).collect(),
        search: lens.search.clone(),
        sort: match lens.sort {
            Sort::Own => v1::LensSort::Self_,
            Sort::Total => v1::LensSort::Total,
        }
        .into(),
        threads: lens.shape.threads.text().to_owned(),
        hide: lens.shape.hide.text().to_owned(),
        fold: lens.shape.fold.text().to_owned(),
        collapse: lens.shape.collapse,
        around: lens.shape.around.as_ref().map(|around| match around {
            Around::Callees(functions) => v1::lens::Around::Callees(functions.text().to_owned()),
            Around::Callers(functions) => v1::lens::Around::Callers(functions.text().to_owned()),
        }),
        marked_functions: lens.marked.clone(),
        at_least_permille: lens.at_least.into(),
        print: lens.print.clone(),
        source: lens.source.clone().unwrap_or_default(),
        durations_over_time: lens.picture == Picture::Heat,
        marked_durations: lens
            .mark
            .map(|Band { from_ns, below_ns }| v1::LensDurations { from_ns, below_ns }),
        frozen: lens.frozen,
    }
}

/// A look at a target as a message says. What this version does not know, what makes no sense, and what is larger than anything that
/// somebody has typed, is as if it were left out.
#[must_use]
pub fn look(target: Option<Target>, message: &v1::Lens) -> Lens {
    if message.encoded_len() > MAX_BYTES {
        return Lens::on(target);
    }
    let target = match (target, message.time) {
        (Some(Target::Recording(recorded)), Some(time)) => Some(Target::Recording(Recorded {
            time: time_of(time),
            ..recorded
        })),
        (target, _) => target,
    };
    let around = message.around.as_ref().map(|around| match around {
        v1::lens::Around::Callees(functions) => Around::Callees(patterns_of(functions)),
        v1::lens::Around::Callers(functions) => Around::Callers(patterns_of(functions)),
    });
    let marked_durations = message.marked_durations.map(|band| Band {
        from_ns: band.from_ns,
        below_ns: band.below_ns,
    });
    Lens {
        scope: message.scope.clone(),
        pane: pane_of(message.pane()),
        by: By::of_grouping(message.by()),
        event: text_of(&message.event),
        zoom: message.zoom.iter().take(MAX_TAKEN).map(frame_of).collect(),
        search: text_of(&message.search),
        sort: match message.sort() {
            v1::LensSort::Total => Sort::Total,
            v1::LensSort::Self_ | v1::LensSort::Unspecified => Sort::Own,
        },
        shape: Shape {
            threads: patterns_of(&message.threads),
            hide: patterns_of(&message.hide),
            fold: patterns_of(&message.fold),
            collapse: message.collapse,
            around: around.filter(|around| !around.functions().is_empty()),
        },
        marked: message
            .marked_functions
            .iter()
            .take(MAX_MARKED)
            .filter(|name| name.len() <= MAX_TEXT_BYTES)
            .cloned()
            .collect(),
        at_least: u16::try_from(message.at_least_permille)
            .unwrap_or(WHOLE)
            .min(WHOLE),
        print: message.print.iter().take(MAX_TAKEN).cloned().collect(),
        source: Some(text_of(&message.source)).filter(|source| !source.is_empty()),
        picture: if message.durations_over_time {
            Picture::Heat
        } else {
            Picture::Bars
        },
        mark: marked_durations.filter(|band| band.from_ns < band.below_ns),
        frozen: message.frozen,
        ..Lens::on(target)
    }
}

/// As [`look`] at the recording that was begun on the screen that a message is of, without what a recording of a session does not
/// have. The scope is left out: the recorded one is the same, and is looked at as it was recorded. So is the part of the time: all of it
/// is looked at.
#[must_use]
pub fn look_at_recording(target: Target, message: &v1::Lens) -> Lens {
    let lens = look(Some(target.clone()), message);
    let has_hits = || {
        let last = read(&lens.scope)
            .ok()
            .and_then(|scope| scope.last().map(|last| last.place.clone()));
        last.is_some_and(|place| !place.has_spans())
    };
    let is_there = match lens.pane {
        // Only `profiler record` records these, where it is asked to.
        Pane::Waits | Pane::Syscalls | Pane::Timeline => false,
        // Those of a line are in any case.
        Pane::Hits => has_hits(),
        // Without one, they say that they need a function.
        Pane::Latency | Pane::Spans => path::function(&lens.scope).is_some(),
        Pane::Difference | Pane::Explain => path::threshold(&lens.scope).is_some(),
        pane => lens.has(pane),
    };
    Lens {
        target: Some(target),
        pane: if is_there { lens.pane } else { Pane::default() },
        scope: String::new(),
        event: String::new(),
        print: Vec::new(),
        frozen: false,
        ..lens
    }
}

/// A text, unless it is too long.
fn text_of(text: &str) -> String {
    if text.len() > MAX_TEXT_BYTES {
        return String::new();
    }
    text.to_owned()
}

/// Patterns, unless they are too long or too many.
fn patterns_of(text: &str) -> Patterns {
    let patterns = Patterns::read(&text_of(text));
    if patterns.len() > MAX_PATTERNS {
        return Patterns::default();
    }
    patterns
}

const fn pane_to_message(pane: Pane) -> v1::LensPane {
    match pane {
        Pane::Top => v1::LensPane::Top,
        Pane::Graph => v1::LensPane::Graph,
        Pane::Latency => v1::LensPane::Latency,
        Pane::Difference => v1::LensPane::Difference,
        Pane::Source => v1::LensPane::Source,
        Pane::Hits => v1::LensPane::Hits,
        Pane::Explain => v1::LensPane::Explain,
        Pane::Waits => v1::LensPane::Waits,
        Pane::Syscalls => v1::LensPane::Syscalls,
        Pane::Spans => v1::LensPane::Spans,
        Pane::Threads => v1::LensPane::Threads,
        Pane::Timeline => v1::LensPane::Timeline,
        Pane::Sessions => v1::LensPane::Sessions,
        Pane::Losses => v1::LensPane::Losses,
    }
}

/// The pane of a message; the first one for a pane that this version does not have.
const fn pane_of(pane: v1::LensPane) -> Pane {
    match pane {
        v1::LensPane::Unspecified | v1::LensPane::Top => Pane::Top,
        v1::LensPane::Graph => Pane::Graph,
        v1::LensPane::Latency => Pane::Latency,
        v1::LensPane::Difference => Pane::Difference,
        v1::LensPane::Source => Pane::Source,
        v1::LensPane::Hits => Pane::Hits,
        v1::LensPane::Explain => Pane::Explain,
        v1::LensPane::Waits => Pane::Waits,
        v1::LensPane::Syscalls => Pane::Syscalls,
        v1::LensPane::Spans => Pane::Spans,
        v1::LensPane::Threads => Pane::Threads,
        v1::LensPane::Timeline => Pane::Timeline,
        v1::LensPane::Sessions => Pane::Sessions,
        v1::LensPane::Losses => Pane::Losses,
    }
}

fn frame_to_message(frame: &FrameId) -> v1::LensFrame {
    v1::LensFrame {
        function: frame.function.clone(),
        module: frame.module.clone(),
        inlined: frame.inlined,
        kernel: frame.kernel,
        line: frame.line,
    }
}

fn frame_of(frame: &v1::LensFrame) -> FrameId {
    FrameId {
        function: frame.function.clone(),
        module: frame.module.clone(),
        inlined: frame.inlined,
        kernel: frame.kernel,
        line: frame.line,
    }
}

/// A part of a recording; all of it where it would end before it begins.
fn time_of(time: v1::RecordedTime) -> RecordedTime {
    // A lens says by its scope that there is none.
    let v1::RecordedTime {
        begin_ns,
        end_ns,
        without_scope: _,
    } = time;
    if end_ns != 0 && end_ns <= begin_ns {
        return RecordedTime::default();
    }
    let at = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
    RecordedTime {
        begin: at(begin_ns),
        end: at(end_ns),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recording() -> Target {
        Target::Recording(Recorded {
            path: "a.profrec".to_owned(),
            time: RecordedTime::default(),
            without_scope: false,
        })
    }

    #[test]
    fn a_newer_pane_is_the_first_one() {
        let message = v1::Lens {
            pane: 99,
            sort: 99,
            by: 99,
            search: "f".to_owned(),
            ..v1::Lens::default()
        };
        let lens = look(Some(Target::Pid(1)), &message);
        assert_eq!(lens.pane, Pane::Top);
        assert_eq!(
            (lens.sort, lens.by, lens.search.as_str()),
            (Sort::Own, By::Function, "f")
        );
        assert_eq!(look(None, &v1::Lens::default()), Lens::default());
    }

    #[test]
    fn a_recording_begins_on_the_screen_without_what_it_does_not_have() {
        let of_pane = |pane, scope: &str| v1::Lens {
            scope: scope.to_owned(),
            pane: pane_to_message(pane).into(),
            event: "page-faults".to_owned(),
            print: vec!["n".to_owned()],
            frozen: true,
            hide: "malloc".to_owned(),
            time: Some(v1::RecordedTime {
                begin_ns: 5,
                ..v1::RecordedTime::default()
            }),
            ..v1::Lens::default()
        };
        for (pane, scope, expected) in [
            (Pane::Graph, "", Pane::Graph),
            (Pane::Latency, "f", Pane::Latency),
            (Pane::Latency, "", Pane::Top),
            (Pane::Difference, "f[>= p95]", Pane::Difference),
            (Pane::Explain, "f", Pane::Top),
            (Pane::Waits, "f", Pane::Top),
            (Pane::Sessions, "f", Pane::Top),
            (Pane::Hits, "f", Pane::Top),
            (Pane::Hits, "f/a.c:3", Pane::Hits),
            (Pane::Losses, "f", Pane::Losses),
        ] {
            let lens = look_at_recording(recording(), &of_pane(pane, scope));
            assert_eq!(lens.pane, expected, "{pane:?} of `{scope}`");
            assert_eq!(lens.target, Some(recording()));
            assert_eq!(lens.shape.hide.text(), "malloc");
            let (nothing, none): (&str, &[String]) = ("", &[]);
            assert_eq!((lens.scope.as_str(), lens.event.as_str()), (nothing, nothing));
            assert_eq!((lens.print.as_slice(), lens.frozen), (none, false));
        }
    }

    #[test]
    fn what_nobody_has_typed_is_left_out() {
        let of = |message: &v1::Lens| look(None, message);
        let named = |hide: String| v1::Lens {
            search: "f".to_owned(),
            hide,
            ..v1::Lens::default()
        };
        let many = vec!["a"; MAX_PATTERNS];
        assert_eq!(of(&named(many.join("|"))).shape.hide.len(), MAX_PATTERNS);
        for hide in [many.join("|") + "|a", "a".repeat(MAX_TEXT_BYTES + 1)] {
            let lens = of(&named(hide));
            assert!(lens.shape.hide.is_empty());
            assert_eq!(lens.search, "f", "the rest stays");
        }
        let long = "a".repeat(MAX_TEXT_BYTES + 1);
        let lens = of(&v1::Lens {
            search: long.clone(),
            marked_functions: vec![long.clone(), "f".to_owned()],
            around: Some(v1::lens::Around::Callees(long.clone())),
            source: long,
            ..v1::Lens::default()
        });
        assert_eq!((lens.search.as_str(), lens.marked), ("", vec!["f".to_owned()]));
        assert_eq!((lens.shape.around, lens.source), (None, None));
        // Of one that is too large as a whole, nothing is taken.
        let large = v1::Lens {
            scope: "a".repeat(MAX_BYTES),
            ..named("f".to_owned())
        };
        assert_eq!(of(&large), Lens::default());
    }

    proptest! {
        #[test]
        fn any_message_is_a_lens_that_says_the_same(
            numbers in any::<[u32; 4]>(),
            times in any::<[u64; 4]>(),
            text in ".{0,20}",
            names in prop::collection::vec(".{0,8}", 0..60),
        ) {
            let [pane, sort, by, at_least_permille] = numbers;
            let small = |number: u32| i32::try_from(number % 20).unwrap();
            let message = v1::Lens {
                pane: small(pane),
                sort: small(sort),
                by: small(by),
                at_least_permille,
                time: Some(v1::RecordedTime { begin_ns: times[0], end_ns: times[1], ..Default::default() }),
                marked_durations: Some(v1::LensDurations { from_ns: times[2], below_ns: times[3] }),
                scope: text.clone(),
                hide: text.clone(),
                around: Some(v1::lens::Around::Callees(text.clone())),
                zoom: names.iter().map(|name| frame_to_message(&FrameId::named(name))).collect(),
                marked_functions: names.clone(),
                print: names,
                source: text,
                ..v1::Lens::default()
            };
            let lens = look(Some(recording()), &message);
            prop_assert!(lens.at_least <= WHOLE && lens.marked.len() <= MAX_MARKED);
            // What it has understood stays.
            let again = of(&lens);
            prop_assert_eq!(of(&look(Some(recording()), &again)), again);
            let _ = look_at_recording(recording(), &message);
        }
    }
}
