use super::*;

fn line(number: u32, text: &str) -> v1::SourceLine {
    v1::SourceLine {
        line: number,
        text: text.into(),
        ..Default::default()
    }
}

fn branch(address: u64, to: u64, line: u32) -> v1::SourceBranch {
    v1::SourceBranch {
        address,
        mnemonic: "jle".into(),
        taken: Some(v1::SourcePosition {
            address: to,
            file: String::new(),
            line,
        }),
        otherwise: None,
        is_loop: to <= address,
    }
}

fn call(address: u64, callee: &str) -> v1::SourceCall {
    v1::SourceCall {
        address,
        return_address: address + 5,
        callee: callee.into(),
        ..Default::default()
    }
}

/// A function with one of everything.
fn sample() -> v1::SourceFunction {
    v1::SourceFunction {
        function: Some(v1::Function {
            name: "sum".into(),
            file: "/src/sum.c".into(),
            line: 3,
            module: "/bin/sum".into(),
            address: 0x1000,
            size: 64,
            ..Default::default()
        }),
        last_line: 6,
        marked_line: 5,
        has_text: true,
        lines: vec![
            v1::SourceLine {
                sites: vec![0x1000],
                variables: vec![0],
                ..line(3, "int sum(int *values) {")
            },
            line(4, "\t// \x1b[31mred"),
            v1::SourceLine {
                marked: true,
                sites: vec![0x1004, 0x1020],
                branches: vec![branch(0x1030, 0x1004, 5), branch(0x1008, 0x1032, 6)],
                calls: vec![
                    call(0x1010, "ns::read(int)"),
                    call(0x1018, "ns::read(int)"),
                    call(0x101c, ""),
                ],
                inlined: vec![v1::SourceInstance {
                    function: "clamp".into(),
                    ..Default::default()
                }],
                variables: vec![0],
                variables_in_part: vec![1],
                ..line(5, "    for (…) total += clamp(read());")
            },
            v1::SourceLine {
                sites: vec![0x1032],
                variables: vec![0],
                ..line(6, "}")
            },
        ],
        variables: vec![
            v1::SourceVariable {
                name: "values".into(),
                r#type: "int *".into(),
                parameter: true,
                ranges: vec![v1::AddressRange::default()],
                ..Default::default()
            },
            v1::SourceVariable {
                name: "total".into(),
                r#type: "int".into(),
                ranges: vec![v1::AddressRange::default()],
                ..Default::default()
            },
            v1::SourceVariable {
                name: "gone".into(),
                r#type: "int".into(),
                ..Default::default()
            },
            v1::SourceVariable {
                name: "inner".into(),
                inlined_from: "clamp".into(),
                ..Default::default()
            },
        ],
        ..Default::default()
    }
}

fn shown(source: &v1::SourceFunction, width: Option<usize>) -> Vec<String> {
    let mut marks = Marks::default();
    let lines = function(source, width, &mut marks);
    let legend = legend(marks, width);
    lines.iter().chain(&legend).map(Line::text).collect()
}

#[test]
fn a_line_says_in_short_what_is_there() {
    assert_eq!(
        shown(&sample(), None),
        [
            "sum  /src/sum.c:3–6",
            "  /bin/sum+0x1000, 64 bytes",
            "    3 ●    int sum(int *values) {",
            "    4          // \\u{1b}[31mred",
            "▶   5 2↺→+     for (…) total += clamp(read());  ↺5 ?6 →ns::read×2 →* +clamp",
            "    6 ●    }",
            "  variables, and the lines at which they can be read",
            "    values  int *  3–6",
            "    total   int    5",
            "    gone    int    optimised out",
            "    1 more of what is inlined (--json has them)",
            "",
            "  ● begins here (2…9, *: in so many places)   ? branch, to the line it takes   ↺ loop, back to",
            "  → call (→* indirect)   + inlined",
        ]
    );
}

#[test]
fn the_line_that_was_asked_for_may_be_of_another_file() {
    let mut source = sample();
    source.lines[2].marked = false;
    let other = |line| v1::SourceLine {
        file: "/src/sum.inc".into(),
        line,
        sites: vec![0x1028],
        ..Default::default()
    };
    source.lines.extend((1..30).map(other));
    source.lines.push(v1::SourceLine {
        marked: true,
        ..other(40)
    });
    let shown = shown(&source, None);
    let marked: Vec<&String> = shown.iter().filter(|line| line.starts_with('▶')).collect();
    assert_eq!(marked, ["▶  ●    sum.inc:40"]);
    assert!(
        shown.contains(&"  9 more lines of other files".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn lines_fit_the_terminal() {
    for width in [20, 30, 40, 60, 80] {
        let mut marks = Marks::default();
        let lines = function(&sample(), Some(width), &mut marks);
        for line in lines
            .iter()
            .filter(|line| line.text().contains('●') || line.text().contains('↺'))
        {
            assert!(line.width() <= width, "{width}: {}", line.text());
        }
    }
}

#[test]
fn without_lines_code_is_shown_by_address() {
    let mut source = sample();
    source.lines = vec![v1::SourceLine {
        branches: vec![branch(0x1030, 0x1004, 0)],
        calls: vec![call(0x1010, "read")],
        ..Default::default()
    }];
    source.missing = vec!["no debug information".into()];
    let shown = shown(&source, None);
    assert!(shown.contains(&"     +0x10  → read".to_owned()), "{shown:?}");
    assert!(shown.contains(&"     +0x30  ↺ jle +0x4".to_owned()), "{shown:?}");
    assert!(
        shown.contains(&"  ! no debug information".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn spans_are_not_interrupted_by_lines_without_code() {
    assert_eq!(spans(&[3, 5, 6, 9], &[3, 5, 6, 8, 9]), "3–6, 9");
    assert_eq!(spans(&[], &[1]), "");
}
