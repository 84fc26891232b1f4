use profiler_common::unwind::Cfa;
use proptest::prelude::*;

use super::*;
use crate::{Counts, Image, Table};

/// Somebody who is not root.
const USER: u32 = 1000;
/// Somebody else.
const OTHER: u32 = 1001;

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

/// A table of one page with so many rules that no other has.
fn table_of_own_rules(number: u16, count: u16) -> Table {
    let mut table = table(number, &[1]);
    let own = |index| Rule {
        cfa_offset: i32::from(number),
        rbp_offset: -1 - i32::from(index),
        ..Rule::bare(Cfa::Register)
    };
    table.rules.extend((0..count).map(own));
    table
}

/// As the daemon does it: what is idle gives way, as far as it helps.
fn add(store: &mut Store, number: u16, user: u32, table: &Table) -> Result<Placement, Refused> {
    loop {
        match store.add(&key(number), user, table) {
            Err(refused) if store.evict(refused).is_some() => {}
            result => return result,
        }
    }
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
    let placement = store.add(&key(1), ROOT, &table(1, &rows)).unwrap();
    assert_eq!(placement.pieces.len(), 3);
    for page in &placement.pages {
        assert!(u64::from(page.first_row & 0xffff) + u64::from(page.rows) <= u64::from(CHUNK_ROWS));
    }
    image.write(&placement);
    assert!(holds(&image, placement.module, 1, &rows));
}

#[test]
fn limits_are_named_and_leave_nothing_taken() {
    let limits = Limits {
        modules: 2,
        pages: 4,
        chunks: 1,
        rules: 12,
    };
    let mut store = Store::new(limits);
    let add = |store: &mut Store, number, table: &Table| store.add(&key(number), ROOT, table).map(drop);
    add(&mut store, 1, &table(1, &[10, 10])).unwrap();
    assert_eq!(add(&mut store, 1, &table(1, &[10, 10])), Err(Refused::Held));
    assert_eq!(add(&mut store, 2, &table(2, &[1, 1, 1])), Err(Refused::Pages(4)));
    assert_eq!(
        add(&mut store, 2, &table(2, &[40_000, 40_000])),
        Err(Refused::Chunks(1))
    );
    assert_eq!(
        add(&mut store, 2, &table_of_own_rules(2, 5)),
        Err(Refused::Rules(12))
    );
    assert_eq!(store.rules(), 7);
    add(&mut store, 2, &table(2, &[65_516, 0])).unwrap();
    let full = Refused::Modules(2);
    assert_eq!(add(&mut store, 3, &table(3, &[])), Err(full));
    assert_eq!(store.evict(full), None);
    store.release(&key(1), ROOT);
    assert_eq!(store.acquire(&key(1), ROOT), Ok(Some(0)));
    assert_eq!(store.evict(full), None);
    store.release(&key(1), ROOT);
    store.release(&key(1), ROOT);
    assert_eq!(store.evict(full), Some(0));
    assert_eq!(store.acquire(&key(1), ROOT), Ok(None));
    add(&mut store, 3, &table(3, &[20])).unwrap();
}

#[test]
fn made_up_files_of_a_user_leave_rules_to_the_files_of_others() {
    let mut store = Store::new(Limits::default());
    // Sixteen of these would have all the rules that there are.
    let admitted = (0..18).filter(|number| {
        let table = table_of_own_rules(*number, 4_090);
        add(&mut store, *number, USER, &table).is_ok()
    });
    assert_eq!(admitted.count(), 4);
    let refused = add(&mut store, 4, USER, &table_of_own_rules(4, 4_090)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the processes of one user, here of 1000, may use a quarter of the unwind tables: there is no room for more different rules"
    );
    for (number, user) in [(20, ROOT), (21, OTHER)] {
        let mut image = Image::default();
        let placement = add(&mut store, number, user, &table(number, &[300])).unwrap();
        image.write(&placement);
        assert!(holds(&image, placement.module, number, &[300]));
    }
    // What counts as the user's makes room for the user's.
    store.release(&key(0), USER);
    add(&mut store, 4, USER, &table_of_own_rules(4, 4_090)).unwrap();
    assert_eq!(store.acquire(&key(0), USER), Ok(None), "it went");
}

