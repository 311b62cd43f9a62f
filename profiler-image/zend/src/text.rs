//! Reads `zend_string`s, and makes texts for users from them.
//!
//! Invariant: a text is used only if its header is that of a string, its length is plausible and its stored hash,
//! if there is one, is the hash of the bytes that were read: a string that was freed or overwritten meanwhile is refused.

use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, half_at, word_at};
use crate::short::Text;
use crate::zval::IS_STRING;

/// The longest name or path; a longer one is refused, because it is probably garbage.
const MAX_LENGTH: u64 = 4096;

/// `gc.u.type_info` of a string: its type, then flags, which all end below the same bit. In a freed block the heap
/// has its pointer to the next free block there, and from 8.4 on another one at the block's end, over the text.
const TYPE_MASK: u32 = 0x0f;
const END_OF_FLAGS: u32 = 0x2000;
const TYPE_INFO: usize = 4;

/// A `zend_string` as read from the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendString {
    /// Without the final NUL.
    pub bytes: Text,
    /// The stored hash; 0 if the engine has not computed it.
    pub hash: u64,
}

impl ZendString {
    /// Reads the string at `address`; `None` if it is inconsistent.
    pub fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, address: u64) -> Option<Self> {
        if address == 0 || !address.is_multiple_of(8) || address >= END_OF_USER_SPACE {
            return None;
        }
        let string = &layout.zend_string;
        // Most names fit in one read with the header; the rest of a longer one takes a second read.
        let mut head = [0_u8; 96];
        let whole = memory.read(address, &mut head).is_ok();
        if !whole {
            memory.read(address, &mut head[..string.val]).ok()?;
        }
        let type_info = half_at(&head, TYPE_INFO);
        if type_info & TYPE_MASK != u32::from(IS_STRING) || type_info >= END_OF_FLAGS {
            return None;
        }
        let hash = word_at(&head, string.h);
        let length = word_at(&head, string.len);
        if length > MAX_LENGTH {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        let bytes = match head.get(string.val..string.val + length) {
            Some(inside) if whole => Text::from(inside),
            _ => {
                let mut bytes = Text::default();
                bytes.resize(length);
                memory.read(address + string.val as u64, &mut bytes).ok()?;
                bytes
            }
        };
        (hash == 0 || hash == hash_of(&bytes)).then_some(Self { bytes, hash })
    }

    /// The hash of the text, even if the engine has not computed it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        match self.hash {
            0 => hash_of(&self.bytes),
            hash => hash,
        }
    }
}

/// Appends a text for users: control characters and invalid UTF-8 are replaced.
pub(crate) fn show(bytes: &[u8], shown: &mut String) {
    let text = String::from_utf8_lossy(bytes);
    shown.extend(
        text.chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c }),
    );
}

/// `zend_inline_hash_func` (Zend/zend_string.h): DJBX33A with the top bit set.
#[must_use]
pub fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(5381_u64, |hash, &byte| {
        hash.wrapping_mul(33).wrapping_add(u64::from(byte))
    }) | 0x8000_0000_0000_0000
}

/// A class's name, as the engine stores it and as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassName {
    /// As the engine stores it: an anonymous class's has a NUL and more after the part for users.
    pub stored: Text,
    /// The first line of an anonymous class.
    pub line: u32,
}

