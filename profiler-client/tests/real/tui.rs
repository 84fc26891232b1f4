//! `profiler tui` in a terminal, by keys.

use std::{
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    bpf,
    command::{profiler, program, run},
    daemon::Daemon,
    fixture::{Fixture, long_scale},
    lost::Tunnel,
    verbs::{busy, unharmed},
};
use profiler_testkit::{Random, has_program};

/// What has not come by then does not.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time between looks at the screen.
const BETWEEN: Duration = Duration::from_millis(50);

/// The row of what `explain` computes in all the time: it is among the first, whatever the kernel does besides.
const SPIN: &str = "spin (inlined)  explain";

/// A terminal with a shell in it.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    fn open(columns: u32, rows: u32) -> Self {
        let terminal = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "-e",
            "ENV=",
            "-e",
            "PROFILER_SOCKET=/nonexistent/profilerd.sock",
            "sh",
        ]);
        // The shell has one of its own for root.
        terminal.write("PS1='ready> '; clear\n");
        terminal.wait("the prompt", |screen| screen.trim() == "ready>");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let socket = self.folder.path().join("tmux");
        let output = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Presses keys, by tmux's names for them.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types text.
    fn write(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is such.
    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{what} is not on the screen:\n{screen}"
            );
            sleep(BETWEEN);
        }
    }

    /// Presses keys until the screen is such; each time after a look.
    fn press_until(&self, keys: &[&str], what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            for _ in 0..10 {
                let screen = self.screen();
                if is_so(&screen) {
                    return screen;
                }
                sleep(BETWEEN);
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{what} is not on the screen:\n{}",
                self.screen()
            );
            self.press(keys);
        }
    }

    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Whether the program in it has asked for the mouse.
    fn has_given_mouse(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{mouse_any_flag}"]).trim() == "1"
    }

    fn wait_for_mouse(&self, is_given: bool) {
        let begin = Instant::now();
        while self.has_given_mouse() != is_given {
            assert!(begin.elapsed() < PATIENCE, "{}", self.screen());
            sleep(BETWEEN);
        }
    }

    /// Clicks on a text that is on the screen.
    fn click(&self, text: &str) {
        let screen = self.wait_for(text);
        let found = screen
            .lines()
            .enumerate()
            .find_map(|(row, line)| line.split_once(text).map(|(before, _)| (row, before)));
        let (row, before) = found.unwrap();
        let (column, row) = (before.chars().count() + 1, row + 1);
        self.write(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
    }

    /// Waits until the terminal is as the shell had it: its own screen, a cursor, lines and echo.
    fn wait_until_restored(&self, said: &str) {
        self.wait(said, |screen| screen.contains(said));
        let flags = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1", "{}", self.screen());
        assert!(!self.has_given_mouse(), "{}", self.screen());
        self.write("clear; stty -a | tr ' ;' '\\n\\n' | grep -c -x -e icanon -e echo\n");
        self.wait("icanon and echo", |screen| screen.lines().any(|line| line == "2"));
        self.write("clear\n");
        self.wait("a new line", |screen| screen.trim() == "ready>");
    }

    fn start(&self, arguments: &str) {
        self.write(&format!(
            "{} tui {arguments}; echo ended $?\n",
            program("profiler").display()
        ));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.folder.path().join("tmux");
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .output();
    }
}

/// Records a program that is busy for a few seconds, often enough for it to be sure which of its lines has the most samples; the file.
fn record(folder: &Path, scope: &str, more: &[&str]) -> String {
    let target = busy();
    let pid = target.pid().to_string();
    let file = folder.join("a.profrec").to_str().unwrap().to_owned();
    let arguments = [
        "record",
        "-p",
        &pid,
        scope,
        "-F",
        "499",
        "--duration",
        "4",
        "-o",
        &file,
    ];
    run(profiler(&[&arguments, more].concat())).status(0);
    unharmed(target);
    file
}

