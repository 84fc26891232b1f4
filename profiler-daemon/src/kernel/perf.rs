//! Probes as one perf event per site: for kernels without multi links.

use std::{num::NonZeroU32, path::Path};

use aya::{
    Ebpf,
    programs::{
        UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};

use super::{KernelError, attach::Site, closing};

/// Attached sites of one program. Dropped, they are detached.
#[derive(Default)]
pub struct PerfLinks(Vec<UProbeLink>);

/// Attaches a program at many offsets of one file, for one process.
///
/// # Errors
/// Where the kernel refuses one of them; those before are attached.
pub fn attach(
    ebpf: &mut Ebpf,
    program: &'static str,
    file: &Path,
    sites: &[Site],
    pid: u32,
    attached: &mut PerfLinks,
) -> Result<(), KernelError> {
    let scope = NonZeroU32::new(pid).map_or(UProbeScope::AllProcesses, UProbeScope::OneProcess);
    let _none_is_closed = closing::hold_events();
    for Site { offset, cookie } in sites {
        let uprobe = loaded(ebpf, program)?;
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(*offset),
            cookie: Some(*cookie),
        };
        let link = uprobe.attach(point, file, scope)?;
        attached.0.push(uprobe.take_link(link)?);
    }
    Ok(())
}

/// What is to be closed.
pub(super) fn links(attached: Vec<PerfLinks>) -> Vec<closing::Link> {
    let links = attached.into_iter().flat_map(|PerfLinks(links)| links);
    closing::links(links.collect())
}

/// Keeps the links at sites whose cookie says that they stay; gives the others, to be closed.
pub(super) fn keep(
    attached: &mut PerfLinks,
    sites: &[Site],
    stays: impl Fn(u64) -> bool,
) -> Vec<closing::Link> {
    let mut at = sites.iter();
    let is_gone = |_: &mut UProbeLink| at.next().is_some_and(|site| !stays(site.cookie));
    closing::links(attached.0.extract_if(.., is_gone).collect())
}

/// Loads a program, which is otherwise done where it is first attached.
///
/// # Errors
/// Where the kernel refuses it.
pub(super) fn load(ebpf: &mut Ebpf, name: &'static str) -> Result<(), KernelError> {
    loaded(ebpf, name).map(|_| ())
}

fn loaded<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, KernelError> {
    let uprobe: &mut UProbe = ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()?;
    if uprobe.fd().is_err() {
        uprobe.load()?;
    }
    Ok(uprobe)
}
