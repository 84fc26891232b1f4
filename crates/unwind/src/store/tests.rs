use profiler_common::unwind::Cfa;
use proptest::prelude::*;

use super::*;
use crate::{Counts, Image, Table};

/// A table whose page `n` has `rows[n]` rows. The rule of every row tells the table and the row.
fn table(number: u16, rows: &[u32]) -> Table {
    let mut table = Table {
        base: 0,
        page_starts: vec![0],
        rows: Vec::new(),
        rules: vec![Rule::NONE, Rule::UNSUPPORTED],
        counts: Counts::default(),
    };
    for count in rows {
        for index in 0..*count {
            let rule = Rule {
                cfa_offset: i32::from(number),
                rbp_offset: i32::try_from(index % 5).unwrap(),
                ..Rule::bare(Cfa::Register)
            };
            let position = table
                .rules
                .iter()
                .position(|known| *known == rule)
                .unwrap_or_else(|| {
                    table.rules.push(rule);
                    table.rules.len() - 1
                });
            let offset = u16::try_from(index).unwrap();
            table.rows.push(Row {
                offset,
                rule: u16::try_from(position).unwrap(),
            });
        }
        table.page_starts.push(u32::try_from(table.rows.len()).unwrap());
    }
    table
}

fn key(number: u16) -> Key {
    number.to_le_bytes().to_vec().into()
}

/// Whether the image has the whole table, to the last row.
fn holds(image: &Image, module: u32, number: u16, rows: &[u32]) -> bool {
    (0u64..).zip(rows).all(|(page, count)| {
        (0..*count).step_by(89).chain(count.checked_sub(1)).all(|index| {
            image
                .rule(module, page << 16 | u64::from(index))
                .is_some_and(|rule| {
                    rule.cfa_offset == i32::from(number)
                        && rule.rbp_offset == i32::try_from(index % 5).unwrap()
                })
        }) && (*count > 0 || image.rule(module, page << 16).is_none())
    }) && image.rule(module, (rows.len() as u64) << 16).is_none()
}

#[test]
fn a_large_module_spans_chunks_in_whole_pages() {
    let mut store = Store::new(Limits {
        chunks: 4,
        ..Limits::default()
    });
    let mut image = Image::default();
    let rows = [40_000, 20_000, 65_536, 0, 3];
    let placement = store.add(&key(1), &table(1, &rows)).unwrap();
    assert_eq!(placement.pieces.len(), 3);
    for page in &placement.pages {
        assert!(u64::from(page.first_row & 0xffff) + u64::from(page.rows) <= u64::from(CHUNK_ROWS));
    }
    image.write(&store, &placement);
    assert!(holds(&image, placement.module, 1, &rows));
}

#[test]
fn limits_are_named_and_leave_nothing_taken() {
    let limits = Limits {
        modules: 2,
        pages: 4,
        chunks: 1,
    };
    let mut store = Store::new(limits);
    store.add(&key(1), &table(1, &[10, 10])).unwrap();
    assert_eq!(store.add(&key(1), &table(1, &[10, 10])), Err(Refused::Held));
    assert_eq!(store.add(&key(2), &table(2, &[1, 1, 1])), Err(Refused::Pages(4)));
    assert_eq!(
        store.add(&key(2), &table(2, &[40_000, 40_000])),
        Err(Refused::Chunks(1))
    );
    store.add(&key(2), &table(2, &[65_516, 0])).unwrap();
    assert_eq!(store.add(&key(3), &table(3, &[])), Err(Refused::Modules(2)));
    assert_eq!(store.evict(), None);
    store.release(&key(1));
    assert_eq!(store.acquire(&key(1)), Some(0));
    assert_eq!(store.evict(), None);
    store.release(&key(1));
    store.release(&key(1));
    assert_eq!(store.evict(), Some(0));
    assert_eq!(store.acquire(&key(1)), None);
    store.add(&key(3), &table(3, &[20])).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_is_held_stays_whole(steps in proptest::collection::vec((0u16..12, proptest::collection::vec(0u32..30_000, 1..5)), 1..25)) {
        let mut store = Store::new(Limits { modules: 8, pages: 24, chunks: 3 });
        let mut image = Image::default();
        let mut held: HashMap<u16, (u32, Vec<u32>)> = HashMap::new();
        for (number, rows) in steps {
            if held.contains_key(&number) {
                store.release(&key(number));
                continue;
            }
            let table = table(number, &rows);
            let placement = loop {
                match store.add(&key(number), &table) {
                    Ok(placement) => break Some(placement),
                    Err(_) => match store.evict() {
                        Some(module) => {
                            image.remove(module);
                            held.retain(|_, of| of.0 != module);
                        }
                        None => break None,
                    },
                }
            };
            if let Some(placement) = placement {
                image.write(&store, &placement);
                held.insert(number, (placement.module, rows));
            }
            for (number, (module, rows)) in &held {
                prop_assert!(holds(&image, *module, *number, rows));
            }
        }
        // With nothing in use, everything comes back.
        for number in 0..12 {
            store.release(&key(number));
        }
        while store.evict().is_some() {}
        let all = store.add(&key(99), &table(99, &[65_536, 65_536, 65_536]));
        prop_assert!(all.is_ok());
    }
}