#[test]
#[ignore = "needs root"]
fn four_steps_by_keys_lead_from_everything_to_a_value() {
    if !has_program("tmux") {
        return;
    }
    let mut target = Fixture::start("explain", &["100000000".to_owned()]);
    let terminal = Terminal::open(110, 32);
    target.say("go");
    terminal.start(&format!("-p {}", target.pid()));

    // Everything, by function. The keys from here on are counted. Where the kernel is busy, what has few samples of its own is below
    // the end of the screen, unless it is searched for.
    terminal.wait_for("FUNCTION");
    terminal.press(&["/"]);
    terminal.write("handle");
    terminal.press(&["Enter"]);
    terminal.wait("handle alone", |screen| {
        !screen.contains("main  explain") && screen.contains("handle  explain")
    });

    // Its calls, then slow ones, and how they differ.
    terminal.press(&["Enter"]);
    terminal.wait("the histogram", |screen| {
        screen.contains("▸ handle") && screen.contains("p50")
    });
    terminal.press(&["Enter"]);
    terminal.wait_for("◀ slow");
    terminal.press(&["d"]);
    terminal.wait("the difference", |screen| {
        let is_nearly_all = screen.contains("inside 100%") || screen.contains("inside 9");
        screen.contains("▏compress") && screen.contains("handle[>= p95]") && is_nearly_all
    });

    // Only where the branch was taken for large requests.
    terminal.press(&["s"]);
    terminal.wait_for("/* the branch */");
    terminal.press(&["n", "n"]);
    terminal.wait("the branch", |screen| {
        let line = screen.lines().find(|line| line.starts_with("Enter: explain.c:"));
        line.is_some_and(|line| line.contains('!'))
    });
    terminal.press(&["Enter"]);
    terminal.wait("its count", |screen| {
        let path = screen.lines().nth(1).unwrap_or_default();
        path.contains("▸ handle[>= p95]") && path.contains("▸ explain.c:") && path.contains('!')
    });

    // What it was called with: 19 keys.
    terminal.press(&["v"]);
    let screen = terminal.wait("a value", |screen| {
        screen
            .lines()
            .any(|line| line.trim_start().starts_with("retry = "))
    });
    println!("{screen}");

    // An expression of one's own: they are all large.
    terminal.press(&["p"]);
    terminal.write("request->size");
    terminal.press(&["Enter"]);
    let screen = terminal.wait("the size", |screen| size(screen).is_some());
    println!("{screen}");
    let size = size(&screen).unwrap();
    assert!((50_001..55_000).contains(&size), "{size}");

    // The slowest calls, with when the line was reached: of one that had begun before, that is not known, and on a busy machine it can
    // be the slowest of all.
    terminal.press(&["0"]);
    terminal.wait_for("slowest so far");
    let has_line =
        |screen: &str, begin: &str| screen.lines().any(|line| line.trim_start().starts_with(begin));
    let is_reached =
        |screen: &str| has_line(screen, "the call ") && has_line(screen, "explain.c:31!else  at ");
    let screen = terminal.press_until(&["Down"], "when a slow call reached the line", is_reached);
    println!("{screen}");

    // Back, a key each.
    for path in ["▸ handle[>= p95]", "▸ handle", "▸ everything"] {
        terminal.press(&["u"]);
        terminal.wait(path, |screen| {
            screen.lines().nth(1).is_some_and(|line| line.trim() == path)
        });
    }
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
    bpf::wait_until_unchanged(target.pid());
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    assert!(!maps.is_empty(), "the target goes on");
}

