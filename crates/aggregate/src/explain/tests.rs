use proptest::prelude::*;

use super::*;
use crate::calltree::CallTree;

const SLOW_NS: u64 = 1_000_000;

fn is_slow(duration_ns: u64) -> bool {
    duration_ns >= SLOW_NS
}

/// What is found where no samples were taken.
fn findings(study: &Study, kinds: &[Kind], is_slow: impl Fn(u64) -> bool) -> Vec<Finding> {
    let stacks = CallTree::new();
    let tree = Tree {
        stacks: &stacks,
        is_own: &|_| false,
        is_probe: &|_| false,
    };
    study.findings(kinds, &tree, is_slow)
}

/// Calls of one round with one flag and one amount each.
fn study(calls: impl IntoIterator<Item = (bool, bool, f64)>) -> Study {
    let mut study = Study::default();
    let round = study.begin(Round {
        flags: vec![0],
        amounts: vec![1],
    });
    for (slow, happened, amount) in calls {
        study.add(Call {
            duration_ns: if slow { SLOW_NS } else { SLOW_NS / 10 },
            round,
            happened: happened.into(),
            known: u32::MAX,
            amounts: [amount].into(),
            waits: None,
            many: None,
            samples: Box::default(),
        });
    }
    study
}

#[test]
fn a_feature_of_only_slow_calls_comes_first() {
    let calls = (0..2000).map(|call| (call % 20 == 0, call % 20 == 0, f64::from(call % 7)));
    let findings = findings(&study(calls), &[Kind::Flag, Kind::Amount], is_slow);
    let first = &findings[0];
    assert_eq!(
        (first.about, first.statement),
        (About::Feature(0), Statement::Happened)
    );
    assert_eq!(first.slow, Share { have: 100, of: 100 });
    assert_eq!(first.other, Share { have: 0, of: 1900 });
    assert!(first.difference.low > 0.85, "{first:?}");
    let second = &findings[1];
    assert!(second.certain() < 0.01, "chance: {second:?}");
}

#[test]
fn an_amount_is_cut_where_it_separates() {
    let calls = (0..4000).map(|call| {
        let n = (call * 7919) % 5000;
        (n > 4096, false, f64::from(n))
    });
    let findings = findings(&study(calls), &[Kind::Flag, Kind::Amount], is_slow);
    assert_eq!(findings[0].about, About::Feature(1));
    let Statement::Above(bound) = findings[0].statement else {
        panic!("{:?}", findings[0]);
    };
    assert!((4090.0..4110.0).contains(&bound), "{bound}");
    let Means { slow, other } = findings[0].means.unwrap();
    assert!(slow > 4096.0 && other < 4096.0);
}

#[test]
fn of_a_feature_that_is_forgotten_nothing_is_said() {
    let calls = (0..400).map(|call| (call % 4 == 0, call % 4 == 0, f64::from(call % 4 * 10)));
    let mut study = study(calls);
    let about = |study: &Study| -> Vec<About> {
        let findings = findings(study, &[Kind::Flag, Kind::Amount], |duration_ns| {
            duration_ns >= SLOW_NS
        });
        findings.iter().map(|finding| finding.about).collect()
    };
    assert_eq!(about(&study).len(), 2);
    study.forget(0);
    assert_eq!(about(&study), [About::Feature(1)]);
    study.forget(1);
    assert_eq!(about(&study), []);
}

#[test]
fn the_one_that_slow_calls_have_is_chosen() {
    let calls = (0..1000).map(|call| (call % 10 == 3, false, f64::from(call % 10)));
    let findings = findings(&study(calls), &[Kind::Flag, Kind::Choice], is_slow);
    assert_eq!(findings[0].statement, Statement::Is(3.0));
    assert!(findings[0].certain() > 0.8);
}

