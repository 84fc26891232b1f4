//! The kernel's functions: what they are called, and where they are (`/proc/kallsyms`).

use std::{fs, io, path::Path};

use super::KernelError;

const PATH: &str = "/proc/kallsyms";

/// What only looks like a function: what lies before one.
const NOT_CODE: [&str; 2] = ["__pfx_", "__cfi_"];

/// Whether the kernel lets its functions be probed at all.
#[must_use]
pub fn has_function_probes() -> bool {
    Path::new(super::kernel_functions::EVENT_SOURCE).is_dir()
}

/// The kernel's symbols, by address.
pub struct KernelSymbols {
    symbols: Vec<Symbol>,
}

struct Symbol {
    address: u64,
    is_code: bool,
    name: String,
}

impl KernelSymbols {
    /// Reads them.
    ///
    /// # Errors
    /// Where the kernel has none, or hides where they are.
    pub fn read() -> Result<Self, KernelError> {
        let fail =
            |error| KernelError::system(format!("reading {PATH}, which says where functions are"), error);
        let symbols = Self::parse(&fs::read_to_string(PATH).map_err(fail)?);
        if symbols.symbols.iter().all(|symbol| symbol.address == 0) {
            let error = io::Error::from_raw_os_error(libc::EPERM);
            let what = format!(
                "{PATH} hides where functions are: CAP_SYSLOG is needed, and kernel.kptr_restrict has to be below 2"
            );
            return Err(KernelError::system(what, error));
        }
        Ok(symbols)
    }

    fn parse(text: &str) -> Self {
        let mut symbols: Vec<Symbol> = text.lines().filter_map(Symbol::parse).collect();
        symbols.sort_by(|one, other| (one.address, &one.name).cmp(&(other.address, &other.name)));
        Self { symbols }
    }

    /// Functions, and where each is.
    pub fn functions(&self) -> impl Iterator<Item = (&str, u64)> {
        let functions = self.symbols.iter().filter(|symbol| symbol.is_code);
        functions.map(|symbol| (symbol.name.as_str(), symbol.address))
    }

    /// Where a function or variable is.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        let found = self.symbols.iter().find(|symbol| symbol.name == name);
        found.map(|symbol| symbol.address)
    }

    /// What a function is called; its address where none is there.
    pub(super) fn name_at(&self, address: u64) -> String {
        self.functions()
            .find(|(_, other)| *other == address)
            .map_or_else(|| format!("{address:#x}"), |(name, _)| name.to_owned())
    }
}

impl Symbol {
    /// Reads a line: address, type, name, and the module in brackets if it is of one.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        let kind = fields.next()?;
        let name = fields.next()?;
        let is_code = matches!(kind, "t" | "T" | "w" | "W");
        Some(Self {
            address,
            is_code: is_code && !NOT_CODE.iter().any(|prefix| name.starts_with(prefix)),
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_what_lies_before_them() {
        let symbols = KernelSymbols::parse(
            "ffffffff81000010 t __pfx_vfs_read\nffffffff81000020 T vfs_read\nffffffff82000000 D jiffies\n\
             ffffffffc0000000 t ext4_read\t[ext4]\nffffffff81000040 t same\nffffffff81000050 t same\nnonsense\n",
        );
        let functions: Vec<(&str, u64)> = symbols.functions().collect();
        assert_eq!(
            functions,
            [
                ("vfs_read", 0xffff_ffff_8100_0020),
                ("same", 0xffff_ffff_8100_0040),
                ("same", 0xffff_ffff_8100_0050),
                ("ext4_read", 0xffff_ffff_c000_0000),
            ]
        );
        assert_eq!(symbols.address("jiffies"), Some(0xffff_ffff_8200_0000));
        assert_eq!(symbols.name_at(0xffff_ffff_8100_0020), "vfs_read");
        assert_eq!(symbols.name_at(0x10), "0x10");
    }
}
