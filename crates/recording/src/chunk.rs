//! The head of a chunk, to bytes and back.

/// Bytes of a chunk's head.
pub const HEAD_BYTES: usize = 36;

/// What the head begins with.
pub const MAGIC: u32 = u32::from_le_bytes(*b"CHNK");

const BEGINS_ANEW: u8 = 1;

/// What a chunk holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What was recorded, where and by what.
    About,
    /// What views are made of.
    Records,
    /// What the samples since numbers began anew come to.
    Samples,
    /// What the calls since then come to.
    Calls,
    /// Something that a newer version writes, which can be passed over.
    Other(u8),
}

impl Kind {
    fn of(byte: u8) -> Self {
        match byte {
            1 => Self::About,
            2 => Self::Records,
            3 => Self::Samples,
            4 => Self::Calls,
            other => Self::Other(other),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::About => 1,
            Self::Records => 2,
            Self::Samples => 3,
            Self::Calls => 4,
            Self::Other(byte) => byte,
        }
    }
}

/// A chunk, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// What it holds.
    pub kind: Kind,
    /// Whether its messages can be understood without those of the chunks before it.
    pub begins_anew: bool,
    /// From when its content is: `CLOCK_MONOTONIC` of the recorded machine.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
}

/// The head of a chunk in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub chunk: Chunk,
    /// Bytes of the payload.
    pub length: u32,
    /// CRC-32 of the payload.
    pub checksum: u32,
}

impl Head {
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let Chunk {
            kind,
            begins_anew,
            from_ns,
            to_ns,
        } = self.chunk;
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = kind.byte();
        bytes[5] = if begins_anew { BEGINS_ANEW } else { 0 };
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[16..24].copy_from_slice(&from_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&to_ns.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` where these are not the bytes of a head.
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        if half(0) != MAGIC || half(32) != crc32fast::hash(&bytes[..32]) {
            return None;
        }
        Some(Self {
            chunk: Chunk {
                kind: Kind::of(bytes[4]),
                begins_anew: bytes[5] & BEGINS_ANEW != 0,
                from_ns: word(16),
                to_ns: word(24),
            },
            length: half(8),
            checksum: half(12),
        })
    }
}
