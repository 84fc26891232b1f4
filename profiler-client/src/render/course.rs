//! What a call's thread did from the beginning of the call to its end, in columns of time.

use profiler_proto::v1;

use super::{escape::terminal, units};

/// Columns that are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cells {
    /// The first.
    pub from: usize,
    /// How many.
    pub count: usize,
}

impl Cells {
    /// Where a part is drawn that begins so long after the whole and takes so long, of so many columns for the whole: at
    /// least one of them, whatever was measured.
    #[must_use]
    pub fn of(from_ns: u64, time_ns: u64, whole_ns: u64, columns: usize) -> Self {
        let last = columns.saturating_sub(1);
        let column = |ns: u64, up: u64| {
            let whole_ns = u128::from(whole_ns.max(1));
            let scaled = u128::from(ns) * columns as u128 + u128::from(up) * (whole_ns - 1);
            usize::try_from(scaled / whole_ns).unwrap_or(usize::MAX)
        };
        let from = column(from_ns, 0).min(last);
        let to = column(from_ns.saturating_add(time_ns), 1).min(columns);
        Self {
            from,
            count: to.saturating_sub(from).max(1),
        }
    }
}

/// What a call's thread did off the CPU in one way: all its times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The system call and what the thread did in it: `read [sleeping]`.
    pub label: String,
    /// Together.
    pub time_ns: u64,
    /// When.
    periods: Vec<v1::SpanPeriod>,
}

impl Kind {
    /// How often, and for how long.
    #[must_use]
    pub fn words(&self) -> String {
        let time = units::duration(self.time_ns as f64);
        match self.periods.len() {
            1 => format!("{}  {time}", self.label),
            count => format!("{}  {time} in {count}", self.label),
        }
    }

    /// Its times in columns, `█` where there is one.
    #[must_use]
    pub fn bars(&self, whole_ns: u64, columns: usize) -> String {
        let mut bars = vec![' '; columns];
        for period in &self.periods {
            let Cells { from, count } = Cells::of(period.offset_ns, period.time_ns, whole_ns, columns);
            for cell in bars.iter_mut().skip(from).take(count) {
                *cell = '█';
            }
        }
        bars.into_iter().collect::<String>().trim_end().to_owned()
    }
}

/// What the thread of a call did off the CPU, what took the most time first. Whatever it waited in, a thread that only
/// needs a CPU does the same.
#[must_use]
fn kinds(span: &v1::Span) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for period in &span.off_cpu {
        let did = activity(period);
        let label = if period.system_call.is_empty() || did == RUNNABLE {
            format!("[{did}]")
        } else {
            format!("{} [{did}]", terminal(&period.system_call))
        };
        match kinds.iter_mut().find(|kind| kind.label == label) {
            Some(kind) => {
                kind.time_ns = kind.time_ns.saturating_add(period.time_ns);
                kind.periods.push(period.clone());
            }
            None => kinds.push(Kind {
                label,
                time_ns: period.time_ns,
                periods: vec![period.clone()],
            }),
        }
    }
    kinds.sort_by(|one, other| (other.time_ns, &one.label).cmp(&(one.time_ns, &other.label)));
    kinds
}

/// What a call's thread did off the CPU, as far as there is room for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fitting {
    /// What took the most time.
    pub kinds: Vec<Kind>,
    /// Lines that say what is not among these.
    pub rest: Vec<String>,
}

/// What the thread of a call did off the CPU, in so many lines; one more says what is not known one by one, where that is so.
#[must_use]
pub fn fitting(span: &v1::Span, lines: usize) -> Fitting {
    let mut kinds = kinds(span);
    let shown = if kinds.len() > lines {
        lines.saturating_sub(1)
    } else {
        kinds.len()
    };
    let others = kinds.split_off(shown);
    let rest = other_ways(&others).into_iter().chain(left_out(span));
    Fitting {
        rest: rest.collect(),
        kinds,
    }
}

/// How many ways to be off the CPU these are, and for how long; `None` where there are none.
fn other_ways(kinds: &[Kind]) -> Option<String> {
    let time_ns = kinds.iter().map(|kind| kind.time_ns).fold(0, u64::saturating_add);
    (!kinds.is_empty()).then(|| {
        format!(
            "… and {} other way{} off the CPU, {} in all",
            kinds.len(),
            if kinds.len() == 1 { "" } else { "s" },
            units::duration(time_ns as f64)
        )
    })
}

const RUNNABLE: &str = "runnable";

/// What the thread did in a part of a call, as times off the CPU are called.
#[must_use]
pub fn activity(period: &v1::SpanPeriod) -> &'static str {
    match period.activity() {
        v1::Activity::Sleeping => "sleeping",
        v1::Activity::Uninterruptible => "uninterruptible",
        v1::Activity::Stopped => "stopped",
        v1::Activity::Runnable => RUNNABLE,
        // Only a newer version knows what it was.
        v1::Activity::Unspecified | v1::Activity::OnCpu => "unknown",
    }
}

/// The whole call in columns: `█` where its thread was on the CPU for most of a column's time, `░` where it was off it.
#[must_use]
pub fn whole(span: &v1::Span, columns: usize) -> String {
    let whole_ns = u128::from(span.duration_ns.max(1));
    let begins = |column: usize| whole_ns * column as u128 / columns.max(1) as u128;
    let mut off_ns = vec![0_u128; columns];
    for period in &span.off_cpu {
        let from_ns = u128::from(period.offset_ns);
        let to_ns = from_ns + u128::from(period.time_ns);
        let Cells { from, count } = Cells::of(period.offset_ns, period.time_ns, span.duration_ns, columns);
        for (column, ns) in off_ns.iter_mut().enumerate().skip(from).take(count) {
            let within = to_ns
                .min(begins(column + 1))
                .saturating_sub(from_ns.max(begins(column)));
            *ns += within;
        }
    }
    let is_off = |(column, ns): (usize, u128)| ns * 2 > begins(column + 1) - begins(column);
    let cells = off_ns.into_iter().enumerate();
    cells.map(|cell| if is_off(cell) { '░' } else { '█' }).collect()
}

