//! Compressed sections of files, whose size is the file's own word.

use std::{
    borrow::Cow,
    io::{self, Read as _, Write},
};

use object::{CompressedData, CompressionFormat};

/// A byte unfolds to no more than this: deflate writes 258 bytes for two bits at best, zstd a block of 128 KiB for four bytes.
const ZLIB_RATIO: u64 = 1032;
const ZSTD_RATIO: u64 = 32 << 10;

/// Why a section is not unfolded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Folded {
    /// It does not unfold to what it says, or is of an unknown format.
    #[error("it is damaged")]
    Damaged,
    /// It is larger than is taken.
    #[error("it takes too much memory decompressed")]
    TooLarge,
}

/// A section's bytes, unfolded where they are compressed. Those then count towards `left`, the most that are taken.
///
/// # Errors
/// Where they are damaged or too many. That so few bytes cannot be so many is found before there is memory for them.
pub fn unfold<'a>(section: CompressedData<'a>, left: &mut u64) -> Result<Cow<'a, [u8]>, Folded> {
    if section.format == CompressionFormat::None {
        return Ok(Cow::Borrowed(section.data));
    }
    take(&section, left)?;
    section.decompress().map_err(|_| Folded::Damaged)
}

/// Writes a section's bytes somewhere, unfolded where they are compressed: there is no memory for all of them.
///
/// # Errors
/// What writing says; [`Folded`] in an [`io::ErrorKind::InvalidData`] for what is damaged.
pub fn unfold_into(section: CompressedData<'_>, out: &mut impl Write) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, Folded::Damaged);
    take(&section, &mut u64::MAX.clone()).map_err(|_| damaged())?;
    let expected = section.uncompressed_size;
    // One more shows that there is more.
    let most = expected.saturating_add(1);
    let written = match section.format {
        CompressionFormat::None => return out.write_all(section.data),
        CompressionFormat::Zlib => {
            io::copy(&mut flate2::read::ZlibDecoder::new(section.data).take(most), out)
        }
        CompressionFormat::Zstandard => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(section.data).map_err(|_| damaged())?;
            io::copy(&mut decoder.take(most), out)
        }
        _ => return Err(damaged()),
    };
    match written {
        Ok(written) if written == expected => Ok(()),
        Ok(_) => Err(damaged()),
        Err(error) => Err(error),
    }
}

/// What a section's bytes begin with, unfolded: so many at most, and fewer where they are damaged or are not all there.
#[must_use]
pub fn unfold_prefix(section: CompressedData<'_>, most: u64) -> Vec<u8> {
    let mut unfolded = Vec::new();
    // What came before damage is kept.
    let _ = match section.format {
        CompressionFormat::None => section.data.take(most).read_to_end(&mut unfolded),
        CompressionFormat::Zlib => {
            let decoder = flate2::read::ZlibDecoder::new(section.data);
            decoder.take(most).read_to_end(&mut unfolded)
        }
        CompressionFormat::Zstandard => match ruzstd::decoding::StreamingDecoder::new(section.data) {
            Ok(decoder) => decoder.take(most).read_to_end(&mut unfolded),
            Err(_) => return unfolded,
        },
        _ => return unfolded,
    };
    unfolded
}

/// Takes what a section unfolds to from what is left.
fn take(section: &CompressedData<'_>, left: &mut u64) -> Result<(), Folded> {
    let ratio = match section.format {
        CompressionFormat::None => return Ok(()),
        CompressionFormat::Zstandard => ZSTD_RATIO,
        _ => ZLIB_RATIO,
    };
    if section.uncompressed_size / ratio > section.data.len() as u64 {
        return Err(Folded::Damaged);
    }
    *left = left
        .checked_sub(section.uncompressed_size)
        .ok_or(Folded::TooLarge)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(format: CompressionFormat, data: &[u8], uncompressed_size: u64) -> CompressedData<'_> {
        CompressedData {
            format,
            data,
            uncompressed_size,
        }
    }

    #[test]
    fn refuses_impossible_sizes_before_allocating() {
        for (format, ratio) in [
            (CompressionFormat::Zlib, ZLIB_RATIO),
            (CompressionFormat::Zstandard, ZSTD_RATIO),
        ] {
            let mut left = u64::MAX;
            let claimed = unfold(section(format, &[0; 300], 301 * ratio), &mut left);
            assert_eq!(claimed, Err(Folded::Damaged));
            assert_eq!(left, u64::MAX, "nothing was had for it");
        }
    }

    /// 5,000 zeroes, by zlib.
    const ZEROES: [u8; 28] = [
        0x78, 0xda, 0xed, 0xc1, 0x31, 0x01, 0x00, 0x00, 0x00, 0xc2, 0xa0, 0xf5, 0x4f, 0x6d, 0x0a, 0x3f, 0xa0,
        0x00, 0x00, 0x00, 0x00, 0x80, 0xb7, 0x01, 0x13, 0x88, 0x00, 0x01,
    ];

    #[test]
    fn a_prefix_unfolds_whatever_follows() {
        // What it says of its size is not believed.
        let of = |data, most| unfold_prefix(section(CompressionFormat::Zlib, data, u64::MAX), most);
        assert_eq!(of(&ZEROES, 1_000), [0; 1_000]);
        assert_eq!(of(&ZEROES, 9_999), [0; 5_000]);
        assert!(of(&ZEROES[..20], 9_999).len() < 5_000);
        assert!(of(b"no zlib", 9_999).is_empty());
    }

    #[test]
    fn a_section_unfolds_as_long_as_there_is_room() {
        let mut left = 9_999;
        let zeroes = || section(CompressionFormat::Zlib, &ZEROES, 5_000);
        assert_eq!(unfold(zeroes(), &mut left).as_deref(), Ok(&[0; 5_000][..]));
        assert_eq!(left, 4_999);
        assert_eq!(unfold(zeroes(), &mut left), Err(Folded::TooLarge));
        let more = section(CompressionFormat::Zlib, &ZEROES, 5_001);
        assert_eq!(unfold(more, &mut 9_999), Err(Folded::Damaged));
        let plain = section(CompressionFormat::None, &ZEROES, 7);
        assert_eq!(unfold(plain, &mut 0).as_deref(), Ok(&ZEROES[..]));
        let unknown = section(CompressionFormat::Unknown, &ZEROES, 5_000);
        assert_eq!(unfold(unknown, &mut 9_999), Err(Folded::Damaged));
    }
}
