//! How the heaps were read whose contents a profile has ([`IN_USE`]): the sums of its receipts, and
//! what readers have to know of them.
//!
//! It is pure. A path in such a profile goes from what PHP keeps itself to what is held, and each
//! object, array and string counts once, on a shortest path.
//!
//! Invariant: a number that no receipt has is 0, and sums saturate.

mod amount;
mod report;
mod text;
mod tree;

use serde::{Deserialize, Serialize};

use crate::builder::IN_USE;
use crate::proto::Profile;

pub use amount::InUseAmount;
pub use report::{InUseClass, InUsePath, InUseReport};

/// The first frame of what no path leads to.
pub const NO_PATH: &str = "[no path]";

/// How the heaps of workers were read: the object `inHeap` of a receipt (`contract/comment.json`),
/// or the sum of several. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InHeap {
    /// Workers whose heap was read.
    pub workers: u64,
    /// Those of them that did not run meanwhile. The others are torn.
    pub moments: u64,
    /// Workers whose heap could not be read.
    pub without_heap: u64,
    /// Workers for which there was no time.
    pub late: u64,
    /// Workers of whose heap a part was not followed, because a bound was met.
    pub cut: u64,
    /// Workers with so many objects that a part was drawn at random.
    pub drawn: u64,
    /// Objects that could not be read, or whose class could not be named.
    pub lost_objects: u64,
    /// `memory_get_usage()` of all workers that were read.
    pub heap_bytes: u64,
    /// Free elements and pages within these heaps.
    pub free_bytes: u64,
    /// What the profile has of them.
    pub held_bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceiptOfHeaps {
    in_heap: InHeap,
}

impl InHeap {
    /// The sum over all samplers of a profile; `None` if none of them has read heaps.
    #[must_use]
    pub fn of(profile: &Profile) -> Option<Self> {
        let receipts = profile.comments().map(serde_json::from_str);
        let read = receipts.filter_map(|it: Result<ReceiptOfHeaps, _>| it.ok());
        read.map(|it| it.in_heap).reduce(Self::and)
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            workers: self.workers.saturating_add(other.workers),
            moments: self.moments.saturating_add(other.moments),
            without_heap: self.without_heap.saturating_add(other.without_heap),
            late: self.late.saturating_add(other.late),
            cut: self.cut.saturating_add(other.cut),
            drawn: self.drawn.saturating_add(other.drawn),
            lost_objects: self.lost_objects.saturating_add(other.lost_objects),
            heap_bytes: self.heap_bytes.saturating_add(other.heap_bytes),
            free_bytes: self.free_bytes.saturating_add(other.free_bytes),
            held_bytes: self.held_bytes.saturating_add(other.held_bytes),
        }
    }

    /// Workers that ran while their heap was read.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.workers.saturating_sub(self.moments)
    }

    /// What is uncertain or missing, as phrases; empty if nothing is.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        let workers = |count: u64| match count {
            1 => "1 worker".to_owned(),
            _ => format!("{count} workers"),
        };
        let (torn, all) = (self.torn(), self.workers);
        let phrases = [
            (
                torn,
                format!(
                    "{torn} of {} ran while the heap was read (Torn): of these, an object may be missing or there twice",
                    workers(all)
                ),
            ),
            (
                self.drawn,
                format!(
                    "{} have so many objects that a part was drawn at random: their numbers are estimates",
                    workers(self.drawn)
                ),
            ),
            (
                self.cut,
                format!(
                    "of {}, not all paths were followed: what they lead to is missing or below {NO_PATH}",
                    workers(self.cut)
                ),
            ),
            (
                self.without_heap,
                format!(
                    "{} have a heap that cannot be read (USE_ZEND_ALLOC=0, or an extension's memory manager)",
                    workers(self.without_heap)
                ),
            ),
            (
                self.late,
                format!(
                    "{} are missing, because the time was over",
                    workers(self.late)
                ),
            ),
            (
                self.lost_objects,
                format!("{} objects could not be read or named", self.lost_objects),
            ),
        ];
        let said = phrases.into_iter().filter(|(count, _)| *count > 0);
        said.map(|(_, phrase)| phrase).collect()
    }
}

/// Whether the profile is of what is in heaps: it has the sample types [`IN_USE`], and no others.
#[must_use]
pub fn is_in_use(profile: &Profile) -> bool {
    let types: Vec<_> = profile.sample_types().collect();
    types.len() == IN_USE.len() && IN_USE.iter().all(|it| types.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Settings};

    fn with(comments: &[&str]) -> Profile {
        let mut builder = Builder::new(Settings::in_use());
        for comment in comments {
            builder.comment(comment);
        }
        builder.finish()
    }

    #[test]
    fn receipts_of_all_samplers_are_added_up() {
        let profile = with(&[
            r#"{"phpprof":"0.1.0","inHeap":{"workers":4,"moments":3,"heldBytes":7,"new":1}}"#,
            "a word",
            r#"{"inHeap":{"workers":2,"moments":2,"late":1,"heldBytes":5}}"#,
        ]);
        let sum = InHeap::of(&profile).unwrap();
        let expected = InHeap {
            workers: 6,
            moments: 5,
            late: 1,
            held_bytes: 12,
            ..InHeap::default()
        };
        assert_eq!((sum, sum.torn()), (expected, 1));
    }

    #[test]
    fn other_receipts_are_not_of_heaps() {
        for comments in [&[][..], &["{}"], &[r#"{"inHeap":{"workers":-1}}"#]] {
            assert_eq!(InHeap::of(&with(comments)), None);
        }
    }

    #[test]
    fn every_loss_is_said() {
        assert_eq!(InHeap::default().losses(), [""; 0]);
        let all = InHeap {
            workers: 3,
            moments: 1,
            without_heap: 1,
            late: 2,
            cut: 1,
            drawn: 1,
            lost_objects: 9,
            ..InHeap::default()
        };
        let losses = all.losses();
        assert_eq!(losses.len(), 6);
        assert!(losses[0].starts_with("2 of 3 workers ran"), "{losses:?}");
        assert!(losses[4].starts_with("2 workers are missing"), "{losses:?}");
    }

    #[test]
    fn only_both_types_alone_are_of_heaps() {
        assert!(is_in_use(&with(&[])));
        let mut turned = Settings::in_use();
        turned.sample_types.reverse();
        assert!(is_in_use(&Builder::new(turned).finish()));
        for other in [Settings::default(), Settings::default().with_heap()] {
            assert!(!is_in_use(&Builder::new(other).finish()));
        }
        let mut more = Settings::in_use();
        more.sample_types.push(("samples", "count"));
        assert!(!is_in_use(&Builder::new(more).finish()));
    }
}
