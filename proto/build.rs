//! Compiles the protocol with protox, so that no `protoc` is needed.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=profiler");
    let descriptors = protox::compile(["profiler/v1/profiler.proto"], ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .boxed("profiler.v1.Target.target.comparison")
        .boxed("profiler.v1.EstimateScopeRequest.request.create")
        .compile_fds(descriptors)?;
    Ok(())
}
