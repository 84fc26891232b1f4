//! Of which functions a step can be made. That is looked up in the files, so on a thread of its own.

use std::{
    collections::{HashMap, HashSet},
    sync::mpsc,
    time::{Duration, Instant},
};

/// How long the last picture waits for what is being looked up.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whether a function of a name can be probed.
pub type Check = Box<dyn Fn(&str) -> bool + Send>;

/// What is known of functions.
pub struct Probed {
    asked: mpsc::Sender<String>,
    answers: mpsc::Receiver<(String, bool)>,
    on_their_way: HashSet<String>,
    known: HashMap<String, bool>,
}

impl Probed {
    /// Begins a thread that looks up by this check. It ends with this; where there can be none, nothing is known.
    pub fn new(check: Check) -> Self {
        let (asked, names) = mpsc::channel::<String>();
        let (answer, answers) = mpsc::channel();
        let look_up = move || {
            for name in names {
                let can_be = check(&name);
                if answer.send((name, can_be)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("probed".to_owned());
        if let Err(error) = thread.spawn(look_up) {
            tracing::warn!(%error, "of no function it is known whether it can be probed");
        }
        Self {
            asked,
            answers,
            on_their_way: HashSet::new(),
            known: HashMap::new(),
        }
    }

    /// Has these looked up that are not known; with `is_last` it waits for the answers, for a moment.
    pub fn ask<'n>(&mut self, names: impl Iterator<Item = &'n str>, is_last: bool) {
        for name in names {
            let is_new = !self.known.contains_key(name) && !self.on_their_way.contains(name);
            if is_new && self.asked.send(name.to_owned()).is_ok() {
                self.on_their_way.insert(name.to_owned());
            }
        }
        let patience = if is_last { PATIENCE } else { Duration::ZERO };
        let until = Instant::now() + patience;
        while !self.on_their_way.is_empty() {
            let rest = until.saturating_duration_since(Instant::now());
            let Ok((name, can_be)) = self.answers.recv_timeout(rest) else {
                break;
            };
            self.on_their_way.remove(&name);
            self.known.insert(name, can_be);
        }
    }

    /// Whether it is known that a function can be probed.
    pub fn can_be(&self, name: &str) -> bool {
        self.known.get(name).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_looked_up_once() {
        let (looked_up, names) = mpsc::channel();
        let mut probed = Probed::new(Box::new(move |name| {
            looked_up.send(name.to_owned()).is_ok() && name == "f"
        }));
        probed.ask(["f", "g", "f"].into_iter(), true);
        probed.ask(["g"].into_iter(), true);
        assert!(probed.can_be("f") && !probed.can_be("g") && !probed.can_be("h"));
        drop(probed);
        assert_eq!(names.iter().collect::<Vec<_>>(), ["f", "g"]);
    }
}
