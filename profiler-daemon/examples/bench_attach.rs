//! The part of `cargo xtask bench` that holds probes: attaches, samples and detaches as standard input says.
//!
//! | line | does | answer, a JSON object |
//! |---|---|---|
//! | `floor PID FILE NAME…` | attaches an empty program to entry and return of functions | `functions`, `attach_ns` |
//! | `entry PID FILE NAME…` | the same to entries alone | `functions`, `attach_ns` |
//! | `ours PID FILE NAME…` | attaches spans, as a session of root would | `functions`, `attach_ns` |
//! | `own PID FILE NAME…` | the same, as a session of the process's own user would | `functions`, `attach_ns` |
//! | `stepped PID FILE NAME…` | as `ours`, with every probed instruction left to the kernel | `functions`, `attach_ns` |
//! | `sample PID HZ` | samples the process | `sampling` |
//! | `detach` | detaches everything | `detach_ns` |
//!
//! A name may be a glob. What fails is answered by `error`.

mod empty;

use std::{
    error::Error,
    fs,
    io::{self, BufRead as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use profiler_daemon::kernel::{Attachment, Config, Ends, Engine, ExitSite, ProbeSpec, SpanKind, Times};
use profiler_elf::Bytes;
use profiler_plan::{
    self as plan, Limits, ModuleIndex,
    hazards::{Decision, Hazards, KernelAbility, ModuleHazards, exit_method},
};
use profiler_scope::Name;
use profiler_target::{executable_mappings, modules};
use serde_json::{Value, json};

/// How often records are taken away: the ring buffer must not fill, as it does not in the daemon.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);
const DRAIN_MAX: usize = 100_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut bench = Bench {
        engine: Engine::load(&Config::default())?,
        ours: None,
        floor: None,
    };
    let (sender, commands) = mpsc::sync_channel(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    println!("ready: {:?}", bench.engine.ability());
    loop {
        match commands.recv_timeout(DRAIN_INTERVAL) {
            Ok(line) => {
                let answer = bench
                    .act(&line)
                    .unwrap_or_else(|error| json!({"error": error.to_string()}));
                println!("{answer}");
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        bench.engine.drain(DRAIN_MAX, |_| {});
    }
}

/// What is attached.
struct Bench {
    engine: Engine,
    ours: Option<Attachment>,
    floor: Option<floor::Empty>,
}

impl Bench {
    fn act(&mut self, line: &str) -> Result<Value> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["floor", pid, file, ref names @ ..] => {
                self.attach_floor(pid.parse()?, Path::new(file), names, true)
            }
            ["entry", pid, file, ref names @ ..] => {
                self.attach_floor(pid.parse()?, Path::new(file), names, false)
            }
            ["ours", pid, file, ref names @ ..] => {
                let pid = pid.parse()?;
                self.engine.admit_any(&[pid])?;
                self.attach_ours(pid, Path::new(file), names, true)
            }
            ["own", pid, file, ref names @ ..] => {
                let pid = pid.parse()?;
                for state in self.engine.look_at(&[pid])? {
                    self.engine.admit(&state, false)?;
                }
                self.attach_ours(pid, Path::new(file), names, true)
            }
            ["stepped", pid, file, ref names @ ..] => {
                let pid = pid.parse()?;
                self.engine.admit_any(&[pid])?;
                self.attach_ours(pid, Path::new(file), names, false)
            }
            ["sample", pid, frequency_hz] => {
                self.engine
                    .sample(&[(pid.parse()?, Times::TICKS)], frequency_hz.parse()?)?;
                Ok(json!({"sampling": true}))
            }
            ["detach"] => self.detach(),
            _ => Err(format!("unknown command `{line}`").into()),
        }
    }

    fn attach_floor(&mut self, pid: u32, file: &Path, names: &[&str], returns: bool) -> Result<Value> {
        let index = index(file)?;
        let mut offsets = Vec::new();
        for name in names {
            for (at, _) in index.matching(&parse_name(name)) {
                offsets.extend(index.function(at).file_offset());
            }
        }
        let start = Instant::now();
        self.floor = Some(floor::Empty::attach(pid, file, &offsets, returns)?);
        Ok(attached(offsets.len(), start))
    }

    fn attach_ours(&mut self, pid: u32, file: &Path, names: &[&str], may_do: bool) -> Result<Value> {
        let mut specs = self.plan(file, names)?;
        let inode = fs::metadata(file)?.ino();
        let module = modules(&executable_mappings(pid)?)
            .into_iter()
            .find(|module| module.inode == inode)
            .ok_or("the target has not mapped the file")?;
        // Programs do instructions at known addresses only.
        let address = |offset| module.addresses_of(offset).next().unwrap_or(0);
        for spec in &mut specs {
            spec.done_by_program &= may_do;
            spec.entry_action.address = address(spec.entry_offset);
            if let Ends::At(exits) = &mut spec.ends {
                for exit in exits {
                    exit.action.address = address(exit.offset);
                }
            }
        }
        let start = Instant::now();
        self.ours = Some(self.engine.attach(pid, file, &specs)?);
        Ok(attached(specs.len(), start))
    }

    fn plan(&self, file: &Path, names: &[&str]) -> Result<Vec<ProbeSpec>> {
        let index = index(file)?;
        let ability = self.engine.ability();
        let ability = KernelAbility {
            write_context: ability.write_context,
            long_nops: ability.long_nops,
        };
        let path = file.to_string_lossy();
        let hazards = ModuleHazards::scan(&path, index.files().program())?;
        let decision = exit_method(&Hazards::of([(&*path, &hazards)]), ability, false, None);
        let mut specs = Vec::new();
        for name in names {
            let plan = plan::plan(
                &parse_name(name),
                &[&index],
                &profiler_plan::ifuncs::Choices::default(),
                &decision,
                ability,
                Limits::default(),
            )?;
            specs.extend(
                plan.functions
                    .into_iter()
                    .map(|function| spec(&decision, &function)),
            );
        }
        Ok(specs)
    }

    fn detach(&mut self) -> Result<Value> {
        self.engine.sample(&[], 1)?;
        let start = Instant::now();
        if let Some(attachment) = self.ours.take() {
            self.engine.detach(attachment);
        }
        self.floor = None;
        Ok(json!({"detach_ns": nanoseconds(start)}))
    }
}

fn spec(decision: &Decision, function: &plan::PlannedFunction) -> ProbeSpec {
    let placed = |exit: &plan::ExitSite| ExitSite {
        way: exit.way,
        condition: exit.condition,
        is_elsewhere: exit.is_elsewhere,
        ..ExitSite::new(exit.file_offset, exit.action)
    };
    let ends = match &function.ends {
        plan::Ends::ReturnProbe => Ends::ReturnProbe,
        plan::Ends::At(exits) => Ends::At(exits.iter().map(placed).collect()),
        plan::Ends::Never => Ends::Never,
    };
    ProbeSpec {
        entry_offset: function.entry_offset,
        entry_action: function.entry.action,
        loops: function.loops,
        ends,
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
        gates: profiler_daemon::kernel::Gates::default(),
        look: None,
        kind: SpanKind::Function,
    }
}

fn index(file: &Path) -> Result<ModuleIndex> {
    let bytes: Bytes = Arc::new(fs::read(file)?);
    Ok(ModuleIndex::new(bytes)?)
}

fn parse_name(text: &str) -> Name {
    if text.contains(['*', '?']) {
        Name::Glob(text.to_owned())
    } else {
        Name::Exact(text.to_owned())
    }
}

fn attached(functions: usize, start: Instant) -> Value {
    json!({"functions": functions, "attach_ns": nanoseconds(start)})
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The floor: `uprobe_multi` links whose program does nothing.
mod floor {
    use std::{
        ffi::CString,
        io,
        os::{
            fd::{AsRawFd as _, OwnedFd},
            unix::ffi::OsStrExt as _,
        },
        path::Path,
    };

    use super::empty;

    // The kernel's include/uapi/linux/bpf.h.
    const LINK_CREATE: libc::c_long = 28;
    const PROG_TYPE_KPROBE: u32 = 2;
    const TRACE_UPROBE_MULTI: u32 = 48;
    const UPROBE_MULTI_RETURN: u32 = 1;

    /// Links at entries and returns; dropping them detaches, entries first.
    pub struct Empty {
        _entries: OwnedFd,
        _returns: Option<OwnedFd>,
    }

    impl Empty {
        /// Attaches at these offsets of a file, for one process; and at the returns of the functions there.
        pub fn attach(pid: u32, file: &Path, offsets: &[u64], returns: bool) -> io::Result<Self> {
            let program = empty::load(PROG_TYPE_KPROBE, TRACE_UPROBE_MULTI, 0)?;
            let at_returns = || link(&program, pid, file, offsets, UPROBE_MULTI_RETURN);
            Ok(Self {
                _returns: returns.then(at_returns).transpose()?,
                _entries: link(&program, pid, file, offsets, 0)?,
            })
        }
    }

    #[repr(C)]
    #[derive(Default)]
    struct Link {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
        path: u64,
        offsets: u64,
        reference_counters: u64,
        cookies: u64,
        count: u32,
        multi_flags: u32,
        pid: u32,
        padding: u32,
    }

    fn link(program: &OwnedFd, pid: u32, file: &Path, offsets: &[u64], flags: u32) -> io::Result<OwnedFd> {
        let path = CString::new(file.as_os_str().as_bytes()).map_err(io::Error::other)?;
        empty::bpf(
            LINK_CREATE,
            &Link {
                program: u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?,
                attach_type: TRACE_UPROBE_MULTI,
                path: path.as_ptr() as u64,
                offsets: offsets.as_ptr() as u64,
                count: u32::try_from(offsets.len()).map_err(io::Error::other)?,
                multi_flags: flags,
                pid,
                ..Link::default()
            },
        )
    }
}