#[test]
fn a_feature_not_probed_in_a_round_is_not_taken_for_absent() {
    let mut study = Study::default();
    let first = study.begin(Round {
        flags: vec![0],
        amounts: vec![],
    });
    let second = study.begin(Round {
        flags: vec![1],
        amounts: vec![],
    });
    for call in 0..400 {
        let slow = call % 4 == 0;
        study.add(Call {
            duration_ns: if slow { SLOW_NS } else { 1 },
            round: if call % 8 < 4 { first } else { second },
            happened: slow.into(),
            known: u32::MAX,
            amounts: [].into(),
            waits: None,
            many: None,
            samples: Box::default(),
        });
    }
    for finding in findings(&study, &[Kind::Flag, Kind::Flag], is_slow) {
        assert_eq!((finding.slow.have, finding.slow.of), (50, 50));
        assert_eq!((finding.other.have, finding.other.of), (0, 150));
    }
}

#[test]
fn calls_in_which_a_feature_cannot_happen_do_not_count_for_it() {
    let mut study = Study::default();
    let round = study.begin(Round {
        flags: vec![0],
        amounts: vec![],
    });
    for call in 0..400 {
        // Of two functions; the branch is in the one that is slow, and taken in every second call of it.
        let slow = call % 4 == 0;
        study.add(Call {
            duration_ns: if slow { SLOW_NS } else { 1 },
            round,
            happened: u32::from(call % 8 == 0),
            known: u32::from(slow || call % 4 == 1),
            amounts: [].into(),
            waits: None,
            many: None,
            samples: Box::default(),
        });
    }
    let finding = findings(&study, &[Kind::Flag], is_slow).remove(0);
    assert_eq!((finding.slow.have, finding.slow.of), (50, 100));
    assert_eq!((finding.other.have, finding.other.of), (0, 100));
}

#[test]
fn too_few_calls_say_nothing() {
    let calls = (0..1000).map(|call| (call < 4, call < 4, f64::from(call)));
    assert_eq!(findings(&study(calls), &[Kind::Flag, Kind::Amount], is_slow), []);
}

#[test]
fn the_quantile_is_the_tables() {
    for (alpha, z) in [(0.05, 1.959_964), (0.01, 2.575_829), (0.000_5, 3.480_756)] {
        assert!((normal_quantile(alpha) - z).abs() < 1e-3, "{alpha}");
    }
}

#[test]
fn calls_beyond_the_room_are_a_uniform_selection() {
    let calls = (0..MAX_CALLS * 4).map(|call| (call % 10 == 0, call % 10 == 0, 0.0));
    let study = study(calls);
    assert_eq!(study.calls.len(), MAX_CALLS);
    let slow = study
        .calls
        .iter()
        .filter(|call| is_slow(call.duration_ns))
        .count();
    let expected = MAX_CALLS / 10;
    // Ten standard deviations of a binomial distribution.
    assert!(slow.abs_diff(expected) < 400, "{slow} of {expected}");
}

/// Of calls whose speed has nothing to do with what is noted of them, few statements may be found certain: by the
/// correction, one study in twenty has any.
#[test]
fn chance_is_not_taken_for_a_reason() {
    let mut random = Random::new(7);
    let mut wrong = 0;
    for _ in 0..200 {
        let mut study = Study::default();
        let round = study.begin(Round {
            flags: (0..16).collect(),
            amounts: (16..24).collect(),
        });
        for _ in 0..600 {
            study.add(Call {
                duration_ns: if random.below(20) == 0 { SLOW_NS } else { 1 },
                round,
                happened: u32::try_from(random.below(1 << 16)).unwrap(),
                known: u32::MAX,
                amounts: (0..8).map(|_| random.below(100) as f64).collect(),
                waits: None,
                many: None,
                samples: Box::default(),
            });
        }
        let kinds: Vec<Kind> = (0..24)
            .map(|feature| if feature < 16 { Kind::Flag } else { Kind::Amount })
            .collect();
        let certain = |finding: &Finding| finding.certain() > 0.0;
        wrong += usize::from(findings(&study, &kinds, is_slow).iter().any(certain));
    }
    assert!(wrong <= 25, "{wrong} of 200");
}

