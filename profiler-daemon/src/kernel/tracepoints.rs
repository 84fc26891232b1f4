//! Programs at tracepoints of the kernel that are attached only while somebody looks at what they see.

use std::io::{self, Read as _};

use aya::{
    Btf, Ebpf,
    maps::{HashMap, MapData},
    programs::{
        Iter, Program,
        tp_btf::{BtfTracePoint, BtfTracePointLinkId},
    },
};

use super::KernelError;

/// A program's name, and its tracepoint's.
pub(super) type Place = (&'static str, &'static str);

/// Programs that are attached.
pub(super) struct Watch {
    links: Vec<(&'static str, BtfTracePointLinkId)>,
}

impl Watch {
    /// Loads programs, where that has not been done: those of tracepoints, and iterators, whose place is what they go over.
    ///
    /// # Errors
    /// Where the kernel refuses one, or has no types of its tracepoints.
    pub fn load(ebpf: &mut Ebpf, places: &[Place]) -> Result<(), KernelError> {
        let is_loaded = |(name, _): &Place| ebpf.program(name).is_some_and(|program| program.fd().is_ok());
        if places.iter().all(is_loaded) {
            return Ok(());
        }
        let btf = Btf::from_sys_fs().map_err(|error| KernelError::Btf(error.to_string()))?;
        for (name, place) in places {
            match ebpf.program_mut(name).ok_or(KernelError::Missing(name))? {
                program if program.fd().is_ok() => {}
                Program::Iter(iterator) => iterator.load(place, &btf)?,
                program => <&mut BtfTracePoint>::try_from(program)?.load(place, &btf)?,
            }
        }
        Ok(())
    }

    /// Attaches programs that are loaded, in this order.
    ///
    /// # Errors
    /// Where the kernel refuses one; then none is attached.
    pub fn start(ebpf: &mut Ebpf, places: &[Place]) -> Result<Self, KernelError> {
        let mut watch = Self { links: Vec::new() };
        for (name, _) in places {
            match program(ebpf, name).and_then(|program| Ok(program.attach()?)) {
                Ok(link) => watch.links.push((*name, link)),
                Err(error) => {
                    watch.stop(ebpf);
                    return Err(error);
                }
            }
        }
        Ok(watch)
    }

    /// Detaches them.
    pub fn stop(self, ebpf: &mut Ebpf) {
        for (name, link) in self.links {
            let detached = program(ebpf, name).and_then(|program| Ok(program.detach(link)?));
            if let Err(error) = detached {
                tracing::debug!(%error, name, "a program at a tracepoint was gone");
            }
        }
    }
}

/// All that a program writes that goes over something of the kernel's, such as its threads, from its beginning to its end.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn go_over(ebpf: &mut Ebpf, (name, what): Place) -> Result<Vec<u8>, KernelError> {
    let program: &mut Iter = ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()?;
    let link = program.attach()?;
    let failed = |error| KernelError::system(format!("going over each {what}"), error);
    let rows = program.take_link(link)?.into_file();
    let mut rows = rows.map_err(|error| failed(io::Error::other(error)))?;
    let mut bytes = Vec::new();
    rows.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Empties a hash map of keys and values of so many words.
pub(super) fn clear<K: aya::Pod, const WORDS: usize>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<(), KernelError> {
    let map = ebpf.map_mut(name).ok_or(KernelError::Missing(name))?;
    let mut map: HashMap<&mut MapData, K, [u64; WORDS]> = map.try_into()?;
    let before: Vec<K> = map.keys().collect::<Result<_, _>>()?;
    for key in before {
        map.remove(&key)?;
    }
    Ok(())
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut BtfTracePoint, KernelError> {
    let program = ebpf.program_mut(name).ok_or(KernelError::Missing(name))?;
    Ok(program.try_into()?)
}
