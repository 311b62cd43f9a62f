//! An ELF image in a process's memory: program headers, dynamic symbols, build id, read-only data.
//!
//! Only memory is read, never a file, so that it also works if the file is gone, replaced or in
//! another mount namespace. Section headers are not mapped and so are not used. Sources: the System
//! V ABI, and glibc's `dl-lookup.c` for `DT_GNU_HASH`. Invariant: every count in the image is
//! bounded before it is used.

use std::ops::Range;

use crate::layouts::Machine;
use crate::memory::{Memory, byte_at, half_at, word_at};

const EM_X86_64: u32 = 62;
const EM_AARCH64: u32 = 183;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const NT_GNU_BUILD_ID: u32 = 3;
const MAX_PROGRAM_HEADERS: u16 = 64;
const MAX_DYNAMIC_ENTRIES: usize = 512;
/// A chain of a valid table has a few entries; this bounds a hostile one, in each of a process's
/// images.
const MAX_CHAIN: u32 = 128;
const MAX_RODATA: u64 = 64 << 20;

#[derive(Debug, Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    address: u64,
    memory_size: u64,
}

/// A symbol that the image defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// The address in the process.
    pub address: u64,
    /// The size in bytes; 0 if the image does not have it.
    pub size: u64,
}

/// Whether the read-only data of a 32-bit little-endian image contain a text. Nothing else is read
/// of such an image.
pub fn has_text_in_32_bit<M: Memory + ?Sized>(memory: &M, base: u64, text: &[u8]) -> bool {
    let found = || {
        let mut header = [0_u8; 52];
        memory.read(base, &mut header).ok()?;
        let half = |bytes: &[u8], at: usize| half_at(bytes, at) & 0xffff;
        let (entry_size, count) = (half(&header, 42), half(&header, 44));
        let is_elf = header[..6] == *b"\x7fELF\x01\x01";
        if !is_elf || entry_size != 32 || count == 0 || count > u32::from(MAX_PROGRAM_HEADERS) {
            return None;
        }
        let mut bytes = vec![0; count as usize * 32];
        let table = base.checked_add(u64::from(half_at(&header, 28)))?;
        memory.read(table, &mut bytes).ok()?;
        let headers: Vec<ProgramHeader> = bytes
            .chunks_exact(32)
            .map(|entry| ProgramHeader {
                kind: half_at(entry, 0),
                flags: half_at(entry, 24),
                address: u64::from(half_at(entry, 8)),
                memory_size: u64::from(half_at(entry, 20)),
            })
            .collect();
        let first = headers.iter().find(|header| header.kind == PT_LOAD)?;
        let image = Image {
            // Of no use here.
            machine: Machine::X86_64,
            bias: base.wrapping_sub(first.address & !0xfff),
            headers,
            dynamic: None,
        };
        image.text_after(memory, text)
    };
    found().is_some()
}

/// One mapped ELF image.
#[derive(Debug, Clone)]
pub struct Image {
    /// `e_machine`.
    pub machine: Machine,
    bias: u64,
    headers: Vec<ProgramHeader>,
    dynamic: Option<Dynamic>,
}

#[derive(Debug, Clone, Copy)]
struct Dynamic {
    string_table: u64,
    symbol_table: u64,
    gnu_hash: u64,
}

