//! How much of the tables the processes of one user may use.
//!
//! The tables are few, and what files have in them is up to who made the files. Root's processes may use all. One user leaves
//! room to the others, and all users together leave some to root.

use std::collections::HashMap;

use super::store::{Limits, Part, Refused};

/// Root, who may use all.
pub const ROOT: u32 = 0;

/// The part of a table that one user may use.
#[must_use]
pub const fn of_user(size: u32) -> u32 {
    size.div_ceil(4)
}

/// The part of a table that all users but root may use together.
#[must_use]
pub const fn of_users(size: u32) -> u32 {
    size - size / 4
}

/// What of a table a user may be given a place in: root has what is behind it to itself, in one piece.
#[must_use]
pub const fn reach(user: u32, size: u32) -> u32 {
    if user == ROOT { size } else { of_users(size) }
}

/// What a module takes beside rules.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Size {
    /// Pages of text.
    pub pages: u32,
    /// Rows.
    pub rows: u32,
}

/// What some modules take.
#[derive(Clone, Default, Debug)]
struct Used {
    modules: u32,
    pages: u32,
    rows: u32,
    /// How many of the modules have each rule.
    rules: HashMap<u16, u32>,
}

impl Used {
    /// The part of which there would be more than `most` with another module; `None` in the place of a rule that is new.
    fn exceeded(&self, size: Size, rules: &[Option<u16>], most: Most) -> Option<Part> {
        let is_new = |rule: &&Option<u16>| rule.is_none_or(|rule| !self.rules.contains_key(&rule));
        let rules = self.rules.len() + rules.iter().filter(is_new).count();
        [
            (Part::Files, self.modules.saturating_add(1), most.modules),
            (Part::Pages, self.pages.saturating_add(size.pages), most.pages),
            (Part::Rows, self.rows.saturating_add(size.rows), most.rows),
            (Part::Rules, u32::try_from(rules).unwrap_or(u32::MAX), most.rules),
        ]
        .into_iter()
        .find_map(|(part, used, most)| (used > most).then_some(part))
    }

    fn add(&mut self, size: Size, rules: &[u16]) {
        self.modules += 1;
        self.pages = self.pages.saturating_add(size.pages);
        self.rows = self.rows.saturating_add(size.rows);
        for rule in rules {
            *self.rules.entry(*rule).or_default() += 1;
        }
    }

    fn remove(&mut self, size: Size, rules: &[u16]) {
        self.modules = self.modules.saturating_sub(1);
        self.pages = self.pages.saturating_sub(size.pages);
        self.rows = self.rows.saturating_sub(size.rows);
        for rule in rules {
            if let Some(modules) = self.rules.get_mut(rule) {
                *modules -= 1;
                if *modules == 0 {
                    self.rules.remove(rule);
                }
            }
        }
    }
}

/// The most that may be used of each part.
#[derive(Clone, Copy, Debug)]
struct Most {
    modules: u32,
    pages: u32,
    rows: u32,
    rules: u32,
}

/// What the processes of each user use.
#[derive(Debug)]
pub struct Shares {
    of_user: Most,
    of_users: Most,
    users: HashMap<u32, Used>,
    all_users: Used,
}

impl Shares {
    /// Of tables of these sizes, of which nothing is used.
    pub fn new(limits: Limits) -> Self {
        let most = |part: fn(u32) -> u32| Most {
            modules: part(limits.modules),
            pages: part(limits.pages),
            rows: part(limits.rows()),
            rules: part(limits.rules),
        };
        Self {
            of_user: most(of_user),
            of_users: most(of_users),
            users: HashMap::new(),
            all_users: Used::default(),
        }
    }

    /// Whether a module may be used by processes of a user that use it not yet; `is_users`: those of another user but root do.
    ///
    /// # Errors
    /// Where that would be more than the share of the user, or of all.
    pub fn admit(&self, user: u32, is_users: bool, size: Size, rules: &[Option<u16>]) -> Result<(), Refused> {
        if user == ROOT {
            return Ok(());
        }
        let nothing = Used::default();
        let own = self.users.get(&user).unwrap_or(&nothing);
        if let Some(part) = own.exceeded(size, rules, self.of_user) {
            return Err(Refused::OfUser { user, part });
        }
        if !is_users && let Some(part) = self.all_users.exceeded(size, rules, self.of_users) {
            return Err(Refused::OfUsers(part));
        }
        Ok(())
    }

    /// Processes of a user use a module from now on.
    pub fn add(&mut self, user: u32, is_users: bool, size: Size, rules: &[u16]) {
        if user == ROOT {
            return;
        }
        self.users.entry(user).or_default().add(size, rules);
        if !is_users {
            self.all_users.add(size, rules);
        }
    }

    /// Those of a user use a module no more; `is_users`: those of another user but root do.
    pub fn remove(&mut self, user: u32, is_users: bool, size: Size, rules: &[u16]) {
        if user == ROOT {
            return;
        }
        if let Some(used) = self.users.get_mut(&user) {
            used.remove(size, rules);
            if used.modules == 0 {
                self.users.remove(&user);
            }
        }
        if !is_users {
            self.all_users.remove(size, rules);
        }
    }
}
