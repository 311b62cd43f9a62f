//! Looks a key up in a `zend_array`, as `zend_hash_find` and `zend_hash_index_find` do
//! (Zend/zend_hash.c), and reads a list of two.
//!
//! Invariant: every count in the array is bounded, and each walk along a chain ends.

use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, byte_at, half_at, word_at};
use crate::string_hash::hashes_of;
use crate::text::ZendString;
use crate::zval::{IS_UNDEF, TYPE, ZVAL, Zval};

/// A chain of a valid table has a few entries; this bounds a hostile one.
const MAX_CHAIN: usize = 256;
/// How many deleted entries [`first`] skips before it gives up.
const MAX_HOLES: u32 = 64;

/// How many values of an array [`holds`] looks at.
const MAX_SEARCHED: usize = 64;

/// An entry of a hash table whose keys are strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The address of its `zend_string`.
    pub key: u64,
    /// The zval's value: a pointer in the engine's own tables.
    pub value: u64,
}

struct TableHead {
    mask: u32,
    data: u64,
    used: u32,
    is_packed: bool,
}

impl TableHead {
    fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, address: u64) -> Option<Self> {
        let row = &layout.zend_array;
        let mut header = [0_u8; 64];
        memory.read(address, header.get_mut(..row.sizeof)?).ok()?;
        let size = half_at(&header, row.n_table_size);
        let table = Self {
            mask: half_at(&header, row.n_table_mask),
            data: word_at(&header, row.ar_data),
            used: half_at(&header, row.n_num_used),
            is_packed: half_at(&header, row.flags) & row.packed != 0,
        };
        (size.is_power_of_two() && table.used <= size).then_some(table)
    }

    /// A table with string keys.
    fn read_keyed<M: Memory + ?Sized>(memory: &M, layout: &Layout, address: u64) -> Option<Self> {
        Self::read(memory, layout, address).filter(|table| !table.is_packed)
    }

    /// The entry of a text, whatever the rule is by which the engine has hashed it.
    fn find_text<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        text: &[u8],
    ) -> Option<([u8; 32], Bucket)> {
        hashes_of(text).find_map(|hash| self.find(memory, layout, hash, Some(text)))
    }

    /// The entry with this hash and this text; without a text, the one whose key is the hash
    /// itself, an integer.
    fn find<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        hash: u64,
        key: Option<&[u8]>,
    ) -> Option<([u8; 32], Bucket)> {
        let row = &layout.zend_array;
        // The index table precedes the buckets; the mask is its negative size.
        let slot = (hash as u32 | self.mask).wrapping_neg();
        let mut index = memory
            .half(self.data.checked_sub(u64::from(slot) * 4)?)
            .ok()?;
        for _ in 0..MAX_CHAIN {
            if index >= self.used {
                return None;
            }
            let (bytes, bucket) = self.bucket(memory, layout, index)?;
            let is_key = || match key {
                Some(key) => ZendString::read(memory, layout, bucket.key)
                    .is_some_and(|text| *text.bytes == *key),
                None => bucket.key == 0,
            };
            if word_at(&bytes, row.bucket_h) == hash && is_key() {
                return Some((bytes, bucket));
            }
            index = half_at(&bytes, row.bucket_next);
        }
        None
    }

    /// Value and type of an element of a list.
    fn packed<M: Memory + ?Sized>(&self, memory: &M, layout: &Layout, index: u32) -> Option<Zval> {
        let distance = u64::from(index) * packed_size(layout) as u64;
        let address = self.data.checked_add(distance)?;
        let mut zval = [0_u8; ZVAL];
        memory.read(address, &mut zval).ok()?;
        Some(Zval::parse(&zval))
    }

    fn bucket<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        index: u32,
    ) -> Option<([u8; 32], Bucket)> {
        let row = &layout.zend_array;
        let mut bytes = [0_u8; 32];
        let address = self
            .data
            .checked_add(u64::from(index) * row.bucket_sizeof as u64)?;
        memory
            .read(address, bytes.get_mut(..row.bucket_sizeof)?)
            .ok()?;
        let mut value = word_at(&bytes, 0);
        if byte_at(&bytes, 8) == row.is_indirect {
            value = memory.word(value).ok()?;
        }
        let key = word_at(&bytes, row.bucket_key);
        Some((bytes, Bucket { key, value }))
    }
}

