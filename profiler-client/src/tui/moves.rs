//! Where selections go.

use super::{
    data::{Block, Data, band, is_match, place, source},
    lens::{Item, Lens, Move, Pane},
};

/// Moves the selection of the screen.
pub(super) fn step(lens: &mut Lens, towards: Move, data: &Data) {
    match lens.screen() {
        Some(Pane::Source) => lines(lens, towards, data),
        Some(Pane::Hits) => hits(lens, towards, data),
        Some(Pane::Graph | Pane::Difference) => boxes(lens, towards, data),
        Some(Pane::Latency) => bars(lens, towards, data),
        _ => rows(lens, towards, data.items(lens)),
    }
}

fn rows(lens: &mut Lens, towards: Move, items: Vec<Item>) {
    let now = lens
        .selection()
        .and_then(|selected| items.iter().position(|item| item == selected));
    let next = now.map_or(0, |now| index(now, items.len(), towards));
    if let Some(item) = items.into_iter().nth(next) {
        lens.select(item);
    }
}

/// To another bar; at first to the slowest, or the fastest if that is asked for.
fn bars(lens: &mut Lens, towards: Move, data: &Data) {
    let bars = data.bars(lens);
    let selected = match lens.selection() {
        Some(Item::Bar(selected)) => place(selected, &bars),
        _ => None,
    };
    let next = match (selected, towards) {
        (Some(now), _) => index(now, bars.len(), towards),
        (None, Move::First | Move::PageDown) => 0,
        (None, _) => bars.len().saturating_sub(1),
    };
    if let Some(bar) = bars.get(next) {
        lens.select(Item::Bar(band(bar)));
    }
}

fn lines(lens: &mut Lens, towards: Move, data: &Data) {
    let Some(source) = data.source_shown(lens) else {
        return;
    };
    match towards {
        Move::Left | Move::Right => {
            let Some((source, line)) = data.selected_line(lens) else {
                return;
            };
            let places = data.places(lens, source, line);
            let now = data.selected_place(lens);
            let now = places
                .iter()
                .position(|place| Some(place) == now.as_ref())
                .unwrap_or(0);
            let next = if towards == Move::Left {
                now.saturating_sub(1)
            } else {
                now + 1
            };
            if let Some(place) = places.into_iter().nth(next) {
                lens.place = Some(place);
            }
        }
        Move::Next | Move::Previous => {
            let is_wanted = |line: &&profiler_proto::v1::SourceLine| {
                if lens.search.is_empty() && lens.is_of_recording() {
                    let id = source::id(source, line);
                    data.time_of_line(&id.file, id.line).is_some()
                } else if lens.search.is_empty() {
                    source::has_branch(source, line)
                } else {
                    is_match(&line.text, &lens.search)
                }
            };
            let all: Vec<_> = source::lines(source).collect();
            let now = all
                .iter()
                .position(|line| Some(&Item::Line(source::id(source, line))) == lens.selection());
            let found = match (towards, now) {
                (Move::Next, now) => all
                    .iter()
                    .skip(now.map_or(0, |now| now + 1))
                    .find(|line| is_wanted(line)),
                (_, now) => all
                    .iter()
                    .take(now.unwrap_or(0))
                    .rev()
                    .find(|line| is_wanted(line)),
            };
            if let Some(line) = found {
                let item = Item::Line(source::id(source, line));
                lens.select(item);
                lens.place = None;
            }
        }
        _ => {
            let items = source::lines(source).map(|line| Item::Line(source::id(source, line)));
            rows(lens, towards, items.collect());
            lens.place = None;
        }
    }
}

fn hits(lens: &mut Lens, towards: Move, data: &Data) {
    match towards {
        Move::Left | Move::Right => {
            let Some(row) = data.selected_hit(lens) else {
                return;
            };
            let values = &row.hit.values;
            let now = values
                .iter()
                .position(|value| Some(&value.expression) == lens.value.as_ref())
                .unwrap_or(0);
            let next = if towards == Move::Left {
                now.saturating_sub(1)
            } else {
                now + 1
            };
            if let Some(value) = values.get(next) {
                lens.value = Some(value.expression.clone());
            }
        }
        _ => {
            let items: Vec<Item> = data.hits_shown(lens).map(|row| Item::Hit(row.id())).collect();
            if lens.selection().is_none_or(|selected| !items.contains(selected))
                && let Some(last) = items.last()
            {
                lens.select(last.clone());
            }
            rows(lens, towards, items);
        }
    }
}

