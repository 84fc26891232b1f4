//! Forward decay: weights grow with time instead of all sums shrinking, so that an update costs the
//! same whatever has been counted (Cormode, Shkapenyuk, Srivastava, Xu: "Forward Decay", ICDE 2009).

/// Half-lives after which the landmark is moved: weights stay below 2^32.
const LANDMARK_HALF_LIVES: u64 = 32;

/// Decayed counts below this are forgotten when the landmark moves: a single call is, 64 half-lives
/// later. Otherwise a bucket that was hit once would be the extreme for ever.
pub const FORGOTTEN: f64 = 1.0 / (1u128 << 64) as f64;

/// The clock of an exponentially decaying sum. What is stored at time t has the weight
/// 2^((t − landmark) / half-life); read at `now`, all is divided by the weight of `now`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "units come last in names")]
pub struct Decay {
    half_life_ns: u64,
    start_ns: u64,
    landmark_ns: u64,
}

impl Decay {
    /// A decay with this half-life (at least one nanosecond) that begins at `start_ns`.
    #[must_use]
    pub fn new(half_life_ns: u64, start_ns: u64) -> Self {
        Self {
            half_life_ns: half_life_ns.max(1),
            start_ns,
            landmark_ns: start_ns,
        }
    }

    /// To be called before storing at `now_ns`: where it gives a factor, all that is stored must be
    /// multiplied by it, because the landmark has moved. It is a power of two, so nothing is rounded.
    #[must_use]
    pub fn advance(&mut self, now_ns: u64) -> Option<f64> {
        let half_lives = now_ns.saturating_sub(self.landmark_ns) / self.half_life_ns;
        if half_lives < LANDMARK_HALF_LIVES {
            return None;
        }
        self.landmark_ns += half_lives * self.half_life_ns;
        Some((-(half_lives as f64)).exp2())
    }

    /// What a count of 1 at `at_ns` is stored as.
    #[must_use]
    pub fn weight(&self, at_ns: u64) -> f64 {
        self.half_lives(at_ns).exp2()
    }

    /// What a stored 1 is worth at `now_ns`.
    #[must_use]
    pub fn worth(&self, now_ns: u64) -> f64 {
        (-self.half_lives(now_ns)).exp2()
    }

    /// The time that the decayed sum covers: the integral of the weights since the start. A steady
    /// rate times this is the decayed count.
    #[must_use]
    pub fn covered_ns(&self, now_ns: u64) -> f64 {
        let age = now_ns.saturating_sub(self.start_ns) as f64 / self.half_life_ns as f64;
        self.half_life_ns as f64 / std::f64::consts::LN_2 * -(-age * std::f64::consts::LN_2).exp_m1()
    }

    /// The share of its weight that something has kept after `age_ns`.
    #[must_use]
    pub fn kept_after(&self, age_ns: u64) -> f64 {
        (-(age_ns as f64) / self.half_life_ns as f64).exp2()
    }

    /// The half-life in nanoseconds.
    #[must_use]
    pub fn half_life_ns(&self) -> u64 {
        self.half_life_ns
    }

    fn half_lives(&self, ns: u64) -> f64 {
        // Records may be a little older than a landmark that has just moved.
        let distance = ns.abs_diff(self.landmark_ns) as f64 / self.half_life_ns as f64;
        if ns < self.landmark_ns {
            -distance
        } else {
            distance
        }
    }
}
