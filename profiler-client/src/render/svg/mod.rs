//! Flame graphs as one self-contained SVG: style and script inline, nothing fetched.
//!
//! Boxes are nested `svg` elements with percentages for their position and width, so that the graph
//! fits any window and text is clipped to its box even where no script runs.

mod blocks;
pub(crate) mod colour;
mod details;
mod header;

use std::{fmt::Write as _, time::Duration};

use self::blocks::{Block, Layout};
use super::escape::xml;
use crate::{
    state::sides::Sides,
    state::{flame::FlameState, tree::Tree},
};

const STYLE: &str = include_str!("flame.css");
const SCRIPT: &str = include_str!("flame.js");

/// Height of a row of boxes, in pixels; a pixel of it is the gap. The script reads it from the page.
const ROW: usize = 18;
/// Where the graph begins, in pixels from the top.
const GRAPH_TOP: usize = 128;
/// Width that text is cut for where no script does it better, and the width of a character.
const ASSUMED_WIDTH: f64 = 1170.0;
const CHARACTER: f64 = 7.0;

/// What the page says about the run besides the view itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The target, for people.
    pub target: String,
    /// How long it ran.
    pub elapsed: Duration,
}

/// Renders the page.
#[must_use]
pub fn render(state: &FlameState, sides: Sides, about: &About) -> String {
    let tree = Tree::of(state);
    let layout = Layout::of(&tree, sides, state);
    let rows = layout
        .blocks
        .iter()
        .map(|block| block.depth + 1)
        .max()
        .unwrap_or(0)
        .max(3);
    let height = GRAPH_TOP + rows * ROW + 24;
    let mut page = String::with_capacity(layout.blocks.len() * 400 + SCRIPT.len() + STYLE.len() + 4096);
    page.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        page,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"100%\" height=\"{height}\">"
    );
    let _ = writeln!(page, "<title>{}</title>", xml(&header::title(state)));
    let _ = writeln!(page, "<style><![CDATA[\n{STYLE}]]></style>");
    page.push_str("<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n");
    header::write(&mut page, state, &tree, sides, about, &layout);
    let _ = writeln!(
        page,
        "<svg id=\"graph\" x=\"1.25%\" y=\"{GRAPH_TOP}\" width=\"97.5%\" height=\"{}\" data-row=\"{ROW}\">",
        rows * ROW
    );
    for block in &layout.blocks {
        write_block(&mut page, block);
    }
    page.push_str("</svg>\n");
    if layout.blocks.is_empty() {
        let _ = writeln!(
            page,
            "<text class=\"none\" x=\"1.25%\" y=\"{}\">No sample fell on this side.</text>",
            GRAPH_TOP + 24
        );
    }
    let _ = writeln!(page, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>");
    page
}

