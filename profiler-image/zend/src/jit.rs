//! Tells whether opcache's JIT buffer has compiled code.
//!
//! Debian's PHP 8.4 sets the buffer up although the JIT is disabled, so its existence tells
//! nothing. Its last two words do (`zend_jit_startup`, ext/opcache/jit/zend_jit.c): where the next
//! code goes, and where the first code went. What this module does not do: tell which functions
//! were compiled.

use crate::memory::word_at;

/// The addresses of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitBuffer {
    /// Its first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
}

impl JitBuffer {
    /// The address of its last 16 bytes.
    #[must_use]
    pub fn marks(self) -> u64 {
        self.end.saturating_sub(16)
    }

    /// Whether the JIT has compiled anything since its start or restart, from these bytes; `None`
    /// if they do not tell.
    #[must_use]
    pub fn has_code(&self, marks: &[u8; 16]) -> Option<bool> {
        let [next, first] = [word_at(marks, 0), word_at(marks, 8)];
        // Helpers that the compiled code calls precede the first of it.
        (self.start < first && first <= next && next < self.end).then_some(first < next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: JitBuffer = JitBuffer {
        start: 0x7f00_0000_0000,
        end: 0x7f00_0000_4000,
    };

    fn check(next: u64, first: u64, expected: Option<bool>) {
        let mut marks = [0; 16];
        marks[..8].copy_from_slice(&next.to_le_bytes());
        marks[8..].copy_from_slice(&first.to_le_bytes());
        assert_eq!(BUFFER.has_code(&marks), expected, "{next:x} {first:x}");
    }

    #[test]
    fn there_is_code_where_the_two_marks_differ() {
        check(BUFFER.start + 0x9f5, BUFFER.start + 0x9f5, Some(false));
        check(BUFFER.start + 0x197d, BUFFER.start + 0x9f5, Some(true));
    }

    #[test]
    fn marks_that_cannot_be_say_nothing() {
        check(0, 0, None);
        check(BUFFER.start + 0x9f5, 0, None);
        check(BUFFER.start, BUFFER.start, None);
        check(BUFFER.start + 0x9f5, BUFFER.start + 0xa00, None);
        check(BUFFER.end, BUFFER.start + 0x9f5, None);
        check(u64::MAX, u64::MAX, None);
        let nothing = JitBuffer { start: 0, end: 8 };
        assert_eq!((nothing.marks(), nothing.has_code(&[0; 16])), (0, None));
    }
}