#[test]
#[ignore = "needs root"]
fn threads_bars_counters_and_suggestions_lead_further_by_keys() {
    if !has_program("tmux") {
        return;
    }
    let mut target = Fixture::start("explain", &["100000000".to_owned()]);
    let terminal = Terminal::open(110, 32);
    target.say("go");
    terminal.start(&format!("-p {}", target.pid()));
    let screen = terminal.wait("some samples", |screen| {
        screen.contains(SPIN) && samples(screen) >= 200
    });
    let sampled = samples(&screen);

    // The thread, and its flame graph alone.
    let thread = format!("explain ({})", target.pid());
    terminal.press(&["T"]);
    terminal.wait("the thread", |screen| {
        screen.contains("OFF CPU") && screen.contains(&thread)
    });
    terminal.press(&["Enter"]);
    terminal.wait("its flame graph", |screen| {
        screen.contains(&format!("threads {thread}")) && screen.contains("▏handle")
    });
    terminal.press(&["Escape"]);
    terminal.wait("all threads", |screen| {
        !screen.contains("threads explain") && screen.contains("▏handle")
    });

    // Where a counter counts.
    terminal.press(&["C"]);
    terminal.wait_for("task-clock (CPUs)");
    terminal.press(&["Down", "Enter"]);
    terminal.wait("the event", |screen| {
        screen.contains("of context-switches") && screen.contains("Enter zoom")
    });
    terminal.press(&["Escape"]);
    terminal.wait("time", |screen| !screen.contains("of context-switches"));

    // What was sampled by function is still there.
    terminal.press(&["1"]);
    let screen = terminal.wait("functions", |screen| {
        screen.contains("▼  SELF") && screen.contains(SPIN)
    });
    assert!(samples(&screen) >= sampled, "{sampled}:\n{screen}");

    // The lines that ran.
    terminal.press(&["a"]);
    terminal.wait_for("LINE AND FUNCTION");
    terminal.wait("a line", |screen| {
        screen
            .lines()
            .any(|line| line.contains("fixture.h:") && line.contains("  spin"))
    });
    terminal.press(&["a"]);
    terminal.wait_for("LIBRARY");
    terminal.press(&["a"]);

    // Suggestions for some letters of a function, and for lines of it.
    terminal.press(&["e"]);
    terminal.write("hnd");
    terminal.wait("functions", |screen| {
        let is_found = screen.contains("Tab completes") && !screen.contains("looking for functions");
        is_found && screen.lines().any(|line| line.contains("handle"))
    });
    terminal.press(&["Tab"]);
    terminal.write("/bra");
    terminal.wait("lines by their text", |screen| {
        screen
            .lines()
            .any(|line| line.contains("explain.c:") && line.contains("/* the branch */"))
    });
    terminal.press(&["C-u"]);
    terminal.write("handle");
    terminal.press(&["Enter"]);
    terminal.wait_for("▸ handle");

    // The slowest bar, and those over time.
    terminal.press(&["3"]);
    terminal.wait_for("p50");
    terminal.press(&["Down"]);
    terminal.wait_for("Enter: handle[>= ");
    terminal.press(&["Enter"]);
    terminal.wait("calls as slow as the bar", |screen| {
        let path = screen.lines().nth(1).unwrap_or_default();
        path.contains("▸ handle[>= ") && !path.contains("p95") && screen.contains("◀ slow")
    });
    terminal.press(&["o"]);
    terminal.wait("durations over time", |screen| {
        screen.contains("the latest at the right") && screen.contains("░")
    });

    // What the probes cost, and the session.
    terminal.press(&["L"]);
    terminal.wait("the cost", |screen| {
        screen.contains("PROBED") && screen.lines().any(|line| line.ends_with("handle"))
    });
    terminal.press(&["S"]);
    terminal.wait_for("WATCHERS");
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
    bpf::wait_until_unchanged(target.pid());
}

#[test]
#[ignore = "needs root"]
fn a_scope_whose_probes_take_too_much_is_left_and_the_screen_goes_on() {
    if !has_program("tmux") {
        return;
    }
    let mut target = Fixture::start("hot", &[]);
    let terminal = Terminal::open(110, 32);
    target.say("go");
    terminal.start(&format!("-p {} step_hot --budget 3", target.pid()));
    terminal.wait("why it is left", |screen| {
        screen.contains("`step_hot` is left: ") && screen.contains("▸ everything")
    });
    // Nearly all of the program's own time is in it.
    terminal.wait_for("step_hot  hot");
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
    bpf::wait_until_unchanged(target.pid());
}

/// Presses a key that makes `step_hot` the next step, and says whether it was asked about. What it costs may not be known in
/// time on a busy machine: then it is attached as it is.
fn is_asked_about(terminal: &Terminal, key: &str) -> bool {
    let is_question = |screen: &str| screen.contains("Esc leaves it") && screen.contains("▸ everything");
    let pressed = Instant::now();
    terminal.press(&[key]);
    let screen = terminal.wait("the question", |screen| {
        let is_attached = screen.contains("▸ step_hot") && screen.contains("calls, ");
        is_question(screen) || is_attached || screen.contains("`step_hot` is left: ")
    });
    println!("after {:?}:\n{screen}", pressed.elapsed());
    if !is_question(&screen) {
        return false;
    }
    assert!(
        screen.contains("step_hot: 1 place; the probes would take ")
            && screen.contains("over the budget of 3%"),
        "{screen}"
    );
    true
}

#[test]
#[ignore = "needs root"]
fn a_costly_step_is_asked_about_before_it_is_attached() {
    const TRIES: usize = 5;

    if !has_program("tmux") {
        return;
    }
    let mut target = Fixture::start("hot", &[]);
    // What it does in a tenth of a second is counted.
    target.prefer();
    target.say("go");
    let mut tries = (0..TRIES).map(|_| {
        let terminal = Terminal::open(110, 32);
        terminal.start(&format!("-p {} --budget 3", target.pid()));
        terminal.wait_for("step_hot  hot");
        terminal.press(&["/"]);
        terminal.write("step_hot");
        terminal.press(&["Enter"]);
        terminal.wait_for("matching `step_hot`");
        let mut is_asked = is_asked_about(&terminal, "Enter");
        if is_asked {
            bpf::wait_until_unchanged(target.pid());
            terminal.press(&["Escape"]);
            terminal.wait("no question", |screen| !screen.contains("leaves it"));
            is_asked = is_asked_about(&terminal, "f");
        }
        if is_asked {
            bpf::wait_until_unchanged(target.pid());
            // Whoever wants it all the same has it without a limit.
            terminal.press(&["K"]);
            terminal.wait("its calls", |screen| {
                screen.contains("▸ step_hot") && screen.contains("calls, ")
            });
        }
        terminal.press(&["q"]);
        terminal.wait_until_restored("ended 0");
        bpf::wait_until_unchanged(target.pid());
        is_asked
    });
    assert!(
        tries.any(|is_asked| is_asked),
        "it was not asked about in {TRIES} tries"
    );
}

