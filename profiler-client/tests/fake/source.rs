//! A function's source as the daemon sends it.

use profiler_proto::v1;

use super::views::function;

/// One line with a call and a branch, one without anything, one hostile.
pub fn source() -> v1::SourceFunction {
    let line = |line, text: &str| v1::SourceLine {
        line,
        text: text.into(),
        ..Default::default()
    };
    let position = |address, line| {
        Some(v1::SourcePosition {
            address,
            file: String::new(),
            line,
        })
    };
    v1::SourceFunction {
        function: Some(function("handle", 12)),
        ranges: vec![v1::AddressRange {
            begin: 4108,
            end: 4208,
        }],
        last_line: 14,
        marked_line: 13,
        has_text: true,
        lines: vec![
            v1::SourceLine {
                sites: vec![4108],
                ..line(12, "int handle(int fd) {")
            },
            v1::SourceLine {
                marked: true,
                counts: vec![v1::SourceCount {
                    session: "web".into(),
                    step: "server.cc:13!else".into(),
                    kind: v1::SourceCountKind::Else.into(),
                    count: 1234,
                }],
                sites: vec![4112],
                branches: vec![v1::SourceBranch {
                    address: 4124,
                    mnemonic: "jle".into(),
                    taken: position(4130, 14),
                    otherwise: position(4126, 13),
                    is_loop: false,
                }],
                calls: vec![v1::SourceCall {
                    address: 4116,
                    return_address: 4121,
                    callee: "read".into(),
                    callee_address: 0,
                    kind: v1::CallKind::Plt.into(),
                }],
                variables: vec![0],
                ..line(13, "  return read(fd) > 0; // \x1b[31m")
            },
            line(14, "}"),
        ],
        variables: vec![v1::SourceVariable {
            name: "fd".into(),
            r#type: "int".into(),
            parameter: true,
            line: 12,
            ranges: vec![v1::AddressRange {
                begin: 4108,
                end: 4120,
            }],
            ..Default::default()
        }],
        warnings: vec!["src/server.cc is newer than the program".into()],
        ..Default::default()
    }
}
