use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn name(map: &mut PerfMap, address: u64) -> Option<String> {
    let mut frames = Frames::default();
    // Numbers of a table that is gone would be looked up in this one.
    map.entries.values_mut().for_each(|entry| entry.frame = None);
    let id = map.resolve(address, &mut frames)?;
    let frame = &frames.table()[id.0 as usize];
    assert_eq!(&*frame.module, JIT);
    Some(frame.function.to_string())
}

fn of(text: &str) -> PerfMap {
    let mut map = PerfMap::default();
    map.append(text.as_bytes());
    map
}

#[test]
fn names_are_those_of_the_file() {
    let mut map = of("7f0000001000 20 JS:*hot /srv/app.js:12:5\n0x7f0000002000 0x10 py::f:/a b.py\r\n");
    assert_eq!(
        name(&mut map, 0x7f00_0000_101f).as_deref(),
        Some("JS:*hot /srv/app.js:12:5")
    );
    assert_eq!(name(&mut map, 0x7f00_0000_1020), None);
    assert_eq!(name(&mut map, 0x7f00_0000_200f).as_deref(), Some("py::f:/a b.py"));
    assert_eq!(name(&mut map, 0x7f00_0000_0fff), None);
    assert_eq!(
        map.left_out(),
        LeftOut {
            skipped: 0,
            forgotten: 0
        }
    );
}

#[test]
fn lines_that_say_nothing_are_counted() {
    let long = format!("5000 10 {}\n", "x".repeat(2 * LINE_MAX));
    let mut map = of(&format!(
        "\nhello\n1000\n1000 10\n1000 0 empty\nffffffffffffffff 10 over\n-1000 10 signed\n+1000 10 signed\n{long}6000 10 good\n"
    ));
    assert_eq!(
        map.left_out(),
        LeftOut {
            skipped: 9,
            forgotten: 0
        }
    );
    assert_eq!(map.entries.len(), 1);
    assert_eq!(name(&mut map, 0x6000).as_deref(), Some("good"));
}

#[test]
fn a_line_counts_once_it_is_whole() {
    let mut map = of("1000 10 first\n2000 10 sec");
    assert_eq!(name(&mut map, 0x2000), None);
    map.append(b"ond\n");
    assert_eq!(name(&mut map, 0x2000).as_deref(), Some("second"));
}

#[test]
fn a_full_map_forgets_the_oldest() {
    let mut map = PerfMap::with_limit(100 * (ENTRY_BYTES + 8));
    for index in 0..1000_u64 {
        map.append(format!("{:x} 10 f{index}\n", 0x1000 + 0x10 * index).as_bytes());
        assert!(map.bytes() <= 100 * (ENTRY_BYTES + 8));
    }
    assert_eq!(name(&mut map, 0x1000), None);
    assert_eq!(name(&mut map, 0x1000 + 0x10 * 999).as_deref(), Some("f999"));
    assert_eq!(
        map.left_out(),
        LeftOut {
            skipped: 0,
            forgotten: 1000 - map.entries.len() as u64
        }
    );
}

proptest! {
    /// The model is an array with a name for each address.
    #[test]
    fn later_entries_win(
        entries in prop::collection::vec((0_u64..180, 1_u64..60), 1..60),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut model = vec![None; 256];
        let mut text = String::new();
        for (index, (start, size)) in entries.iter().enumerate() {
            writeln!(text, "{start:x} {size:x} f{index}").unwrap();
            for address in *start..start + size {
                model[usize::try_from(address).unwrap()] = Some(format!("f{index}"));
            }
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.push(0);
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut map = PerfMap::default();
        for pair in cuts.windows(2) {
            map.append(&text.as_bytes()[pair[0]..pair[1]]);
        }
        for (address, expected) in (0_u64..).zip(&model) {
            prop_assert_eq!(&name(&mut map, address), expected, "at {}", address);
        }
        let bytes: usize = map.entries.values().map(Entry::bytes).sum();
        prop_assert_eq!(map.bytes, bytes);
        prop_assert_eq!(map.left_out(), LeftOut { skipped: 0, forgotten: 0 });
    }

    #[test]
    fn any_bytes_do_no_harm(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10), address: u64) {
        let mut map = PerfMap::with_limit(1000);
        for piece in pieces {
            map.append(&piece);
            prop_assert!(map.partial.len() <= LINE_MAX);
        }
        name(&mut map, address);
    }

    #[test]
    fn nearly_right_lines_do_no_harm(text in "([0-9a-f]{1,17} [0-9a-fx]{1,17} [ -~]{0,5}\n?){0,40}", address in 0_u64..0x1000) {
        let mut map = PerfMap::with_limit(1000);
        map.append(text.as_bytes());
        prop_assert!(map.bytes <= 1000);
        name(&mut map, address);
    }
}
