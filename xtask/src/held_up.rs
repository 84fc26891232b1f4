//! How long the CPUs of a test were kept from it: by other processes of this machine, and by what else runs on its
//! hardware. A test that holds clocks or samples against each other may fail for that alone.

use std::{fs, time::Duration};

/// For how long the threads of a process were ready to run and did not, since each began: the second number of
/// `/proc/PID/task/TID/schedstat`, in nanoseconds (the kernel's Documentation/scheduler/sched-stats.rst). Nothing where
/// the kernel does not count it.
pub fn waited(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().nth(1)?.parse().ok())
        .map(Duration::from_nanos)
        .sum()
}

/// For how long the CPUs of this machine, a virtual one, had work and no CPU of their host, since it began: `steal` of
/// the manual page `proc_stat(5)`, in hundredths of a second.
pub fn stolen() -> Duration {
    fs::read_to_string("/proc/stat").map_or(Duration::ZERO, |text| stolen_of(&text))
}

fn stolen_of(stat: &str) -> Duration {
    const STEAL: usize = 8;
    let of_all_cpus = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks = of_all_cpus.and_then(|line| line.split_whitespace().nth(STEAL - 1)?.parse().ok());
    Duration::from_millis(10 * ticks.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use super::*;

    #[test]
    fn the_eighth_number_of_all_cpus_is_what_was_stolen() {
        let text = "cpu  1070152 325985 234439 2413345 9544 0 1141 1369 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(stolen_of(text), Duration::from_millis(13_690));
        assert_eq!(stolen_of("cpu  1 2 3\n"), Duration::ZERO);
        assert_eq!(stolen_of(""), Duration::ZERO);
    }

    #[test]
    fn threads_that_share_too_few_cpus_wait() {
        let threads = 2 * thread::available_parallelism().unwrap().get();
        let before = waited(std::process::id());
        let end = Instant::now() + Duration::from_millis(200);
        let busy: Vec<_> = (0..threads)
            .map(|_| {
                thread::spawn(move || {
                    while Instant::now() < end {
                        std::hint::spin_loop();
                    }
                    // A thread that has ended is counted no more.
                    thread::park_timeout(Duration::from_mins(1));
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        let now = waited(std::process::id());
        for thread in busy {
            thread.thread().unpark();
            thread.join().unwrap();
        }
        assert!(now > before + Duration::from_millis(100), "{before:?}, {now:?}");
    }
}
