//! Instructions and the lines that objdump shows them with.

use super::run;
use std::{collections::BTreeMap, path::Path, process::Command};

/// One instruction.
pub struct Listed {
    pub mnemonic: String,
    pub operands: String,
    /// The path of the source file; empty where there is none.
    pub file: String,
    pub line: u64,
    /// The symbol that it is in.
    pub symbol: String,
}

/// The instructions of every symbol, by address.
pub fn listing(path: &Path) -> BTreeMap<u64, Listed> {
    let text = run(Command::new("objdump")
        .args(["-d", "-l", "-w", "-M", "intel", "--no-show-raw-insn"])
        .arg(path));
    let mut listed = BTreeMap::new();
    let (mut file, mut line, mut symbol) = (String::new(), 0, String::new());
    for text in text.lines() {
        if let Some(name) = text.strip_suffix(">:") {
            name.split_once('<').unwrap().1.clone_into(&mut symbol);
            (file, line) = (String::new(), 0);
            continue;
        }
        if !text.starts_with(' ') {
            // `/a/b.c:12` or `/a/b.c:12 (discriminator 3)`.
            let place = text.split(" (discriminator").next().unwrap();
            if let Some((path, number)) = place.rsplit_once(':')
                && let Ok(number) = number.parse()
            {
                (file, line) = (path.to_owned(), number);
            }
            continue;
        }
        let Some((address, rest)) = text.trim_start().split_once(":\t") else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        let mut words = rest.split_whitespace().skip_while(|word| {
            matches!(
                *word,
                "notrack" | "bnd" | "repz" | "rep" | "lock" | "cs" | "data16" | "rex.W"
            )
        });
        let listed_now = Listed {
            mnemonic: words.next().unwrap_or_default().to_owned(),
            operands: words.collect::<Vec<_>>().join(" "),
            file: file.clone(),
            line,
            symbol: symbol.clone(),
        };
        listed.insert(address, listed_now);
    }
    listed
}

/// What the loader writes, by readelf: the name of a symbol, or an address of the file.
pub fn slots(path: &Path) -> BTreeMap<u64, Result<String, u64>> {
    let text = run(Command::new("readelf").args(["-rW"]).arg(path));
    let mut slots = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(Ok(address)), Some(kind)) = (
            words.first().map(|word| u64::from_str_radix(word, 16)),
            words.get(2),
        ) else {
            continue;
        };
        match (*kind, words.get(4), words.get(3)) {
            ("R_X86_64_RELATIVE", _, Some(addend)) => {
                let _ = u64::from_str_radix(addend, 16).map(|at| slots.insert(address, Err(at)));
            }
            ("R_X86_64_JUMP_SLOT" | "R_X86_64_GLOB_DAT", Some(name), _) => {
                let name = name.split('@').next().unwrap();
                slots.insert(address, Ok(name.to_owned()));
            }
            _ => {}
        }
    }
    slots
}

/// By address, where code begins that readelf shows to be of no line.
fn without_line(path: &Path) -> BTreeMap<u64, bool> {
    let text = run(Command::new("readelf").arg("--debug-dump=decodedline").arg(path));
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        // `calls.rs  32  0x157a1  x`; at the end of a sequence `-` is the line.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, line, address, ..] = *words else { continue };
        let address = address
            .strip_prefix("0x")
            .and_then(|address| u64::from_str_radix(address, 16).ok());
        if let Some(address) = address {
            rows.insert(address, line == "0");
        }
    }
    rows
}

/// Takes out what is of no line: objdump shows it with the line before. How many.
pub fn drop_without_line<T>(path: &Path, theirs: &mut BTreeMap<u64, T>, ours: impl Fn(u64) -> bool) -> usize {
    if theirs.keys().all(|&address| ours(address)) {
        return 0;
    }
    let rows = without_line(path);
    let count = theirs.len();
    theirs.retain(|address, _| {
        let row = rows.range(..=address).next_back();
        ours(*address) || !row.is_some_and(|(_, without_line)| *without_line)
    });
    count - theirs.len()
}
