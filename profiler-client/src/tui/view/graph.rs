//! The flame graph, roots at the top.

use ratatui::{layout::Rect, style::Modifier, style::Style};

use super::{
    spots::Sign,
    text::Page,
    theme::{Depth, Theme},
    top::MARKED,
};
use crate::{
    cli::request::Sides,
    live::line::{self, Line},
    render::{escape::terminal, source_names::cut, units},
    state::tree,
    tui::{
        data::{Block, Data, GraphNode, Largest, is_match},
        lens::{Item, Lens},
    },
};

/// What the boxes of a difference show.
const LEGEND: &str = "  width: mean of both sides' shares; red: more of slow calls, blue: less (95%)";

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let sides = Data::sides(lens.pane);
    if let Some(line) = super::shape_line(lens, data) {
        page.line(&line);
    }
    let not_compared = lens.shape_not_compared();
    if !not_compared.is_empty() {
        let words = terminal(&not_compared.join(", ")).into_owned();
        let words = format!("  whole stacks are compared; on other panes only: {words}");
        page.line(&Line::of(line::Style::Warning, words));
    }
    // Once nothing more comes, what is there may be of another pane.
    let is_of_other = data.is_over() && sides == Sides::Difference && data.flame.differences.is_empty();
    if is_of_other || data.graph.share(data.graph.total, sides) <= 0.0 {
        return page.paragraph(line::Style::Faint, &super::nothing_yet(lens, data));
    }
    if sides == Sides::Difference {
        conclusion(page, lens, data);
        page.line(&Line::of(line::Style::Faint, LEGEND));
    }
    let zoomed = data
        .graph
        .find(&data.flame, &lens.zoom)
        .filter(|_| !lens.zoom.is_empty());
    let zoomed = zoomed.and_then(|at| data.flame.frames.get(&data.graph.nodes[at].frame));
    if let Some(zoomed) = zoomed {
        let name = line::cut_middle(&terminal(tree::name(zoomed)), page.width() / 2);
        page.line(&Line::of(
            line::Style::Warning,
            format!("  only `{name}` (Esc: all)"),
        ));
    }
    let selected = match lens.selection() {
        Some(Item::Stack(stack)) => data.graph.find(&data.flame, stack),
        _ => None,
    };
    about(&mut page.foot(2), lens, data, selected, sides);
    let mut blocks = data.layout(lens);
    // What is drawn last is seen where boxes share a column.
    blocks.sort_by_key(|block| block.node == selected);
    let depth = blocks.last().map_or(0, |block| block.depth);
    let deepest = blocks.iter().map(|block| block.depth).max().unwrap_or(0);
    let begin = page.first(lens, depth, deepest + 1);
    let area = page.area;
    for block in &blocks {
        let row = block
            .depth
            .checked_sub(begin)
            .and_then(|row| u16::try_from(row).ok());
        let Some(row) = row.filter(|row| *row < area.height) else {
            continue;
        };
        let is_selected = block.node == selected;
        let Some(place) = place(block, area, row, is_selected) else {
            continue;
        };
        page.spots.add(place, Sign::Block(block.node));
        paint(page, lens, data, block, place, is_selected);
    }
}

/// What slow calls do more of, in a line; nothing where nothing has been compared yet.
fn conclusion(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    if data.flame.differences.is_empty() {
        return;
    }
    let Some(Largest { frame, total }) = data.graph.largest_difference else {
        let so_far = if lens.is_of_recording() { "" } else { " so far" };
        let words =
            format!("  no function surely has 1% more of slow calls' time than of the others'{so_far}");
        return page.line(&Line::of(line::Style::Faint, words));
    };
    let name = data.flame.frames.get(&frame).map_or("all", tree::name);
    let share = |sides| units::percent(data.graph.share(total, sides));
    let words = format!(
        " has {} of slow calls' time, {} of the others'",
        share(Sides::Inside),
        share(Sides::Outside)
    );
    let room = page.width().saturating_sub(words.chars().count() + 2);
    let name = line::cut_middle(&terminal(name), room);
    page.line(&Line::of(line::Style::Strong, format!("  {name}")).and(line::Style::Plain, words));
}

/// Where a box is on the screen; a box that has no column of its own has none, unless it is selected.
fn place(block: &Block, area: Rect, row: u16, is_selected: bool) -> Option<Rect> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a width"
    )]
    let column = |share: f64| (share.clamp(0.0, 1.0) * f64::from(area.width)).round() as u16;
    let (begin, end) = (column(block.x), column(block.x + block.width));
    let begin = begin.min(area.width.saturating_sub(1));
    let width = end.saturating_sub(begin).max(u16::from(is_selected));
    (width > 0 && area.width > 0).then(|| Rect {
        x: area.x + begin,
        y: area.y + row,
        width,
        height: 1,
    })
}

