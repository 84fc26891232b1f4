//! The kernel's own symbols, from `/proc/kallsyms`.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    sync::Arc,
};

use super::{
    frame::{Frame, FrameId, Frames},
    reason::Reason,
};

/// What stands for kernel code whose function is not known.
const KERNEL: &str = "[kernel]";
/// Most symbols that are kept.
const SYMBOLS_MAX: usize = 1 << 20;
/// Most bytes of names that are kept.
const NAMES_MAX: usize = 64 << 20;
/// How far the last symbol, or one before a gap, can reach: kallsyms gives no sizes.
const REACH_MAX: u64 = 1 << 20;

struct Symbol {
    address: u64,
    name: (u32, u16),
    /// Index of the module's name; 0 is the kernel itself.
    module: u16,
}

/// The kernel's functions by address.
pub(super) struct KernelSymbols {
    sorted: Vec<Symbol>,
    names: String,
    modules: Vec<Arc<str>>,
}

impl KernelSymbols {
    /// Reads the running kernel's; empty where they are hidden (`kernel.kptr_restrict`).
    pub fn read() -> Self {
        match File::open("/proc/kallsyms") {
            Ok(file) => Self::parse(BufReader::with_capacity(1 << 16, file)),
            Err(error) => {
                tracing::debug!(%error, "the kernel's symbols are not readable");
                Self::parse(&b""[..])
            }
        }
    }

    fn parse(mut lines: impl BufRead) -> Self {
        let mut parsed = Self {
            sorted: Vec::new(),
            names: String::new(),
            modules: vec![KERNEL.into()],
        };
        let mut line = String::new();
        // A line that is not text ends the reading: the kernel writes none.
        while parsed.sorted.len() < SYMBOLS_MAX
            && parsed.names.len() < NAMES_MAX
            && matches!(lines.read_line(&mut line), Ok(1..))
        {
            parsed.add(&line);
            line.clear();
        }
        // The sort is stable: of symbols at one address the first in the file stays.
        parsed.sorted.sort_by_key(|symbol| symbol.address);
        parsed.sorted.dedup_by_key(|symbol| symbol.address);
        parsed
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16)
            .ok()
            .filter(|address| *address != 0)?;
        let code = matches!(fields.next()?, "t" | "T" | "w" | "W");
        let name = fields.next().filter(|_| code)?;
        let module = match fields.next() {
            // The symbols of one module come one after the other.
            Some(module) if self.modules.last().is_some_and(|last| **last == *module) => {
                self.modules.len() - 1
            }
            Some(module) => {
                self.modules.push(module.into());
                self.modules.len() - 1
            }
            None => 0,
        };
        let name_at = (
            u32::try_from(self.names.len()).ok()?,
            u16::try_from(name.len()).ok()?,
        );
        let module = u16::try_from(module).ok()?;
        self.names.push_str(name);
        self.sorted.push(Symbol {
            address,
            name: name_at,
            module,
        });
        Some(())
    }

    /// The function that holds an address.
    pub fn resolve(&self, address: u64, frames: &mut Frames) -> FrameId {
        let after = self.sorted.partition_point(|symbol| symbol.address <= address);
        let symbol = after
            .checked_sub(1)
            .map(|index| &self.sorted[index])
            .filter(|symbol| address - symbol.address < REACH_MAX);
        let (name, module) = match symbol {
            Some(Symbol {
                name: (at, length),
                module,
                ..
            }) => {
                let at = *at as usize;
                (
                    &self.names[at..at + usize::from(*length)],
                    &self.modules[usize::from(*module)],
                )
            }
            None => (KERNEL, &self.modules[0]),
        };
        let lacking = if self.sorted.is_empty() {
            Reason::Hidden
        } else {
            Reason::NoSymbolHere
        };
        frames.intern(Frame {
            unresolved: symbol.is_none().then_some(lacking),
            ..Frame::named(name, module, true)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(symbols: &KernelSymbols, address: u64) -> (String, String) {
        let mut frames = Frames::default();
        let id = symbols.resolve(address, &mut frames);
        let frame = &frames.table()[id.0 as usize];
        assert!(frame.kernel);
        (frame.function.to_string(), frame.module.to_string())
    }

    #[test]
    fn symbols_of_kernel_and_modules() {
        let text = b"ffffffff81000000 T _stext\nffffffff81000100 t do_it\nffffffff81000100 t alias\n\
            ffffffff81000180 d data\nffffffffc0000000 t load\t[ext4]\n";
        let symbols = KernelSymbols::parse(&text[..]);
        assert_eq!(
            name(&symbols, 0xffff_ffff_8100_01ff),
            ("do_it".into(), "[kernel]".into())
        );
        assert_eq!(
            name(&symbols, 0xffff_ffff_c000_0010),
            ("load".into(), "[ext4]".into())
        );
        assert_eq!(
            name(&symbols, 0xffff_ffff_8000_0000),
            ("[kernel]".into(), "[kernel]".into())
        );
        assert_eq!(
            name(&symbols, 0xffff_ffff_c100_0010),
            ("[kernel]".into(), "[kernel]".into())
        );
    }

    #[test]
    fn hidden_symbols_are_the_kernel() {
        let symbols = KernelSymbols::parse(&b"0000000000000000 T _stext\n0000000000000000 T do_it\n"[..]);
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0000).0, "[kernel]");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in prop::collection::vec(any::<u8>(), 0..300), address in any::<u64>()) {
            name(&KernelSymbols::parse(&text[..]), address);
        }
    }
}