impl ClassName {
    /// Reads the name of a `zend_class_entry`; `None` if it is inconsistent.
    pub fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, class: u64) -> Option<Self> {
        let row = &layout.class_entry;
        let at = |offset: usize| class.checked_add(offset as u64);
        let name = ZendString::read(memory, layout, memory.word(at(row.name)?).ok()?)?;
        let is_anonymous = memory.half(at(row.ce_flags)?).ok()? & row.anonymous != 0;
        let line = if is_anonymous {
            memory.half(at(row.line_start)?).ok()?
        } else {
            0
        };
        Some(Self {
            stored: name.bytes,
            line,
        })
    }

    /// Appends the name for users. An anonymous class is stored as `class@anonymous\0FILE:LINE$N`, up to 7.3 as
    /// `class@anonymous\0FILE0xADDRESS`; the file and line distinguish two of them, and the rest differs in the
    /// next request.
    pub(crate) fn show(&self, shown: &mut String) {
        let mut parts = self.stored.splitn(2, |&byte| byte == 0);
        show(parts.next().unwrap_or_default(), shown);
        let Some(place) = parts.next() else {
            return;
        };
        shown.push(':');
        if let Some(end) = place.iter().rposition(|&byte| byte == b'$') {
            return show(&place[..end], shown);
        }
        let end = place
            .windows(2)
            .rposition(|pair| pair == b"0x")
            .unwrap_or(place.len());
        show(&place[..end], shown);
        shown.extend([":", &self.line.to_string()]);
    }
}

/// Reads a C string of at most `limit` bytes, without its NUL; `None` if there is no NUL within the limit.
pub fn c_string<M: Memory + ?Sized>(memory: &M, address: u64, limit: usize) -> Option<String> {
    let mut bytes = Vec::new();
    // In pieces of 16 bytes, so that a short string at the end of a mapping is not refused.
    while bytes.len() < limit {
        let mut piece = [0_u8; 16];
        memory
            .read(address.checked_add(bytes.len() as u64)?, &mut piece)
            .ok()?;
        if let Some(end) = piece.iter().position(|&byte| byte == 0) {
            bytes.extend_from_slice(&piece[..end]);
            return String::from_utf8(bytes).ok();
        }
        bytes.extend_from_slice(&piece);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_class(stored: &[u8], expected: &str) {
        let class = ClassName {
            stored: stored.into(),
            line: 7,
        };
        let mut shown = String::new();
        class.show(&mut shown);
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_class_is_shown_as_php_prints_it() {
        check_class(b"App\\Cart", "App\\Cart");
        check_class(
            b"class@anonymous\0/srv/app/a.php:12$0",
            "class@anonymous:/srv/app/a.php:12",
        );
        check_class(
            b"App\\Base@anonymous\0/srv/app/a.php:12$1f",
            "App\\Base@anonymous:/srv/app/a.php:12",
        );
        check_class(
            b"class@anonymous\0/srv/app/a.php0x7f8b2c8190c3",
            "class@anonymous:/srv/app/a.php:7",
        );
    }

    #[test]
    fn what_was_freed_is_no_string() {
        let check = |word: u64, expected: bool| {
            for layout in crate::layouts::ROWS {
                let mut image = crate::testing::EngineImage::new(layout);
                let at = image.string("eval()'d code");
                image.put_word(at, layout.zend_string.h, 0);
                image.put_word(at, 0, word);
                let read = ZendString::read(&image, layout, at);
                let is_read = read.is_some_and(|read| *read.bytes == *b"eval()'d code");
                assert_eq!(is_read, expected, "{word:x}");
            }
        };
        // One reference; then the flags of 7.3 and later, and an interned string of 7.2.
        check(0x0000_0006_0000_0001, true);
        check(0x0000_0016_0000_0002, true);
        check(0x0000_03f6_0000_0001, true);
        check(0x0000_0206_0000_0001, true);
        // The last free block of its list, and others.
        check(0, false);
        check(0x0000_7f5a_b3c0_0040, false);
        check(0x0000_7f56_b3c0_0040, false);
        check(0x0000_ffff_b3c0_0040, false);
    }

    #[test]
    fn the_hash_is_that_of_the_engine() {
        // Values printed by a PHP 8.2 for interned strings.
        assert_eq!(hash_of(b""), 0x8000_0000_0000_1505);
        assert_eq!(hash_of(b"a"), (5381 * 33 + 97) | 0x8000_0000_0000_0000);
    }
}
