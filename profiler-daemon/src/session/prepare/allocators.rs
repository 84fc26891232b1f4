//! The functions by which processes allocate memory, in their files.

use std::path::PathBuf;

use profiler_plan::allocators::{self, AllocatorFunction};
use profiler_target::Process;

use super::{
    super::{
        error::{Reason, SessionError},
        files::TargetFile,
    },
    planner::has_shadow_stack,
};
use crate::kernel::AllocatorSpec;

/// The allocator of a process.
pub struct PreparedAllocator {
    pub pid: u32,
    /// Functions by their file, whose path is as of [`super::PreparedFile::path`].
    pub files: Vec<(PathBuf, Vec<AllocatorSpec>)>,
}

/// Finds those of all processes.
///
/// # Errors
/// Where a process has none that is known, or none that can be watched.
pub fn find(
    processes: &[Process],
    files: &[Vec<TargetFile>],
    warnings: &mut Vec<String>,
) -> Result<Vec<PreparedAllocator>, SessionError> {
    let prepare = |(process, files): (&Process, &Vec<TargetFile>)| {
        let of = |what: &str| {
            let message = format!(
                "process {} ({}) {what}: leave --allocations out",
                process.pid(),
                process.name()
            );
            SessionError::new(Reason::FunctionNotProbeable, message)
        };
        if has_shadow_stack(process) {
            return Err(of("has a shadow stack, which return probes would violate"));
        }
        let of_file = |file: &TargetFile| {
            let functions = allocators::find(&file.known.index).into_iter();
            let specs = functions
                .map(|AllocatorFunction { offset, parameters }| AllocatorSpec { offset, parameters });
            (file.path.clone(), specs.collect::<Vec<_>>())
        };
        let found = files.iter().map(of_file);
        let files: Vec<_> = found.filter(|(_, functions)| !functions.is_empty()).collect();
        let allocates = |function: &AllocatorSpec| function.parameters[0] != 0;
        if !files.iter().any(|(_, functions)| functions.iter().any(allocates)) {
            return Err(of(
                "has no known allocator function such as `malloc`, as it is stripped and linked statically or has an allocator of its own",
            ));
        }
        Ok(PreparedAllocator {
            pid: process.pid(),
            files,
        })
    };
    let prepared: Vec<PreparedAllocator> = processes
        .iter()
        .zip(files)
        .map(prepare)
        .collect::<Result<_, _>>()?;
    let functions = |allocator: &PreparedAllocator| -> usize {
        allocator.files.iter().map(|(_, functions)| functions.len()).sum()
    };
    if let Some(most) = prepared.iter().map(functions).max() {
        warnings.push(format!(
            "allocations: {most} functions of the allocator are probed: each of their calls takes some microseconds more"
        ));
    }
    Ok(prepared)
}
