//! The compiled object: where it comes from, and its settings on this kernel.

use std::{borrow::Cow, path::Path};

use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use super::{KernelError, btf, engine::Config};

/// The object that is committed beside its source.
static EMBEDDED: &[u8] = aya::include_bytes_aligned!("../../../profiler-ebpf/object/profiler.bpf.o");

/// Names another object file to load instead of the embedded one: how a rebuilt one is tested.
pub const OVERRIDE: &str = "PROFILER_OBJECT";

/// The object's bytes.
///
/// # Errors
/// Where the override cannot be read.
pub fn bytes() -> Result<Cow<'static, [u8]>, KernelError> {
    match std::env::var_os(OVERRIDE) {
        None => Ok(Cow::Borrowed(EMBEDDED)),
        Some(path) => std::fs::read(Path::new(&path))
            .map(Cow::Owned)
            .map_err(|error| KernelError::system(format!("reading the object {}", path.display()), error)),
    }
}

/// Makes the object's maps and relocates its programs; loads no program yet.
///
/// # Errors
/// Where the kernel refuses a map, or has no BTF.
pub fn load(object: &[u8], config: &Config) -> Result<Ebpf, KernelError> {
    let offsets = btf::member_offsets("task_struct", &["sas_ss_sp", "sas_ss_size"])?;
    // `profiler_common::settings::Settings`, field by field.
    let settings: [u32; 4] = [offsets["sas_ss_sp"], offsets["sas_ss_size"], config.ring_bytes, 0];
    let log_level = u8::from(config.kernel_log) * aya_log_level();
    Ok(EbpfLoader::new()
        .allow_unsupported_maps()
        .verifier_log_level(VerifierLogLevel::empty())
        .override_global("SETTINGS", &settings[..], true)
        .override_global("AYA_LOG_LEVEL", &log_level, false)
        .map_max_entries("RING", config.ring_bytes)
        .load(object)?)
}

/// Everything that the programs log.
fn aya_log_level() -> u8 {
    u8::MAX
}