impl Image {
    /// Reads the image whose first page is mapped at `base`; `None` if it is not a 64-bit
    /// little-endian ELF.
    pub fn read<M: Memory + ?Sized>(memory: &M, base: u64) -> Option<Self> {
        let mut header = [0_u8; 64];
        memory.read(base, &mut header).ok()?;
        if header[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let machine = match half_at(&header, 18) & 0xffff {
            EM_X86_64 => Machine::X86_64,
            EM_AARCH64 => Machine::Aarch64,
            _ => return None,
        };
        let table = word_at(&header, 32);
        let entry_size = u64::from(half_at(&header, 54) & 0xffff);
        let count = (half_at(&header, 56) & 0xffff) as u16;
        if entry_size != 56 || count == 0 || count > MAX_PROGRAM_HEADERS {
            return None;
        }
        let mut bytes = vec![0; usize::from(count) * 56];
        memory.read(base.checked_add(table)?, &mut bytes).ok()?;
        let headers: Vec<ProgramHeader> = bytes
            .chunks_exact(56)
            .map(|entry| ProgramHeader {
                kind: half_at(entry, 0),
                flags: half_at(entry, 4),
                address: word_at(entry, 16),
                memory_size: word_at(entry, 40),
            })
            .collect();
        let first = headers.iter().find(|header| header.kind == PT_LOAD)?;
        // The first segment's page is the one at `base`.
        let bias = base.wrapping_sub(first.address & !0xfff);
        let mut image = Self {
            machine,
            bias,
            headers,
            dynamic: None,
        };
        image.dynamic = image.read_dynamic(memory);
        Some(image)
    }

    fn read_dynamic<M: Memory + ?Sized>(&self, memory: &M) -> Option<Dynamic> {
        let header = self
            .headers
            .iter()
            .find(|header| header.kind == PT_DYNAMIC)?;
        let size = usize::try_from(header.memory_size)
            .ok()?
            .min(MAX_DYNAMIC_ENTRIES * 16);
        let mut bytes = vec![0; size];
        memory
            .read(self.bias.wrapping_add(header.address), &mut bytes)
            .ok()?;
        let value = |tag: u64| {
            bytes
                .chunks_exact(16)
                .take_while(|entry| word_at(entry, 0) != 0)
                .find(|entry| word_at(entry, 0) == tag)
                .map(|entry| self.absolute(word_at(entry, 8)))
        };
        Some(Dynamic {
            string_table: value(DT_STRTAB)?,
            symbol_table: value(DT_SYMTAB)?,
            gnu_hash: value(DT_GNU_HASH)?,
        })
    }

    /// glibc relocates the pointers of the dynamic section in place; musl leaves them as in the
    /// file.
    fn absolute(&self, pointer: u64) -> u64 {
        if pointer < self.bias {
            pointer.wrapping_add(self.bias)
        } else {
            pointer
        }
    }

    /// Looks a name up among the dynamic symbols that this image defines.
    pub fn symbol<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<Symbol> {
        let dynamic = self.dynamic?;
        let mut header = [0_u8; 16];
        memory.read(dynamic.gnu_hash, &mut header).ok()?;
        let (buckets, first, bloom_words) = (
            half_at(&header, 0),
            half_at(&header, 4),
            half_at(&header, 8),
        );
        if buckets == 0 || bloom_words == 0 || buckets > 1 << 24 || bloom_words > 1 << 24 {
            return None;
        }
        let hash = gnu_hash(name);
        let bucket_table = dynamic
            .gnu_hash
            .wrapping_add(16 + u64::from(bloom_words) * 8);
        let mut index = memory
            .half(bucket_table.wrapping_add(u64::from(hash % buckets) * 4))
            .ok()?;
        if index < first {
            return None;
        }
        let chains = bucket_table.wrapping_add(u64::from(buckets) * 4);
        for _ in 0..MAX_CHAIN {
            let entry = memory
                .half(chains.wrapping_add(u64::from(index.checked_sub(first)?) * 4))
                .ok()?;
            if entry | 1 == hash | 1
                && let Some(symbol) = self.symbol_at(memory, dynamic, index, name)
            {
                return Some(symbol);
            }
            if entry & 1 == 1 {
                return None;
            }
            index = index.checked_add(1)?;
        }
        None
    }

    fn symbol_at<M: Memory + ?Sized>(
        &self,
        memory: &M,
        dynamic: Dynamic,
        index: u32,
        name: &str,
    ) -> Option<Symbol> {
        let mut bytes = [0_u8; 24];
        memory
            .read(
                dynamic.symbol_table.wrapping_add(u64::from(index) * 24),
                &mut bytes,
            )
            .ok()?;
        let defined = byte_at(&bytes, 6) != 0 || byte_at(&bytes, 7) != 0;
        let mut stored = vec![0; name.len() + 1];
        memory
            .read(
                dynamic
                    .string_table
                    .wrapping_add(u64::from(half_at(&bytes, 0))),
                &mut stored,
            )
            .ok()?;
        let same = stored.last() == Some(&0) && stored[..name.len()] == *name.as_bytes();
        (defined && same).then(|| Symbol {
            address: self.bias.wrapping_add(word_at(&bytes, 8)),
            size: word_at(&bytes, 16),
        })
    }

    /// The addresses of the image: from its first segment to its last.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let loaded = || self.headers.iter().filter(|header| header.kind == PT_LOAD);
        let start = loaded().map(|header| header.address).min().unwrap_or(0);
        let end = loaded()
            .map(|header| header.address.saturating_add(header.memory_size))
            .max()
            .unwrap_or(0);
        self.bias.wrapping_add(start)..self.bias.wrapping_add(end)
    }

