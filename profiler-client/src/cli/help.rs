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
  profiler ps server                              which PID is it
  profiler functions -p 4211 'handle_*'           what can be looked at
  profiler latency -p 4211 handle_request         how long its calls take, live
  profiler flame -p 4211 -o all.svg               where the time goes
  profiler flame -p 4211 'handle_request[>= p95]' -o slow.svg
                                                  ... in the slowest 5% of its calls
  profiler flame -p 4211 'handle_request[>= p95]' --diff -o diff.svg
                                                  ... compared with the other 95%"
);

/// `profiler ps --help`.
pub const PS: &str = help!(
    "Examples:
  profiler ps                 every process that you may look at
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

/// `profiler latency --help`.
pub const LATENCY: &str = help!(
    "Examples:
  profiler latency -p 4211 handle_request
  profiler latency -p 4211 'parse_*' --duration 30
  profiler latency -p 4211 'handle_request[>= 5ms]'         lists the slowest calls too
  profiler latency -p 4211 handle_request --json --duration 10 | jq .window.p95_ns

In a terminal: a live histogram. Piped: a line for each update and function, then a table.
A scope is a function's name or a glob; names with other characters than
letters, digits, _ $ . ~ :: * ? go in double quotes. Ctrl-C ends the run and prints the result;
a second one aborts."
);

/// `profiler flame --help`.
pub const FLAME: &str = help!(
    "Examples:
  profiler flame -p 4211 -o all.svg --duration 10           everything, for ten seconds
  profiler flame -p 4211 'handle_request[>= p95]' -o slow.svg
  profiler flame -p 4211 'handle_request[> 5ms]' --outside -f > fast.folded
  profiler flame -p 4211 'handle_request[>= p95]' --diff -o diff.svg
  profiler flame --session web --over window --duration 5 -o now.svg
  profiler flame -p 4211 'handle_request[>= p95]' --diff --by module

Without -o, -f, --json or --format: a call tree as text on stdout.
Folded weights are nanoseconds; with --diff each line ends with two of them, outside then inside.
Percentiles (p50, p95, p99.9) are taken of the calls of this run; --outside and --diff need a
predicate in the scope. Ctrl-C ends the run and writes the result; a second one aborts."
);

/// `profiler session --help`.
pub const SESSION: &str = help!(
    "Examples:
  profiler session new -p 4211 --name web 'handle_request[>= p95]'
  profiler flame --session web --duration 10 -o slow.svg
  profiler scope set web 'handle_request[>= p99]'
  profiler session list
  profiler session end web

Sessions live in a daemon (profilerd). One that nobody watches ends when its lease has run out."
);

/// `profiler scope --help`.
pub const SCOPE: &str = help!(
    "Examples:
  profiler scope set web 'handle_request[>= p99]'     move the percentile, keep what was counted
  profiler scope set web ''                           back to everything"
);
