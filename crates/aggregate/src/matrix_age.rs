//! Matrices that age: over a sliding window, and exponentially.

use super::{
    calltree::{CallTree, NodeId},
    decay::Decay,
    join::Elsewhere,
    matrix::{BucketCell, Cell, Matrix, Sides},
    number::rounded,
    slots::{Slots, WindowConfig},
    threshold::Band,
};

/// A matrix as one of the ages keeps it.
pub trait AgingMatrix {
    /// Adds at `now_ns`, and makes room where that was one too many.
    fn add(&mut self, now_ns: u64, node: NodeId, bucket: usize, cell: Cell<u64>, tree: &CallTree);

    /// As [`Self::add`], for cells of one node, which may come in several lists.
    fn add_row(&mut self, now_ns: u64, node: NodeId, lists: &[&[BucketCell]], tree: &CallTree) {
        for ended in lists.iter().copied().flatten() {
            self.add(now_ns, node, ended.bucket(), ended.cell(), tree);
        }
    }

    /// Adds the weights at `now_ns`, rounded to whole nanoseconds and samples, to `sides`, which is
    /// indexed by node and long enough for every node of the tree.
    fn sides(&self, now_ns: u64, band: Band, sides: &mut [Sides<u64>]);

    /// Samples that belong to no span, by reason.
    fn elsewhere(&self, now_ns: u64) -> Elsewhere;

    /// See [`Matrix::coarse_bits`].
    fn coarse_bits(&self) -> u32;

    /// See [`Matrix::folded`].
    fn folded(&self) -> u64;
}

fn add_sides(sum: &mut Sides<u64>, sides: Sides<u64>) {
    sum.inside += sides.inside;
    sum.outside += sides.outside;
}

impl AgingMatrix for Matrix<u64> {
    fn add(&mut self, _now_ns: u64, node: NodeId, bucket: usize, cell: Cell<u64>, tree: &CallTree) {
        Self::add(self, node, bucket, cell);
        if self.is_over() {
            self.shrink(tree);
        }
    }

    fn add_row(&mut self, _now_ns: u64, node: NodeId, lists: &[&[BucketCell]], tree: &CallTree) {
        Self::add_row(self, node, lists);
        if self.is_over() {
            self.shrink(tree);
        }
    }

    fn sides(&self, _now_ns: u64, band: Band, sides: &mut [Sides<u64>]) {
        Self::sides(self, band).for_each(|(node, these)| add_sides(&mut sides[node.index()], these));
    }

    fn elsewhere(&self, _now_ns: u64) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        Self::elsewhere(self).for_each(|(reason, samples)| elsewhere[reason] += samples);
        elsewhere
    }

    fn coarse_bits(&self) -> u32 {
        Self::coarse_bits(self)
    }

    fn folded(&self) -> u64 {
        Self::folded(self)
    }
}

/// The matrix of a sliding window.
#[derive(Clone, Debug)]
pub struct WindowMatrix {
    slots: Slots<Cell<u64>>,
    sum: Matrix<u64>,
}

const BUCKET_BITS: u32 = 16;

fn key(node: NodeId, bucket: usize) -> u64 {
    u64::from(node.0) << BUCKET_BITS | bucket as u64
}

#[expect(clippy::cast_possible_truncation, reason = "unpacking")]
fn of_key(key: u64) -> (NodeId, usize) {
    (
        NodeId((key >> BUCKET_BITS) as u32),
        (key & ((1 << BUCKET_BITS) - 1)) as usize,
    )
}

impl WindowMatrix {
    /// An empty window that begins at `start_ns`.
    #[must_use]
    pub fn new(config: WindowConfig, start_ns: u64) -> Self {
        Self::with_limit(config, start_ns, super::matrix::MAX_CELLS)
    }

    /// As [`Self::new`], with another bound of cells.
    #[must_use]
    pub fn with_limit(config: WindowConfig, start_ns: u64, max_cells: usize) -> Self {
        Self {
            slots: Slots::new(config, start_ns),
            sum: Matrix::with_limit(max_cells),
        }
    }
}