    /// The writable segments, as (start, length): they contain `.data` and `.bss`.
    #[must_use]
    pub fn writable(&self) -> Vec<(u64, u64)> {
        self.headers
            .iter()
            .filter(|header| header.kind == PT_LOAD && header.flags & PF_W != 0)
            .map(|header| {
                let start = self.bias.wrapping_add(header.address);
                (start, header.memory_size)
            })
            .collect()
    }

    /// The text after `needle` up to the next NUL or line end, at its first occurrence in the
    /// read-only data.
    pub fn text_after<M: Memory + ?Sized>(&self, memory: &M, needle: &[u8]) -> Option<String> {
        const WINDOW: u64 = 256 << 10;
        const TAIL: u64 = 128;
        let loaded = |without: u32| {
            self.headers
                .iter()
                .filter(move |header| header.kind == PT_LOAD && header.flags & without == 0)
        };
        // If code has a segment of its own, text is never in an executable segment.
        let without = if loaded(PF_W | PF_X).next().is_some() {
            PF_W | PF_X
        } else {
            PF_W
        };
        let readable = loaded(without);
        let mut bytes = Vec::new();
        let mut left = MAX_RODATA;
        for header in readable {
            let size = header.memory_size.min(left);
            left -= size;
            let mut offset = 0;
            while offset < size {
                // Windows overlap, so that a match is never cut.
                let length = (WINDOW + TAIL).min(size - offset);
                bytes.resize(usize::try_from(length).ok()?, 0);
                let start = self.bias.wrapping_add(header.address).wrapping_add(offset);
                if memory.read(start, &mut bytes).is_ok()
                    && let Some(at) = position(&bytes, needle)
                {
                    let rest = &bytes[at + needle.len()..];
                    let end = rest
                        .iter()
                        .take(64)
                        .position(|byte| matches!(byte, 0 | b'\r' | b'\n'))?;
                    return String::from_utf8(rest[..end].to_vec()).ok();
                }
                offset += WINDOW;
            }
        }
        None
    }

    /// The GNU build id in hexadecimal digits.
    pub fn build_id<M: Memory + ?Sized>(&self, memory: &M) -> Option<String> {
        for header in self.headers.iter().filter(|header| header.kind == PT_NOTE) {
            let mut notes = vec![0; usize::try_from(header.memory_size).ok()?.min(4096)];
            if memory
                .read(self.bias.wrapping_add(header.address), &mut notes)
                .is_err()
            {
                continue;
            }
            let mut rest = notes.as_slice();
            while rest.len() >= 12 {
                let name_size = half_at(rest, 0) as usize;
                let size = half_at(rest, 4) as usize;
                let start = 12_usize.checked_add(name_size.checked_next_multiple_of(4)?)?;
                let end = start.checked_add(size)?;
                if half_at(rest, 8) == NT_GNU_BUILD_ID
                    && rest.get(12..16) == Some(b"GNU\0")
                    && size <= 64
                {
                    return Some(
                        rest.get(start..end)?
                            .iter()
                            .map(|byte| format!("{byte:02x}"))
                            .collect(),
                    );
                }
                rest = rest
                    .get(end.checked_next_multiple_of(4)?..)
                    .unwrap_or_default();
            }
        }
        None
    }
}

