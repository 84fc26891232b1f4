//! Probes as one perf event per site: for kernels without multi links.

use std::{num::NonZeroU32, path::Path};

use aya::{
    Ebpf,
    programs::{
        UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope},
    },
};

use super::KernelError;

/// Attached sites of one program.
pub struct PerfLinks {
    program: &'static str,
    links: Vec<UProbeLinkId>,
}

/// Attaches a program at many offsets of one file, for one process; all or none.
///
/// # Errors
/// Where the kernel refuses one of them.
pub fn attach(
    ebpf: &mut Ebpf,
    program: &'static str,
    file: &Path,
    sites: &[(u64, u64)],
    pid: u32,
) -> Result<PerfLinks, KernelError> {
    let mut attached = PerfLinks {
        program,
        links: Vec::with_capacity(sites.len()),
    };
    let scope = NonZeroU32::new(pid).map_or(UProbeScope::AllProcesses, UProbeScope::OneProcess);
    for (offset, cookie) in sites {
        let uprobe = loaded(ebpf, program)?;
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(*offset),
            cookie: Some(*cookie),
        };
        match uprobe.attach(point, file, scope) {
            Ok(link) => attached.links.push(link),
            Err(error) => {
                detach(ebpf, attached);
                return Err(error.into());
            }
        }
    }
    Ok(attached)
}

/// Detaches; a link that is gone already is no error.
pub fn detach(ebpf: &mut Ebpf, attached: PerfLinks) {
    let PerfLinks { program, links } = attached;
    let Ok(uprobe) = loaded(ebpf, program) else { return };
    for link in links {
        if let Err(error) = uprobe.detach(link) {
            tracing::debug!(%error, program, "link was gone");
        }
    }
}

/// Detaches the sites, of file offset and cookie, whose cookie does not say that they stay.
pub fn keep(
    ebpf: &mut Ebpf,
    attached: &mut PerfLinks,
    sites: &mut Vec<(u64, u64)>,
    stays: impl Fn(u64) -> bool,
) {
    let links = std::mem::take(&mut attached.links);
    let (kept, gone): (Vec<_>, Vec<_>) = links
        .into_iter()
        .zip(std::mem::take(sites))
        .partition(|(_, (_, cookie))| stays(*cookie));
    let (links, kept_sites): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
    (attached.links, *sites) = (links, kept_sites);
    let gone = PerfLinks {
        program: attached.program,
        links: gone.into_iter().map(|(link, _)| link).collect(),
    };
    detach(ebpf, gone);
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
