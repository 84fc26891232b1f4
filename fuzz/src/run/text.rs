//! Text that others write: perf maps, lists of mappings, scopes, mangled names.

use profiler_plan::demangle::{demangle, display_name, split_clone, with_hash, without_version};
use profiler_scope::parse;
use profiler_symbolize::CompiledSymbols;
use profiler_target::{Mapping, modules};

use super::input::Input;

/// What a perf map may take beyond its limit: the entries that are never forgotten, with the longest names, and the
/// beginning of a line.
const SLACK: usize = 96 << 10;

/// A perf map as it grows. A byte says how much is kept; each NUL ends what is there at a time, and where nothing
/// was added, the file was written anew.
///
/// # Panics
/// Where it takes more memory than it may.
pub fn perf_map(data: &[u8]) {
    let mut input = Input(data);
    let limit = 0x100 << (input.byte() % 16);
    let mut map = CompiledSymbols::with_limit(limit);
    for piece in input.0.split(|&byte| byte == 0) {
        if piece.is_empty() {
            map = CompiledSymbols::with_limit(limit);
        }
        map.append(piece);
        assert!(map.bytes() <= limit + SLACK, "{} bytes", map.bytes());
        for line in piece.split(|&byte| byte == b'\n').take(16) {
            let digits = line.split(|&byte| byte == b' ').next().unwrap_or_default();
            let start = std::str::from_utf8(digits)
                .ok()
                .and_then(|text| u64::from_str_radix(text, 16).ok());
            for address in start
                .into_iter()
                .flat_map(|start| [start, start.wrapping_sub(1), start | 0xff])
            {
                if let Some(frame) = map.resolve(address) {
                    assert!(!frame.function.is_empty());
                }
            }
        }
    }
}

/// `/proc/PID/maps`.
///
/// # Panics
/// Where a place of a file is at an address that is another's.
pub fn maps(data: &[u8]) {
    let lines = data.split(|&byte| byte == b'\n');
    let mappings: Vec<Mapping> = lines.filter_map(|line| Mapping::parse(line).ok()).collect();
    for mapping in &mappings {
        for address in [mapping.start, mapping.end - 1, mapping.end, 0] {
            let Some(offset) = mapping.offset_of(address) else {
                continue;
            };
            assert_eq!(mapping.address_of(offset), Some(address));
        }
    }
    for module in modules(&mappings) {
        assert!(!module.mappings.is_empty());
        let _ = module.name();
        let _ = module.addresses_of(0x1000).count();
    }
}

/// A scope's text: what is read is written so that it reads the same.
///
/// # Panics
/// Where it does not.
pub fn scope(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(scope) = parse(text) {
        let canonical = scope.to_string();
        assert_eq!(parse(&canonical).as_ref(), Ok(&scope), "{canonical}");
        assert_eq!(scope.to_string(), canonical);
    }
}

/// A name of a symbol.
pub fn name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let plain = without_version(&text);
    let _ = (
        split_clone(plain),
        display_name(plain),
        with_hash(plain),
        demangle(plain, false),
    );
}
