//! Colours: the same name always gets the same one.

use profiler_proto::v1;

use crate::state::times::OFF_CPU;

/// A share difference from which on the colour is full.
const FULL_EFFECT: f64 = 0.5;

/// Fill and class of a frame by what it is: user code warm, inlined paler, the kernel cool, time off the CPU
/// violet.
#[must_use]
pub fn frame(frame: &v1::Frame) -> (Option<String>, &'static str) {
    let hash = hash(&frame.function);
    // Two independent fractions of the name.
    let (a, b) = (unit(hash), unit(hash.rotate_left(32)));
    if frame.function.is_empty() || frame.function == "other" {
        (None, "n")
    } else if frame.module == OFF_CPU {
        (Some(hsl(255.0 + 30.0 * a, 0.38, 0.74 + 0.08 * b)), "k")
    } else if frame.kernel {
        (Some(hsl(196.0 + 30.0 * a, 0.42, 0.68 + 0.10 * b)), "k")
    } else if frame.inlined {
        (Some(hsl(30.0 + 20.0 * a, 0.85, 0.82 + 0.06 * b)), "i")
    } else {
        (Some(hsl(16.0 + 30.0 * a, 0.82, 0.62 + 0.10 * b)), "u")
    }
}

/// Fill and class of a node by how it differs: red for more time inside, blue for less, and
/// neither where the interval includes 0, however large the difference looks.
#[must_use]
pub fn difference(difference: Option<&v1::NodeDifference>) -> (Option<String>, &'static str) {
    let Some(difference) = difference else {
        return (None, "n");
    };
    // The root of the effect: a tenth of the time is already well visible.
    let effect = (difference.difference.abs() / FULL_EFFECT).clamp(0.0, 1.0).sqrt();
    match significance(difference) {
        Significance::More => (
            Some(effect_colour([250, 214, 204], [196, 34, 30], effect)),
            dark(effect),
        ),
        Significance::Less => (
            Some(effect_colour([210, 226, 248], [30, 84, 183], effect)),
            dark(effect),
        ),
        Significance::None => (None, "n"),
    }
}

/// Which way a node differs beyond chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Significance {
    /// More time inside.
    More,
    /// Less time inside.
    Less,
    /// The interval includes 0.
    None,
}

/// Whether the interval excludes 0. One that is not a number excludes nothing.
#[must_use]
pub fn significance(difference: &v1::NodeDifference) -> Significance {
    if difference.low > 0.0 && difference.high >= difference.low {
        Significance::More
    } else if difference.high < 0.0 && difference.low <= difference.high {
        Significance::Less
    } else {
        Significance::None
    }
}

/// The class with light text, from where dark text would not be readable any more.
fn dark(effect: f64) -> &'static str {
    if effect > 0.55 { "d" } else { "u" }
}

fn effect_colour(from: [u8; 3], to: [u8; 3], t: f64) -> String {
    let mix =
        |channel: usize| f64::from(from[channel]) + (f64::from(to[channel]) - f64::from(from[channel])) * t;
    rgb(mix(0) / 255.0, mix(1) / 255.0, mix(2) / 255.0)
}

/// FNV-1a (Fowler, Noll, Vo), then a finalizer: its high bits alone differ too little between
/// names that share a prefix.
fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

fn unit(hash: u64) -> f64 {
    (hash >> 40) as f64 / f64::from(1 << 24)
}

/// Hue in degrees, the others from 0 to 1.
fn hsl(hue: f64, saturation: f64, lightness: f64) -> String {
    let chroma = saturation * lightness.min(1.0 - lightness);
    let channel = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0)
    };
    rgb(channel(0.0), channel(8.0), channel(4.0))
}

fn rgb(red: f64, green: f64, blue: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a byte"
    )]
    let byte = |channel: f64| (channel.clamp(0.0, 1.0) * 255.0).round() as u8;
    format!("#{:02x}{:02x}{:02x}", byte(red), byte(green), byte(blue))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_frame(function: &str, kernel: bool, inlined: bool) -> v1::Frame {
        v1::Frame {
            function: function.into(),
            kernel,
            inlined,
            ..Default::default()
        }
    }

    fn a_difference(difference: f64, low: f64, high: f64) -> v1::NodeDifference {
        v1::NodeDifference {
            difference,
            low,
            high,
            ..Default::default()
        }
    }

    #[test]
    fn kinds_are_told_apart_and_names_keep_their_colour() {
        let user = frame(&a_frame("main", false, false));
        assert_eq!(user, frame(&a_frame("main", false, false)));
        assert_ne!(user.0, frame(&a_frame("mein", false, false)).0);
        assert_eq!(user.1, "u");
        assert_eq!(frame(&a_frame("main", true, false)).1, "k");
        assert_eq!(frame(&a_frame("main", false, true)).1, "i");
    }

    #[test]
    fn only_what_is_significant_is_coloured() {
        assert_eq!(difference(Some(&a_difference(0.9, -0.1, 1.0))), (None, "n"));
        assert_eq!(difference(None), (None, "n"));
        assert_eq!(
            difference(Some(&a_difference(f64::NAN, f64::NAN, f64::NAN))),
            (None, "n")
        );
        let (strong, class) = difference(Some(&a_difference(0.6, 0.5, 0.7)));
        assert_eq!((strong.as_deref(), class), (Some("#c4221e"), "d"));
        let (weak, class) = difference(Some(&a_difference(-0.01, -0.02, -0.005)));
        assert_ne!(weak.as_deref(), Some("#1e54b7"));
        assert_eq!(class, "u");
    }

    #[test]
    fn hsl_is_that_of_css() {
        assert_eq!(hsl(0.0, 1.0, 0.5), "#ff0000");
        assert_eq!(hsl(120.0, 1.0, 0.25), "#008000");
        assert_eq!(hsl(210.0, 0.5, 0.5), "#4080bf");
    }
}
