//! A function's source on its way to the wire.

use std::{collections::BTreeMap, ops::Range};

use profiler_debug_files::SourceText;
use profiler_plan::source::{
    Branch, Call, CallKind, FunctionSource, Instance, Line, MAX_LINES, Position, Variable,
};
use profiler_proto::v1;

use crate::session::{CountKind, Counted, SourceView};

/// Text of source files in the messages of one request, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// A message with one function, and what was counted in it. Of the source file's text no more goes into it than is left,
/// which is then less.
pub fn function(view: SourceView, counted: &[Counted], text_left: &mut usize) -> v1::SourceFunction {
    let SourceView {
        module,
        source,
        text,
        marked,
        warnings,
    } = view;
    let FunctionSource {
        name,
        linkage_name,
        address,
        size,
        ranges: code,
        file,
        line,
        last_line,
        md5: _,
        instances,
        lines,
        variables,
        missing,
    } = source;
    let of_lines: CodeOfLines = lines
        .iter()
        .map(|line| ((line.file.clone(), line.line), line.code.clone()))
        .collect();
    let mut lines = with_text(lines, text.as_deref(), (line, last_line), text_left);
    if let Some(marked) = &marked {
        for line in &mut lines {
            let own = if line.file.is_empty() { &file } else { &line.file };
            line.marked = line.line == marked.line && *own == marked.file;
        }
    }
    let counted = counted.iter().filter(|counted| counted.module == module);
    counted.for_each(|counted| count(&mut lines, &of_lines, counted, (address, line)));
    let inlined = u32::try_from(instances.len()).unwrap_or(u32::MAX);
    v1::SourceFunction {
        function: Some(v1::Function {
            name,
            linkage_name,
            file,
            line,
            module,
            address,
            size,
            inlined,
            ..v1::Function::default()
        }),
        ranges: ranges(&code),
        instances: instances.into_iter().map(instance).collect(),
        last_line,
        marked_line: marked.map_or(0, |marked| marked.line),
        has_text: text.is_some(),
        lines,
        variables: variables.into_iter().map(variable).collect(),
        missing,
        warnings,
    }
}

/// The code of each line, by its file and number.
type CodeOfLines = Vec<((String, u32), Vec<Range<u64>>)>;

/// Adds what was counted to the line that it was counted at; of the function's calls to that of its beginning.
fn count(lines: &mut [v1::SourceLine], code: &CodeOfLines, counted: &Counted, (function, first): (u64, u32)) {
    let address = counted.address;
    let is_at = |line: &v1::SourceLine| match counted.kind {
        CountKind::Reached => line.sites.contains(&address),
        CountKind::Taken | CountKind::Else => line.branches.iter().any(|branch| branch.address == address),
        CountKind::Calls if address == function => line.file.is_empty() && line.line == first,
        CountKind::Calls => line.calls.iter().any(|call| call.address == address),
    };
    let at = lines.iter().position(is_at).or_else(|| {
        // An address need not be one at which a line begins.
        let holds = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&address));
        let mut holders = code.iter().filter(|(_, ranges)| holds(ranges));
        let ((file, number), _) = holders.next().filter(|_| counted.kind == CountKind::Reached)?;
        lines
            .iter()
            .position(|line| line.file == *file && line.line == *number)
    });
    let Some(line) = at.and_then(|at| lines.get_mut(at)) else {
        return;
    };
    let kind = match counted.kind {
        CountKind::Reached => v1::SourceCountKind::Reached,
        CountKind::Taken => v1::SourceCountKind::Taken,
        CountKind::Else => v1::SourceCountKind::Else,
        CountKind::Calls => v1::SourceCountKind::Calls,
    };
    // A line's places are one step's.
    let known = line
        .counts
        .iter_mut()
        .find(|known| known.session == counted.session && known.step == counted.step);
    match known {
        Some(known) => known.count += counted.count,
        None => line.counts.push(v1::SourceCount {
            session: counted.session.clone(),
            step: counted.step.clone(),
            kind: kind.into(),
            count: counted.count,
        }),
    }
}

/// The lines that have something, and where there is a text, those between.
fn with_text(
    known: Vec<Line>,
    text: Option<&SourceText>,
    (first, last): (u32, u32),
    text_left: &mut usize,
) -> Vec<v1::SourceLine> {
    let (own, others): (Vec<Line>, Vec<Line>) = known
        .into_iter()
        .partition(|line| line.file.is_empty() && line.line != 0);
    let Some(text) = text else {
        return own.into_iter().chain(others).map(self::line).collect();
    };
    let mut lines: BTreeMap<u32, v1::SourceLine> = (first.max(1)..=last.min(first.saturating_add(MAX_LINES)))
        .map(|number| {
            let line = v1::SourceLine {
                line: number,
                ..Default::default()
            };
            (number, line)
        })
        .collect();
    lines.extend(own.into_iter().map(|line| (line.line, self::line(line))));
    for (number, line) in &mut lines {
        let text = text.line(*number).unwrap_or_default();
        line.text = match text_left.checked_sub(text.len()) {
            Some(left) => {
                *text_left = left;
                text
            }
            None => "…".to_owned(),
        };
    }
    lines
        .into_values()
        .chain(others.into_iter().map(self::line))
        .collect()
}

