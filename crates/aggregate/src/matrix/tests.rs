use super::super::{
    calltree::FrameId,
    matrix_age::{AgingMatrix, EwmaMatrix, WindowMatrix},
    slots::WindowConfig,
};
use super::*;
use proptest::prelude::*;

const STACKS: u32 = 40;
const WINDOW: WindowConfig = WindowConfig {
    window_ns: 1000,
    slots: 10,
};
const HALF_LIFE: u64 = 1000;

/// One stack for each frame, every third incomplete.
fn tree() -> (CallTree, Vec<NodeId>) {
    let mut tree = CallTree::new();
    let nodes = (1..=STACKS)
        .map(|frame| tree.intern(&[FrameId(frame)], frame % 3 > 0))
        .collect();
    (tree, nodes)
}

#[derive(Clone, Copy, Debug)]
struct Added {
    at_ns: u64,
    stack: usize,
    bucket: usize,
    cell: Cell<u64>,
}

fn added() -> impl Strategy<Value = Vec<Added>> {
    let one = (
        0u64..150,
        0..STACKS as usize,
        2000usize..2400,
        1u64..1000,
        1u64..4,
    );
    prop::collection::vec(one, 1..400).prop_map(|all| {
        let mut at_ns = 0;
        let to_added = |(step, stack, bucket, weight, samples)| {
            at_ns += step;
            Added {
                at_ns,
                stack,
                bucket,
                cell: Cell { weight, samples },
            }
        };
        all.into_iter().map(to_added).collect()
    })
}

fn sides_of(matrix: &dyn AgingMatrix, now_ns: u64, band: Band, tree: &CallTree) -> Vec<Sides<u64>> {
    let mut sides = vec![Sides::default(); tree.len() + 1];
    matrix.sides(now_ns, band, &mut sides);
    sides
}

fn naive(added: &[Added], band: Band, nodes: &[NodeId], len: usize) -> Vec<Sides<u64>> {
    let mut sides = vec![Sides::default(); len];
    for a in added {
        sides[nodes[a.stack].index()].add(band, a.bucket, a.cell);
    }
    sides
}

/// Samples and time by (side, completeness).
fn totals(sides: &[Sides<u64>], tree: &CallTree) -> [[Cell<u64>; 2]; 2] {
    let mut totals = <[[Cell<u64>; 2]; 2]>::default();
    for (node, sides) in (0..).map(NodeId).zip(sides) {
        let complete = usize::from(tree.is_complete(node));
        totals[0][complete] += sides.inside;
        totals[1][complete] += sides.outside;
    }
    totals
}

