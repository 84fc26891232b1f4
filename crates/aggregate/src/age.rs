//! The three ages of a picture. Whatever a picture is made of ages together: the calls that
//! percentiles are taken of, the matrix, and the spans that differences are estimated from.

use super::{
    decay::Decay,
    ewma::Ewma,
    histogram::Histogram,
    latency::AgeConfig,
    matrix::Matrix,
    matrix_age::{AgingMatrix, EwmaMatrix, WindowMatrix},
    predicate::Predicate,
    reservoir::{MAX_LEAVES, MAX_SPANS, RecentSpans, Reservoir, SampledSpan},
    slots::WindowConfig,
    threshold::{Division, divide},
    window::Window,
};
use std::sync::Arc;

/// Which calls a picture is drawn of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Over {
    /// All since the start.
    Start,
    /// Those of the sliding window.
    Window,
    /// All, each with the weight that its age has left it.
    Ewma,
}

/// All that a picture of one age is made of.
pub trait Age: Send + Sync {
    /// Adds calls that ended since the time before.
    fn calls(&mut self, now_ns: u64, calls: &[(usize, u64)]);

    /// Adds a span that has ended.
    fn span(&mut self, span: &Arc<SampledSpan>);

    /// Divides the calls at `now_ns`.
    fn divide(&self, now_ns: u64, predicates: &[Predicate]) -> Division;

    /// Spans selected at `now_ns`, with the number that each stands for.
    fn spans(&self, now_ns: u64) -> Vec<(f64, &SampledSpan)>;

    /// The matrix.
    fn matrix(&self) -> &dyn AgingMatrix;

    /// The matrix, to add to.
    fn matrix_mut(&mut self) -> &mut dyn AgingMatrix;
}

/// An age that begins at `start_ns`. `seed` decides which spans are selected where there are too
/// many.
#[must_use]
pub fn new(over: Over, config: AgeConfig, start_ns: u64, seed: u64) -> Box<dyn Age> {
    match over {
        Over::Start => Box::new(SinceStart {
            calls: Histogram::new(),
            matrix: Matrix::new(),
            spans: Reservoir::new(MAX_SPANS, MAX_LEAVES, seed),
        }),
        Over::Window => Box::new(Windowed {
            calls: Window::new(config.window, start_ns),
            matrix: WindowMatrix::new(config.window, start_ns),
            spans: RecentSpans::new(config.window, seed),
        }),
        Over::Ewma => Box::new(Decaying {
            calls: Ewma::new(config.half_life_ns, start_ns),
            matrix: EwmaMatrix::new(config.half_life_ns, start_ns),
            spans: RecentSpans::new(decaying_slots(config.half_life_ns), seed),
            decay: Decay::new(config.half_life_ns, start_ns),
        }),
    }
}

struct SinceStart {
    calls: Histogram<u64>,
    matrix: Matrix<u64>,
    spans: Reservoir,
}

impl Age for SinceStart {
    fn calls(&mut self, _now_ns: u64, calls: &[(usize, u64)]) {
        for &(bucket, count) in calls {
            self.calls.add_bucket(bucket, count);
        }
    }

    fn span(&mut self, span: &Arc<SampledSpan>) {
        self.spans.add(Arc::clone(span));
    }

    fn divide(&self, _now_ns: u64, predicates: &[Predicate]) -> Division {
        divide(predicates, &self.calls, 1.0, self.matrix.coarse_bits())
    }

    fn spans(&self, _now_ns: u64) -> Vec<(f64, &SampledSpan)> {
        self.spans
            .spans()
            .map(|span| (self.spans.stands_for(), span))
            .collect()
    }

    fn matrix(&self) -> &dyn AgingMatrix {
        &self.matrix
    }

    fn matrix_mut(&mut self) -> &mut dyn AgingMatrix {
        &mut self.matrix
    }
}

struct Windowed {
    calls: Window,
    matrix: WindowMatrix,
    spans: RecentSpans,
}

impl Age for Windowed {
    fn calls(&mut self, now_ns: u64, calls: &[(usize, u64)]) {
        self.calls.record(now_ns, calls);
    }

    fn span(&mut self, span: &Arc<SampledSpan>) {
        self.spans.add(Arc::clone(span));
    }

    fn divide(&self, now_ns: u64, predicates: &[Predicate]) -> Division {
        divide(
            predicates,
            &self.calls.histogram(now_ns),
            1.0,
            self.matrix.coarse_bits(),
        )
    }

    fn spans(&self, now_ns: u64) -> Vec<(f64, &SampledSpan)> {
        self.spans.spans(now_ns).collect()
    }

    fn matrix(&self) -> &dyn AgingMatrix {
        &self.matrix
    }

    fn matrix_mut(&mut self) -> &mut dyn AgingMatrix {
        &mut self.matrix
    }
}

struct Decaying {
    calls: Ewma,
    matrix: EwmaMatrix,
    spans: RecentSpans,
    decay: Decay,
}

/// Slots of half a half-life, over 16 half-lives: what is older weighs less than 1/65,536.
fn decaying_slots(half_life_ns: u64) -> WindowConfig {
    WindowConfig {
        window_ns: half_life_ns.saturating_mul(16),
        slots: 32,
    }
}

impl Age for Decaying {
    fn calls(&mut self, now_ns: u64, calls: &[(usize, u64)]) {
        self.calls.record(now_ns, calls);
    }

    fn span(&mut self, span: &Arc<SampledSpan>) {
        self.spans.add(Arc::clone(span));
    }

    fn divide(&self, now_ns: u64, predicates: &[Predicate]) -> Division {
        divide(
            predicates,
            self.calls.stored(),
            self.calls.worth(now_ns),
            self.matrix.coarse_bits(),
        )
    }

    fn spans(&self, now_ns: u64) -> Vec<(f64, &SampledSpan)> {
        let kept = |span: &SampledSpan| self.decay.kept_after(now_ns.saturating_sub(span.end_ns));
        self.spans
            .spans(now_ns)
            .map(|(stands_for, span)| (stands_for * kept(span), span))
            .collect()
    }

    fn matrix(&self) -> &dyn AgingMatrix {
        &self.matrix
    }

    fn matrix_mut(&mut self) -> &mut dyn AgingMatrix {
        &mut self.matrix
    }
}
