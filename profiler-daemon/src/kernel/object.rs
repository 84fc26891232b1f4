//! The compiled object: where it comes from, and its settings on this kernel.

use std::{
    borrow::Cow,
    path::Path,
    sync::{Mutex, PoisonError},
    thread::JoinHandle,
};

use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use profiler_common::settings::Settings;

use super::{KernelError, btf::Btf, engine::Config};

/// The object that is committed beside its source.
static EMBEDDED: &[u8] = aya::include_bytes_aligned!("../../../profiler-ebpf/object/profiler.bpf.o");

/// Names another object file to load instead of the embedded one: how a rebuilt one is tested. Released builds have no such
/// door.
const OVERRIDE: &str = "PROFILER_OBJECT";

/// The object's bytes.
///
/// # Errors
/// Where the override cannot be read.
pub fn bytes() -> Result<Cow<'static, [u8]>, KernelError> {
    let path = if cfg!(debug_assertions) {
        std::env::var_os(OVERRIDE)
    } else {
        None
    };
    match path {
        None => Ok(Cow::Borrowed(EMBEDDED)),
        Some(path) => std::fs::read(Path::new(&path))
            .map(Cow::Owned)
            .map_err(|error| KernelError::system(format!("reading the object {}", path.display()), error)),
    }
}

/// A loader that is being made.
static PREPARED: Mutex<Option<JoinHandle<EbpfLoader<'static>>>> = Mutex::new(None);

/// Makes the next loader on a thread of its own, before it is needed: aya reads all types of the kernel for each, though
/// this object asks for none of them.
pub fn prepare() {
    let thread = std::thread::Builder::new().name("loader".to_owned());
    // Where there can be no more threads it is made when it is needed.
    let made = thread.spawn(make_loader).ok();
    *PREPARED.lock().unwrap_or_else(PoisonError::into_inner) = made;
}

fn make_loader() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader
        .btf(None)
        .allow_unsupported_maps()
        // Why it refuses one, and no more.
        .verifier_log_level(VerifierLogLevel::STATS);
    loader
}

fn loader() -> EbpfLoader<'static> {
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    prepared
        .and_then(|thread| thread.join().ok())
        .unwrap_or_else(make_loader)
}

/// Makes the object's maps and relocates its programs; loads no program yet.
///
/// # Errors
/// Where the kernel refuses a map, or has no BTF.
pub fn load(object: &[u8], config: &Config) -> Result<Ebpf, KernelError> {
    let settings = words(settings(config)?);
    let log_level = u8::from(config.kernel_log) * aya_log_level();
    let mut loader: EbpfLoader<'_> = loader();
    Ok(loader
        .override_global("SETTINGS", &settings[..], true)
        .override_global("AYA_LOG_LEVEL", &log_level, false)
        .map_max_entries("RING", config.ring_bytes)
        .load(object)?)
}

