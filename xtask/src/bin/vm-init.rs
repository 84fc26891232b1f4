//! The first process of a virtual machine: mounts what the tests need, runs one program, powers off.
//!
//! What to run stands in `/vm-run`, one `env NAME=VALUE` or `arg WORD` a line. The lines that start with
//! `vm-init:` are what `cargo xtask vm` looks for on the serial console.

use std::{
    ffi::{CStr, CString},
    fs, io, mem,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
};

/// The root itself is in memory: nothing is mounted on /tmp or /run, where files of the image may be.
const MOUNTS: [(&CStr, &CStr); 5] = [
    (c"proc", c"/proc"),
    (c"sysfs", c"/sys"),
    (c"devtmpfs", c"/dev"),
    (c"tracefs", c"/sys/kernel/tracing"),
    (c"cgroup2", c"/sys/fs/cgroup"),
];

fn main() {
    // Nobody could act on an error here but the reader of the console: each is printed, and the machine is
    // powered off in every case, so that the run ends at once instead of at its time limit.
    for (kind, place) in MOUNTS {
        if let Err(error) = mount(kind, place) {
            println!("vm-init: could not mount {}: {error}", place.to_string_lossy());
        }
    }
    if let Err(error) = raise_loopback() {
        println!("vm-init: could not raise the loopback interface: {error}");
    }
    match run() {
        Ok(status) => println!("vm-init: exit status {}", code(status)),
        Err(error) => println!("vm-init: could not run the program that /vm-run names: {error}"),
    }
    power_off();
}

fn run() -> io::Result<ExitStatus> {
    let text = fs::read_to_string("/vm-run")?;
    let words = |kind: &'static str| text.lines().filter_map(move |line| line.strip_prefix(kind));
    let mut arguments = words("arg ");
    let program = arguments
        .next()
        .ok_or_else(|| io::Error::other("no `arg` line"))?;
    let environment = words("env ").filter_map(|pair| pair.split_once('='));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .current_dir("/tmp");
    let uptime = fs::read_to_string("/proc/uptime")?;
    println!(
        "vm-init: running after {} s of uptime",
        uptime.split(' ').next().unwrap_or("?")
    );
    let mut child = command.spawn()?;
    reap_until(&mut child)
}

/// Waits for the program, and meanwhile for every orphan that the kernel hands to the first process.
fn reap_until(child: &mut std::process::Child) -> io::Result<ExitStatus> {
    let child_pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live, writable c_int for the whole call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        match pid {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            pid if pid == child_pid => return Ok(ExitStatus::from_raw(status)),
            _ => {}
        }
    }
}

/// The shell's habit: 128 + the signal's number for a program that was killed.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn mount(kind: &CStr, place: &CStr) -> io::Result<()> {
    fs::create_dir_all(CString::from(place).to_string_lossy().as_ref())?;
    // SAFETY: all pointers are to NUL-terminated strings that outlive the call; these file systems take no data.
    let result = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn raise_loopback() -> io::Result<()> {
    // SAFETY: socket takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: ifreq is plain C data (an array of char and a union of integers), for which zero is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    // SAFETY: the socket is open and `request` is a live, initialised ifreq, which SIOCSIFFLAGS reads only.
    let result = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) };
    let outcome = if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    };
    // SAFETY: the descriptor is ours, open, and not used afterwards.
    unsafe { libc::close(socket) };
    outcome
}

fn power_off() {
    // SAFETY: neither call takes a pointer. The machine has no disk: nothing can be lost.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
}