fn paint(page: &mut Page<'_>, lens: &Lens, data: &Data, block: &Block, place: Rect, is_selected: bool) {
    let node = block.node.map(|node| &data.graph.nodes[node]);
    let frame = node.and_then(|node| data.flame.frames.get(&node.frame));
    let label = frame.map_or("all", tree::name);
    let mut style = match (node, frame) {
        (Some(node), _) if lens.pane == crate::tui::lens::Pane::Difference => {
            page.theme.difference(node.difference.as_ref())
        }
        (Some(node), Some(frame)) if node.complete => page.theme.frame(frame),
        _ => page.theme.plain_block(),
    };
    if !lens.search.is_empty() && is_match(label, &lens.search) && frame.is_some() {
        style = style.patch(page.theme.matched());
    }
    if is_selected {
        style = if page.theme.depth == Depth::None {
            Theme::selected()
        } else {
            style.add_modifier(Modifier::REVERSED)
        };
    }
    // Without colours, and between boxes of one, edges are drawn.
    let is_marked = frame.is_some_and(|frame| lens.marked.contains(&frame.function));
    let mark = if is_marked { MARKED } else { "" };
    let text = format!("▏{mark}{}", terminal(label));
    let width = usize::from(place.width);
    let text: String = if width < 5 {
        text.chars().take(width).collect()
    } else {
        cut(&text, width)
    };
    page.buffer.set_style(place, Style::reset());
    page.buffer
        .set_stringn(place.x, place.y, " ".repeat(width), width, style);
    page.buffer.set_stringn(place.x, place.y, text, width, style);
}

/// What is selected, in two lines.
fn about(page: &mut Page<'_>, lens: &Lens, data: &Data, selected: Option<usize>, sides: Sides) {
    let node = selected.map(|node| &data.graph.nodes[node]);
    let frame = node.and_then(|node| data.flame.frames.get(&node.frame));
    let name = frame.map_or("all", tree::name);
    let mut line = Line::of(line::Style::Strong, terminal(name).into_owned());
    if let Some(frame) = frame {
        let module = frame.module.rsplit('/').next().unwrap_or_default();
        line = line.and(line::Style::Faint, format!("  {}", terminal(module)));
        if !frame.file.is_empty() {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            line = line.and(line::Style::Faint, format!("  {}:{}", terminal(file), frame.line));
        }
        if !frame.unresolved.is_empty() {
            line = line.and(line::Style::Warning, format!("  {}", terminal(&frame.unresolved)));
        }
    }
    page.line(&line);
    let mut words = Line::of(line::Style::Plain, weights(data, node, sides));
    if !lens.search.is_empty() {
        let share = matched(lens, data, sides);
        words = words.and(
            line::Style::Strong,
            format!("  `{}` in {}", terminal(&lens.search), units::percent(share)),
        );
    }
    page.line(&words);
}

fn weights(data: &Data, node: Option<&GraphNode>, sides: Sides) -> String {
    let total = node.map_or(data.graph.total, |node| node.total);
    let unit = &data.flame.unit;
    if sides != Sides::Difference {
        let own = node.map_or(0, |node| node.own.ns(sides));
        return format!(
            "{} {}, {} samples, self {}",
            units::percent(data.graph.share(total, sides)),
            units::weight(total.ns(sides), unit),
            units::count(total.samples(sides)),
            units::weight(own, unit),
        );
    }
    let share = |sides| units::percent(data.graph.share(total, sides));
    let mut text = format!(
        "inside {}, outside {}",
        share(Sides::Inside),
        share(Sides::Outside)
    );
    if let Some(difference) = node.and_then(|node| node.difference) {
        let points = |share: f64| format!("{:+.1}", share * 100.0);
        text.push_str(&format!(
            ", difference {} points (95%: {} to {}), {} and {} calls",
            points(difference.difference),
            points(difference.low),
            points(difference.high),
            difference.inside_spans,
            difference.outside_spans,
        ));
    }
    text
}

/// The share of the time that has what is searched for on its stack.
fn matched(lens: &Lens, data: &Data, sides: Sides) -> f64 {
    let graph = &data.graph;
    let mut share = 0.0;
    let mut ahead = graph.roots.clone();
    while let Some(at) = ahead.pop() {
        let node = &graph.nodes[at];
        let frame = data.flame.frames.get(&node.frame);
        if frame.is_some_and(|frame| is_match(&frame.function, &lens.search)) {
            share += graph.share(node.total, sides);
        } else {
            ahead.extend(&node.children);
        }
    }
    share
}