#[test]
#[ignore = "needs root"]
fn a_loop_of_the_source_is_the_next_step() {
    if !has_program("tmux") {
        return;
    }
    let mut target = Fixture::start("outcomes", &["100000000".to_owned()]);
    let terminal = Terminal::open(110, 32);
    target.say("go");
    terminal.start(&format!("-p {} --pane source --source handle", target.pid()));
    terminal.wait_for("inner(i);");
    // It is the first of the branches, and has two ways.
    terminal.press(&["n"]);
    let way = |chosen: &str| {
        terminal.wait(chosen, |screen| {
            let foot = screen.lines().find(|line| line.starts_with("Enter: outcomes.c:"));
            foot.is_some_and(|foot| foot.contains(chosen))
        })
    };
    // Its entry, where it may end at once, is a branch of the same line.
    if !way("←/→ 1 of ").contains("!taken") {
        terminal.press(&["Right"]);
    }
    println!(
        "{}",
        way("!taken (goes on at line 33, or round again from line 32)")
    );
    terminal.press(&["Enter"]);
    let screen = terminal.wait("how often it goes round", |screen| {
        let path = screen.lines().nth(1).unwrap_or_default();
        let counts = screen.lines().nth(2).unwrap_or_default();
        let is_counted = counts.matches("/s").count() == 2;
        path.contains("▸ handle") && path.contains("▸ outcomes.c:") && path.contains("!taken") && is_counted
    });
    println!("{screen}");
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
    bpf::wait_until_unchanged(target.pid());
}

