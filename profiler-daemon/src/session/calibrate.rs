//! Measures the probes' own share of a duration on an empty function, and what probes cost the thread that reaches
//! them.

use std::{arch::global_asm, path::Path};

use profiler_aggregate::histogram::Histogram;
use profiler_common::{
    instruction::{Action, Operation},
    layout::midpoint_ns,
};

use super::{cost::monotonic_ns, kernel_places, picture::ExitMethod};
use crate::kernel::{
    Attachment, Ends, Engine, ExitSite, Gates, HitSpec, KernelError, KernelPlace, KernelSymbols, LookSpec,
    ProbeSpec, SpanKind, Tracefs,
};

/// Calls that the median is taken of.
const CALLS: u32 = 200;

/// Times that they are timed.
const ROUNDS: usize = 5;

// A function that does nothing, whose entry the kernel emulates and whose one `ret` lies at a known place.
global_asm!(
    ".pushsection .text.profiler_calibrate,\"ax\",@progbits",
    ".globl profiler_calibrate",
    ".type profiler_calibrate,@function",
    "profiler_calibrate:",
    "push rbp",
    "pop rbp",
    "ret",
    ".size profiler_calibrate, . - profiler_calibrate",
    ".popsection",
);

unsafe extern "C" {
    safe fn profiler_calibrate();
}

/// Distance from the function's start to its `ret`.
const RET_OFFSET: u64 = 2;

/// What probing an empty call by one method takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallCost {
    /// What the call is measured as, in nanoseconds: the probes' own share of a duration.
    pub overhead_ns: u64,
    /// What the call takes longer than without probes, in nanoseconds.
    pub cost_ns: u64,
}

/// Measures what probing an empty call by this method takes.
///
/// # Errors
/// Where the probes cannot be attached to this very process.
pub fn call_cost(engine: &mut Engine, method: ExitMethod) -> Result<CallCost, KernelError> {
    match method {
        ExitMethod::SystemCall => return system_call(engine),
        ExitMethod::KernelFunction => return kernel_function(engine),
        ExitMethod::Return | ExitMethod::Ret | ExitMethod::Never => {}
    }
    let address = profiler_calibrate as *const () as u64;
    let offset = file_offset(address)?;
    let ret = Action {
        operation: Operation::Return as u8,
        length: 1,
        address: address + RET_OFFSET,
        ..Action::LEAVE
    };
    let ends = match method {
        ExitMethod::Ret => Ends::At(vec![ExitSite::new(offset + RET_OFFSET, ret)]),
        ExitMethod::Never => Ends::Never,
        ExitMethod::Return | ExitMethod::SystemCall | ExitMethod::KernelFunction => Ends::ReturnProbe,
    };
    let spec = ProbeSpec {
        entry_offset: offset,
        entry_action: Action::LEAVE,
        loops: false,
        ends,
        done_by_program: engine.ability().write_context,
        stacks_switch: false,
        gates: Gates::default(),
        look: None,
        kind: SpanKind::Function,
    };
    let unprobed_ns = fastest_ns(|| profiler_calibrate());
    let attachment = engine.attach(std::process::id(), Path::new("/proc/self/exe"), &[spec])?;
    Ok(measured(engine, attachment, unprobed_ns, || profiler_calibrate()))
}

/// Measures what the least system call takes while it is watched.
fn system_call(engine: &mut Engine) -> Result<CallCost, KernelError> {
    // `__NR_getppid` of x86-64.
    const GETPPID: u32 = 110;
    least_call(
        engine,
        SpanKind::SystemCall {
            number: GETPPID,
            tracepoint: 0,
        },
    )
}

/// Measures what the function of the least system call takes while it is probed; nothing where the kernel has it not.
fn kernel_function(engine: &mut Engine) -> Result<CallCost, KernelError> {
    let symbols = KernelSymbols::read()?;
    let mut functions = symbols.functions();
    match functions.find(|(name, _)| *name == "__x64_sys_getppid") {
        Some((_, address)) => least_call(engine, SpanKind::KernelFunction { address }),
        None => Ok(CallCost::default()),
    }
}

fn least_call(engine: &mut Engine, kind: SpanKind) -> Result<CallCost, KernelError> {
    let spec = ProbeSpec {
        entry_offset: 0,
        entry_action: Action::LEAVE,
        loops: false,
        ends: Ends::Never,
        done_by_program: false,
        stacks_switch: false,
        gates: Gates::default(),
        look: None,
        kind,
    };
    let call = || {
        let _ = rustix::process::getppid();
    };
    let unprobed_ns = fastest_ns(call);
    let attachment = engine.attach(std::process::id(), Path::new(kernel_places::MODULE), &[spec])?;
    Ok(measured(engine, attachment, unprobed_ns, call))
}

