//! Reads `zend_string`s, and makes texts for users from them.
//!
//! Invariant: a text is `checked` only if its stored hash, if there is one, is the hash of the
//! bytes that were read. Another one may be of a string that was freed or overwritten meanwhile: it
//! names nothing until another proof does. A header that is not a string's, or a length beyond all
//! names, is refused.

use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, half_at, word_at};
use crate::short::ShortText;
use crate::shown::{MAX_NAME, MAX_PATH, show};
use crate::string_hash::{HighByteRule, is_hash_of};
use crate::zval::IS_STRING;

/// The longest text that is read whole, and so can be checked. PHP has no limit, and paths have
/// 4,096 bytes at most.
const MAX_WHOLE: usize = 8192;
/// What is read of a longer one: its begin and its end.
const BEGIN: usize = MAX_PATH;
const END: usize = 1024;
/// A longer text is not a name; it is probably garbage.
const MAX_LENGTH: u64 = 1 << 30;

/// `gc.u.type_info` of a string: its type, then flags, which all end below the same bit. In a freed
/// block the heap has its pointer to the next free block there, and from 8.4 on another one at the
/// block's end, over the text.
const TYPE_MASK: u32 = 0x0f;
const END_OF_FLAGS: u32 = 0x2000;
const TYPE_INFO: usize = 4;

/// A `zend_string` as read from the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZendString {
    /// Without the final NUL; of a very long one, both ends.
    pub bytes: ShortText,
    /// The number of all bytes.
    pub length: u64,
    /// The stored hash; 0 if the engine has not computed it.
    pub hash: u64,
    /// Whether all bytes were read, and agree with the stored hash, if there is one.
    pub is_checked: bool,
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
        let size = usize::try_from(length).ok()?;
        let bytes = match head.get(string.val..string.val.saturating_add(size)) {
            Some(inside) if whole => ShortText::from(inside),
            _ => read_long(memory, address + string.val as u64, size)?,
        };
        let is_whole = bytes.len() == size;
        Some(Self {
            is_checked: is_whole && (hash == 0 || is_hash_of(hash, &bytes)),
            bytes,
            length,
            hash,
        })
    }

    /// A whole text.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            length: bytes.len() as u64,
            hash: 0,
            is_checked: true,
        }
    }

    /// The hash of the text, even if the engine has not computed it.
    #[must_use]
    pub fn fingerprint(&self, layout: &Layout) -> u64 {
        match self.hash {
            0 => HighByteRule::usual(layout.machine).hash(&self.bytes),
            hash => hash,
        }
    }

    /// Appends it for users, as the name of a class or a function.
    pub(crate) fn show_name(&self, shown: &mut String) {
        show(&self.bytes, self.length, MAX_NAME, shown);
    }

    /// Appends it for users, as a path.
    pub(crate) fn show_path(&self, shown: &mut String) {
        show(&self.bytes, self.length, MAX_PATH, shown);
    }
}

/// The bytes of a text that is not in the first read.
fn read_long<M: Memory + ?Sized>(memory: &M, address: u64, size: usize) -> Option<ShortText> {
    let mut bytes = ShortText::default();
    if size <= MAX_WHOLE {
        bytes.resize(size);
        memory.read(address, &mut bytes).ok()?;
        return Some(bytes);
    }
    bytes.resize(BEGIN + END);
    let (begin, end) = bytes.split_at_mut(BEGIN);
    memory.read(address, begin).ok()?;
    let end_at = address.checked_add((size - END) as u64)?;
    memory.read(end_at, end).ok()?;
    let mut nul = [1];
    memory
        .read(address.checked_add(size as u64)?, &mut nul)
        .ok()?;
    // The engine ends each string with a NUL.
    (nul == [0]).then_some(bytes)
}

/// A class's name, as the engine stores it and as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassName {
    /// As the engine stores it: an anonymous class's has a NUL and more after the part for users.
    pub stored: ZendString,
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
        Some(Self { stored: name, line })
    }

    /// Appends the name for users. An anonymous class is stored as `class@anonymous\0FILE:LINE$N`,
    /// up to 7.3 as `class@anonymous\0FILE0xADDRESS`; the file and line distinguish two of them,
    /// and the rest differs in the next request.
    pub(crate) fn show(&self, shown: &mut String) {
        let mut parts = self.stored.bytes.splitn(2, |&byte| byte == 0);
        let name = parts.next().unwrap_or_default();
        let Some(place) = parts.next() else {
            return self.stored.show_name(shown);
        };
        show(name, name.len() as u64, MAX_NAME, shown);
        shown.push(':');
        let show_place = |end: usize, shown: &mut String| {
            let place = place.get(..end).unwrap_or(place);
            show(place, place.len() as u64, MAX_PATH, shown);
        };
        if let Some(end) = place.iter().rposition(|&byte| byte == b'$') {
            return show_place(end, shown);
        }
        let end = place.windows(2).rposition(|pair| pair == b"0x");
        show_place(end.unwrap_or(place.len()), shown);
        shown.extend([":", &self.line.to_string()]);
    }
}

/// Reads a C string of at most `limit` bytes, without its NUL; `None` if there is no NUL within the
/// limit.
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
            stored: ZendString::of(stored),
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
    fn read_accepts_any_rules_hash() {
        let text = "Größe der Körbe".as_bytes();
        let mut image = crate::testing::EngineImage::new(&crate::layouts::ROWS[0]);
        let at = image.string(text);
        let hash_at = image.layout.zend_string.h;
        let mut check = |hash: u64, expected: bool| {
            image.put_word(at, hash_at, hash);
            let read = ZendString::read(&image, image.layout, at).unwrap();
            assert_eq!((&*read.bytes, read.is_checked), (text, expected));
        };
        for rule in HighByteRule::ALL {
            check(rule.hash(text), true);
            check(rule.hash(text) ^ 2, false);
        }
        check(0, true);
    }

    #[test]
    fn read_keeps_both_ends_of_long_texts() {
        let layout = &crate::layouts::ROWS[0];
        let at = 0x10_0000;
        let read = |length: usize, after: u8| {
            let mut memory = crate::memory::Recorded::default();
            let row = &layout.zend_string;
            let mut bytes = vec![0; row.val];
            bytes[TYPE_INFO] = IS_STRING;
            bytes[row.len..row.len + 8].copy_from_slice(&(length as u64).to_le_bytes());
            bytes.extend((0..length).map(|index| b'a' + (index % 26) as u8));
            bytes.push(after);
            memory.put(at, bytes);
            ZendString::read(&memory, layout, at)
        };
        let whole = read(MAX_WHOLE, 0).unwrap();
        assert!(whole.is_checked && whole.bytes.len() == MAX_WHOLE);
        let long = read(MAX_WHOLE + 1, 0).unwrap();
        let length = (long.bytes.len(), long.length, long.is_checked);
        assert_eq!(length, (BEGIN + END, MAX_WHOLE as u64 + 1, false));
        assert_eq!(long.bytes.last(), Some(&(b'a' + (MAX_WHOLE % 26) as u8)));
        assert_eq!(read(MAX_WHOLE + 1, 1), None, "no NUL ends it");
    }
}