/// Ticks of CPU time that a process has had, of 100 a second.
fn ticks(pid: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
#[ignore = "needs root"]
fn the_first_key_after_another_size_is_taken() {
    if !has_program("tmux") {
        return;
    }
    let folder = folder_of_stacks();
    let terminal = Terminal::open(100, 40);
    terminal.start(&format!("--from {}", folder.path().join(STACKS).display()));
    let screen = terminal.wait_for("60.0%");
    let foot = screen.trim_end().lines().last().unwrap().trim_end().to_owned();
    for rows in ["30", "35", "25"] {
        terminal.tmux(&["resize-window", "-x", "100", "-y", rows]);
        // The foot is there once the program has drawn it.
        let is_at_foot = |screen: &str| {
            let lines: Vec<&str> = screen.lines().collect();
            lines.len() == rows.parse::<usize>().unwrap()
                && lines.last().is_some_and(|line| line.trim_end() == foot)
        };
        terminal.wait("the new size", is_at_foot);
        terminal.press(&["/"]);
        terminal.wait_for("search ▸");
        terminal.press(&["Escape"]);
        terminal.wait("the foot", is_at_foot);
    }
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
}

#[test]
#[ignore = "needs root"]
fn a_screen_on_which_nothing_happens_costs_nothing() {
    if !has_program("tmux") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stacks.folded");
    std::fs::write(&file, "main;handle;compress 60\nmain;idle 40\n").unwrap();
    let terminal = Terminal::open(200, 60);
    terminal.start(&format!("--from {}", file.display()));
    terminal.wait_for("60.0%");
    let pattern = format!("tui --from {}", file.display());
    let found = Command::new("pgrep")
        .args(["-f", "-n", &pattern])
        .output()
        .unwrap();
    let pid = String::from_utf8(found.stdout).unwrap();
    let before = ticks(pid.trim());
    // It is time that passes here, not something that is waited for.
    sleep(Duration::from_secs(5));
    let taken = ticks(pid.trim()) - before;
    println!(
        "idle: {taken} hundredths of a second in 5 s: {:.2}% of a core",
        taken as f64 / 5.0
    );
    assert!(taken < 5, "{taken} hundredths of a second in 5 s");
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
}

#[test]
#[ignore = "needs root"]
fn a_recording_is_looked_at_by_the_same_keys() {
    if !has_program("tmux") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = &record(folder.path(), "f", &[]);

    let terminal = Terminal::open(110, 32);
    terminal.start(&format!("--from {file}"));
    terminal.wait("functions", |screen| {
        // Nearly all of the time is in it: whatever else had samples is below.
        screen.contains("recording ") && screen.contains("spin (inlined)  slowpath")
    });
    terminal.press(&["3"]);
    terminal.wait("the histogram", |screen| {
        screen.contains("▸ f") && screen.contains("p50")
    });
    terminal.press(&["Enter"]);
    terminal.wait("slow calls", |screen| {
        screen.contains("▸ f[>= p95]") && screen.contains(" inside") && screen.contains("◀ slow")
    });
    terminal.press(&["d"]);
    let screen = terminal.wait("the difference", |screen| {
        screen.contains("▏slow_path") && screen.contains("f[>= p95]")
    });
    println!("{screen}");
    terminal.press(&[">"]);
    terminal.wait("the next percentile", |screen| screen.contains("▸ f[>= p99]"));
    // The lines of the scope's function, with the time in what they call, and the text of the file that is here.
    terminal.press(&["5"]);
    let screen = terminal.wait("the source", |screen| {
        screen.contains("OFF CPU  SHARE") && screen.lines().any(|line| has_time(line, "slow_path("))
    });
    println!("{screen}");
    // The line with the most time is the selected one: it was not recorded as a step, and is refused with what was.
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("was not recorded there");
    println!("{screen}");
    terminal.wait("the scope", |screen| {
        screen
            .lines()
            .nth(1)
            .is_some_and(|line| line.trim() == "▸ f[>= p99]")
    });
    terminal.press(&["7"]);
    let screen = terminal.wait("reasons", |screen| {
        screen.contains(" slow calls of ") && screen.contains("not looked at: ")
    });
    println!("{screen}");
    terminal.press(&["0"]);
    let screen = terminal.wait("the slowest calls", |screen| {
        screen
            .lines()
            .any(|line| line.trim_start().starts_with("the call "))
    });
    println!("{screen}");
    // Back, a key each.
    for path in ["▸ f[>= p95]", "▸ f"] {
        terminal.press(&["u"]);
        terminal.wait(path, |screen| {
            screen.lines().nth(1).is_some_and(|line| line.trim() == path)
        });
    }
    // A part of its time, and the next one.
    for (key, is_part, is_first) in [("{", true, true), ("]", true, false), ("}", false, false)] {
        terminal.press(&[key]);
        terminal.wait(key, |screen| {
            let heading = screen.lines().next().unwrap_or_default();
            heading.contains("recording ")
                && heading.contains("..") == is_part
                && heading.contains(" 0s..") == is_first
                && !heading.contains("attaching")
        });
    }
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
}

#[test]
#[ignore = "needs root"]
fn a_key_records_what_is_looked_at() {
    if !has_program("tmux") {
        return;
    }
    let target = busy();
    let pid = target.pid().to_string();
    let terminal = Terminal::open(140, 32);
    let folder = tempfile::tempdir().unwrap();
    terminal.write(&format!("cd {}; clear\n", folder.path().display()));
    terminal.wait("the prompt", |screen| screen.trim() == "ready>");
    terminal.start(&format!("-p {pid} f"));
    terminal.wait_for(" calls, ");
    let samples_of = |name: &str| {
        let screen = terminal.wait(name, |screen| {
            let heading = screen.lines().next().unwrap_or_default();
            heading.contains(&format!("● recording {name}: "))
                && heading.contains(" calls")
                && !heading.contains(", 0 calls")
        });
        println!("{}", screen.lines().next().unwrap_or_default());
    };
    let name = format!("pid-{pid}-slowpath");
    terminal.press(&["2", "/"]);
    terminal.write("slow");
    terminal.press(&["Enter"]);
    terminal.wait_for("`slow` in ");
    terminal.press(&["r"]);
    samples_of(&format!("{name}.profrec"));
    terminal.press(&["r"]);
    terminal.wait("the end", |screen| {
        screen.contains(" written: ") && !screen.contains("●")
    });
    // A second one has another name, and ends with the screen.
    terminal.press(&["r"]);
    samples_of(&format!("{name}-2.profrec"));
    terminal.press(&["q"]);
    terminal.wait_for("-2.profrec written: ");
    terminal.wait_until_restored("ended 0");
    unharmed(target);

    // It is looked at on the screen that it was begun on, unless another is asked for.
    terminal.start(&format!("--from {name}.profrec"));
    terminal.wait("the same screen", |screen| {
        screen.contains("recording ") && screen.contains("▸ f") && screen.contains("`slow` in ")
    });
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
    // The first pane is asked for too where it is named.
    for (pane, shown) in [("latency", "p50"), ("top", "TOTAL")] {
        terminal.start(&format!("--from {name}.profrec --pane {pane}"));
        terminal.wait(pane, |screen| {
            screen.contains("recording ") && screen.contains(shown)
        });
        terminal.press(&["q"]);
        terminal.wait_until_restored("ended 0");
    }

    for name in [format!("{name}.profrec"), format!("{name}-2.profrec")] {
        let file = folder.path().join(name);
        let latency = run(profiler(&[
            "latency",
            "--json",
            "--from",
            file.to_str().unwrap(),
            "f[> 0ns]",
        ]))
        .status(0);
        let function = latency
            .objects()
            .into_iter()
            .rfind(|object| object["type"] == "latency");
        assert!(
            function.unwrap()["since_start"]["count"].as_u64().unwrap() > 0,
            "{}",
            file.display()
        );
    }
}

/// Whether a line of the source has this text, and time before its number.
fn has_time(line: &str, text: &str) -> bool {
    let mut words = line.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<f64>().ok());
    let unit = words.next().is_some_and(|word| matches!(word, "s" | "ms" | "µs"));
    line.contains(text) && number.is_some() && unit
}