impl AgingMatrix for WindowMatrix {
    fn add(&mut self, now_ns: u64, node: NodeId, bucket: usize, cell: Cell<u64>, tree: &CallTree) {
        let Self { slots, sum } = self;
        slots.advance(now_ns, |key, cell| {
            let (node, bucket) = of_key(key);
            sum.subtract(node, bucket, cell);
        });
        slots.add(key(node, bucket), cell);
        sum.add(node, bucket, cell);
        if sum.is_over() {
            // What was folded must leave the window from where it now is.
            let folded = sum.shrink(tree);
            slots.rename(|was| {
                let (node, bucket) = of_key(was);
                let is_folded = folded.binary_search(&node).is_ok();
                if is_folded {
                    key(CallTree::other(tree.is_complete(node)), bucket)
                } else {
                    was
                }
            });
        }
    }

    fn sides(&self, now_ns: u64, band: Band, sides: &mut [Sides<u64>]) {
        AgingMatrix::sides(&self.sum, now_ns, band, sides);
        for (key, cell) in self.slots.expired(now_ns) {
            let (node, bucket) = of_key(key);
            if node == NodeId::NONE {
                continue;
            }
            let coarse_bits = self.sum.coarse_bits();
            let sides = &mut sides[node.index()];
            let inside = band.contains(bucket >> coarse_bits << coarse_bits);
            let side = if inside {
                &mut sides.inside
            } else {
                &mut sides.outside
            };
            side.weight -= cell.weight;
            side.samples -= cell.samples;
        }
    }

    fn elsewhere(&self, now_ns: u64) -> Elsewhere {
        let mut elsewhere = AgingMatrix::elsewhere(&self.sum, now_ns);
        for (key, cell) in self.slots.expired(now_ns) {
            if let (NodeId::NONE, reason) = of_key(key) {
                elsewhere[reason] -= cell.samples;
            }
        }
        elsewhere
    }

    fn coarse_bits(&self) -> u32 {
        self.sum.coarse_bits()
    }

    fn folded(&self) -> u64 {
        self.sum.folded()
    }
}

/// The exponentially weighted matrix.
#[derive(Clone, Debug)]
pub struct EwmaMatrix {
    decay: Decay,
    stored: Matrix<f64>,
}

impl EwmaMatrix {
    /// An empty matrix that begins at `start_ns`.
    #[must_use]
    pub fn new(half_life_ns: u64, start_ns: u64) -> Self {
        Self {
            decay: Decay::new(half_life_ns, start_ns),
            stored: Matrix::new(),
        }
    }
}

impl AgingMatrix for EwmaMatrix {
    fn add(&mut self, now_ns: u64, node: NodeId, bucket: usize, cell: Cell<u64>, tree: &CallTree) {
        if let Some(factor) = self.decay.advance(now_ns) {
            self.stored.scale(factor);
        }
        let weight = self.decay.weight(now_ns);
        let Cell { weight: ns, samples } = cell;
        self.stored.add(
            node,
            bucket,
            Cell {
                weight: ns as f64 * weight,
                samples: samples as f64 * weight,
            },
        );
        if self.stored.is_over() {
            self.stored.shrink(tree);
        }
    }

    fn sides(&self, now_ns: u64, band: Band, sides: &mut [Sides<u64>]) {
        let worth = self.decay.worth(now_ns);
        let whole = |cell: Cell<f64>| Cell {
            weight: rounded(cell.weight * worth),
            samples: rounded(cell.samples * worth),
        };
        for (node, Sides { inside, outside }) in self.stored.sides(band) {
            add_sides(
                &mut sides[node.index()],
                Sides {
                    inside: whole(inside),
                    outside: whole(outside),
                },
            );
        }
    }

    fn elsewhere(&self, now_ns: u64) -> Elsewhere {
        let worth = self.decay.worth(now_ns);
        let mut elsewhere = Elsewhere::default();
        self.stored
            .elsewhere()
            .for_each(|(reason, samples)| elsewhere[reason] += rounded(samples * worth));
        elsewhere
    }

    fn coarse_bits(&self) -> u32 {
        self.stored.coarse_bits()
    }

    fn folded(&self) -> u64 {
        self.stored.folded()
    }
}