/// What of it is not among the times off the CPU that are known one by one; `None` where all are.
fn left_out(span: &v1::Span) -> Option<String> {
    (span.off_cpu_left_out > 0).then(|| {
        format!(
            "… and {} shorter times off the CPU, {} in all",
            units::count(span.off_cpu_left_out),
            units::duration(span.off_cpu_left_out_ns as f64)
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A part of a call, in milliseconds.
    pub fn period(did: v1::Activity, offset_ms: u64, time_ms: u64, system_call: &str) -> v1::SpanPeriod {
        v1::SpanPeriod {
            activity: did.into(),
            offset_ns: offset_ms * 1_000_000,
            time_ns: time_ms * 1_000_000,
            system_call: system_call.to_owned(),
        }
    }

    #[test]
    fn bars_are_where_their_time_is() {
        let cells = |from_ns, time_ns| {
            let Cells { from, count } = Cells::of(from_ns, time_ns, 100, 10);
            (from, count)
        };
        assert_eq!(cells(0, 100), (0, 10));
        assert_eq!(cells(50, 20), (5, 2));
        assert_eq!(cells(55, 20), (5, 3), "parts of columns are drawn");
        assert_eq!(cells(100, 0), (9, 1), "at the very end");
        assert_eq!(cells(0, 0), (0, 1));
    }

    #[test]
    fn a_call_is_drawn_from_its_beginning_to_its_end() {
        let span = v1::Span {
            duration_ns: 20_000_000,
            off_cpu: vec![
                period(v1::Activity::Sleeping, 2, 4, "read"),
                period(v1::Activity::Runnable, 6, 2, "read"),
                period(v1::Activity::Sleeping, 12, 2, "read"),
                period(v1::Activity::Runnable, 14, 1, ""),
                period(v1::Activity::Uninterruptible, 18, 2, ""),
            ],
            ..v1::Span::default()
        };
        assert_eq!(whole(&span, 20), "██░░░░░░████░░░███░░");
        let kinds = kinds(&span);
        let drawn: Vec<_> = kinds
            .iter()
            .map(|kind| (kind.words(), kind.bars(20_000_000, 20)))
            .collect();
        let expected = [
            ("read [sleeping]  6.00 ms in 2", "  ████      ██"),
            ("[runnable]  3.00 ms in 2", "      ██      █"),
            ("[uninterruptible]  2.00 ms", "                  ██"),
        ];
        let expected = expected.map(|(words, bars)| (words.to_owned(), bars.to_owned()));
        assert_eq!(drawn, expected);
    }

    #[test]
    fn what_there_is_no_room_for_is_summed_up() {
        let span = v1::Span {
            duration_ns: 20_000_000,
            off_cpu: vec![
                period(v1::Activity::Sleeping, 2, 6, "read"),
                period(v1::Activity::Stopped, 12, 2, ""),
                period(v1::Activity::Runnable, 14, 1, ""),
            ],
            off_cpu_left_out: 2,
            off_cpu_left_out_ns: 90_000,
            ..v1::Span::default()
        };
        let left_out = "… and 2 shorter times off the CPU, 90.0 µs in all";
        for (lines, kinds, rest) in [
            (3, 3, &[left_out][..]),
            (
                2,
                1,
                &["… and 2 other ways off the CPU, 3.00 ms in all", left_out],
            ),
            (
                1,
                0,
                &["… and 3 other ways off the CPU, 9.00 ms in all", left_out],
            ),
            (
                0,
                0,
                &["… and 3 other ways off the CPU, 9.00 ms in all", left_out],
            ),
        ] {
            let fitting = fitting(&span, lines);
            assert_eq!(
                (fitting.kinds.len(), &fitting.rest[..]),
                (
                    kinds,
                    &rest.iter().map(|&line| line.to_owned()).collect::<Vec<_>>()[..]
                ),
                "{lines}"
            );
        }
        let none = fitting(&v1::Span::default(), 0);
        assert!(none.kinds.is_empty() && none.rest.is_empty());
    }

    #[test]
    fn what_only_a_newer_version_knows_is_not_said_to_be_time_on_the_cpu() {
        let newer = v1::SpanPeriod {
            activity: 99,
            ..v1::SpanPeriod::default()
        };
        assert_eq!(activity(&newer), "unknown");
    }

    proptest! {
        #[test]
        fn nothing_leaves_its_room(
            parts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<i32>()), 0..20),
            duration_ns: u64, columns in 1_usize..300, name in any::<String>(),
        ) {
            let part = |&(offset_ns, time_ns, activity)| {
                v1::SpanPeriod { activity, offset_ns, time_ns, system_call: name.clone() }
            };
            let off_cpu = parts.iter().map(part).collect();
            let span = v1::Span { duration_ns, off_cpu, ..v1::Span::default() };
            prop_assert_eq!(whole(&span, columns).chars().count(), columns);
            for kind in kinds(&span) {
                prop_assert!(kind.bars(duration_ns, columns).chars().count() <= columns);
                prop_assert!(!kind.words().contains(char::is_control));
            }
            for (offset_ns, time_ns, _) in parts {
                let Cells { from, count } = Cells::of(offset_ns, time_ns, duration_ns, columns);
                prop_assert!(count > 0 && from + count <= columns);
            }
        }
    }
}