/// The samples of all of the target, below the path.
fn samples(screen: &str) -> u64 {
    let line = screen.lines().nth(2).unwrap_or_default().trim();
    let count = line.strip_suffix(" samples on the CPU").unwrap();
    count.replace(',', "").parse().unwrap()
}

/// The value below the list of hits.
fn size(screen: &str) -> Option<u64> {
    let line = screen
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("request->size = "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
#[ignore = "needs root"]
fn the_terminal_is_left_as_it_was_however_it_ends() {
    if !has_program("tmux") {
        return;
    }
    let mut target = Fixture::start("explain", &["100000000".to_owned()]);
    target.say("go");
    let terminal = Terminal::open(80, 24);
    for (keys, said) in [(&["C-c"][..], "ended 0"), (&["q"], "ended 0")] {
        terminal.start(&format!("-p {}", target.pid()));
        terminal.wait_for("FUNCTION");
        terminal.press(keys);
        terminal.wait_until_restored(said);
    }
    // To the shell, and back.
    terminal.start(&format!("-p {}", target.pid()));
    terminal.wait_for(SPIN);
    terminal.press(&["C-z"]);
    terminal.wait_until_restored("topped");
    terminal.write("fg\n");
    terminal.wait_for(SPIN);
    // Asked to by another.
    let pattern = format!("tui -p {}", target.pid());
    let found = Command::new("pgrep")
        .args(["-f", "-n", &pattern])
        .output()
        .unwrap();
    let pid = String::from_utf8(found.stdout).unwrap();
    Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap();
    terminal.wait("the prompt", |screen| screen.trim_end().ends_with("ready>"));
    terminal.wait_until_restored("ready>");
    bpf::wait_until_unchanged(target.pid());

    // And it ends with its terminal.
    terminal.start(&format!("-p {}", target.pid()));
    terminal.wait_for("FUNCTION");
    drop(terminal);
    let begin = Instant::now();
    let is_there = || {
        Command::new("pgrep")
            .args(["-f", &pattern])
            .output()
            .unwrap()
            .status
            .success()
    };
    while is_there() {
        assert!(begin.elapsed() < PATIENCE, "it goes on without a terminal");
        sleep(BETWEEN);
    }
    bpf::wait_until_unchanged(target.pid());
}

/// Stacks as another tool has written them.
const STACKS: &str = "stacks.folded";

/// A folder with these.
fn folder_of_stacks() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let stacks = "main;handle;compress 60\nmain;handle;recv 30\nmain;idle 10\n";
    std::fs::write(folder.path().join(STACKS), stacks).unwrap();
    folder
}

#[test]
#[ignore = "needs root"]
fn a_profile_of_another_tool_is_looked_at_by_the_same_keys() {
    if !has_program("tmux") {
        return;
    }
    let folder = folder_of_stacks();
    let file = folder.path().join(STACKS);
    let terminal = Terminal::open(100, 24);
    terminal.start(&format!("--from {}", file.display()));
    let functions = terminal.wait_for("60.0% 60 samples");
    assert!(
        functions.contains("90.0% 90 samples  handle") && functions.contains("100 samples"),
        "{functions}"
    );
    terminal.press(&["2"]);
    terminal.wait("the flame graph", |screen| {
        ["▏main", "▏handle", "▏compress", "▏recv", "▏idle"]
            .iter()
            .all(|frame| screen.contains(frame))
    });
    // It has no calls to look inside of.
    terminal.press(&["e"]);
    terminal.wait_for("has stacks alone");
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
}

#[test]
#[ignore = "needs root"]
fn the_mouse_selects_enters_and_is_left_to_the_terminal() {
    if !has_program("tmux") {
        return;
    }
    let folder = folder_of_stacks();
    let file = folder.path().join(STACKS);
    let terminal = Terminal::open(100, 24);
    terminal.start(&format!("--from {}", file.display()));
    terminal.wait_for("60.0% 60 samples");
    terminal.wait_for_mouse(true);
    terminal.click("2graph");
    terminal.click("▏recv");
    let is_selected = |screen: &str| screen.lines().any(|line| line.starts_with("recv"));
    terminal.wait("the selected box", is_selected);
    terminal.click("▏recv");
    terminal.wait("the box alone", |screen| {
        screen.contains("▏recv") && !screen.contains("▏idle")
    });
    terminal.press(&["M"]);
    terminal.wait_for_mouse(false);
    terminal.press(&["M"]);
    terminal.wait_for_mouse(true);
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");

    terminal.start(&format!("--no-mouse --from {}", file.display()));
    terminal.wait_for("60.0% 60 samples");
    assert!(!terminal.has_given_mouse());
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
}

#[test]
#[ignore = "needs root"]
fn recorded_hits_are_looked_at_as_live_ones_and_by_a_url() {
    if !has_program("tmux") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scope = "f[>= 0ns]/slowpath.c:33";
    let file = &record(folder.path(), scope, &["--print", "i"]);

    let terminal = Terminal::open(110, 32);
    terminal.start(&format!("--from {file}"));
    terminal.wait("the scope", |screen| screen.contains("▸ slowpath.c:33"));
    terminal.press(&["6"]);
    // With the value that was recorded, below them; a screen may be read while it is drawn.
    let screen = terminal.wait("hits with values", |screen| {
        let has_value = screen.lines().any(|line| line.trim_start().starts_with("i = "));
        screen.contains(" slowpath.c:33  i=") && screen.contains(" hits") && has_value
    });
    println!("{screen}");
    terminal.press(&["y"]);
    terminal.wait_for("this screen's command line");
    terminal.press(&["y"]);
    terminal.wait_for("for scripts");
    terminal.press(&["y"]);
    let shown = terminal.wait("the URL", |screen| screen.contains("profiler:tui?from="));
    // In a box, over as many lines as it takes.
    let lines = shown
        .lines()
        .filter_map(|line| line.trim().strip_prefix('│')?.strip_suffix('│'));
    let url: String = lines.map(str::trim).collect();
    assert!(url.contains("&pane=hits'"), "{shown}");
    terminal.press(&["q"]);
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");

    // A line that was recorded as a step is the next one, and stays selected.
    // By the key, it would be the source of the function that is selected by then.
    terminal.start(&format!("--from {file} f --pane source"));
    terminal.wait("the scope", |screen| {
        screen.lines().nth(1).is_some_and(|line| line.trim() == "▸ f")
    });
    terminal.wait_for("Enter: slowpath.c:34");
    terminal.press(&["k"]);
    terminal.wait_for("Enter: slowpath.c:33");
    terminal.press(&["Enter"]);
    terminal.wait("the next step", |screen| {
        screen.contains("▸ slowpath.c:33") && screen.contains("Enter: slowpath.c:33")
    });
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");

    let encoded = scope.replace("[>= ", "%5B%3E%3D%20").replace(']', "%5D");
    terminal.start(&format!("'profiler:tui?from={file}&scope={encoded}&pane=hits'"));
    terminal.wait("the same screen", |screen| {
        screen.contains("▸ slowpath.c:33") && screen.contains(" slowpath.c:33  i=")
    });
    terminal.press(&["q"]);
    terminal.wait_until_restored("ended 0");
}

/// Keys of a walk through a recording: panes, thresholds, parts, and what is shown of stacks.
const WALK: [&str; 25] = [
    "1", "2", "3", "4", "5", "7", "0", "T", "Enter", "Enter", "f", ">", "<", "u", "U", "{", "}", "]", "[",
    "a", "R", "%", "o", "B", "Escape",
];

/// What says that more is to come.
const COMING: [&str; 5] = [
    "reading the recording",
    "attaching",
    "drawing:",
    "looking",
    "editing",
];

impl Terminal {
    /// The screen once nothing comes any more.
    fn settled(&self) -> String {
        let mut before = String::new();
        let is_same = |screen: &str| {
            let is_same = before == screen && !COMING.iter().any(|words| screen.contains(words));
            screen.clone_into(&mut before);
            is_same
        };
        let is_same = std::cell::RefCell::new(is_same);
        self.wait("all of it", |screen| {
            sleep(3 * BETWEEN);
            (is_same.borrow_mut())(screen)
        })
    }

    /// The command line of the screen, which is shown over it, and then no longer.
    fn command_line(&self) -> String {
        self.press(&["y"]);
        let shown = self.wait_for(" this screen's command line");
        let title = shown
            .lines()
            .position(|line| line.contains(" this screen's command line"))
            .unwrap();
        let rows: Vec<&str> = shown.lines().collect();
        let column = |corner: char| rows[title].chars().position(|c| c == corner).unwrap();
        let (left, right) = (column('┌'), column('┐'));
        let inside = rows[title + 1..]
            .iter()
            .take_while(|row| row.chars().nth(left) == Some('│'));
        let text: String = inside
            .flat_map(|row| {
                row.chars()
                    .skip(left + 2)
                    .take(right - left - 3)
                    .collect::<Vec<_>>()
            })
            .collect();
        self.press(&["Escape"]);
        self.wait("the screen below", |screen| {
            !screen.contains(" this screen's command line")
        });
        text.trim_end().to_owned()
    }
}

#[test]
#[ignore = "needs root"]
fn the_command_line_of_a_screen_shows_that_screen() {
    if !has_program("tmux") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = &record(folder.path(), "f", &[]);

    let screens = if long_scale() { 100 } else { 5 };
    let mut random = Random::from_seed(u64::from(std::process::id()));
    let (by_keys, by_command) = (Terminal::open(120, 40), Terminal::open(120, 40));
    by_keys.start(&format!("--from {file} --pane top"));
    by_keys.wait_for("▸ f");
    for _ in 0..screens {
        let mut keys = Vec::new();
        for _ in 0..=random.below(5) {
            let key = *random.of(&WALK);
            by_keys.press(&[key]);
            by_keys.settled();
            keys.push(key);
        }
        let command = by_keys.command_line();
        // What is selected is not part of a command line.
        by_keys.press(&["Home"]);
        let words = command.strip_prefix("profiler tui ").unwrap();
        by_command.start(words);
        by_command.wait_for("recording ");
        by_command.settled();
        by_command.press(&["Home"]);
        println!("{command} by {keys:?}");
        // Both may still draw what comes.
        let begin = Instant::now();
        loop {
            let wanted = by_keys.screen();
            let differing = differing(&wanted, &by_command.screen());
            if differing.is_empty() {
                break;
            }
            let lines = differing.join("\n");
            assert!(
                begin.elapsed() < PATIENCE,
                "{command} by {keys:?}:\n{lines}\n{wanted}"
            );
            sleep(BETWEEN);
        }
        by_command.press(&["q"]);
        by_command.wait_until_restored("ended 0");
    }
    by_keys.press(&["q"]);
    by_keys.wait_until_restored("ended 0");
}

/// Lines of two screens that are not the same, but for the keys, as a screen that has just begun has no edit to take back, and
/// for losses, which are those of all views that were seen.
fn differing(wanted: &str, shown: &str) -> Vec<String> {
    let lines = wanted.lines().zip(shown.lines());
    let depends = |line: &str| line.contains("? help  q quit") || line.contains("daemon ");
    let others = lines.filter(|(wanted, shown)| wanted.trim_end() != shown.trim_end() && !depends(wanted));
    others
        .map(|(wanted, shown)| format!("- {wanted}\n+ {shown}"))
        .collect()
}

#[test]
#[ignore = "needs root"]
fn a_screen_says_that_its_connection_was_lost_and_goes_on_once_it_is_back() {
    let target = busy();
    let daemon = Daemon::start();
    let tunnel = Tunnel::to(&daemon);
    let terminal = Terminal::open(100, 24);
    let (socket, pid) = (tunnel.socket.display(), target.pid());
    terminal.start(&format!("-p {pid} f --host {socket} --pane latency"));
    let calls = |screen: &str| -> Option<u64> {
        let (before, _) = screen.split_once(" calls, ")?;
        before.rsplit(' ').next()?.replace(',', "").parse().ok()
    };
    let screen = terminal.wait("calls", |screen| calls(screen).is_some_and(|calls| calls > 0));
    let before = calls(&screen).unwrap();
    tunnel.cut();
    let lost = terminal.wait("the loss", |screen| {
        screen.contains("no connection: trying again")
    });
    assert!(calls(&lost).is_some(), "what was there stays:\n{lost}");
    tunnel.mend();
    terminal.wait("calls of later", |screen| {
        !screen.contains("no connection") && calls(screen).is_some_and(|calls| calls > before + 100)
    });
    terminal.press(&["q"]);
    terminal.wait("the end", |screen| screen.contains("ended 0"));
    assert!(daemon.sessions().is_empty());
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}
