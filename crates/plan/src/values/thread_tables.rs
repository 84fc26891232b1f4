//! Where a library's thread-local storage is, by the tables that glibc keeps of it.
//!
//! Each thread has a table with a pointer for every file that has such storage (the "dynamic thread vector" of "ELF
//! Handling For Thread-Local Storage"); a list of the dynamic linker's says which file has which number in it. Their layout
//! differs by version. glibc tells it to debuggers, by the constants that `libthread_db` reads: three words of 32 bits for
//! each field, which are its bits, how many there are, and the bytes before it.

use super::refusal::{Refusal, unsupported};

/// Parts of the list of files, and files in all of them, that are looked at.
const MAX_PARTS: usize = 64;
const MAX_FILES: u64 = 1 << 14;

/// What a thread finds a file's storage by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadModule {
    /// Bytes from its start up to the thread pointer, if these are the same in all threads.
    pub(super) distance: Option<u64>,
    /// Where the pointer to the thread's table is, from the thread pointer.
    pub(super) table: u64,
    /// Where in the table the pointer to the storage is.
    pub(super) pointer: u64,
    /// Where in the table the number is that says how current it is.
    pub(super) counter: u64,
    /// The least such number from which on the pointer is the file's.
    pub(super) generation: u64,
}

impl ThreadModule {
    /// Finds it for the file that the dynamic linker has loaded at an address. `symbol` says where in the process a
    /// dynamic symbol is, `word` reads 4 or 8 bytes of its memory.
    ///
    /// # Errors
    /// Where the C library is not glibc, or does not know the file.
    pub fn find(
        loaded_at: u64,
        symbol: impl Fn(&str) -> Option<u64>,
        word: impl Fn(u64, u8) -> Option<u64>,
    ) -> Result<Self, Refusal> {
        let tables = Tables {
            symbol: &symbol,
            word: &word,
        };
        tables.find(loaded_at)
    }
}

struct Tables<'r> {
    symbol: &'r dyn Fn(&str) -> Option<u64>,
    word: &'r dyn Fn(u64, u8) -> Option<u64>,
}