/// [`Settings`] of the running kernel.
fn settings(config: &Config) -> Result<Settings, KernelError> {
    let btf = Btf::read()?;
    // Since Linux 7.2 it is kept apart from the memory.
    let (dumpable_in_offset, dumpable_offset) = match btf.offset("task_struct", "exec_state") {
        Ok(state) => (state, btf.offset("task_exec_state", "dumpable")?),
        Err(_) => (
            btf.offset("task_struct", "mm")?,
            btf.offset("mm_struct", "flags")?,
        ),
    };
    Ok(Settings {
        sas_ss_sp_offset: btf.offset("task_struct", "sas_ss_sp")?,
        sas_ss_size_offset: btf.offset("task_struct", "sas_ss_size")?,
        ring_bytes: config.ring_bytes,
        utask_offset: btf.offset("task_struct", "utask")?,
        mm_offset: btf.offset("task_struct", "mm")?,
        xol_area_offset: btf.offset("mm_struct", "uprobes_state.xol_area")?,
        xol_area_vaddr_offset: btf.offset("xol_area", "vaddr")?,
        return_instances_offset: btf.offset("uprobe_task", "return_instances")?,
        vaddr_offset: btf.offset("uprobe_task", "vaddr")?,
        xol_vaddr_offset: btf.offset("uprobe_task", "xol_vaddr")?,
        instance_stack_offset: btf.offset("return_instance", "stack")?,
        instance_return_offset: btf.offset("return_instance", "orig_ret_vaddr")?,
        instance_next_offset: btf.offset("return_instance", "next")?,
        fs_base_offset: btf.offset("task_struct", "thread.fsbase")?,
        pid_offset: btf.offset("task_struct", "pid")?,
        seed: seed(),
        status_offset: btf.offset("task_struct", "thread_info.status")?,
        tgid_offset: btf.offset("task_struct", "tgid")?,
        // A kernel need not have block devices.
        bio_size_offset: btf.offset("bio", "bi_iter.bi_size").unwrap_or(0),
        bio_operation_offset: btf.offset("bio", "bi_opf").unwrap_or(0),
        brk_offset: btf.offset("mm_struct", "brk")?,
        stack_offset: btf.offset("task_struct", "stack")?,
        bio_sector_offset: btf.offset("bio", "bi_iter.bi_sector").unwrap_or(0),
        bio_device_offset: btf.offset("bio", "bi_bdev").unwrap_or(0),
        device_number_offset: btf.offset("block_device", "bd_dev").unwrap_or(0),
        bio_next_offset: btf.offset("bio", "bi_next").unwrap_or(0),
        request_bio_offset: btf.offset("request", "bio").unwrap_or(0),
        waits_offset: btf.offset("task_struct", "nvcsw")?,
        preemptions_offset: btf.offset("task_struct", "nivcsw")?,
        // Kernels without return probes have none.
        rethooks_offset: btf.offset("task_struct", "rethooks.first").unwrap_or(0),
        area_file_offset: btf.offset("vm_area_struct", "vm_file")?,
        area_userfaultfd_offset: match btf.offset("vm_area_struct", "vm_userfaultfd_ctx") {
            // Nothing is in it where the kernel is built without.
            Ok(_) => btf
                .offset("vm_area_struct", "vm_userfaultfd_ctx.ctx")
                .unwrap_or(0),
            Err(_) => u32::MAX,
        },
        file_inode_offset: btf.offset("file", "f_inode")?,
        inode_mode_offset: btf.offset("inode", "i_mode")?,
        inode_file_system_offset: btf.offset("inode", "i_sb")?,
        file_system_magic_offset: btf.offset("super_block", "s_magic")?,
        leader_offset: btf.offset("task_struct", "group_leader")?,
        start_offset: btf.offset("task_struct", "start_boottime")?,
        execs_offset: btf.offset("task_struct", "self_exec_id")?,
        credentials_offset: btf.offset("task_struct", "real_cred")?,
        user_offset: btf.offset("cred", "uid")?,
        effective_user_offset: btf.offset("cred", "euid")?,
        saved_user_offset: btf.offset("cred", "suid")?,
        group_offset: btf.offset("cred", "gid")?,
        effective_group_offset: btf.offset("cred", "egid")?,
        saved_group_offset: btf.offset("cred", "sgid")?,
        permitted_offset: btf.offset("cred", "cap_permitted")?,
        user_namespace_offset: btf.offset("cred", "user_ns")?,
        namespace_owner_offset: btf.offset("user_namespace", "owner")?,
        namespace_level_offset: btf.offset("user_namespace", "level")?,
        dumpable_in_offset,
        dumpable_offset,
        exit_offset: btf.offset("task_struct", "exit_code")?,
        shared_offset: btf.offset("task_struct", "signal")?,
        process_exit_offset: btf.offset("signal_struct", "group_exit_code")?,
    })
}

/// [`Settings`] as the object has them, whose layout is asserted.
fn words(settings: Settings) -> [u32; SETTINGS] {
    macro_rules! in_order {
        ($($field:ident)+) => {{
            // No field is left out, or the pattern is refused.
            let Settings { $($field),+ } = settings;
            [$($field),+]
        }};
    }
    in_order!(
        sas_ss_sp_offset
        sas_ss_size_offset
        ring_bytes
        utask_offset
        mm_offset
        xol_area_offset
        xol_area_vaddr_offset
        return_instances_offset
        vaddr_offset
        xol_vaddr_offset
        instance_stack_offset
        instance_return_offset
        instance_next_offset
        fs_base_offset
        pid_offset
        seed
        status_offset
        tgid_offset
        bio_size_offset
        bio_operation_offset
        brk_offset
        stack_offset
        bio_sector_offset
        bio_device_offset
        device_number_offset
        bio_next_offset
        request_bio_offset
        waits_offset
        preemptions_offset
        rethooks_offset
        area_file_offset
        area_userfaultfd_offset
        file_inode_offset
        inode_mode_offset
        inode_file_system_offset
        file_system_magic_offset
        leader_offset
        start_offset
        execs_offset
        credentials_offset
        user_offset
        effective_user_offset
        saved_user_offset
        group_offset
        effective_group_offset
        saved_group_offset
        permitted_offset
        user_namespace_offset
        namespace_owner_offset
        namespace_level_offset
        dumpable_in_offset
        dumpable_offset
        exit_offset
        shared_offset
        process_exit_offset
    )
}

/// A number that nobody knows beforehand.
fn seed() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Fields of [`Settings`].
const SETTINGS: usize = size_of::<Settings>() / 4;

/// Everything that the programs log.
fn aya_log_level() -> u8 {
    u8::MAX
}
