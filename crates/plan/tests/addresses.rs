//! Where an address can be probed, against objdump.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{ops::Range, path::Path, process::Command};

use profiler_plan::{
    ModuleIndex,
    addresses::{self, AddressError},
    values::{DebugFile, DebugSections},
};

use support::{compile, disassemble, index, run};

fn find(module: &ModuleIndex, address: u64) -> Result<u64, AddressError> {
    let bytes = module.files().program();
    let sections = DebugSections::load(bytes, bytes).unwrap();
    addresses::find(module, &DebugFile::new(&sections), address).map(|site| site.address)
}

/// Every address of a range: where objdump has an instruction begin there is a site, elsewhere the nearest are told.
fn compare(module: &ModuleIndex, begins: &[u64], range: Range<u64>) {
    let mut sites = 0;
    for address in range {
        let at = begins.partition_point(|begin| *begin <= address);
        match find(module, address) {
            Ok(found) => {
                assert_eq!((found, begins[at - 1]), (address, address), "{address:#x}");
                sites += 1;
            }
            Err(AddressError::Inside { nearest, .. }) => {
                assert_eq!(nearest, [begins[at - 1], begins[at]], "{address:#x}");
            }
            Err(error) => panic!("{address:#x}: {error}"),
        }
    }
    assert!(sites > 10, "{sites}");
}

fn code_of(path: &Path, function: &str) -> (Vec<u64>, Range<u64>) {
    let module = index(path);
    let function = module.functions().find(|known| known.name() == function).unwrap();
    let range = function.address()..function.address() + function.size();
    (disassemble(path).into_keys().collect(), range)
}

#[test]
fn instructions_begin_where_they_do() {
    for flags in [
        &["-O0", "-g"][..],
        &["-O2"],
        &["-O2", "-fno-asynchronous-unwind-tables"],
    ] {
        let fixture = compile("gcc", "shapes.c", flags);
        let function = fixture
            .index
            .functions()
            .filter(|function| function.code().is_some())
            .max_by_key(profiler_plan::Function::size)
            .unwrap();
        let (begins, range) = code_of(&fixture.path, &function.name());
        compare(&fixture.index, &begins, range);
    }
}

#[test]
fn unwind_information_stands_in_for_symbols() {
    let fixture = compile("gcc", "shapes.c", &["-O2"]);
    let largest = fixture
        .index
        .functions()
        .max_by_key(profiler_plan::Function::size);
    let (begins, range) = code_of(&fixture.path, &largest.unwrap().name());
    let stripped = fixture.directory.path().join("stripped");
    run(Command::new("strip")
        .arg("-s")
        .arg("-o")
        .arg(&stripped)
        .arg(&fixture.path));
    let module = index(&stripped);
    assert!(module.function_at(range.start).is_none());
    compare(&module, &begins, range);
}

#[test]
fn refuses_addresses_outside_of_code() {
    let fixture = compile("gcc", "shapes.c", &["-O2"]);
    for address in [0, 0x10, u64::MAX, 1 << 47] {
        assert_eq!(find(&fixture.index, address), Err(AddressError::NotCode(address)));
    }
    // Code, but of nothing that is known.
    let bare = compile(
        "gcc",
        "shapes.c",
        &["-O2", "-fno-asynchronous-unwind-tables", "-Wl,--strip-all"],
    );
    let (_, range) = code_of(
        &compile("gcc", "shapes.c", &["-O2", "-fno-asynchronous-unwind-tables"]).path,
        "main",
    );
    let address = range.start;
    assert_eq!(find(&bare.index, address), Err(AddressError::NoFunction(address)));
}
