//! Profiles of other tools: bytes in, stacks out.
//!
//! | file | idea |
//! |---|---|
//! | `folded` | a line a stack, as `flamegraph.pl` and inferno read |
//! | `perf_script` | what `perf script` prints |
//! | `pprof` | what `go tool pprof` reads |
//! | `stacks` | equal stacks become one |

mod folded;
mod perf_script;
mod pprof;
mod stacks;

use std::{error, fmt, io::Read as _};

use flate2::read::MultiGzDecoder;

use crate::profile::Profile;

/// What a compressed profile may become, in bytes.
const MAX_BYTES: u64 = 1 << 28;

/// How gzip's files begin (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How perf's own files begin (`tools/perf/Documentation/perf.data-file-format.txt` of Linux).
const PERF_DATA: &[u8; 8] = b"PERFILE2";

/// Why bytes are no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAProfile {
    /// What is wrong, and where.
    pub reason: String,
}

impl fmt::Display for NotAProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl error::Error for NotAProfile {}

impl NotAProfile {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

/// Reads a profile, whichever of the formats it is in: its content says that.
///
/// # Errors
///
/// Where it is in none of them, or damaged.
pub fn read(bytes: &[u8]) -> Result<Profile, NotAProfile> {
    if !bytes.starts_with(&GZIP) {
        return read_plain(bytes);
    }
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut plain)
        .map_err(|error| NotAProfile::new(format!("it cannot be decompressed: {error}")))?;
    if plain.len() as u64 > MAX_BYTES {
        return Err(NotAProfile::new(
            "it is larger than 256 MiB when it is decompressed",
        ));
    }
    read_plain(&plain)
}

fn read_plain(bytes: &[u8]) -> Result<Profile, NotAProfile> {
    if bytes.starts_with(PERF_DATA) {
        return Err(NotAProfile::new(
            "it is perf's own file, which needs the binaries that were profiled: write the text of `perf script -i FILE` to a file, and read that",
        ));
    }
    if bytes.contains(&0) {
        return pprof::read(bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => read_text(text),
        // Names of a target may be in any encoding.
        Err(_) => pprof::read(bytes).or_else(|_| read_text(&String::from_utf8_lossy(bytes))),
    }
}

fn read_text(text: &str) -> Result<Profile, NotAProfile> {
    if perf_script::is_one(text) {
        perf_script::read(text)
    } else {
        folded::read(text)
    }
}