/// What a call takes that is probed, by its median duration and the clock; detaches what has timed it.
fn measured(engine: &mut Engine, attachment: Attachment, unprobed_ns: u64, call: impl Fn()) -> CallCost {
    let probed_ns = fastest_ns(call);
    let mut histogram = Histogram::<u64>::new();
    for probe in attachment.probes() {
        for (bucket, count) in engine.histogram(*probe) {
            histogram.add_bucket(bucket, count);
        }
    }
    // What was measured holds, be it that the probe goes later.
    engine.detach_and_wait(attachment);
    CallCost {
        overhead_ns: histogram.quantile(0.5).map_or(0, midpoint_ns),
        cost_ns: probed_ns.saturating_sub(unprobed_ns),
    }
}

/// Measures what it takes to reach a probe, in nanoseconds: on an instruction that the kernel emulates, and on one that it
/// single-steps.
///
/// # Errors
/// Where the probes cannot be attached to this very process.
pub fn hit_costs_ns(engine: &mut Engine) -> Result<HitCosts, KernelError> {
    let address = profiler_calibrate as *const () as u64;
    let offset = file_offset(address)?;
    let unprobed_ns = fastest_ns(|| profiler_calibrate());
    let mut measure = |offset| {
        let spec = HitSpec {
            offset,
            action: Action::LEAVE,
            done_by_program: false,
            look: LookSpec::default(),
            branch: None,
            gates: Gates::default(),
            of_kernel: None,
        };
        let attachment = engine.attach_hits(std::process::id(), Path::new("/proc/self/exe"), &[spec])?;
        let probed_ns = fastest_ns(|| profiler_calibrate());
        engine.detach_and_wait(attachment);
        Ok::<u64, KernelError>(probed_ns.saturating_sub(unprobed_ns))
    };
    Ok(HitCosts {
        emulated_ns: measure(offset)?,
        single_stepped_ns: measure(offset + RET_OFFSET)?,
        tracepoint_ns: tracepoint_ns(engine),
    })
}

/// Measures what it takes to pass a tracepoint that is looked at: that of the least system call. `None` where the kernel does not
/// have it, or refuses it.
fn tracepoint_ns(engine: &mut Engine) -> Option<u64> {
    let number = Tracefs::open()
        .ok()?
        .number("syscalls", "sys_enter_getppid")
        .ok()?;
    let spec = HitSpec {
        offset: 0,
        action: Action::LEAVE,
        done_by_program: false,
        look: LookSpec::default(),
        branch: None,
        gates: Gates::default(),
        of_kernel: Some(KernelPlace::Tracepoint(number)),
    };
    let call = || {
        let _ = rustix::process::getppid();
    };
    let attached = engine.attach_hits(std::process::id(), Path::new(kernel_places::MODULE), &[spec]);
    let attachment = attached
        .inspect_err(|error| tracing::debug!(%error, "what a tracepoint costs could not be measured"))
        .ok()?;
    // While any tracepoint of system calls is looked at, all system calls take longer, which those of others do not cause.
    let unprobed_ns = fastest_ns(|| {
        let _ = rustix::process::getuid();
    });
    let probed_ns = fastest_ns(call);
    engine.detach_and_wait(attachment);
    Some(probed_ns.saturating_sub(unprobed_ns))
}

/// What it costs a thread to reach a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(
    clippy::struct_field_names,
    reason = "all are times, whose names end in their unit"
)]
pub struct HitCosts {
    /// On an instruction that the kernel emulates.
    pub emulated_ns: u64,
    /// On one that it single-steps.
    pub single_stepped_ns: u64,
    /// At a tracepoint of the kernel; `None` where that could not be measured.
    pub tracepoint_ns: Option<u64>,
}

impl HitCosts {
    /// Of one or the other.
    pub fn of(self, single_stepped: bool) -> u64 {
        if single_stepped {
            self.single_stepped_ns
        } else {
            self.emulated_ns
        }
    }
}

/// What a call takes: the fastest of some rounds, in which nothing interfered.
fn fastest_ns(call: impl Fn()) -> u64 {
    let rounds = (0..ROUNDS).map(|_| {
        let began_ns = monotonic_ns();
        for _ in 0..CALLS {
            call();
        }
        monotonic_ns().saturating_sub(began_ns)
    });
    rounds.min().unwrap_or(0) / u64::from(CALLS)
}

/// Where in the executable's file an address of this process lies.
fn file_offset(address: u64) -> Result<u64, KernelError> {
    let fail = |error| KernelError::system("reading /proc/self/maps", error);
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(fail)?;
    maps.lines()
        .find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let (start, end) = (
                u64::from_str_radix(start, 16).ok()?,
                u64::from_str_radix(end, 16).ok()?,
            );
            let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
            (start..end).contains(&address).then(|| address - start + offset)
        })
        .ok_or_else(|| fail(std::io::Error::other("the function is not mapped")))
}