#[test]
fn a_file_counts_as_that_of_each_user_whose_processes_use_it() {
    let limits = Limits {
        modules: 8,
        ..Limits::default()
    };
    let mut store = Store::new(limits);
    for number in 0..4 {
        store.add(&key(number), ROOT, &table(number, &[1])).unwrap();
    }
    let full = Refused::OfUser {
        user: USER,
        part: Part::Files,
    };
    assert_eq!(store.acquire(&key(0), USER), Ok(Some(0)));
    assert_eq!(store.acquire(&key(1), USER), Ok(Some(1)));
    assert_eq!(store.acquire(&key(2), USER), Err(full), "a quarter");
    assert_eq!(store.acquire(&key(1), USER), Ok(Some(1)), "in another process");
    for (number, user) in [(0, ROOT), (1, ROOT), (1, USER)] {
        store.release(&key(number), user);
    }
    assert_eq!(store.evict(full), None, "they are in use");
    assert_eq!(store.acquire(&key(2), USER), Err(full));
    store.release(&key(1), USER);
    // It counts as theirs until it goes, or another uses it.
    assert_eq!(store.acquire(&key(2), USER), Err(full));
    assert_eq!(store.acquire(&key(1), OTHER), Ok(Some(1)));
    assert_eq!(store.acquire(&key(2), USER), Ok(Some(2)));
    store.release(&key(2), USER);
    assert_eq!(
        store.acquire(&key(3), USER),
        Ok(Some(3)),
        "root's processes use the one before"
    );
    store.release(&key(3), USER);
    store.release(&key(0), USER);
    assert_eq!(store.acquire(&key(3), USER), Ok(Some(3)));
    assert_eq!(store.evict(full), Some(0), "the last one's");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_is_held_stays_whole(steps in proptest::collection::vec((0u16..12, proptest::collection::vec(0u32..30_000, 1..5)), 1..25)) {
        let mut store = Store::new(Limits { modules: 8, pages: 24, chunks: 3, ..Limits::default() });
        let mut image = Image::default();
        let mut held: HashMap<u16, (u32, Vec<u32>)> = HashMap::new();
        for (number, rows) in steps {
            if held.contains_key(&number) {
                store.release(&key(number), ROOT);
                continue;
            }
            let table = table(number, &rows);
            let placement = loop {
                match store.add(&key(number), ROOT, &table) {
                    Ok(placement) => break Some(placement),
                    Err(refused) => match store.evict(refused) {
                        Some(module) => {
                            image.remove(module);
                            held.retain(|_, of| of.0 != module);
                        }
                        None => break None,
                    },
                }
            };
            if let Some(placement) = placement {
                image.write(&placement);
                held.insert(number, (placement.module, rows));
            }
            for (number, (module, rows)) in &held {
                prop_assert!(holds(&image, *module, *number, rows));
            }
        }
        // With nothing in use, everything comes back.
        for number in 0..12 {
            store.release(&key(number), ROOT);
        }
        while store.evict(Refused::Modules(8)).is_some() {}
        prop_assert_eq!(store.rules(), 2);
        let all = store.add(&key(99), ROOT, &table(99, &[65_536, 65_536, 65_536]));
        prop_assert!(all.is_ok());
    }
}

/// What somebody does with a file.
#[derive(Clone, Debug)]
enum Act {
    Use {
        user: u32,
        number: u16,
        pages: usize,
        rows: u32,
        rules: u16,
    },
    Leave {
        user: u32,
        number: u16,
    },
}

fn act(users: &'static [u32]) -> impl Strategy<Value = Act> {
    let (user, number) = (proptest::sample::select(users), 0u16..60);
    prop_oneof![
        (user.clone(), number.clone(), 1usize..5, 0u32..3_000, 0u16..500).prop_map(
            |(user, number, pages, rows, rules)| Act::Use {
                user,
                number,
                pages,
                rows,
                rules
            }
        ),
        (user, number).prop_map(|(user, number)| Act::Leave { user, number }),
    ]
}

fn apply(store: &mut Store, act: &Act) {
    match *act {
        Act::Use {
            user,
            number,
            pages,
            rows,
            rules,
        } => {
            let mut made = table(number, &vec![rows; pages]);
            made.rules.extend(table_of_own_rules(number, rules).rules);
            let is_there = loop {
                match store.acquire(&key(number), user) {
                    Err(refused) if store.evict(refused).is_some() => {}
                    result => break result,
                }
            };
            if is_there == Ok(None) {
                // They may be refused.
                let _ = add(store, number, user, &made);
            }
        }
        Act::Leave { user, number } => store.release(&key(number), user),
    }
}

const SMALL: Limits = Limits {
    modules: 64,
    pages: 256,
    chunks: 8,
    rules: 4_096,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever one user's processes have mapped, there is room for what is within the share of another, and of root.
    #[test]
    fn a_users_files_take_no_room_from_the_share_of_others(acts in proptest::collection::vec(act(&[USER]), 0..150)) {
        let mut store = Store::new(SMALL);
        for act in &acts {
            apply(&mut store, act);
        }
        // A quarter of the files and of the rules.
        for number in 0..16 {
            let table = table_of_own_rules(1_000 + number, 60);
            prop_assert!(add(&mut store, 1_000 + number, OTHER, &table).is_ok());
        }
        let large = table(2_000, &vec![2_000; 64]);
        prop_assert!(add(&mut store, 2_000, ROOT, &large).is_ok(), "root has a quarter in one piece");
    }

    /// However many users there are, root has a quarter, in one piece.
    #[test]
    fn root_has_its_part_whatever_users_have(acts in proptest::collection::vec(act(&[1, 2, 3, 4, 5]), 0..300)) {
        let mut store = Store::new(SMALL);
        for act in &acts {
            apply(&mut store, act);
        }
        let mut large = table(2_000, &vec![2_000; 64]);
        large.rules.extend(table_of_own_rules(2_000, 900).rules);
        prop_assert!(add(&mut store, 2_000, ROOT, &large).is_ok());
    }
}