/// The position of `needle` in `bytes`, by Horspool's algorithm, which skips most bytes.
fn position(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let last = needle.len().checked_sub(1)?;
    let mut skips = [needle.len(); 256];
    for (index, &byte) in needle.iter().take(last).enumerate() {
        skips[usize::from(byte)] = last - index;
    }
    let mut at = 0;
    while let Some(window) = bytes.get(at..at + needle.len()) {
        if window == needle {
            return Some(at);
        }
        at += skips[usize::from(window[last])];
    }
    None
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::Recorded;

    #[test]
    fn the_hash_is_that_of_the_dynamic_loader() {
        // Values from the specification of DT_GNU_HASH.
        assert_eq!(gnu_hash(""), 0x0000_1505);
        assert_eq!(gnu_hash("printf"), 0x156b_2bb8);
        assert_eq!(gnu_hash("flapenguin.me"), 0x8ae9_f18e);
    }

    #[test]
    fn a_needle_is_found_wherever_it_lies() {
        let needle = b"X-Powered-By: PHP/";
        for at in 0..40 {
            let mut bytes = b"-By: PHP/ X-Powered".repeat(4);
            bytes.splice(at..at, needle.iter().copied());
            let expected = bytes
                .windows(needle.len())
                .position(|window| window == needle);
            assert_eq!(position(&bytes, needle), expected);
        }
        assert_eq!(position(b"X-Powered-By: PHP", needle), None);
        assert_eq!(position(b"", needle), None);
    }

    /// A 32-bit executable at 0x8048000, as `readelf -lh` shows one of Debian's i386: code at its
    /// beginning, then read-only data.
    pub(crate) fn image_of_32_bit(data: &[u8]) -> Recorded {
        let mut first = vec![0; 0x200];
        first[..6].copy_from_slice(b"\x7fELF\x01\x01");
        let mut put = |at: usize, value: u32| {
            first[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        put(28, 52);
        put(40, 32 << 16 | 52);
        put(44, 2);
        for (at, address, size, flags) in [(52, 0x0804_8000, 0x200, 5), (84, 0x0804_9000, 0x400, 4)]
        {
            put(at, PT_LOAD);
            put(at + 8, address);
            put(at + 20, size);
            put(at + 24, flags);
        }
        let mut memory = Recorded::default();
        memory.put(0x0804_8000, first);
        let mut rest = data.to_vec();
        rest.resize(0x400, 0);
        memory.put(0x0804_9000, rest);
        memory
    }

    #[test]
    fn text_of_a_32_bit_image_is_found() {
        let text = b"X-Powered-By: PHP/";
        let php = image_of_32_bit(b"\0\0X-Powered-By: PHP/8.2.29\0");
        assert!(has_text_in_32_bit(&php, 0x0804_8000, text));
        assert!(Image::read(&php, 0x0804_8000).is_none());
        let other = image_of_32_bit(b"\0\0X-Powered-By: \0");
        assert!(!has_text_in_32_bit(&other, 0x0804_8000, text));
        assert!(!has_text_in_32_bit(&php, 0x0804_9000, text));
        assert!(!has_text_in_32_bit(&php, 0x9000, text));
    }

    #[test]
    fn what_is_not_elf_is_refused() {
        let mut memory = Recorded::default();
        memory.put(0x1000, vec![0x41; 256]);
        assert!(Image::read(&memory, 0x1000).is_none());
        assert!(Image::read(&memory, 0x9000).is_none());
    }
}
