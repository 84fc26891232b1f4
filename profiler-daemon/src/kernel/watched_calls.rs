//! System calls that are watched: a list of probes for each number of each process, which two programs look into at every
//! system call of the machine, as long as there are any.
//!
//! See `docs/internals/kernel-places.md` for how the kernel's own places are seen.

use std::{collections::BTreeMap, io};

use aya::{
    maps::{HashMap, MapData},
    programs::{RawTracePoint, raw_trace_point::RawTracePointLinkId},
};
use profiler_common::hit::Watched;

use super::{Engine, KernelError, tracepoints::Place};

/// The programs and their tracepoints: what sees calls end comes first.
pub(super) const PROGRAMS: [Place; 2] = [("call_exit", "sys_exit"), ("call_enter", "sys_enter")];

const MAP: &str = "WATCHED_CALLS";

/// A system call that a probe sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) pid: u32,
    pub(super) number: u32,
    /// What the programs are told of the probe.
    pub(super) cookie: u64,
}

/// What is watched.
#[derive(Default)]
pub(super) struct WatchedCalls {
    cookies: BTreeMap<(u32, u32), Vec<u64>>,
    /// In the order of [`PROGRAMS`], while anything is.
    links: Vec<(&'static str, RawTracePointLinkId)>,
}

impl Engine {
    /// Has system calls of a process seen by a probe, from the next one on.
    ///
    /// # Errors
    /// Where the kernel refuses, or too many probes see it already.
    pub(super) fn watch_call(&mut self, call: Call) -> Result<(), KernelError> {
        let Call { pid, number, cookie } = call;
        let cookies = self.watched_calls.cookies.entry((pid, number)).or_default();
        if cookies.len() == Watched::MAX {
            let error = io::Error::other("one of them has to end first");
            let what = format!(
                "system call {number} is watched by {} probes already",
                Watched::MAX
            );
            return Err(KernelError::system(what, error));
        }
        cookies.push(cookie);
        let watched = self.write_call(pid, number).and_then(|()| self.watch_calls());
        if watched.is_err() {
            self.unwatch_call(call);
        }
        watched
    }

    /// Ends that.
    pub(super) fn unwatch_call(&mut self, Call { pid, number, cookie }: Call) {
        if let Some(cookies) = self.watched_calls.cookies.get_mut(&(pid, number)) {
            cookies.retain(|known| *known != cookie);
        }
        if let Err(error) = self.write_call(pid, number) {
            tracing::warn!(%error, "a system call is still watched");
        }
        self.watched_calls
            .cookies
            .retain(|_, cookies| !cookies.is_empty());
        if !self.watched_calls.cookies.is_empty() {
            return;
        }
        for (name, link) in std::mem::take(&mut self.watched_calls.links).into_iter().rev() {
            let detached = self
                .call_program(name)
                .and_then(|program| Ok(program.detach(link)?));
            if let Err(error) = detached {
                tracing::debug!(%error, name, "a program of system calls was gone");
            }
        }
    }

    /// Attaches the programs, if they are not.
    fn watch_calls(&mut self) -> Result<(), KernelError> {
        for (name, tracepoint) in PROGRAMS.into_iter().skip(self.watched_calls.links.len()) {
            let program = self.loaded_call_program(name)?;
            let link = program.attach(tracepoint)?;
            self.watched_calls.links.push((name, link));
        }
        Ok(())
    }

    /// Loads the programs, which is otherwise done when the first system call is watched.
    ///
    /// # Errors
    /// Where the kernel refuses one.
    pub(super) fn load_call_programs(&mut self) -> Result<(), KernelError> {
        for (name, _) in PROGRAMS {
            self.loaded_call_program(name)?;
        }
        Ok(())
    }

    fn loaded_call_program(&mut self, name: &'static str) -> Result<&mut RawTracePoint, KernelError> {
        let program = self.call_program(name)?;
        if program.fd().is_err() {
            program.load()?;
        }
        Ok(program)
    }

    fn call_program(&mut self, name: &'static str) -> Result<&mut RawTracePoint, KernelError> {
        let program = self.ebpf.program_mut(name).ok_or(KernelError::Missing(name))?;
        Ok(program.try_into()?)
    }

    /// Tells the programs who sees a process's system call.
    fn write_call(&mut self, pid: u32, number: u32) -> Result<(), KernelError> {
        const WORDS: usize = size_of::<Watched>() / 8;
        let cookies = self.watched_calls.cookies.get(&(pid, number));
        let cookies = cookies.map_or(&[][..], Vec::as_slice);
        let map = self.ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?;
        let mut calls: HashMap<&mut MapData, u64, [u64; WORDS]> = map.try_into()?;
        let key = Watched::key(pid, number);
        if cookies.is_empty() {
            // It may have never been there.
            let _ = calls.remove(&key);
            return Ok(());
        }
        let mut words = [0; WORDS];
        words[0] = cookies.len() as u64;
        words[1..=cookies.len()].copy_from_slice(cookies);
        Ok(calls.insert(key, words, 0)?)
    }
}