impl Tables<'_> {
    fn symbol(&self, name: &str) -> Result<u64, Refusal> {
        (self.symbol)(name).ok_or_else(|| {
            Refusal::Unsupported(format!(
                "a thread-local variable of a library, where the C library does not say how it is found ({name})"
            ))
        })
    }

    fn word(&self, address: u64, size: u8) -> Result<u64, Refusal> {
        (self.word)(address, size).ok_or_else(|| {
            Refusal::Unsupported(format!(
                "a thread-local variable of a library, of which the memory at {address:#x} says how it is found, and could not be read"
            ))
        })
    }

    /// A field's bits, and the bytes before it.
    fn field(&self, name: &str) -> Result<(u64, u64), Refusal> {
        let description = self.symbol(&format!("_thread_db_{name}"))?;
        let bits = self.word(description, 4)?;
        let offset = self.word(description.wrapping_add(8), 4)?;
        Ok((bits, offset))
    }

    /// The bytes before a field of 64 bits.
    fn place(&self, name: &str) -> Result<u64, Refusal> {
        match self.field(name)? {
            (64, offset) => Ok(offset),
            (bits, _) => unsupported(format!(
                "a thread-local variable of a library, where the C library has {name} in {bits} bits"
            )),
        }
    }

    fn find(&self, loaded_at: u64) -> Result<ThreadModule, Refusal> {
        let list = self.place("rtld_global__dl_tls_dtv_slotinfo_list")?;
        let (length, next) = (
            self.place("dtv_slotinfo_list_len")?,
            self.place("dtv_slotinfo_list_next")?,
        );
        let (_, files) = self.field("dtv_slotinfo_list_slotinfo")?;
        let size = self.word(self.symbol("_thread_db_sizeof_dtv_slotinfo")?, 4)?;
        let (map, generation) = (self.place("dtv_slotinfo_map")?, self.place("dtv_slotinfo_gen")?);
        let mut part = self.word(self.symbol("_rtld_global")?.wrapping_add(list), 8)?;
        let mut before = 0_u64;
        for _ in 0..MAX_PARTS {
            if part == 0 {
                break;
            }
            let count = self
                .word(part.wrapping_add(length), 8)?
                .min(MAX_FILES.saturating_sub(before));
            for index in 0..count {
                let file = part.wrapping_add(files).wrapping_add(index.wrapping_mul(size));
                let link = self.word(file.wrapping_add(map), 8)?;
                // Where it is loaded is what every link begins with.
                if link != 0 && self.word(link, 8)? == loaded_at {
                    let generation = self.word(file.wrapping_add(generation), 8)?;
                    return self.module(link, before.wrapping_add(index), generation);
                }
            }
            before = before.wrapping_add(count);
            part = self.word(part.wrapping_add(next), 8)?;
        }
        unsupported("a thread-local variable of a library that the dynamic linker has no storage for")
    }

    fn module(&self, link: u64, number: u64, generation: u64) -> Result<ThreadModule, Refusal> {
        let own = self.word(link.wrapping_add(self.place("link_map_l_tls_modid")?), 8)?;
        if own != number || number == 0 {
            return unsupported("a thread-local variable of a library that is being loaded or unloaded");
        }
        let distance = self.word(link.wrapping_add(self.place("link_map_l_tls_offset")?), 8)?;
        let (bits, _) = self.field("dtv_dtv")?;
        let element = number.wrapping_mul(bits / 8);
        Ok(ThreadModule {
            // 0 where that is not decided yet, -1 where it never will be.
            distance: (distance != 0 && distance != u64::MAX).then_some(distance),
            table: self.place("pthread_dtvp")?,
            pointer: element.wrapping_add(self.place("dtv_t_pointer_val")?),
            counter: self.place("dtv_t_counter")?,
            generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const LIST: u64 = 0x9000;

    /// A process whose dynamic linker knows one file, loaded at 0x5000, as number 3 of the second part of its list.
    fn process() -> (HashMap<String, u64>, HashMap<u64, u64>) {
        let mut symbols = HashMap::from([("_rtld_global".to_owned(), 0x8000)]);
        let mut memory = HashMap::new();
        let fields = [
            ("rtld_global__dl_tls_dtv_slotinfo_list", 64, 0x10),
            ("dtv_slotinfo_list_len", 64, 0),
            ("dtv_slotinfo_list_next", 64, 8),
            ("dtv_slotinfo_list_slotinfo", 128, 16),
            ("dtv_slotinfo_gen", 64, 0),
            ("dtv_slotinfo_map", 64, 8),
            ("link_map_l_tls_modid", 64, 0x40),
            ("link_map_l_tls_offset", 64, 0x48),
            ("dtv_dtv", 128, 0),
            ("dtv_t_pointer_val", 64, 0),
            ("dtv_t_counter", 64, 0),
            ("pthread_dtvp", 64, 8),
        ];
        for (index, (name, bits, offset)) in (0_u64..).zip(fields) {
            let at = 0x1000 + 16 * index;
            symbols.insert(format!("_thread_db_{name}"), at);
            memory.extend([(at, bits), (at + 8, offset)]);
        }
        symbols.insert("_thread_db_sizeof_dtv_slotinfo".to_owned(), 0x2000);
        memory.extend([(0x2000, 16), (0x8010, LIST)]);
        let second = LIST + 0x100;
        memory.extend([(LIST, 2), (LIST + 8, second), (LIST + 24, 0), (LIST + 40, 0)]);
        memory.extend([(second, 2), (second + 8, 0), (second + 24, 0)]);
        memory.extend([(second + 32, 5), (second + 40, 0x7000)]);
        memory.extend([(0x7000, 0x5000), (0x7040, 3), (0x7048, 0)]);
        (symbols, memory)
    }

    fn find(symbols: &HashMap<String, u64>, memory: &HashMap<u64, u64>) -> Result<ThreadModule, Refusal> {
        let word = |address, _| memory.get(&address).copied();
        ThreadModule::find(0x5000, |name| symbols.get(name).copied(), word)
    }

    #[test]
    fn a_file_is_found_by_where_it_is_loaded() {
        let (symbols, mut memory) = process();
        let found = ThreadModule {
            distance: None,
            table: 8,
            pointer: 48,
            counter: 0,
            generation: 5,
        };
        assert_eq!(find(&symbols, &memory), Ok(found));
        memory.insert(0x7048, 640);
        let distance = Some(640);
        assert_eq!(find(&symbols, &memory), Ok(ThreadModule { distance, ..found }));
        memory.insert(0x7048, u64::MAX);
        assert_eq!(find(&symbols, &memory), Ok(found));
    }

    #[test]
    fn refuses_incomplete_descriptions_of_thread_local_storage() {
        let (symbols, memory) = process();
        for name in symbols.keys() {
            let mut less = symbols.clone();
            less.remove(name);
            let refusal = find(&less, &memory).unwrap_err().to_string();
            assert!(refusal.contains(name), "{refusal}");
        }
        for address in memory.keys().filter(|address| (0x7000..LIST).contains(*address)) {
            let mut less = memory.clone();
            less.remove(address);
            assert!(find(&symbols, &less).is_err(), "{address:#x}");
        }
        for (address, value) in [
            (0x7040, 2),
            (0x7000, 0x6000),
            (0x1000, 32),
            (LIST + 8, LIST),
            (LIST, u64::MAX),
        ] {
            let mut other = memory.clone();
            other.insert(address, value);
            assert!(find(&symbols, &other).is_err(), "{address:#x}");
        }
    }
}