/// The values of a table with string keys, the newest first, at most this many. They are read in
/// pieces, so that a large table takes little memory.
pub fn values<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
    most: usize,
) -> Option<Vec<u64>> {
    const TOGETHER: usize = 512;
    let row = &layout.zend_array;
    let table = TableHead::read_keyed(memory, layout, table)?;
    let size = row.bucket_sizeof;
    let (mut values, mut end) = (Vec::new(), table.used as usize);
    let mut bytes = vec![0; TOGETHER.min(end) * size];
    while end > 0 && values.len() < most {
        let begin = end.saturating_sub(TOGETHER);
        let bytes = bytes.get_mut(..(end - begin) * size)?;
        let address = table.data.checked_add((begin * size) as u64)?;
        memory.read(address, bytes).ok()?;
        let buckets = bytes.chunks_exact(size).rev();
        let kept = buckets.filter(|bucket| byte_at(bucket, TYPE) != IS_UNDEF);
        let kept = kept.map(|bucket| word_at(bucket, 0));
        values.extend(kept.filter(|&value| value != 0 && value < END_OF_USER_SPACE));
        end = begin;
    }
    values.truncate(most);
    Some(values)
}

/// What kind of key an entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKey {
    /// Its place in a list.
    Position,
    /// An integer.
    Number,
    /// A string, with its address.
    Text(u64),
}

/// An array whose entries were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadArray {
    /// How many places it has.
    pub places: u32,
    /// The address of the first one.
    pub data: u64,
}

/// Hands over each entry of an array. They are read in pieces, so that a large array takes little
/// memory. `None` if it has more than `most`, or could not be read to its end.
pub fn entries<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
    most: u32,
    each: &mut dyn FnMut(EntryKey, Zval),
) -> Option<ReadArray> {
    const TOGETHER: u64 = 2048;
    let row = &layout.zend_array;
    let table = TableHead::read(memory, layout, table)?;
    if table.used > most {
        return None;
    }
    let size = if table.is_packed {
        packed_size(layout)
    } else {
        row.bucket_sizeof
    };
    let used = u64::from(table.used);
    let mut bytes = vec![0; TOGETHER.min(used) as usize * size];
    for begin in (0..used).step_by(TOGETHER as usize) {
        let count = TOGETHER.min(used - begin) as usize;
        let bytes = bytes.get_mut(..count * size)?;
        let address = table.data.checked_add(begin * size as u64)?;
        memory.read(address, bytes).ok()?;
        for entry in bytes.chunks_exact(size) {
            let zval = Zval::parse(entry);
            let key = if table.is_packed {
                EntryKey::Position
            } else {
                match word_at(entry, row.bucket_key) {
                    0 => EntryKey::Number,
                    text => EntryKey::Text(text),
                }
            };
            each(key, direct(memory, row.is_indirect, zval));
        }
    }
    Some(ReadArray {
        places: table.used,
        data: table.data,
    })
}

/// The value of a zval that points to another one, as those of global variables do.
fn direct<M: Memory + ?Sized>(memory: &M, is_indirect: u8, zval: Zval) -> Zval {
    let mut other = [0; ZVAL];
    if zval.1 != is_indirect || memory.read(zval.0, &mut other).is_err() {
        return zval;
    }
    Zval::parse(&other)
}

/// The value of a key.
pub fn find<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
    key: &[u8],
) -> Option<u64> {
    let table = TableHead::read_keyed(memory, layout, table)?;
    let (_, bucket) = table.find_text(memory, layout, key)?;
    Some(bucket.value)
}

