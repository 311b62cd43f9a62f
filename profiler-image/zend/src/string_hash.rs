//! PHP's hash of a string (`zend_inline_hash_func`, Zend/zend_string.h): DJBX33A with the top bit
//! set.
//!
//! Its source adds a `char`, and so a compiler decides what a byte from 0x80 on counts. Measured
//! with Debian's PHP 8.2: on x86_64 each byte is signed; on aarch64 those of whole groups of eight
//! are unsigned, because they are taken out of a word, and the rest is signed.
//! Invariant: the rules agree on ASCII, so such a text is hashed once.

use crate::layouts::Machine;

/// The hash of the empty text, without the top bit.
const BEGIN: u64 = 5381;
const TOP: u64 = 0x8000_0000_0000_0000;
/// How many bytes the engine hashes at once on aarch64.
const GROUP: usize = 8;

/// What a byte from 0x80 on counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HighByteRule {
    /// `char` is signed.
    Signed,
    /// `char` is unsigned.
    Unsigned,
    /// Unsigned in whole groups of eight, signed in the rest.
    Mixed,
}

impl HighByteRule {
    /// All, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Signed, Self::Mixed, Self::Unsigned];

    /// That of most builds for a machine.
    #[must_use]
    pub fn usual(machine: Machine) -> Self {
        match machine {
            Machine::X86_64 => Self::Signed,
            Machine::Aarch64 => Self::Mixed,
        }
    }

    /// The hash of a text by this rule.
    #[must_use]
    pub fn hash(self, text: &[u8]) -> u64 {
        let unsigned = match self {
            Self::Signed => 0,
            Self::Unsigned => text.len(),
            Self::Mixed => text.len() - text.len() % GROUP,
        };
        let (groups, rest) = text.split_at(unsigned);
        let hash = groups
            .iter()
            .fold(BEGIN, |hash, &byte| step(hash, byte.into()));
        let hash = rest.iter().fold(hash, |hash, &byte| {
            step(hash, i64::from(byte.cast_signed()).cast_unsigned())
        });
        hash | TOP
    }
}

fn step(hash: u64, byte: u64) -> u64 {
    hash.wrapping_mul(33).wrapping_add(byte)
}

/// The hash of a text by the rule of x86_64, which is that of every engine if the text is ASCII.
#[must_use]
pub fn hash_of(text: &[u8]) -> u64 {
    HighByteRule::Signed.hash(text)
}

/// Whether this is the hash of a text by any of the rules.
#[must_use]
pub fn is_hash_of(hash: u64, text: &[u8]) -> bool {
    hashes_of(text).any(|it| it == hash)
}

/// The hashes of a text by the rules, each once: a single one for ASCII.
pub fn hashes_of(text: &[u8]) -> impl Iterator<Item = u64> {
    let signed = hash_of(text);
    // Lazy, because the first one is nearly always asked for alone.
    let others = [HighByteRule::Mixed, HighByteRule::Unsigned]
        .into_iter()
        .filter(|_| !text.is_ascii())
        .map(|rule| rule.hash(text));
    std::iter::once(signed).chain(others.filter(move |&hash| hash != signed))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `zend_hash_func` of Debian's PHP 8.2 returns on x86_64, by FFI.
    const OF_X86_64: [(&[u8], u64); 9] = [
        (b"", 0x8000_0000_0000_1505),
        (b"a", 0x8000_0000_0002_b606),
        (b"\xe9t\xe9", 0x8000_0000_0b86_5feb),
        ("été".as_bytes(), 0x8000_0031_0381_59b1),
        ("müller".as_bytes(), 0x8000_d0b3_376f_5cc0),
        ("a\u{a0}b".as_bytes(), 0x8000_0001_7c91_2c8a),
        (b"f\x80\xff\xfe", 0x8000_0001_7c92_dd88),
        ("éééééééééx".as_bytes(), 0x81e2_b8ea_110d_c509),
        ("日本語のクラス".as_bytes(), 0x957b_6ec7_42b8_c838),
    ];

    #[test]
    fn signed_rule_is_phps_on_x86_64() {
        for (text, hash) in OF_X86_64 {
            assert_eq!(HighByteRule::Signed.hash(text), hash, "{text:x?}");
            assert!(is_hash_of(hash, text) && !is_hash_of(hash ^ 1, text));
        }
    }

    /// The engine's source for aarch64 (Zend/zend_string.h of 8.2), with a signed `char`: by the
    /// letter, not by a loop over single bytes.
    fn of_aarch64(mut text: &[u8]) -> u64 {
        let power = |exponent: u32| 33_u64.wrapping_pow(exponent);
        let mut hash = BEGIN;
        while let Some((group, rest)) = text.split_first_chunk::<GROUP>() {
            let chunk = u64::from_le_bytes(*group);
            let times = |hash: u64, from: u64| {
                (0..4).fold(hash.wrapping_mul(power(4)), |sum, at| {
                    let byte = (chunk >> (8 * (from + u64::from(at)))) & 0xff;
                    sum.wrapping_add(byte.wrapping_mul(power(3 - at)))
                })
            };
            hash = times(times(hash, 0), 4);
            text = rest;
        }
        for &byte in text {
            hash = hash.wrapping_mul(33);
            match byte {
                0x80.. => hash = hash.wrapping_sub(256 - u64::from(byte)),
                _ => hash = hash.wrapping_add(byte.into()),
            }
        }
        hash | TOP
    }

    #[test]
    fn mixed_rule_is_phps_on_aarch64() {
        for (text, _) in OF_X86_64 {
            assert_eq!(
                HighByteRule::Mixed.hash(text),
                of_aarch64(text),
                "{text:x?}"
            );
        }
        // Two groups, and a rest: each of the three rules gives another hash.
        let text = "ééééééééé";
        let hashes = HighByteRule::ALL.map(|rule| rule.hash(text.as_bytes()));
        assert!(hashes.iter().all(|&hash| is_hash_of(hash, text.as_bytes())));
        assert_eq!(hashes_of(text.as_bytes()).count(), 3);
    }

    #[test]
    fn unsigned_rule_adds_bytes_as_they_are() {
        let expected = ((BEGIN * 33 + 0xff) * 33 + 0x61) | TOP;
        assert_eq!(HighByteRule::Unsigned.hash(b"\xffa"), expected);
        assert!(is_hash_of(expected, b"\xffa"));
    }

    #[test]
    fn a_machine_has_its_rule() {
        assert_eq!(HighByteRule::usual(Machine::X86_64), HighByteRule::Signed);
        assert_eq!(HighByteRule::usual(Machine::Aarch64), HighByteRule::Mixed);
    }

    proptest! {
        #[test]
        fn each_rule_accepts_its_hash_and_ascii(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            for rule in HighByteRule::ALL {
                prop_assert!(is_hash_of(rule.hash(&text), &text));
            }
            let ascii: Vec<u8> = text.iter().map(|byte| byte & 0x7f).collect();
            prop_assert_eq!(hashes_of(&ascii).count(), 1);
            prop_assert_eq!(HighByteRule::Mixed.hash(&text), of_aarch64(&text));
        }
    }
}
