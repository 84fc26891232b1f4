//! What each `--help` ends with: examples, units and exit statuses.

/// Appends the part that all verbs share.
macro_rules! help {
    ($text:literal) => {
        concat!(
            $text,
            "

Units: durations typed as a number are seconds (0.5, 10); ns, us, ms, s, m and h may follow.
  Times in --json and folded output are whole nanoseconds.

Exit status: 0 done; 1 failed; 2 usage; 3 no such target, function, line or session (with the
  nearest names); 4 not permitted (names the missing capability)."
        )
    };
}

/// `profiler --help`.
pub const ROOT: &str = help!(
    "Examples:
  profiler ps server                              find its PID
  profiler tui -p 4211                            look around in it, by keys
  profiler functions -p 4211 'handle_*'           its functions
  profiler source -p 4211 handle_request          ... and inside one function
  profiler latency -p 4211 handle_request         how long its calls take, live
  profiler trace -p 4211 main.cc:1310 --print n   what n is each time that this line is reached
  profiler spans -p 4211 handle_request           its slowest calls, and where they were
  profiler latency -p 4211 'parse_*' --dry-run    what would be probed, without attaching
  profiler waits -p 4211                          who its threads wait for
  profiler syscalls -p 4211                       its system calls, and who makes them
  profiler flame -p 4211 -o all.svg               where the time goes
  profiler flame -p 4211 'handle_request[>= p95]' -o slow.svg
                                                  ... in the slowest 5% of its calls
  profiler flame -p 4211 'handle_request[>= p95]' --diff -o diff.svg
  profiler flame -p 4211 'handle_request[>= p95]' --diff -o slow.pb.gz     for go tool pprof
                                                  ... compared with the other 95%"
);

/// `profiler tui --help`.
pub const TUI: &str = help!(
    "Examples:
  profiler tui                                       choose a process first
  profiler tui -p 4211                               where its time goes
  profiler tui -p 4211 'handle_request[>= p95]' --pane diff
  profiler tui --session web                         a daemon's session, which goes on afterwards

Keys: ? shows them all. Enter goes one step further in, u takes it back, q ends. In short: select a
function and press Enter to time its calls; Enter again for its slow ones; d for how those differ;
s for its source, where Enter on a branch looks only at calls that go that way, and v shows values.
Nothing is restarted on the way. y shows the command line of a screen."
);

/// `profiler record --help`.
pub const RECORD: &str = help!(
    "Examples:
  profiler record -p 4211 handle_request -o a.profrec --duration 60
  profiler flame --from a.profrec 'handle_request[>= p95]' --diff -o slow.svg
  profiler flame --from a.profrec 'handle_request[>= p99.9]' --time 20s..40s -o slower.svg
  profiler latency --from a.profrec --json
  profiler record -p 4211 main.cc:1310 --print n --timeline --waits -o b.profrec
  profiler trace --from b.profrec --time 10s..20s
  profiler timeline --from b.profrec -o counters.svg
  profiler waits --from b.profrec
  profiler record -p 4211 handle_request --syscalls -o c.profrec
  profiler syscalls --from c.profrec --time 10s..20s
  profiler record -p 4211 --off-cpu --costs page-faults -o d.profrec
  profiler flame --from d.profrec --off-cpu
  profiler flame --from d.profrec -e page-faults
  profiler record -p 4211 --costs page-faults/period=16/,cycles/freq=499/ -o e.profrec

A recording holds the data of flame graphs and latency: samples, the ends of
calls in which samples were taken, and a histogram of durations. Which calls are
slow is decided afterwards, and for which part of the time. Calls that conditions
on values rule out are not recorded. Hits, counters, waits, system calls, time
off the CPU outside of calls and events are in it where they are asked for: with
a line at the end of the scope, --trace or --print, with --timeline or -e, with
--waits, with --syscalls, with --off-cpu, and with --costs."
);

/// `profiler self --help`.
pub const OWN: &str = help!(
    "Examples:
  profiler self -o own.profrec --duration 30
  profiler flame --from own.profrec -o own.svg
  profiler tui --from own.profrec

The daemon is the local one, or that of --host. It goes on as it does; samples of it are taken by
programs that this command loads besides, which ends with it."
);

/// `profiler diff --help`.
pub const DIFF: &str = help!(
    "Examples:
  profiler diff monday.profrec tuesday.profrec                            of all that was recorded
  profiler diff monday.profrec tuesday.profrec 'handle_request[>= p95]'   the slow calls of each
  profiler diff a.profrec a.profrec --before ..30s --after 30s..          two parts of one recording
  profiler diff monday.profrec tuesday.profrec -o diff.svg
  profiler diff monday.profrec tuesday.profrec -e page-faults             where pages are touched

Shares of time are compared, so the two may differ in length; a percentile is each recording's
own. A coloured box, or an interval without 0, is a finding. Intervals count calls, or without a scope
quarters of a second of each thread."
);

