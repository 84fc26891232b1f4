//! How many connections and streams there may be, by user. Root's are not counted: whatever others do, root gets in.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of one user.
    pub of_a_user: usize,
    /// Of all users but root.
    pub of_all: usize,
}

/// How many there are, by user.
#[derive(Debug, Default)]
struct Users {
    counts: HashMap<u32, usize>,
    all: usize,
}

/// Who has how many. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Places {
    limits: Limits,
    users: Arc<Mutex<Users>>,
}

impl Places {
    /// All are free.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            users: Arc::default(),
        }
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        // Nothing that is done with it can panic half-way.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a user; none where they, or all together, have as many as may be.
    pub fn take(&self, uid: u32) -> Option<Place> {
        if uid != 0 {
            let mut users = self.users();
            let count = users.counts.get(&uid).copied().unwrap_or(0);
            if count >= self.limits.of_a_user || users.all >= self.limits.of_all {
                return None;
            }
            users.counts.insert(uid, count + 1);
            users.all += 1;
        }
        Some(Place {
            uid,
            places: self.clone(),
        })
    }
}

/// A place that is taken, free again when this goes.
#[derive(Debug)]
pub struct Place {
    uid: u32,
    places: Places,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.uid == 0 {
            return;
        }
        let mut users = self.places.users();
        users.all = users.all.saturating_sub(1);
        if let Some(count) = users.counts.get_mut(&self.uid) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                users.counts.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        of_a_user: 2,
        of_all: 3,
    };

    #[test]
    fn a_user_has_so_many_places_and_all_together_so_many() {
        let places = Places::new(LIMITS);
        let first = places.take(1000).unwrap();
        let _second = places.take(1000).unwrap();
        assert!(places.take(1000).is_none());
        let _other = places.take(1001).unwrap();
        assert!(places.take(1002).is_none(), "all together have three");
        assert!((0..100).all(|_| places.take(0).is_some()), "root always gets in");
        drop(first);
        let again = places.take(1002);
        assert!(again.is_some() && places.take(1000).is_none());
    }

    #[test]
    fn who_is_gone_leaves_nothing_behind() {
        let places = Places::new(LIMITS);
        drop(places.take(7));
        let users = places.users();
        assert!(users.counts.is_empty() && users.all == 0);
    }
}
