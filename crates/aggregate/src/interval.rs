//! 95% confidence intervals of shares of time, with the span as the unit of observation.

/// Two-sided 95% of the normal distribution.
const Z: f64 = 1.959_963_985;

/// A side on which a node was seen in fewer spans than this has no finding to give: the interval
/// of its share reaches down to 0. Likewise up to 1 where fewer than this were partly elsewhere.
pub const FEW_SPANS: u32 = 5;

/// What is known of one side's spans, and of one node's part in them. `a` is the number of spans
/// that a selected one stands for, `w` its time in the node, `W` all its time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Shares {
    /// Spans selected.
    pub spans: u32,
    /// Those that the node was seen in.
    pub seen: u32,
    /// Those of which it has all the time.
    pub full: u32,
    /// Samples in them.
    pub samples: f64,
    /// Σ a·w
    pub node: f64,
    /// Σ a·W
    pub all: f64,
    /// Σ (a·w)²
    pub node_node: f64,
    /// Σ (a·w)(a·W)
    pub node_all: f64,
    /// Σ (a·W)²
    pub all_all: f64,
}

/// An estimate and its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Shares {
    /// The node's share of the side's time; `None` where the side has none.
    ///
    /// The share is the ratio estimator p = Σw / ΣW, its variance Σ(w − p·W)² / (ΣW)² · n/(n − 1)
    /// (Cochran, "Sampling Techniques", 3rd ed., ch. 6). The interval is Wilson's, for as many
    /// independent observations as would have that variance (Korn and Graubard, "Confidence
    /// intervals for proportions with small expected number of positive counts estimated from
    /// survey data", 1998), since shares are often near 0 or 1; with Student's t, for the
    /// variance itself is estimated.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimate_at(Z)
    }

    /// As [`Self::estimate`], so wide that it misses as often as this quantile of the normal distribution says.
    #[must_use]
    pub fn estimate_at(&self, z: f64) -> Option<Estimate> {
        if self.all <= 0.0 {
            return None;
        }
        let p = (self.node / self.all).clamp(0.0, 1.0);
        // Kish's effective number: a few long spans among many short ones tell little.
        let effective = self.all * self.all / self.all_all;
        let n = f64::from(self.spans);
        if self.spans < 2 || effective < 1.5 {
            return Some(Estimate {
                value: p,
                low: 0.0,
                high: 1.0,
            });
        }
        let t = student_t(z, effective - 1.0);
        let rarely_in = self.seen < FEW_SPANS;
        let rarely_out = self.spans - self.full < FEW_SPANS;
        let observations = if rarely_in || rarely_out {
            effective
        } else {
            let squares = self.node_node - 2.0 * p * self.node_all + p * p * self.all_all;
            let variance = squares.max(0.0) / (self.all * self.all) * n / (n - 1.0);
            // Spans alike beyond what chance would do are luck: no more than all samples.
            (p * (1.0 - p) / variance).min(self.samples)
        };
        let (low, high) = wilson(p, observations, t);
        Some(Estimate {
            value: p,
            low: if rarely_in { 0.0 } else { low },
            high: if rarely_out { 1.0 } else { high },
        })
    }
}

/// The difference of two independent estimates (Newcombe, "Interval estimation for the difference
/// between independent proportions", 1998, method 10).
#[must_use]
pub fn difference(a: Estimate, b: Estimate) -> Estimate {
    let value = a.value - b.value;
    Estimate {
        value,
        low: (value - (a.value - a.low).hypot(b.high - b.value)).max(-1.0),
        high: (value + (a.high - a.value).hypot(b.value - b.low)).min(1.0),
    }
}

/// Wilson's score interval ("Probable inference, the law of succession, and statistical
/// inference", 1927).
pub(super) fn wilson(p: f64, n: f64, z: f64) -> (f64, f64) {
    let z2n = z * z / n;
    let middle = (p + z2n / 2.0) / (1.0 + z2n);
    let half = z / (1.0 + z2n) * (p * (1.0 - p) / n + z2n / (4.0 * n)).sqrt();
    ((middle - half).clamp(0.0, p), (middle + half).clamp(p, 1.0))
}

/// The quantile of Student's t that is as rare as this one of the normal distribution (Abramowitz and Stegun 26.7.5), of 95%
/// within 4% from 2 degrees of freedom.
fn student_t(z: f64, degrees: f64) -> f64 {
    let v = degrees.max(0.5);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * v)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * v.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_agrees_with_the_tables() {
        for (degrees, table, within) in [(2.0, 4.303, 0.15), (5.0, 2.571, 0.01), (30.0, 2.042, 0.001)] {
            assert!(
                (student_t(Z, degrees) - table).abs() < within,
                "{degrees}: {}",
                student_t(Z, degrees)
            );
        }
    }

    #[test]
    fn wilson_agrees_with_a_known_interval() {
        // 81 of 263: Newcombe 1998, table I.
        let (low, high) = wilson(81.0 / 263.0, 263.0, Z);
        assert!(
            (low - 0.2553).abs() < 1e-4 && (high - 0.3662).abs() < 1e-4,
            "{low} {high}"
        );
    }

    #[test]
    fn newcombe_agrees_with_a_known_interval() {
        // 56 of 70 against 48 of 80: Newcombe 1998, table II (a), method 10.
        let side = |k: f64, n: f64| {
            let (low, high) = wilson(k / n, n, Z);
            Estimate {
                value: k / n,
                low,
                high,
            }
        };
        let found = difference(side(56.0, 70.0), side(48.0, 80.0));
        assert!(
            (found.low - 0.0524).abs() < 1e-4 && (found.high - 0.3339).abs() < 1e-4,
            "{found:?}"
        );
    }

    #[test]
    fn no_estimate_without_spans_and_a_wide_one_from_one() {
        assert_eq!(Shares::default().estimate(), None);
        let one = Shares {
            spans: 1,
            seen: 1,
            full: 1,
            samples: 9.0,
            node: 1.0,
            all: 1.0,
            node_node: 1.0,
            node_all: 1.0,
            all_all: 1.0,
        };
        assert_eq!(
            one.estimate(),
            Some(Estimate {
                value: 1.0,
                low: 0.0,
                high: 1.0
            })
        );
    }
}