/// `profiler top --help`.
pub const TOP: &str = help!(
    "Examples:
  profiler top -p 4211                               where its time goes, by function
  profiler top -p 4211 'handle_request[>= p95]'      ... inside of slow calls
  profiler top --from a.profrec                       ... of a recording
  profiler top -p 4211 --duration 10 --json | jq -r 'select(.type == \"function_time\").function'

In a terminal the list is redrawn; piped, it is printed at the end. Self is the time while a function
was the innermost, total includes all that it called; shares are of all sampled time. Ctrl-C ends
the run and prints the result; a second one aborts."
);

/// `profiler info --help`.
pub const INFO: &str = help!(
    "Examples:
  profiler info                  the daemon that answers here, or this command where none does
  profiler info --host ./d.sock  another one
  profiler info --from a.profrec where and when something was recorded"
);

/// `profiler ps --help`.
pub const PS: &str = help!(
    "Examples:
  profiler ps                 every process that you may profile
  profiler ps nginx           those with nginx in their command line
  profiler ps --json | jq .pid"
);

/// `profiler functions --help`.
pub const FUNCTIONS: &str = help!(
    "Examples:
  profiler functions -p 4211 'handle_*'
  profiler functions -p 4211 '*::parse' --json | jq -r .name

Sizes are bytes. A size of 0 with inlined instances: the function exists only inlined."
);

/// `profiler source --help`.
pub const SOURCE: &str = help!(
    "Examples:
  profiler source -p 4211 handle_request
  profiler source -p 4211 src/server.cc:1310              the functions that contain this line
  profiler source -p 4211 handle_request --json | jq -r 'select(.type == \"line\").calls[].callee'

The source file is read as the target sees it, or else as the service does. Without it, and without
debug information, calls and branches are shown by address. A name with other
characters than letters, digits, _ $ . ~ :: * ? goes in double quotes."
);

/// `profiler latency --help`.
pub const LATENCY: &str = help!(
    "Examples:
  profiler latency -p 4211 handle_request
  profiler latency -p 4211 'parse_*' --duration 30
  profiler latency -p 4211 'handle_request[>= 5ms]'         lists the slowest calls too
  profiler latency -p 4211 handle_request --by 'req->kind'  a histogram for each kind too
  profiler latency -p 4211 handle_request --json --duration 10 | jq .window.p95_ns

In a terminal: a live histogram. Piped: a line for each update and function, then a table.
A scope is a function's name or a glob; names with other characters than
letters, digits, _ $ . ~ :: * ? go in double quotes. Ctrl-C ends the run and prints the result;
a second one aborts."
);

/// `profiler trace --help`.
pub const TRACE: &str = help!(
    "Examples:
  profiler trace -p 4211 main.cc:1310 --print n,req->len
  profiler trace -p 4211 handle_request --duration 10           its calls, each with its duration
  profiler trace -p 4211 main.cc:1310 --print 'a[0..4]' --print '*p' --limit 100000
  profiler trace -p 4211 main.cc:1310 --print n --json | jq .values.n.value
  profiler trace -p 4211 check --print 'str(arg0),(int)arg1'   without debug information
  profiler trace -p 4211 'handle_request[return < 0]' --print n,return
  profiler trace -p 4211 'malloc' --stack --limit 10              who calls it
  profiler trace -p 4211 handle_request --limit 100000 --duration 10 -o calls.pftrace   for ui.perfetto.dev

Expressions: n, req->len, p.x.y, *p, a[3], s[0..4], ::global, $rdi, $tid, $comm;
of a call also return. `profiler source` lists the variables of a function. A
value that cannot be read shows why. With --stack, the innermost function comes
first; a stack that does not reach its root is marked incomplete. The last line
on stderr says how many hits were not shown. Ctrl-C ends the run; a second one
aborts."
);

/// `profiler explain --help`.
pub const EXPLAIN: &str = help!(
    "Examples:
  profiler explain -p 4211 'handle_request[>= p95]'
  profiler explain -p 4211 'handle_request[> 5ms]' --duration 60 -n 20
  profiler explain -p 4211 'handle_request[>= p95]' --json | jq -r '.findings[0].next'

Shares are of slow calls and of the others; \"at least\" is the part of their difference that is
statistically certain (95% for all findings together). Needs debug information. Up to 2,000 calls
a second are looked at; branches and calls take turns where there are many."
);

/// `profiler waits --help`.
pub const WAITS: &str = help!(
    "Examples:
  profiler waits -p 4211 --duration 10                  who its threads wait for, longest first
  profiler waits -p 4211 handle_request                 ... only where they wait inside its calls
  profiler waits -p 4211 --duration 5 --json | jq -c 'select(.kind == \"woken\") | [.time_ns, .thread]'

Below each wait is the thread that ended it, and its function; below that, what that thread did while it was waited
for: it ran, it had no CPU, or it waited itself, and for whom. Times are sums over threads; the lines below a
line add up to it, those under 1% left out. [interrupt] is no thread: a timer, a disk, the network. Threads
whose names end with different numbers are one. Conditions on durations (handle[> 5ms]) are refused."
);