proptest! {
    #[test]
    fn since_start_is_the_sum(added in added(), from in 1990usize..2410, len in 0usize..400) {
        let (tree, nodes) = tree();
        let band = Band { from, to: from + len };
        let mut matrix = Matrix::<u64>::new();
        for a in &added {
            AgingMatrix::add(&mut matrix, a.at_ns, nodes[a.stack], a.bucket, a.cell, &tree);
        }
        prop_assert_eq!(sides_of(&matrix, 0, band, &tree), naive(&added, band, &nodes, tree.len() + 1));
    }

    #[test]
    fn cells_of_a_row_that_come_at_once_are_those_that_come_one_by_one(
        added in added(), at_once in 1usize..60, max_cells in prop::option::of(100usize..300),
    ) {
        let (tree, nodes) = tree();
        let max_cells = max_cells.unwrap_or(MAX_CELLS);
        let mut by_row = Matrix::<u64>::with_limit(max_cells);
        let mut by_cell = Matrix::<u64>::with_limit(max_cells);
        for row in added.chunks(at_once) {
            let node = nodes[row[0].stack % 3];
            let cells: Vec<_> = row.iter().map(|a| BucketCell::new(a.bucket, a.cell).unwrap()).collect();
            let lists = cells.split_at(cells.len() / 3);
            AgingMatrix::add_row(&mut by_row, 0, node, &[lists.0, lists.1], &tree);
            for ended in cells {
                by_cell.add(node, ended.bucket(), ended.cell());
            }
            // Room is made at the same times.
            if by_cell.is_over() {
                by_cell.shrink(&tree);
            }
            prop_assert_eq!((&by_row.rows, by_row.cells), (&by_cell.rows, by_cell.cells));
        }
        prop_assert_eq!(by_row.coarse_bits(), by_cell.coarse_bits());
    }

    #[test]
    fn a_window_is_the_sum_of_its_slots(added in added(), from in 1990usize..2410, later in 0u64..2000) {
        let (tree, nodes) = tree();
        let band = Band { from, to: 2300 };
        let mut matrix = WindowMatrix::new(WINDOW, 0);
        for a in &added {
            matrix.add(a.at_ns, nodes[a.stack], a.bucket, a.cell, &tree);
        }
        let last = added.last().unwrap().at_ns;
        for now in [last, last + later] {
            let live: Vec<_> = added.iter().copied().filter(|a| a.at_ns / 100 + 10 > now / 100).collect();
            prop_assert_eq!(sides_of(&matrix, now, band, &tree), naive(&live, band, &nodes, tree.len() + 1));
        }
    }

    #[test]
    fn a_decayed_matrix_is_the_direct_formula(added in added(), later in 0u64..5000) {
        let (tree, nodes) = tree();
        let mut matrix = EwmaMatrix::new(HALF_LIFE, 0);
        for a in &added {
            let cell = Cell { weight: a.cell.weight * 1_000_000_000, samples: a.cell.samples };
            matrix.add(a.at_ns, nodes[a.stack], a.bucket, cell, &tree);
        }
        let now = added.last().unwrap().at_ns + later;
        let sides = sides_of(&matrix, now, Band::ALL, &tree);
        for (stack, node) in nodes.iter().enumerate() {
            let direct: f64 = added.iter().filter(|a| a.stack == stack).map(|a| {
                a.cell.weight as f64 * 1e9 * (-((now - a.at_ns) as f64) / HALF_LIFE as f64).exp2()
            }).sum();
            let held = sides[node.index()].inside.weight as f64;
            prop_assert!((held - direct).abs() <= 1e-9 * direct + 1.0, "{} {}", held, direct);
        }
    }

    #[test]
    fn a_full_matrix_loses_detail_but_no_sample(added in added(), max_cells in 4usize..200) {
        let (tree, nodes) = tree();
        let mut start = Matrix::<u64>::with_limit(max_cells);
        let mut window = WindowMatrix::with_limit(WINDOW, 0, max_cells);
        for a in &added {
            AgingMatrix::add(&mut start, a.at_ns, nodes[a.stack], a.bucket, a.cell, &tree);
            window.add(a.at_ns, nodes[a.stack], a.bucket, a.cell, &tree);
            // 400 buckets at the coarsest are 25 bins, for each of the two `other` rows.
            prop_assert!(start.cells <= max_cells.max(50));
        }
        let now = added.last().unwrap().at_ns;
        let live: Vec<_> = added.iter().copied().filter(|a| a.at_ns / 100 + 10 > now / 100).collect();
        for (matrix, added) in [(&start as &dyn AgingMatrix, &added), (&window, &live)] {
            // An edge that keeps to the coarsened bins, as `divide` gives it.
            let band = Band { from: 2200 >> matrix.coarse_bits() << matrix.coarse_bits(), ..Band::ALL };
            let held = totals(&sides_of(matrix, now, band, &tree), &tree);
            let expected = totals(&naive(added, band, &nodes, tree.len() + 1), &tree);
            prop_assert_eq!(held, expected);
        }
        let empty = sides_of(&window, now + 1000, Band::ALL, &tree);
        prop_assert!(empty.iter().all(|sides| *sides == Sides::default()));
        let (node, cell) = (nodes[0], Cell { weight: 1, samples: 1 });
        window.add(now + 5000, node, 2000, cell, &tree);
        let alone = totals(&sides_of(&window, now + 5000, Band::ALL, &tree), &tree);
        prop_assert_eq!(alone[0][1], cell);
    }
}

#[test]
fn the_rarest_stacks_are_folded_first() {
    let (tree, nodes) = tree();
    let mut matrix = Matrix::<u64>::with_limit(32);
    let often = Cell {
        weight: 100_000,
        samples: 1000,
    };
    let rare = Cell {
        weight: 100,
        samples: 1,
    };
    for (stack, &node) in nodes.iter().enumerate() {
        matrix.add(node, 2000, if stack < 10 { often } else { rare });
        if matrix.is_over() {
            matrix.shrink(&tree);
        }
    }
    let kept: Vec<_> = matrix.sides(Band::ALL).collect();
    assert!(
        nodes[..10]
            .iter()
            .all(|often| kept.iter().any(|(node, _)| node == often))
    );
    assert!(kept.iter().any(|(node, _)| *node == CallTree::other(true)));
    assert!(kept.iter().any(|(node, _)| *node == CallTree::other(false)));
    assert!((matrix.folded(), matrix.coarse_bits()) > (0, 0) && matrix.coarse_bits() == 0);
    assert!(matrix.cells <= 32);
}

#[test]
fn bins_coarsen_where_no_stack_is_rare() {
    let (tree, nodes) = tree();
    let mut matrix = Matrix::<u64>::with_limit(100);
    for bucket in 2000..2250 {
        matrix.add(
            nodes[0],
            bucket,
            Cell {
                weight: 1,
                samples: 1,
            },
        );
        if matrix.is_over() {
            matrix.shrink(&tree);
        }
    }
    assert_eq!((matrix.folded(), matrix.coarse_bits()), (0, 2));
}
