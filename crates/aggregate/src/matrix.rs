//! The latency × stack matrix: samples by stack and by the latency of their span.

use super::{
    calltree::{CallTree, NodeId},
    decay::FORGOTTEN,
    number::Number,
    threshold::Band,
};
use profiler_common::layout::BUCKETS;
use std::ops::AddAssign;

/// Cells that a matrix may have.
pub const MAX_CELLS: usize = 1 << 18;

/// Share of all samples that may be folded into `other` at a time before bins are coarsened.
const FOLDED_SHARE: f64 = 0.02;

/// Bins are coarsened up to this many bits: then one is at most 1/8 of its durations wide, and
/// room is made by folding stacks alone.
pub const MAX_COARSE_BITS: u32 = 4;

/// Time and samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell<N> {
    /// Nanoseconds.
    pub weight: N,
    /// Samples.
    pub samples: N,
}

impl<N: Number> AddAssign for Cell<N> {
    fn add_assign(&mut self, other: Self) {
        self.weight = self.weight.plus(other.weight);
        self.samples = self.samples.plus(other.samples);
    }
}

/// What was sampled in calls whose durations lie in one bucket. It is small: an hour has millions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketCell {
    weight: u64,
    samples: u32,
    bucket: u16,
}

impl BucketCell {
    /// What was sampled in a bucket; `None` where there are more buckets or samples than there can be.
    #[must_use]
    pub fn new(bucket: usize, cell: Cell<u64>) -> Option<Self> {
        Some(Self {
            weight: cell.weight,
            samples: cell.samples.try_into().ok()?,
            bucket: bucket.try_into().ok()?,
        })
    }

    /// The bucket.
    #[must_use]
    pub fn bucket(self) -> usize {
        self.bucket.into()
    }

    /// What was sampled.
    #[must_use]
    pub fn cell(self) -> Cell<u64> {
        Cell {
            weight: self.weight,
            samples: self.samples.into(),
        }
    }
}

/// A node's weights: time and samples whose innermost frame it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sides<N> {
    /// Of spans that fulfil the predicates.
    pub inside: Cell<N>,
    /// Of spans that do not.
    pub outside: Cell<N>,
}

impl<N: Number> Sides<N> {
    /// Adds to the side that the bucket is on.
    pub fn add(&mut self, band: Band, bucket: usize, cell: Cell<N>) {
        *(if band.contains(bucket) {
            &mut self.inside
        } else {
            &mut self.outside
        }) += cell;
    }
}

type Row<N> = Vec<(u16, Cell<N>)>;

/// Where a bin is in a row, or would be; looked for in steps that double from the row's beginning, as most calls are short.
fn position<N>(row: &Row<N>, bin: u16) -> Result<usize, usize> {
    let (mut from, mut step, mut to) = (0, 1, 0);
    while row.get(to).is_some_and(|(other, _)| *other < bin) {
        from = to + 1;
        to += step;
        step *= 2;
    }
    let to = row.len().min(to + 1);
    let at = row[from..to].binary_search_by_key(&bin, |&(bin, _)| bin);
    at.map(|at| from + at).map_err(|at| from + at)
}

/// Beside so many cells of a row, each one that is added is searched for by itself.
const CELLS_PER_SEARCH: usize = 8;

/// Cells by node and bucket. A full one folds its rarest stacks into `other`, then coarsens bins.
///
/// The row of [`NodeId::NONE`] is no stack: there the samples that belong to no span are counted,
/// by reason in place of the bucket, so that they age with all the others.
#[derive(Clone, Debug)]
pub struct Matrix<N> {
    rows: Vec<Row<N>>,
    cells: usize,
    max_cells: usize,
    coarse_bits: u32,
    folded: u64,
    /// Where the bins of the row are that many cells are added to. What stands here of other rows is left as it is: a bin is
    /// where this says only if that place of the row is of the same bin.
    places: Vec<u16>,
}

impl<N: Number> Default for Matrix<N> {
    fn default() -> Self {
        Self::with_limit(MAX_CELLS)
    }
}

impl<N: Number> Matrix<N> {
    /// An empty matrix.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Self::new`], with another bound than [`MAX_CELLS`].
    #[must_use]
    pub fn with_limit(max_cells: usize) -> Self {
        Self {
            rows: Vec::new(),
            cells: 0,
            max_cells,
            coarse_bits: 0,
            folded: 0,
            places: Vec::new(),
        }
    }

    /// Adds to a cell. The caller then calls [`Self::shrink`] where [`Self::is_over`] says so.
    pub fn add(&mut self, node: NodeId, bucket: usize, cell: Cell<N>) {
        let bin = self.bin(node, bucket);
        let row = self.row_mut(node);
        match position(row, bin) {
            Ok(at) => row[at].1 += cell,
            Err(at) => {
                row.insert(at, (bin, cell));
                self.cells += 1;
            }
        }
    }

    fn row_mut(&mut self, node: NodeId) -> &mut Row<N> {
        if self.rows.len() <= node.index() {
            self.rows.resize_with(node.index() + 1, Vec::new);
        }
        &mut self.rows[node.index()]
    }

    /// Takes from a cell what was added to it before.
    pub fn subtract(&mut self, node: NodeId, bucket: usize, cell: Cell<N>) {
        let bin = self.bin(node, bucket);
        let Some(row) = self.rows.get_mut(node.index()) else {
            return;
        };
        let Ok(at) = position(row, bin) else {
            return;
        };
        let held = &mut row[at].1;
        held.weight = held.weight.minus(cell.weight);
        held.samples = held.samples.minus(cell.samples);
        if held.samples <= N::default() {
            row.remove(at);
            self.cells -= 1;
        }
    }

