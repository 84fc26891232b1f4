//! Which thread something happened in.

/// A thread while it runs: the kernel gives its number to another one later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId {
    /// Its process: the kernel's thread group.
    pub tgid: u32,
    /// Its own number.
    pub tid: u32,
}
