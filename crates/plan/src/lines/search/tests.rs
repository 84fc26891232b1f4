use std::{
    borrow::Cow,
    fs,
    process::Command,
    sync::{Arc, OnceLock},
};

use proptest::prelude::*;

use super::*;

/// What some units share, and what each has for itself.
const SHARED: &str = r"#pragma once
inline int doubled(int value) {
    int result = value * 2;

    if (result > 100)
        result -= 3;
    return result;
}

// Nothing is here.

template <int N> int added(int value) {
    int result = doubled(value);
    result += N;
    return result;
}
__attribute__((always_inline)) inline int mixed(int value) {
    value ^= value << 3;
    return value + 7;
}
";
const OTHER: &str = "#pragma once\nstatic int rare(int value) {\n    value += 5;\n\n    return value;\n}\n";

/// A program of several units: one header is in all, of which each has its own part; and two have one name.
fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        };
        put("lib/shared.h", SHARED);
        put("one/other.h", OTHER);
        put("two/other.h", &format!("\n\n\n{OTHER}"));
        let mut sources = Vec::new();
        for number in 0..6 {
            let (include, call) = match number {
                2 => ("#include \"one/other.h\"\n", "rare(value) + "),
                4 => ("#include \"two/other.h\"\n", "rare(value) + "),
                5 => ("#include <vector>\n", "(int)std::vector<int>(value).size() + "),
                _ => ("", ""),
            };
            let inlined = if number % 2 == 0 { "mixed(value)" } else { "value" };
            let text = format!(
                "#include \"lib/shared.h\"\n{include}int unit_{number}(int value) {{\n    return {call}added<{number}>({inlined});\n}}\n"
            );
            sources.push(format!("unit_{number}.cc"));
            put(&sources[number], &text);
        }
        put(
            "main.cc",
            "int unit_0(int), unit_2(int), unit_5(int);\nint main(int count, char **) {\n    return unit_0(count) + unit_2(count) + unit_5(count);\n}\n",
        );
        sources.push("main.cc".to_owned());
        let mut compiler = Command::new("g++");
        compiler
            .args(["-O0", "-g", "-I.", "-Wl,--gc-sections", "-ffunction-sections", "-o", "program"])
            .args(&sources)
            .current_dir(folder.path());
        assert!(compiler.status().unwrap().success());
        fs::read(folder.path().join("program")).unwrap()
    })
}

/// What is told of a line, without what nobody is told.
fn told(found: Result<(String, Found), LineError>) -> Result<(String, Found), LineError> {
    found.map(|(path, mut found)| {
        found.code.sort_by_key(|range| (range.start, range.end));
        // Units may say the same of one function.
        found.code.dedup();
        if !found.sites.is_empty() {
            (found.before, found.after) = (None, None);
        }
        found.lines = true;
        (path, found)
    })
}

/// Looks up lines with the outline and without; how many have places.
fn compare(module: &ModuleIndex, outline: &Outline, files: &[&str], lines: Range<u64>) -> usize {
    let mut with_places = 0;
    for file in files {
        for line in lines.clone() {
            let by_all = told(read_with(module, file, line, |_| None));
            let by_outline = told(read_with(module, file, line, |_| Some(outline.clone())));
            assert_eq!(by_outline, by_all, "{file}:{line}");
            with_places += usize::from(by_all.is_ok_and(|(_, found)| !found.sites.is_empty()));
        }
    }
    with_places
}

const FILES: [&str; 10] = [
    "shared.h",
    "lib/shared.h",
    "other.h",
    "one/other.h",
    "two/other.h",
    "unit_2.cc",
    "stl_vector.h",
    "bits/stl_vector.h",
    "missing.h",
    "lib/",
];

#[test]
fn an_outline_changes_no_answer() {
    let module = ModuleIndex::new(Arc::new(program().to_vec())).unwrap();
    let outline = module.outline(Part::Lines);
    for file in ["shared.h", "other.h", "stl_vector.h"] {
        assert!(outline.lines_of(file).is_some());
    }
    let with_places = compare(&module, &outline, &FILES, 0..60);
    assert!(with_places > 20, "{with_places}");
    compare(&module, &outline, &["stl_vector.h"], 60..2_200);
}

#[test]
fn few_units_are_read_for_a_header() {
    let module = ModuleIndex::new(Arc::new(program().to_vec())).unwrap();
    let in_table = module.outline(Part::Places).with_file("shared.h").unwrap();
    assert!(in_table.len() >= 6, "{in_table:?}");
    let outline = module.outline(Part::Lines);
    let units = outline.lines_of("shared.h").unwrap();
    // A function that all have the same of is kept once; nobody calls units 1, 3 and 4.
    assert_eq!(units.of_line(3).len(), 1);
    assert_eq!(units.of_line(18).len(), 2, "inlined");
    assert_eq!(units.of_line(13).len(), 3, "an instance of the template in each");
    assert!(units.of_line(4).is_empty());
    assert_eq!(units.of_paths().len(), 1);
    let other = outline.lines_of("other.h").unwrap();
    assert_eq!(other.of_paths().len(), 2);
}

#[test]
fn blocks_of_lines_stand_for_lines() {
    let module = ModuleIndex::new(Arc::new(program().to_vec())).unwrap();
    let elf = Elf::parse(program()).unwrap();
    let sections = dwarf_sections(&elf);
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    for bits in [0, 1, 4, 7, 40] {
        let outline = Outline::of_lines(&dwarf, program().len(), bits);
        let again = Outline::read(Arc::new(outline.bytes().to_vec()), Part::Lines).unwrap();
        assert!(again.lines_of("shared.h").is_some());
        let with_places = compare(&module, &again, &FILES, 0..40);
        assert!(with_places > 20, "{with_places}");
    }
}

#[test]
fn damaged_outlines_are_refused() {
    let whole = Outline::of_file(program(), Part::Lines).bytes().to_vec();
    let read = |bytes: Vec<u8>, part| Outline::read(Arc::new(bytes), part);
    assert!(read(whole.clone(), Part::Lines).is_some());
    assert!(read(whole.clone(), Part::Names).is_none());
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(read(damaged, Part::Lines).is_none(), "byte {at}");
    }
    for length in (0..whole.len()).step_by(97) {
        assert!(
            read(whole[..length].to_vec(), Part::Lines).is_none(),
            "{length} bytes"
        );
    }
}

/// Where a section lies in the file.
fn section(bytes: &[u8], name: &str) -> Range<usize> {
    let mut left = u64::MAX;
    let elf = Elf::parse(bytes).unwrap();
    let Some(Cow::Borrowed(section)) = elf.section(name, &mut left) else {
        panic!("no section {name}");
    };
    let start = section.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + section.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn of_damaged_line_tables_an_outline_changes_no_answer(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        is_of_files in any::<bool>(),
    ) {
        let mut bytes = program().to_vec();
        let section = section(&bytes, if is_of_files { ".debug_line_str" } else { ".debug_line" });
        for (at, value) in changes {
            bytes[section.start + at.index(section.len())] = value;
        }
        let module = ModuleIndex::new(Arc::new(bytes)).unwrap();
        let outline = module.outline(Part::Lines);
        compare(&module, &outline, &FILES[..7], 0..24);
    }
}