proptest! {
    #[test]
    fn shares_are_counts_and_intervals_hold_their_values(
        calls in prop::collection::vec((any::<bool>(), any::<bool>(), -5..5_i32), 0..200)
    ) {
        let slow_calls = calls.iter().filter(|call| call.0).count() as u64;
        let others = calls.len() as u64 - slow_calls;
        let flagged = calls.iter().filter(|call| call.0 && call.1).count() as u64;
        let study = study(calls.into_iter().map(|(slow, happened, n)| (slow, happened, f64::from(n))));
        for finding in findings(&study, &[Kind::Flag, Kind::Amount], is_slow) {
            let Estimate { value, low, high } = finding.difference;
            prop_assert!(-1.0 <= low && low <= value && value <= high && high <= 1.0);
            prop_assert!(finding.slow.have <= finding.slow.of && finding.other.have <= finding.other.of);
            if finding.about == About::Feature(0) {
                prop_assert_eq!(finding.slow, Share { have: flagged, of: slow_calls });
                prop_assert_eq!(finding.other.of, others);
            } else {
                prop_assert_eq!(finding.slow.of, slow_calls / 2);
                prop_assert_eq!(finding.other.of, others / 2);
            }
        }
    }
}

#[test]
fn a_wait_that_some_calls_have_is_none_of_the_others() {
    let mut study = Study::default();
    let round = study.begin(Round::default());
    for call in 0..400 {
        let slow = call % 4 == 0;
        let waited: Box<[Waited]> = if slow {
            Box::new([Waited {
                feature: 1,
                time_ns: 8e6,
            }])
        } else if call % 4 == 1 {
            Box::new([Waited {
                feature: 0,
                time_ns: 1000.0,
            }])
        } else {
            Box::new([])
        };
        study.add(Call {
            duration_ns: if slow { SLOW_NS } else { 1 },
            round,
            happened: 0,
            known: 0,
            amounts: Box::new([]),
            // Of the last ones it is not known.
            waits: (call < 300).then_some(waited),
            many: None,
            samples: Box::default(),
        });
    }
    let findings = findings(&study, &[Kind::Wait, Kind::Wait], is_slow);
    let first = &findings[0];
    assert_eq!(
        (first.about, first.statement),
        (About::Feature(1), Statement::Above(0.0))
    );
    assert_eq!((first.slow.have, first.other.have), (first.slow.of, 0));
    assert_eq!((first.slow.of, first.other.of), (37, 112));
    assert_eq!(
        first.means,
        Some(Means {
            slow: 8e6,
            other: 0.0
        })
    );
    assert!(first.certain() > 0.8);
}

#[test]
fn more_calls_than_are_recorded_are_a_reason_themselves() {
    let mut study = Study::default();
    let round = study.begin(Round {
        flags: Vec::new(),
        amounts: vec![0],
    });
    for call in 0..400 {
        let slow = call % 4 == 0;
        study.add(Call {
            duration_ns: if slow { SLOW_NS } else { 1 },
            round,
            happened: 0,
            known: 0,
            amounts: [if slow { f64::NAN } else { 10.0 }].into(),
            waits: None,
            many: slow.then_some(1),
            samples: Box::default(),
        });
    }
    let findings = findings(&study, &[Kind::Time, Kind::Many(0)], is_slow);
    let [found] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(
        (found.about, found.statement),
        (About::Feature(1), Statement::Happened)
    );
    assert_eq!(found.slow, Share { have: 100, of: 100 });
    assert_eq!(found.other, Share { have: 0, of: 300 });
}

#[test]
fn calls_that_are_alike_are_kept_as_if_they_came_one_by_one() {
    let call = |duration_ns| Call {
        duration_ns,
        round: 0,
        happened: 0,
        known: 0,
        amounts: Box::default(),
        waits: None,
        many: None,
        samples: Box::default(),
    };
    let mut study = Study::default();
    study.add_alike(&call(SLOW_NS), 2_000_000);
    study.add_alike(&call(1), 6_000_000);
    assert_eq!(study.seen(), 8_000_000);
    let [slow, other] = study.durations(is_slow);
    assert_eq!(slow.calls + other.calls, MAX_CALLS as u64);
    let share = slow.calls as f64 / MAX_CALLS as f64;
    assert!((share - 0.25).abs() < 0.03, "{share}");
}
