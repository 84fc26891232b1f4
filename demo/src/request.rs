//! The wire format: requests of a fixed length, answered by themselves and a digest of their payload.

/// Bytes of a request: its id (little-endian), then the payload.
pub const REQUEST_LEN: usize = 64;
/// Bytes of a reply: the request as it came, then the digest of its payload (little-endian).
pub const REPLY_LEN: usize = REQUEST_LEN + 8;
/// Bytes asked of one `read`. More than a request, so that a short read tells tokio that the socket is empty and
/// its next step is `epoll_wait`, not a `read` that fails: both variants then make the same reads.
pub const READ_LEN: usize = 4096;

/// One request as it travels.
pub type Request = [u8; REQUEST_LEN];
/// One reply as it travels.
pub type Reply = [u8; REPLY_LEN];

/// The request with this id; its payload follows from the id.
pub fn request(id: u64) -> Request {
    let mut request = [0; REQUEST_LEN];
    request[..8].copy_from_slice(&id.to_le_bytes());
    let mut state = id;
    for word in request[8..].chunks_exact_mut(8) {
        state = mix(state);
        word.copy_from_slice(&state.to_le_bytes());
    }
    request
}

/// The reply that an honest server sends.
pub fn expected_reply(request: &Request) -> Reply {
    let mut reply = [0; REPLY_LEN];
    reply[..REQUEST_LEN].copy_from_slice(request);
    reply[REQUEST_LEN..].copy_from_slice(&digest(&request[8..]).to_le_bytes());
    reply
}

/// A 64-bit FNV-1a hash (<http://www.isthe.com/chongo/tech/comp/fnv/>).
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Spreads ids evenly over 64 bits: the finalizer of `SplitMix64` (<https://doi.org/10.1145/2714064.2660195>).
pub fn mix(id: u64) -> u64 {
    let z = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Cuts a byte stream into requests; holds less than one request between reads.
#[derive(Debug)]
pub struct Framing {
    bytes: [u8; READ_LEN],
    /// Bytes from the start that hold data.
    filled: usize,
}

impl Framing {
    /// An empty stream.
    pub fn new() -> Self {
        Self {
            bytes: [0; READ_LEN],
            filled: 0,
        }
    }

    /// Where the next read goes; never empty, as long as every read is followed by [`Self::take`].
    pub fn free(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Takes in `read` bytes that were put into [`Self::free`], and hands each whole request to `handle`.
    pub fn take(&mut self, read: usize, mut handle: impl FnMut(&Request)) {
        self.filled = (self.filled + read).min(READ_LEN);
        let (whole, rest) = self.bytes[..self.filled].as_chunks::<REQUEST_LEN>();
        for request in whole {
            handle(request);
        }
        let (start, rest_len) = (whole.len() * REQUEST_LEN, rest.len());
        self.bytes.copy_within(start..start + rest_len, 0);
        self.filled = rest_len;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(b"foobar"), 0x8594_4171_f739_67e8);
    }

    proptest! {
        #[test]
        fn requests_come_out_whole_however_the_stream_is_cut(count in 0u64..50, cuts in proptest::collection::vec(1usize..300, 1..50)) {
            let stream: Vec<u8> = (0..count).flat_map(request).collect();
            let (mut framing, mut seen, mut rest, mut cut) = (Framing::new(), Vec::new(), &stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let free = framing.free();
                prop_assert!(!free.is_empty());
                let n = (*cut.next().unwrap()).min(rest.len()).min(free.len());
                free[..n].copy_from_slice(&rest[..n]);
                framing.take(n, |request| seen.push(*request));
                rest = &rest[n..];
            }
            prop_assert_eq!(seen, (0..count).map(request).collect::<Vec<_>>());
        }
    }
}