fn boxes(lens: &mut Lens, towards: Move, data: &Data) {
    let blocks = data.layout(lens);
    let selected = match lens.selection() {
        Some(Item::Stack(stack)) => data.graph.find(&data.flame, stack),
        _ => None,
    };
    // What is too narrow is left for what it is in.
    let is_drawn = |node: Option<usize>| blocks.iter().find(|block| block.node == node).copied();
    let drawn = selected.and_then(|node| data.graph.upwards(node).find_map(|at| is_drawn(Some(at))));
    let Some(here) = drawn.or_else(|| is_drawn(None)) else {
        return;
    };
    let next = match towards {
        Move::Up | Move::PageUp => {
            let parent = here.node.and_then(|node| data.graph.nodes[node].parent);
            is_drawn(parent)
        }
        Move::Down | Move::PageDown => widest(blocks.iter().filter(|block| {
            block.depth == here.depth + 1 && block.x >= here.x - 1e-9 && block.x < here.x + here.width
        })),
        Move::Left | Move::Right => beside(&blocks, here, towards),
        Move::First => is_drawn(None),
        Move::Last => widest(
            blocks
                .iter()
                .filter(|block| Some(block.depth) == blocks.iter().map(|block| block.depth).max()),
        ),
        Move::Next | Move::Previous => matching(&blocks, here, towards, lens, data),
    };
    if let Some(next) = next {
        let stack = next.node.map(|node| data.graph.path(&data.flame, node));
        lens.select(Item::Stack(stack.unwrap_or_default()));
    }
}

fn widest<'a>(blocks: impl Iterator<Item = &'a Block>) -> Option<Block> {
    blocks
        .max_by(|a, b| a.width.total_cmp(&b.width).then(b.x.total_cmp(&a.x)))
        .copied()
}

fn beside(blocks: &[Block], here: Block, towards: Move) -> Option<Block> {
    let row = blocks.iter().filter(|block| block.depth == here.depth);
    let next = if towards == Move::Right {
        row.filter(|block| block.x > here.x)
            .min_by(|a, b| a.x.total_cmp(&b.x))
    } else {
        row.filter(|block| block.x < here.x)
            .max_by(|a, b| a.x.total_cmp(&b.x))
    };
    next.copied()
}

/// The next box that matches the search, row by row.
fn matching(blocks: &[Block], here: Block, towards: Move, lens: &Lens, data: &Data) -> Option<Block> {
    let order = |a: &Block, b: &Block| a.depth.cmp(&b.depth).then(a.x.total_cmp(&b.x));
    let mut found: Vec<&Block> = blocks
        .iter()
        .filter(|block| {
            let node = block.node.map(|node| &data.graph.nodes[node]);
            let frame = node.and_then(|node| data.flame.frames.get(&node.frame));
            !lens.search.is_empty() && frame.is_some_and(|frame| is_match(&frame.function, &lens.search))
        })
        .collect();
    found.sort_by(|a, b| order(a, b));
    let next = if towards == Move::Next {
        found
            .iter()
            .find(|block| order(block, &here).is_gt())
            .or(found.first())
    } else {
        found
            .iter()
            .rev()
            .find(|block| order(block, &here).is_lt())
            .or(found.last())
    };
    next.map(|block| **block)
}

/// Where a row's number moves in a list of so many.
fn index(now: usize, count: usize, towards: Move) -> usize {
    const PAGE: usize = 10;
    let last = count.saturating_sub(1);
    match towards {
        Move::Up => now.saturating_sub(1),
        Move::Down => (now + 1).min(last),
        Move::PageUp => now.saturating_sub(PAGE),
        Move::PageDown => (now + PAGE).min(last),
        Move::First => 0,
        Move::Last => last,
        Move::Left | Move::Right | Move::Next | Move::Previous => now.min(last),
    }
}