    /// Whether there are more cells than there may be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.cells > self.max_cells
    }

    /// Makes room: an eighth of the bound, or as much as there is to gain. Returns the nodes whose
    /// row is now part of `other`, in ascending order.
    pub fn shrink(&mut self, tree: &CallTree) -> Vec<NodeId> {
        let goal = self.max_cells - self.max_cells / 8;
        let mut rarest: Vec<_> = (0..)
            .map(NodeId)
            .zip(&self.rows)
            .skip(1)
            .filter(|&(node, row)| {
                !row.is_empty() && node != CallTree::other(true) && node != CallTree::other(false)
            })
            .map(|(node, row)| {
                (
                    row.iter().map(|(_, cell)| cell.samples.as_f64()).sum::<f64>(),
                    node,
                )
            })
            .collect();
        rarest.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut allowance = rarest.iter().map(|(samples, _)| samples).sum::<f64>() * FOLDED_SHARE;
        let mut rarest = rarest.into_iter().peekable();
        let mut folded = Vec::new();
        while self.cells > goal {
            if let Some((samples, node)) = rarest.next_if(|(samples, _)| *samples <= allowance) {
                allowance -= samples;
                self.fold(node, tree);
                folded.push(node);
            } else if self.coarse_bits < MAX_COARSE_BITS {
                self.coarsen();
            } else if rarest.peek().is_some() {
                allowance = f64::INFINITY;
            } else {
                break;
            }
        }
        folded.sort_unstable();
        folded
    }

    /// The weights of all nodes on the two sides of a band.
    pub fn sides(&self, band: Band) -> impl Iterator<Item = (NodeId, Sides<N>)> {
        let rows = (0..)
            .map(NodeId)
            .zip(&self.rows)
            .skip(1)
            .filter(|(_, row)| !row.is_empty());
        rows.map(move |(node, row)| {
            let mut sides = Sides::default();
            for &(bin, cell) in row {
                sides.add(band, bin.into(), cell);
            }
            (node, sides)
        })
    }

    /// Samples that belong to no span, by reason.
    pub fn elsewhere(&self) -> impl Iterator<Item = (usize, N)> {
        self.rows
            .first()
            .into_iter()
            .flatten()
            .map(|&(reason, cell)| (reason.into(), cell.samples))
    }

    /// How far bins are coarsened: one is 2^this many buckets.
    #[must_use]
    pub fn coarse_bits(&self) -> u32 {
        self.coarse_bits
    }

    /// Stacks folded into `other`. One that came back and was folded again counts again.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
    }

    /// The bin of a bucket. Buckets beyond the layout count as its last.
    #[expect(clippy::cast_possible_truncation, reason = "buckets are below 2^13")]
    fn bin(&self, node: NodeId, bucket: usize) -> u16 {
        let coarse_bits = if node == NodeId::NONE { 0 } else { self.coarse_bits };
        (bucket.min(BUCKETS - 1) >> coarse_bits << coarse_bits) as u16
    }

    fn fold(&mut self, node: NodeId, tree: &CallTree) {
        let row = std::mem::take(&mut self.rows[node.index()]);
        self.cells -= row.len();
        self.folded += 1;
        let other = CallTree::other(tree.is_complete(node));
        for (bin, cell) in row {
            self.add(other, bin.into(), cell);
        }
    }

    fn coarsen(&mut self) {
        self.coarse_bits += 1;
        let mask = u16::MAX << self.coarse_bits;
        for row in self.rows.iter_mut().skip(1) {
            self.cells -= row.len();
            for (bin, _) in row.iter_mut() {
                *bin &= mask;
            }
            row.dedup_by(|(bin, cell), (kept, sum)| {
                let same = bin == kept;
                if same {
                    *sum += *cell;
                }
                same
            });
            self.cells += row.len();
        }
    }
}

impl Matrix<u64> {
    /// Adds to cells of a node, which may come in several lists; as [`Self::add`].
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a row has no more cells than there are buckets"
    )]
    pub fn add_row(&mut self, node: NodeId, lists: &[&[BucketCell]]) {
        let known = self.row_mut(node).len();
        let cells = lists.iter().copied().flatten();
        if lists.iter().map(|cells| cells.len()).sum::<usize>() < known / CELLS_PER_SEARCH {
            for ended in cells {
                self.add(node, ended.bucket(), ended.cell());
            }
            return;
        }
        // A search goes wrong at half of its comparisons, which takes longer than to note where each bin is.
        let mut row = std::mem::take(&mut self.rows[node.index()]);
        self.places.resize(BUCKETS, 0);
        for (at, (bin, _)) in row.iter().enumerate() {
            self.places[usize::from(*bin)] = at as u16;
        }
        for ended in cells {
            let bin = self.bin(node, ended.bucket());
            let place = &mut self.places[usize::from(bin)];
            match row.get_mut(usize::from(*place)) {
                Some((of, sum)) if *of == bin => *sum += ended.cell(),
                _ => {
                    *place = row.len() as u16;
                    row.push((bin, ended.cell()));
                }
            }
        }
        if row.len() > known {
            self.cells += row.len() - known;
            // The new ones stand behind the others, most in order: a stable sort merges what is in order.
            row.sort_by_key(|(bin, _)| *bin);
        }
        self.rows[node.index()] = row;
    }
}

impl Matrix<f64> {
    /// Multiplies all cells by `factor` and forgets those that have decayed to nothing.
    pub fn scale(&mut self, factor: f64) {
        self.cells = 0;
        for row in &mut self.rows {
            row.retain_mut(|(_, cell)| {
                cell.weight *= factor;
                cell.samples *= factor;
                cell.samples >= FORGOTTEN
            });
            self.cells += row.len();
        }
    }
}

#[cfg(test)]
mod tests;
