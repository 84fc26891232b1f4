//! How much of the table of frames each user's processes take: they choose how many functions they have and how long the names of these
//! are, and the table is one for all.

use std::{collections::HashMap, ops::Add};

use super::frame::FRAMES_MAX;

/// Most bytes of text that frames may have, their modules' names apart. Names in C++ can be long: a million of them take this with 256
/// bytes each.
const TEXT_MAX: usize = 256 << 20;

/// What frames take.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    frames: usize,
    text_bytes: usize,
}

impl Add for Size {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            frames: self.frames + more.frames,
            text_bytes: self.text_bytes + more.text_bytes,
        }
    }
}

impl Size {
    /// What is left of the table where others take this.
    fn leaves(self) -> Self {
        Self {
            frames: FRAMES_MAX.saturating_sub(self.frames),
            text_bytes: TEXT_MAX.saturating_sub(self.text_bytes),
        }
    }

    fn less(self, part: Self) -> Self {
        Self {
            frames: self.frames.saturating_sub(part.frames),
            text_bytes: self.text_bytes.saturating_sub(part.text_bytes),
        }
    }

    /// Whether one part in so many of `room` is as large.
    fn fits(self, room: Self, part: usize) -> bool {
        self.frames <= room.frames / part && self.text_bytes <= room.text_bytes / part
    }
}

/// What is in the table, and for whom.
#[derive(Debug, Default)]
pub(super) struct Shares {
    all: Size,
    /// By user, of those who have a share.
    users: HashMap<u32, Size>,
    /// Whose processes frames are made for now.
    user: Option<u32>,
    refused: u64,
}

impl Shares {
    /// Frames are made from now on for a process of this user's; of `None`, who may fill the table.
    pub fn turn_to(&mut self, user: Option<u32>) {
        self.user = user;
    }

    /// Takes room for one frame more; whether there is any. A user has half of what the others leave.
    pub fn take(&mut self, text_bytes: usize) -> bool {
        let more = Size {
            frames: 1,
            text_bytes,
        };
        let all = self.all + more;
        let own = self.user.map(|user| {
            let own = self.users.get(&user).copied().unwrap_or_default();
            (user, own + more, self.all.less(own).leaves())
        });
        let has_room =
            all.fits(Size::default().leaves(), 1) && own.is_none_or(|(_, own, left)| own.fits(left, 2));
        if !has_room {
            self.refused += 1;
            return false;
        }
        self.all = all;
        if let Some((user, own, _)) = own {
            self.users.insert(user, own);
        }
        true
    }

    /// How often there was none: what was made in between may have another frame's number.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many frames of so many bytes a user's processes have room for.
    fn taken(shares: &mut Shares, user: Option<u32>, text_bytes: usize) -> usize {
        shares.turn_to(user);
        (0..u32::MAX).take_while(|_| shares.take(text_bytes)).count()
    }

    #[test]
    fn a_user_has_half_of_what_the_others_leave_and_root_all() {
        let mut shares = Shares::default();
        assert_eq!(taken(&mut shares, Some(1), 1), FRAMES_MAX / 2);
        assert_eq!(taken(&mut shares, Some(2), 1), FRAMES_MAX / 4);
        assert_eq!(taken(&mut shares, Some(1), 1), 0);
        assert_eq!(taken(&mut shares, Some(3), 1), FRAMES_MAX / 8);
        let before = shares.refused();
        assert_eq!(taken(&mut shares, None, 1), FRAMES_MAX / 8);
        assert_eq!(shares.refused(), before + 1);
        assert_eq!(taken(&mut shares, Some(4), 1), 0);
    }

    #[test]
    fn long_names_take_no_more_than_a_share_of_the_text() {
        let mut shares = Shares::default();
        assert_eq!(taken(&mut shares, Some(1), 1 << 20), (TEXT_MAX >> 20) / 2);
        assert_eq!(taken(&mut shares, None, 1 << 20), (TEXT_MAX >> 20) / 2);
    }
}
