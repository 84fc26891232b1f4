//! Sizes on the command line: a number of bytes, or a number with a unit.

/// A size from the command line: at least [`SMALLEST`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

/// The smallest size that is accepted: one mebibyte.
pub const SMALLEST: u64 = 1 << 20;

/// Powers of 1024, as `du -h` and `ls -h` have them.
const UNITS: [(&str, u64); 4] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

/// Reads `2097152`, `500M`, `2G`.
///
/// # Errors
///
/// What is wrong with the text, as a phrase for clap's message.
pub fn parse(text: &str) -> Result<Bytes, String> {
    let number_ends = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let number: u64 = number
        .parse()
        .map_err(|_| "expected bytes (2097152) or a size with a unit (500M, 2G)".to_owned())?;
    let scale = match unit {
        "" => 1,
        unit => {
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            known
                .ok_or_else(|| format!("unknown unit `{unit}`: K, M, G or T"))?
                .1
        }
    };
    match number.checked_mul(scale) {
        Some(bytes) if bytes >= SMALLEST => Ok(Bytes(bytes)),
        Some(_) => Err("must be at least 1M".to_owned()),
        None => Err("too large".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bytes_or_a_number_with_a_unit() {
        assert_eq!(parse("2097152"), Ok(Bytes(2 << 20)));
        assert_eq!(parse("500M"), Ok(Bytes(500 << 20)));
        assert_eq!(parse("2G"), Ok(Bytes(2 << 30)));
        for wrong in ["", "M", "1.5M", "-1", "12MB", "12 M", "1023K", "99999999999T"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