/// A key of an array, as PHP code has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index<'a> {
    /// An integer.
    Number(u64),
    /// A string that is not an integer.
    Text(&'a [u8]),
}

/// Value and type of the zval of a key.
pub fn element<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    table: u64,
    index: Index<'_>,
) -> Option<Zval> {
    let table = TableHead::read(memory, layout, table)?;
    let (bytes, _) = match index {
        Index::Number(number) if table.is_packed => {
            let number = u32::try_from(number).ok().filter(|&at| at < table.used)?;
            return table.packed(memory, layout, number);
        }
        Index::Text(_) if table.is_packed => return None,
        Index::Number(number) => table.find(memory, layout, number, None)?,
        Index::Text(text) => table.find_text(memory, layout, text)?,
    };
    Some(Zval::parse(&bytes))
}

/// The first entry with a string key and a value.
pub fn first<M: Memory + ?Sized>(memory: &M, layout: &Layout, table: u64) -> Option<Bucket> {
    let table = TableHead::read_keyed(memory, layout, table)?;
    (0..table.used.min(MAX_HOLES))
        .filter_map(|index| table.bucket(memory, layout, index))
        .map(|(_, bucket)| bucket)
        .find(|bucket| bucket.key != 0 && bucket.value != 0)
}

/// Value and type of the two zvals of a list, such as `[$object, 'method']`; `None` if it has
/// another length or string keys.
pub fn pair<M: Memory + ?Sized>(memory: &M, layout: &Layout, table: u64) -> Option<[Zval; 2]> {
    let table = TableHead::read(memory, layout, table)?;
    if !table.is_packed || table.used != 2 {
        return None;
    }
    let size = packed_size(layout);
    let mut bytes = [0_u8; 64];
    let elements = bytes.get_mut(..2 * size)?;
    memory.read(table.data, elements).ok()?;
    let zval = |at: usize| Zval(word_at(&bytes, at), byte_at(&bytes, at + TYPE));
    Some([zval(0), zval(size)])
}

/// Whether one of the first values of an array, at most [`MAX_SEARCHED`], is this one.
pub fn holds<M: Memory + ?Sized>(memory: &M, layout: &Layout, table: u64, zval: Zval) -> bool {
    let Some(table) = TableHead::read(memory, layout, table) else {
        return false;
    };
    let size = if table.is_packed {
        packed_size(layout)
    } else {
        layout.zend_array.bucket_sizeof
    };
    let mut bytes = [0_u8; MAX_SEARCHED * 32];
    let count = MAX_SEARCHED.min(table.used as usize);
    let Some(values) = bytes.get_mut(..count * size) else {
        return false;
    };
    memory.read(table.data, values).is_ok()
        && values
            .chunks_exact(size)
            .any(|value| Zval::parse(value) == zval)
}

