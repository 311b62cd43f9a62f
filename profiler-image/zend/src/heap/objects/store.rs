//! The table of objects (`zend_objects_store`, Zend/zend_objects_API.h), and which of its places
//! are read.
//!
//! Invariant: a table is accepted only if a block of the heap has all of its used places, so their
//! number is bounded by that block.

use std::fmt;
use std::ops::Range;

use crate::heap::blocks::HeapBlocks;
use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, MemoryFault, Piece, half_at, word_at};

use super::header::SeenObject;
use super::near::NearReads;

/// How many places are read. Of a larger table, one of each group of neighbours is drawn at random.
pub const MAX_PLACES: u32 = 1_000_000;

/// Why objects are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRefusal {
    /// The table is not in a block of the heap that can hold it.
    NotInHeap,
    /// It could not be read.
    Unreadable(MemoryFault),
}

impl fmt::Display for StoreRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInHeap => f.write_str("the table of objects is in no block of the heap"),
            Self::Unreadable(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for StoreRefusal {}

/// Where the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectsStore {
    /// The address of the first place. Each has 8 bytes.
    buckets: u64,
    /// How many places were ever used, with the first.
    pub top: u32,
}

impl ObjectsStore {
    /// Reads it; `None` if there is no request, or it has had no objects yet.
    pub fn read<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        executor_globals: u64,
        blocks: &HeapBlocks,
    ) -> Result<Option<Self>, StoreRefusal> {
        let row = &layout.executor_globals;
        let (mut active, mut store) = ([0], [0; 16]);
        let at = |offset: usize| executor_globals.saturating_add(offset as u64);
        let mut pieces = [
            Piece {
                address: at(row.active),
                bytes: &mut active,
            },
            Piece {
                address: at(row.object_buckets),
                bytes: &mut store,
            },
        ];
        memory
            .gather(&mut pieces)
            .map_err(StoreRefusal::Unreadable)?;
        let field = |offset: usize| half_at(&store, offset.saturating_sub(row.object_buckets));
        let (buckets, top) = (word_at(&store, 0), field(row.objects_top));
        // At the end of a request, the engine forgets the table without clearing its address.
        if active == [0] || buckets == 0 || top <= 1 {
            return Ok(None);
        }
        let block = blocks.block(buckets).map_or(0, |it| it.rest(buckets));
        let is_held = buckets.is_multiple_of(8)
            && buckets < END_OF_USER_SPACE
            && top <= field(row.objects_size)
            && u64::from(top) * 8 <= block;
        let store = is_held.then_some(Self { buckets, top });
        store.map(Some).ok_or(StoreRefusal::NotInHeap)
    }

    /// Adds what stands in the places that are drawn of these groups, with the place as its
    /// number. Returns how many could not be read: all or none.
    pub fn drawn<M: Memory + ?Sized>(
        &self,
        memory: &M,
        draw: PlaceDraw,
        groups: Range<u32>,
        seen: &mut Vec<SeenObject>,
    ) -> u64 {
        let places: Vec<_> = groups.filter_map(|group| draw.place(group)).collect();
        let address = |&place: &u32| self.buckets + u64::from(place) * 8;
        match NearReads::together(memory, places.iter().map(address), 8) {
            None => places.len() as u64,
            Some(words) => {
                let placed = places.into_iter().zip(words.pieces().flatten());
                seen.extend(placed.map(|(handle, word)| SeenObject {
                    address: word_at(word, 0),
                    handle,
                }));
                0
            }
        }
    }
}

/// Which places are read: one at random of each group of neighbours. A group is one place if there
/// are few.
#[derive(Debug, Clone, Copy)]
pub struct PlaceDraw {
    top: u32,
    one_of: u32,
    seed: u64,
}

impl PlaceDraw {
    /// At most [`MAX_PLACES`] of this many.
    pub fn of(top: u32, seed: u64) -> Self {
        let one_of = top.div_ceil(MAX_PLACES).max(1);
        Self { top, one_of, seed }
    }

    /// One of how many places is read.
    pub fn one_of(self) -> u64 {
        u64::from(self.one_of)
    }

    /// How many groups there are.
    pub fn groups(self) -> u32 {
        self.top.div_ceil(self.one_of)
    }

    /// The place that is drawn of a group; `None` if it is none: the first place is never used
    /// (`zend_objects_store_init`), and the last group may be smaller than the others.
    pub fn place(self, group: u32) -> Option<u32> {
        let drawn = mixed(self.seed ^ u64::from(group)) % self.one_of();
        let place = u64::from(group) * self.one_of() + drawn;
        let place = u32::try_from(place).ok()?;
        (1..self.top).contains(&place).then_some(place)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(draw: PlaceDraw) -> impl Iterator<Item = u32> {
        (0..draw.groups()).filter_map(move |group| draw.place(group))
    }

    #[test]
    fn each_place_of_a_small_table_is_read() {
        for top in [2, 3, 5000] {
            let draw = PlaceDraw::of(top, 7);
            assert!(draw.one_of() == 1 && drawn(draw).eq(1..top));
        }
        assert_eq!(
            drawn(PlaceDraw::of(MAX_PLACES, 7)).count(),
            MAX_PLACES as usize - 1
        );
    }

    #[test]
    fn draw_takes_one_of_each_group() {
        for top in [MAX_PLACES + 1, 7_654_321, u32::MAX] {
            let draw = PlaceDraw::of(top, 7);
            assert!(draw.groups() <= MAX_PLACES);
            for group in (0..draw.groups() - 1).step_by(9973) {
                let place = draw.place(group);
                let its_group = place.map(|place| u64::from(place) / draw.one_of());
                assert!(its_group.is_none_or(|it| it == u64::from(group)));
                assert!(place.is_some() || group == 0);
            }
            assert!(drawn(draw).last().is_some_and(|place| place < top));
        }
    }

    #[test]
    fn draw_prefers_no_place() {
        let draw = PlaceDraw::of(8 * MAX_PLACES, 7);
        let mut counts = [0_u32; 8];
        for place in (0..10_000).filter_map(|group| draw.place(group)) {
            counts[place as usize % 8] += 1;
        }
        // 1,250 each: four standard deviations are 132.
        assert!(counts.iter().all(|count| count.abs_diff(1250) < 132));
        let other = PlaceDraw::of(8 * MAX_PLACES, 8);
        assert!((0..80).any(|group| draw.place(group) != other.place(group)));
    }
}
