//! What `tui` is asked for.

use profiler_proto::v1;

use super::{
    super::{args::TuiArgs, exit::Failure, print_list, request::Tui},
    session::{OWN_LEASE, create},
};
use crate::tui::lens::{BETWEEN_FRAMES, FrameId, Lens, Target};

pub(super) fn tui(args: TuiArgs) -> Result<Tui, Failure> {
    let target = match (args.session, args.target.pid, args.target.exe) {
        (Some(name), ..) => Some(Target::Session(name)),
        (None, Some(pid), _) => Some(Target::Pid(pid)),
        (None, None, Some(exe)) if !exe.is_empty() => Some(Target::Exe(exe)),
        (None, None, _) => None,
    };
    let frames = args.zoom.unwrap_or_default();
    let frames = frames.split(BETWEEN_FRAMES).filter(|name| !name.is_empty());
    let mut lens = Lens::on(target);
    lens.scope = args.scope.unwrap_or_default();
    lens.pane = args.pane;
    lens.sort = args.sort;
    lens.search = args.search.unwrap_or_default();
    lens.print = print_list::join(args.print)?;
    lens.zoom = frames.map(FrameId::named).collect();
    lens.source = args.source;
    let template = *create(
        v1::Target::default(),
        &args.making,
        None,
        args.frequency,
        OWN_LEASE,
    );
    Ok(Tui {
        lens,
        template,
        color: args.color,
    })
}