/// The size of an element of a list.
fn packed_size(layout: &Layout) -> usize {
    if layout.rules.packed_arrays_of_zvals {
        ZVAL
    } else {
        layout.zend_array.bucket_sizeof
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::{Machine, ROWS, layout_of};
    use crate::string_hash::HighByteRule;
    use crate::testing::EngineImage;

    /// A table of two slots and two entries, which are in one chain: `one` => 11, `two` => 22.
    fn image() -> (EngineImage, u64) {
        let mut image = EngineImage::new(layout_of(Machine::X86_64, 8, 2).unwrap());
        let table = image.block();
        image.put_table(table, &[("one", 11), ("two", 22)]);
        (image, table)
    }

    fn check(key: &str, expected: Option<u64>) {
        let (image, table) = image();
        let found = find(&image, image.layout, table, key.as_bytes());
        assert_eq!(found, expected, "{key}");
    }

    #[test]
    fn key_is_found_along_its_chain() {
        check("one", Some(11));
        check("two", Some(22));
        check("three", None);
    }

    #[test]
    fn list_of_two_is_read_in_each_version() {
        for layout in ROWS {
            let mut image = EngineImage::new(layout);
            let mut list = |zvals: &[Zval]| {
                let table = image.block();
                image.put_list(table, zvals);
                pair(&image, layout, table)
            };
            assert_eq!(
                list(&[Zval(7, 8), Zval(9, 6)]),
                Some([Zval(7, 8), Zval(9, 6)])
            );
            assert_eq!(list(&[Zval(7, 8)]), None);
            assert_eq!(list(&[Zval(7, 8), Zval(9, 6), Zval(9, 6)]), None);
        }
        let (image, table) = image();
        assert_eq!(pair(&image, image.layout, table), None, "it has keys");
    }

    #[test]
    fn element_is_found_by_key_in_each_version() {
        for layout in ROWS {
            let mut image = EngineImage::new(layout);
            let (array, list) = (image.block(), image.block());
            let numbers = [(0, Zval(7, 8)), (16, Zval(9, 6))];
            let entries = numbers.map(|(number, zval)| (Index::Number(number), zval));
            let entries = [&entries[..], &[(Index::Text(b"one"), Zval(11, 4))]].concat();
            image.put_array(array, &entries);
            image.put_list(list, &[Zval(7, 8), Zval(9, 6)]);
            let check = |array: u64, key: Index<'_>, expected: Option<Zval>| {
                assert_eq!(element(&image, layout, array, key), expected, "{key:?}");
            };
            for (key, zval) in entries {
                check(array, key, Some(zval));
            }
            check(array, Index::Number(1), None);
            check(array, Index::Text(b"two"), None);
            check(list, Index::Number(1), Some(Zval(9, 6)));
            check(list, Index::Number(2), None);
            check(list, Index::Number(u64::MAX), None);
            check(list, Index::Text(b"one"), None);
        }
    }

    #[test]
    fn value_is_found_in_arrays_of_each_version() {
        for layout in ROWS {
            let mut image = EngineImage::new(layout);
            let (array, list) = (image.block(), image.block());
            image.put_array(
                array,
                &[
                    (Index::Text(b"one"), Zval(7, 8)),
                    (Index::Number(3), Zval(9, 6)),
                ],
            );
            image.put_list(list, &[Zval(7, 8), Zval(9, 6)]);
            for table in [array, list] {
                for (zval, is_there) in
                    [(Zval(7, 8), true), (Zval(9, 6), true), (Zval(7, 6), false)]
                {
                    assert_eq!(holds(&image, layout, table, zval), is_there, "{zval:?}");
                }
            }
            assert!(!holds(&image, layout, 8, Zval(7, 8)), "there is no array");
        }
    }

    #[test]
    fn find_knows_keys_hashed_by_any_rule() {
        let key = "Größe der Körbe".as_bytes();
        for rule in HighByteRule::ALL {
            let mut image = EngineImage::new(layout_of(Machine::X86_64, 8, 2).unwrap());
            let table = image.block();
            image.put_array(table, &[(Index::Text(key), Zval(11, 4))]);
            let layout = image.layout;
            let row = &layout.zend_array;
            let bucket = image.word(table + row.ar_data as u64).unwrap();
            let string = image.word(bucket + row.bucket_key as u64).unwrap();
            image.put_word(bucket, row.bucket_h, rule.hash(key));
            image.put_word(string, layout.zend_string.h, rule.hash(key));
            // One slot: every hash leads to it.
            assert_eq!(find(&image, layout, table, key), Some(11), "{rule:?}");
            assert_eq!(find(&image, layout, table, b"Gr"), None);
        }
    }

    #[test]
    fn a_chain_that_leads_to_itself_ends() {
        let (mut image, table) = image();
        let row = &image.layout.zend_array;
        let data = image.word(table + row.ar_data as u64).unwrap();
        let two = data + row.bucket_sizeof as u64;
        assert_eq!(image.half(two + row.bucket_next as u64), Ok(0));
        image.put_half(two, row.bucket_next, 1);
        assert_eq!(find(&image, image.layout, table, b"one"), None);
    }
}
