//! Ends of a function that lie in others: where it ends in a jump to another function, that one returns to the caller in its
//! place, and the call lasts until it does.
//!
//! Whoever else calls that function comes to its returns too. What tells them apart is the stack pointer, which at the return
//! is that of the call's beginning. So it does not matter whether what a jump leads to is another function at all, or a piece
//! of this one that has lost its symbol and has nothing on the stack.

use std::collections::VecDeque;

use iced_x86::{FlowControl, Mnemonic};

use super::{
    body::Body,
    code::CodeError,
    exits::{ExitPoint, Exits, TailJump, Way, exits},
    frames::Frames,
    functions::ModuleIndex,
};

/// Functions whose ends are probed for another's.
const MAX_FOLLOWED: usize = 16;

/// Their ends.
const MAX_ENDS: usize = 64;

/// Whether the functions that one ends in jumps to are looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// They are, as far as they are in the same file and few.
    Yes,
    /// Each jump is an end.
    No,
}

/// What a function's jumps to others come to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TailCalls {
    /// The functions whose ends are its own as well.
    pub followed: Vec<String>,
    /// Those that are not looked into: its calls end where they are jumped to.
    pub cut: Vec<String>,
}

/// All ends of a function, in order of address, and which of them are elsewhere.
///
/// # Errors
/// Where an end would be missed or invented.
pub fn all_exits(
    module: &ModuleIndex,
    frames: &Frames<'_>,
    body: &Body,
    follow: Follow,
) -> Result<(Vec<ExitPoint>, TailCalls), CodeError> {
    // Where they jump to each other, each turn is a call, of which one has ended when the next begins.
    if follow == Follow::Yes
        && let Ok(Some(ends)) = ends(module, frames, body, follow)
    {
        return Ok(ends);
    }
    Ok(ends(module, frames, body, Follow::No)?.unwrap_or_default())
}

/// The same; `None` where a function that is followed jumps back to the beginning.
fn ends(
    module: &ModuleIndex,
    frames: &Frames<'_>,
    body: &Body,
    follow: Follow,
) -> Result<Option<(Vec<ExitPoint>, TailCalls)>, CodeError> {
    let Exits { points, jumps } = exits(body)?;
    let mut ends = Ends {
        points,
        calls: TailCalls::default(),
        bodies: Vec::new(),
        elsewhere: 0,
    };
    let mut next: VecDeque<(TailJump, bool)> = jumps.into_iter().map(|jump| (jump, false)).collect();
    while let Some((jump, is_elsewhere)) = next.pop_front() {
        if jump.target == body.start() {
            return Ok(None);
        }
        let is_known = |body: &Body| body.contains(jump.target);
        if is_known(body) || ends.bodies.iter().any(is_known) {
            continue;
        }
        let known = callee(module, frames, jump.target, follow);
        if let Some((callee, exits)) = known.filter(|(_, exits)| ends.has_room_for(exits)) {
            let Exits { points, jumps } = exits;
            ends.elsewhere += points.len();
            let is_elsewhere = |point| ExitPoint {
                is_elsewhere: true,
                ..point
            };
            ends.points.extend(points.into_iter().map(is_elsewhere));
            add(&mut ends.calls.followed, name(module, jump.target));
            ends.bodies.push(callee);
            next.extend(jumps.into_iter().map(|jump| (jump, true)));
        } else {
            add(&mut ends.calls.cut, name(module, jump.target));
            ends.points.push(ExitPoint {
                is_elsewhere,
                ..jump.as_end(body.start())?
            });
        }
    }
    if ends.points.iter().any(|point| point.way == Way::ByPointer) {
        add(&mut ends.calls.cut, "where a pointer leads".to_owned());
    }
    ends.points.sort_unstable_by_key(|exit| exit.address);
    ends.points.dedup_by_key(|exit| exit.address);
    Ok(Some((ends.points, ends.calls)))
}

struct Ends {
    points: Vec<ExitPoint>,
    calls: TailCalls,
    bodies: Vec<Body>,
    /// How many of the points are elsewhere.
    elsewhere: usize,
}

impl Ends {
    fn has_room_for(&self, exits: &Exits) -> bool {
        self.bodies.len() < MAX_FOLLOWED && self.elsewhere + exits.points.len() <= MAX_ENDS
    }
}

/// What a jump leads to, and its ends; `None` where that is not known: it is in another file, or its code cannot be trusted.
fn callee(module: &ModuleIndex, frames: &Frames<'_>, target: u64, follow: Follow) -> Option<(Body, Exits)> {
    if follow == Follow::No {
        return None;
    }
    let body = match module.function_at(target) {
        Some(function) if function.address() == target => Body::decode(module, frames, &function).ok()?,
        Some(_) => return None,
        None => Body::of_piece(module, frames, target).filter(|piece| !is_stub(piece))?,
    };
    let exits = exits(&body).ok()?;
    // Where it goes on by itself, that is its last end; where there is none at all, it does not return.
    let goes_on = exits.points.iter().any(|point| point.way.may_stay_inside());
    let returns = !exits.points.is_empty() || !exits.jumps.is_empty();
    (returns && !goes_on && !body.calls_itself()).then_some((body, exits))
}

/// Whether code does nothing but jump to where a pointer leads: the linkage to another file's function.
fn is_stub(body: &Body) -> bool {
    let mut instructions = body.hot().instructions().iter();
    let first = instructions.find(|instruction| instruction.mnemonic() != Mnemonic::Endbr64);
    first.is_some_and(|first| first.flow_control() == FlowControl::IndirectBranch)
}

fn add(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

fn name(module: &ModuleIndex, address: u64) -> String {
    match module.function_at(address) {
        Some(function) => function.name().into_owned(),
        None => module
            .symbol_name_at(address)
            .map_or_else(|| module.unnamed_name(address), std::borrow::Cow::into_owned),
    }
}
