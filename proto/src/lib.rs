//! The `profiler.v1` protocol: messages, clients and servers, generated from `profiler/v1/*.proto`.

pub mod limits;
mod older;
pub mod stream;

/// Version 1 of the protocol.
#[allow(
    missing_docs,
    clippy::pedantic,
    clippy::large_enum_variant,
    reason = "generated, and messages are as large as what they hold; their documentation is in the .proto file"
)]
pub mod v1 {
    tonic::include_proto!("profiler.v1");

    /// The protocol's file descriptors, encoded, for the reflection service.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}
