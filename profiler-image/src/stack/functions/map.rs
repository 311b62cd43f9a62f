//! Known functions by their addresses and by what they are.
//!
//! Invariant: an id in a map is one of [`Functions`] of the same age.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use phpprof_zend::function::FunctionKey;
use phpprof_zend::opcache::Restarts;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::scripts::Scripts;
use super::{Code, FunctionId, FunctionIdentity, Functions};

#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionEntry {
    pub(super) code: FunctionId,
    pub(super) checked: u64,
    pub(super) met: u64,
}

/// A code block in shared memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeBlock {
    pub(super) end: u64,
    pub(super) code: FunctionId,
    /// Two functions share it, such as those of a trait.
    pub(super) is_ambiguous: bool,
    /// When its function was last read.
    pub(super) checked: u64,
}

/// Known functions by their addresses: one map for the memory that an engine's processes share, one
/// for each worker's own.
#[derive(Debug, Default)]
pub struct Map {
    /// The age of its ids ([`Functions::renew`]).
    pub(super) age: u32,
    /// The restarts of opcache before its functions were learned.
    pub(super) restarts: Restarts,
    pub(super) by_func: FxHashMap<u64, FunctionEntry>,
    /// Hashes of the keys in `by_identity`, whatever their texts.
    pub(super) known_keys: FxHashSet<u64>,
    /// By the hash of [`Code::identity`], or if that is taken, by the next free number.
    pub(super) by_identity: FxHashMap<u64, FunctionId>,
    /// The addresses in `by_func`, in the order in which they are checked, and the next one.
    pub(super) order: Vec<u64>,
    pub(super) next: usize,
    pub(super) next_check: u64,
    /// When functions of scripts were last checked, and all were unchanged: opcache has not
    /// restarted.
    pub(super) scripts_checked: u64,
    /// Code blocks in shared memory, by their start.
    pub(super) blocks: BTreeMap<u64, CodeBlock>,
    /// The scripts in opcache's table.
    pub(super) scripts: Scripts,
}

impl Map {
    pub(super) fn knows(&self, key: &FunctionKey) -> bool {
        self.known_keys.contains(&FxBuildHasher.hash_one(key))
    }

    /// The place of this identity in `by_identity`, and the code there.
    pub(super) fn find(
        &self,
        functions: &Functions,
        identity: &FunctionIdentity,
    ) -> (u64, Option<FunctionId>) {
        let mut place = FxBuildHasher.hash_one(identity);
        while let Some(&id) = self.by_identity.get(&place) {
            if functions.get(id).map(Code::identity).as_ref() == Some(identity) {
                return (place, Some(id));
            }
            place = place.wrapping_add(1);
        }
        (place, None)
    }

    pub(super) fn forget_addresses(&mut self) {
        self.by_func.clear();
        self.blocks.clear();
        self.order.clear();
    }
}
