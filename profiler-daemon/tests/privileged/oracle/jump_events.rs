//! What the kernel itself writes down at conditional jumps: its own events of uprobes, by `tracefs`. bpftrace puts probes inside of
//! functions only where it was built with a disassembler.

use std::{
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::{branches::Jump, lines::Lines, trace::Event};

/// Its times are cut off to microseconds: the middle of one. Between two probes of a thread lie a trap, and the way out of one.
const MIDDLE_NS: u64 = 500;

/// Says that all that was written before has been read.
const MARK: &str = "the end of the jumps";

/// Reads the definitions from its arguments: each a place, by its file and offset. A line of input says that it is enough, the next
/// or their end that all was read.
const SCRIPT: &str = r#"
set -e
tracefs=/sys/kernel/tracing
[ -d $tracefs/events ] || mount -t tracefs tracefs $tracefs
cd $tracefs
group=$1
mark=$2
shift 2
count=0
clean() {
    [ ! -d instances/$group ] || rmdir instances/$group
    while [ $count -gt 0 ]; do
        count=$((count - 1))
        echo "-:$group/jump_$count" >> uprobe_events
    done
}
trap clean EXIT
for place in "$@"; do
    echo "p:$group/jump_$count $place flags=%flags:x64" >> uprobe_events
    count=$((count + 1))
done
mkdir instances/$group
cd instances/$group
echo mono > trace_clock
echo 16384 > buffer_size_kb
echo 1 > events/$group/enable
cat trace_pipe &
reader=$!
echo ready
read -r _ || true
echo 0 > events/$group/enable
echo "$mark" > trace_marker
read -r _ || true
kill $reader
wait $reader || true
cd ../..
"#;

/// What was written so far.
#[derive(Default)]
struct Written {
    events: Vec<Event>,
    is_ready: bool,
    /// All that was written before has been read.
    is_over: bool,
    /// How often the kernel has found no room.
    lost: u64,
}

impl Written {
    fn take(&mut self, line: &str) {
        if let Some(event) = parse(line) {
            self.events.push(event);
        } else if line == "ready" {
            self.is_ready = true;
        } else if line.ends_with(MARK) {
            self.is_over = true;
        } else if line.contains("LOST") {
            self.lost += 1;
        }
    }
}

/// Events at jumps; removed when dropped.
pub struct JumpEvents {
    child: Child,
    written: Lines<Written>,
}

impl JumpEvents {
    /// Of these jumps of files, in all processes.
    pub fn start<'a>(jumps: impl Iterator<Item = (&'a Path, &'a Jump)>) -> Self {
        let places = jumps.map(|(file, jump)| format!("{}:{:#x}", file.display(), jump.offset));
        let group = format!("oracle_{}", std::process::id());
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"])
            .args([&group, MARK])
            .args(places)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let written = Lines::of(child.stdout.take().unwrap(), Written::take);
        let mut running = Self { child, written };
        running.wait(|known| known.is_ready);
        running
    }

    /// Waits until something holds; it never does where the child has ended before.
    fn wait(&mut self, holds: impl Fn(&Written) -> bool) {
        if !self.written.wait(holds) {
            self.stop();
            let mut errors = String::new();
            let _ = self.child.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("the kernel's events at jumps: {errors}");
        }
    }

    pub fn so_far(&self) -> Vec<Event> {
        self.written.look(|written| written.events.clone())
    }

    /// All events, and how often some were lost.
    pub fn end(mut self) -> (Vec<Event>, u64) {
        // Where the child has ended, nobody reads it, and that is what is said.
        let _ = writeln!(self.child.stdin.as_ref().unwrap());
        self.wait(|written| written.is_over);
        self.stop();
        let written = self.written.end();
        (written.events, written.lost)
    }

    /// Has it clean up.
    fn stop(&mut self) {
        self.child.stdin.take();
        let _ = self.child.wait();
    }
}

impl Drop for JumpEvents {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A line of `trace_pipe`: `   demo-4631    [001] .....   12.345678: jump_3: (0x5581) flags=0x246`.
fn parse(line: &str) -> Option<Event> {
    let (head, behind) = line.split_once(": jump_")?;
    let (number, values) = behind.split_once(':')?;
    let flags = values.split_once("flags=0x")?.1;
    let (thread, behind) = head.split_once(" [")?;
    let tid = thread.trim_end().rsplit('-').next()?;
    let (seconds, micros) = behind.rsplit(' ').next()?.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    Some(Event::at_jump(
        number.parse().ok()?,
        tid.parse().ok()?,
        (seconds * 1_000_000 + micros) * 1_000 + MIDDLE_NS,
        u64::from_str_radix(flags.trim_end(), 16).ok()?,
    ))
}

#[test]
fn lines_of_the_kernel_are_read() {
    let line = "   tokio-runtime-w-4631    [001] .....   12.345678: jump_3: (0x5581) flags=0x246";
    let event = Event::at_jump(3, 4631, 12_345_678_500, 0x246);
    assert_eq!(parse(line), Some(event));
    assert_eq!(
        parse("  sh-7 [001] ...1. 1.036: tracing_mark_write: the end of the jumps"),
        None
    );
}