/// `profiler timeline --help`.
pub const TIMELINE: &str = help!(
    "Examples:
  profiler timeline -p 4211                              CPUs, switches, migrations, page faults, live
  profiler timeline -p 4211 handle_request -o day.svg    ... with the calls of a function, as a picture
  profiler timeline -p 4211 -e ipc,cache-misses/instructions --threads
  profiler timeline -p 4211 -e syscalls,tracepoint:block:block_rq_issue --step 1s --rolling 10s
  profiler timeline -p 4211 --threads --duration 60 -o day.pftrace       for ui.perfetto.dev
  profiler timeline -p 4211 --json | jq -c '[.to_ns, .counters[\"page-faults\"]]'

Counters are read once a step, not sampled: what a bucket holds is exact. Rates are per second; task-clock is
in CPUs. A counter that the machine does not have is refused, with a list of those it has."
);

/// `profiler syscalls --help`.
pub const SYSCALLS: &str = help!(
    "Examples:
  profiler syscalls -p 4211 --duration 10               its system calls, the most time first
  profiler syscalls -p 4211 handle_request              ... only those made inside its calls
  profiler syscalls -p 4211 --by module                 ... by which library makes them
  profiler syscalls -p 4211 --duration 5 --json | jq -c 'select(.type == \"syscall\") | [.name, .calls, .errors]'

Like strace -c -f, but the target is not stopped: every call is counted in the kernel. Below each
system call are the functions that made it, innermost first. open = calls that have not returned; their time
is not counted yet. Conditions on durations (handle[> 5ms]) are refused."
);

/// `profiler spans --help`.
pub const SPANS: &str = help!(
    "Examples:
  profiler spans -p 4211 handle_request                          the ten slowest of the last ten seconds
  profiler spans -p 4211 handle_request -n 3 --print n,req->len --duration 30
  profiler spans -p 4211 'handle_request[>= p95]/recv@main.cc:1312'   ... each with its calls of recv
  profiler spans -p 4211 'handle_request[>= p95]/parse' --duration 30 -o slow.pftrace   for ui.perfetto.dev
  profiler spans --session web --json --duration 10 | jq -c '[.duration_ns, .stack[-1].function]'

Shown are calls of the last step with a condition on a duration, or else of the last step that has durations; hits of
the steps after it are inside. With a line after it: only calls that reach the line. The stack is the one that most
samples of the call have; a short call may have none, more samples are taken with -F.
In a terminal the list is redrawn; piped, it is printed at the end. Ctrl-C ends the run and prints the
result; a second one aborts."
);

/// `profiler flame --help`.
pub const FLAME: &str = help!(
    "Examples:
  profiler flame -p 4211 -o all.svg --duration 10           everything, for ten seconds
  profiler flame -p 4211 'handle_request[>= p95]' -o slow.svg
  profiler flame -p 4211 'handle_request[> 5ms]' --outside -f > fast.folded
  profiler flame -p 4211 'handle_request[>= p95]' --diff -o diff.svg
  profiler flame -p 4211 'handle_request[>= p95]' --diff -o slow.pb.gz     for go tool pprof
  profiler flame -p 4211 'handle_request[>= p95]' --waits -o waits.svg   whom slow calls wait for, and why
  profiler flame --session web --over window --duration 5 -o now.svg
  profiler flame -p 4211 'handle_request[>= p95]' --diff --by module
  profiler flame -p 4211 'handle_request[>= p95]' -e page-faults -o faults.svg

Without -o, -f, --json or --format: a call tree as text on stdout.
Folded weights are nanoseconds, or events with -e; with --diff each line ends with two of them, outside then inside.
Percentiles (p50, p95, p99.9) are taken of the calls of this run; --outside and --diff need a
condition on a duration in the scope. Ctrl-C ends the run and writes the result; a second one aborts."
);

/// `profiler session --help`.
pub const SESSION: &str = help!(
    "Examples:
  profiler session new -p 4211 --name web 'handle_request[>= p95]'
  profiler flame --session web --duration 10 -o slow.svg
  profiler scope append web 'main.cc:1310/recv'
  profiler session new -p 4211 --name hits main.cc:1310 --print n,req->len
  profiler trace --session hits --duration 10
  profiler session new -p 4211 --name kinds handle_request --by 'req->kind'
  profiler latency --session kinds --duration 10
  profiler session list
  profiler session end web

Sessions live in a daemon (profilerd). One that nobody watches ends when its lease runs out."
);

/// `profiler scope --help`.
pub const SCOPE: &str = help!(
    "Examples:
  profiler scope set web 'handle_request[>= p99]'     move the percentile, keep what was counted
  profiler scope append web 'main.cc:1310/recv'       look further inside
  profiler scope drop web 2                           without the last two steps
  profiler scope undo web                             undo the last edit
  profiler scope set web ''                           back to everything

A step is observed only while the steps before it are open on the same thread. Steps that do not change
keep their probes and counts. Each command prints the new scope."
);