fn line(line: Line) -> v1::SourceLine {
    let Line {
        file,
        line,
        sites,
        code: _,
        branches,
        calls,
        cases: _,
        inlined,
        variables,
    } = line;
    let numbers = |everywhere: bool| {
        let chosen = variables
            .iter()
            .filter(|readable| readable.everywhere == everywhere);
        chosen
            .map(|readable| u32::try_from(readable.variable).unwrap_or(u32::MAX))
            .collect()
    };
    v1::SourceLine {
        file,
        line,
        text: String::new(),
        sites,
        branches: branches.into_iter().map(branch).collect(),
        calls: calls.into_iter().map(call).collect(),
        inlined: inlined.into_iter().map(instance).collect(),
        variables: numbers(true),
        variables_in_part: numbers(false),
        marked: false,
        counts: Vec::new(),
    }
}

fn ranges(ranges: &[Range<u64>]) -> Vec<v1::AddressRange> {
    ranges
        .iter()
        .map(|range| v1::AddressRange {
            begin: range.start,
            end: range.end,
        })
        .collect()
}

fn position(position: Position) -> v1::SourcePosition {
    let Position { address, file, line } = position;
    v1::SourcePosition { address, file, line }
}

fn branch(branch: Branch) -> v1::SourceBranch {
    let Branch {
        address,
        mnemonic,
        taken,
        otherwise,
        is_loop,
    } = branch;
    v1::SourceBranch {
        address,
        mnemonic,
        taken: Some(position(taken)),
        otherwise: otherwise.map(position),
        is_loop,
    }
}

fn call(call: Call) -> v1::SourceCall {
    let kind = match call.kind {
        CallKind::Direct => v1::CallKind::Direct,
        CallKind::Linkage => v1::CallKind::Plt,
        CallKind::Indirect => v1::CallKind::Indirect,
    };
    v1::SourceCall {
        address: call.address,
        return_address: call.return_address.unwrap_or(0),
        callee: call.callee,
        callee_address: call.callee_address.unwrap_or(0),
        kind: kind.into(),
    }
}

fn instance(instance: Instance) -> v1::SourceInstance {
    let Instance {
        name,
        call_file,
        call_line,
        ranges: code,
    } = instance;
    v1::SourceInstance {
        function: name,
        call_file,
        call_line,
        ranges: ranges(&code),
    }
}

fn variable(variable: Variable) -> v1::SourceVariable {
    let Variable {
        name,
        type_name,
        parameter,
        line,
        inlined_from,
        ranges: code,
    } = variable;
    v1::SourceVariable {
        name,
        r#type: type_name,
        parameter,
        line,
        inlined_from: inlined_from.unwrap_or_default(),
        ranges: ranges(&code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::MarkedLine;

    #[test]
    fn an_address_within_a_line_counts_at_it() {
        let line = |line, code: &[Range<u64>]| Line {
            line,
            sites: vec![code[0].start],
            code: code.to_vec(),
            ..Line::default()
        };
        let view = SourceView {
            module: "/bin/a".to_owned(),
            source: FunctionSource {
                address: 0x10,
                line: 10,
                last_line: 12,
                lines: vec![
                    line(11, &[0x10..0x18, 0x20..0x24]),
                    line(12, std::slice::from_ref(&(0x18..0x20))),
                ],
                ..FunctionSource::default()
            },
            text: None,
            marked: None,
            warnings: Vec::new(),
        };
        let counted = |address| Counted {
            session: "s".to_owned(),
            step: format!("a+{address:#x}"),
            kind: CountKind::Reached,
            module: "/bin/a".to_owned(),
            address,
            count: 7,
        };
        let all = [
            counted(0x14),
            counted(0x1c),
            counted(0x22),
            counted(0x24),
            counted(0x10),
        ];
        let lines = function(view, &all, &mut 0).lines;
        let steps = |line: &v1::SourceLine| -> Vec<String> {
            line.counts.iter().map(|count| count.step.clone()).collect()
        };
        assert_eq!(steps(&lines[0]), ["a+0x14", "a+0x22", "a+0x10"]);
        assert_eq!(steps(&lines[1]), ["a+0x1c"]);
    }

    #[test]
    fn a_line_is_marked_by_its_file_too() {
        let line = |file: &str, line| Line {
            file: file.to_owned(),
            line,
            ..Line::default()
        };
        let marked_of = |file: &str| {
            let view = SourceView {
                module: "/bin/a".to_owned(),
                source: FunctionSource {
                    file: "/src/a.c".to_owned(),
                    line: 10,
                    last_line: 20,
                    lines: vec![line("", 13), line("/src/a.inc", 13), line("", 0)],
                    ..FunctionSource::default()
                },
                text: None,
                marked: Some(MarkedLine {
                    file: file.to_owned(),
                    line: 13,
                }),
                warnings: Vec::new(),
            };
            let lines = function(view, &[], &mut 0).lines;
            lines.iter().map(|line| line.marked).collect::<Vec<_>>()
        };
        assert_eq!(marked_of("/src/a.c"), [true, false, false]);
        assert_eq!(marked_of("/src/a.inc"), [false, true, false]);
    }
}