fn write_block(page: &mut String, block: &Block) {
    let Block {
        x,
        width,
        depth,
        label,
        details,
        fill,
        class,
    } = block;
    let _ = write!(
        page,
        "<svg class=\"f {class}\" x=\"{:.5}%\" y=\"{}\" width=\"{:.5}%\" height=\"{ROW}\" overflow=\"hidden\"><title>{}</title>",
        x * 100.0,
        depth * ROW,
        width * 100.0,
        details
            .iter()
            .map(|line| xml(line))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    match fill {
        Some(fill) => {
            let _ = write!(
                page,
                "<rect fill=\"{fill}\" width=\"100%\" height=\"{}\"/>",
                ROW - 1
            );
        }
        None => {
            let _ = write!(page, "<rect width=\"100%\" height=\"{}\"/>", ROW - 1);
        }
    }
    if let Some(text) = fit(label, width * ASSUMED_WIDTH) {
        let _ = write!(page, "<text x=\"4\" y=\"12.5\">{}</text>", xml(&text));
    }
    page.push_str("</svg>\n");
}

/// The label cut to a box, or nothing where not even its beginning fits.
fn fit(label: &str, width: f64) -> Option<String> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most ASSUMED_WIDTH, not negative"
    )]
    let room = ((width - 6.0).max(0.0) / CHARACTER) as usize;
    if room < 3 {
        None
    } else if label.chars().count() <= room {
        Some(label.to_owned())
    } else {
        Some(label.chars().take(room - 1).chain(['…']).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tree::tests::sample;

    fn about() -> About {
        About {
            target: "pid 7 (server)".into(),
            elapsed: Duration::from_secs(10),
        }
    }

    #[test]
    fn the_header_says_what_is_drawn() {
        let page = render(&sample(), Sides::Inside, &about());
        for words in [
            "handle[&gt;= p95]",
            "pid 7 (server)",
            "inside: &gt;= 12.3 ms (p95 of 10,234 calls; 512 inside, 5.0%)",
            "90.0% complete",
            "sample_ring_full 3",
            "100 samples",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
    }

    #[test]
    fn every_frame_is_a_block_with_details() {
        let page = render(&sample(), Sides::Inside, &about());
        assert_eq!(
            page.matches("class=\"f ").count(),
            8,
            "6 nodes, all, [incomplete]"
        );
        assert!(
            page.contains("<title>slow;path (inlined)\nsrc/server.rs:30\n/usr/bin/server\n"),
            "{page}"
        );
        assert!(page.contains("700 ns, 70.0% of inside, 70 samples"), "{page}");
    }

    #[test]
    fn an_event_is_said_with_its_unit() {
        let mut state = sample();
        (state.event, state.unit) = ("page-faults".into(), "faults".into());
        let page = render(&state, Sides::Inside, &about());
        for words in [
            "<title>page-faults · handle[&gt;= p95]</title>",
            "1,000 faults inside, 100 samples",
            "700 faults, 70.0% of inside, 70 samples",
            "in itself 200 faults, 20.0%",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
        assert!(!page.contains("off the CPU") && !page.contains(" ns,"));
        let page = render(&state, Sides::Difference, &about());
        assert!(page.contains("more of the faults inside") && !page.contains("more time"));
    }

    #[test]
    fn nothing_is_fetched() {
        for sides in [Sides::Inside, Sides::Outside, Sides::Difference] {
            let page = render(&sample(), sides, &about());
            let rest = page
                .replace("http://www.w3.org/2000/svg", "")
                .replace("http://www.w3.org/1999/xhtml", "");
            for reference in ["http:", "https:", "href", "url(", "@import", "src="] {
                assert!(!rest.contains(reference), "{reference}");
            }
        }
        assert!(!SCRIPT.contains("]]>") && !STYLE.contains("]]>"));
    }

    #[test]
    fn names_cannot_become_markup() {
        let mut state = sample();
        state.frames.get_mut(&3).unwrap().function = "</title><script>alert(1)</script>\x1b".into();
        state.scope = "]]><b>".into();
        let page = render(
            &state,
            Sides::Inside,
            &About {
                target: "<i>&".into(),
                ..about()
            },
        );
        assert_eq!(page.matches("<script>").count(), 1);
        assert!(page.contains("&lt;/title&gt;&lt;script&gt;alert(1)") && !page.contains('\x1b'));
        assert!(!page.contains("<b>") && !page.contains("<i>"));
    }

    #[test]
    fn it_is_the_same_every_time() {
        let once = render(&sample(), Sides::Difference, &about());
        assert_eq!(once, render(&sample(), Sides::Difference, &about()));
    }

    #[test]
    fn an_empty_side_says_so() {
        let page = render(&FlameState::default(), Sides::Inside, &about());
        assert!(page.contains("No sample fell on this side."));
    }

    #[test]
    fn text_is_cut_to_its_box() {
        assert_eq!(fit("handle_request", 1000.0).as_deref(), Some("handle_request"));
        assert_eq!(fit("handle_request", 50.0).as_deref(), Some("handl…"));
        assert_eq!(fit("handle_request", 20.0), None);
        assert_eq!(fit("x", -5.0), None);
    }
}
