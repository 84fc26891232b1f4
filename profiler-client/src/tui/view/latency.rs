//! How long calls take.

use super::text::Page;
use crate::{
    cli::args::BarsOver,
    live::{
        LatencyView,
        line::{Line, Style},
    },
    render::escape::terminal,
    tui::{
        data::Data,
        lens::{Lens, path},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let (true, Some(session)) = (data.latency.started, &data.session) else {
        let step = path::steps(&lens.scope).pop().unwrap_or_default();
        let has_no_duration = profiler_scope::parse(&step)
            .is_ok_and(|step| step.last().is_some_and(|step| !step.place.has_spans()));
        let words = if has_no_duration {
            format!(
                "`{}` has no duration: 6 shows its hits, u takes it back",
                terminal(&step)
            )
        } else {
            super::nothing_yet(lens, data).to_owned()
        };
        page.line(&Line::of(Style::Faint, format!("  {words}")));
        return;
    };
    let threshold_ns =
        Some(data.flame.summary.threshold_ns).filter(|ns| *ns > 0 && path::threshold(&lens.scope).is_some());
    let view = LatencyView {
        session,
        bars: BarsOver::Start,
        threshold_ns,
    };
    // The view leaves room for lines that are not here.
    let rows = page.rows() + 3;
    for line in view.lines(&data.latency, page.width(), rows) {
        page.line(&line);
    }
}
