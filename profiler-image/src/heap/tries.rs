//! Reads a heap until a try is of one moment.
//!
//! Invariant: there are at most [`TRIES`], and none begins once the time is over, except the first;
//! the result is the try of which most is of one moment.

use std::time::Instant;

use phpprof_profile::dump::{ClassesReport, HeapReport};
use phpprof_zend::heap::account::MmRefusal;
use phpprof_zend::heap::objects::StoreRefusal;

use super::held::ReadHeld;

/// How often a heap is read until one read is of one moment.
const TRIES: usize = 3;

/// A heap and the wanted part of what is in it.
pub struct HeapRead {
    /// Its account.
    pub heap: HeapReport,
    /// The part, or why it could not be read; absent if the account is torn, and not of the last
    /// try.
    pub contents: Option<Result<HeapContents, StoreRefusal>>,
}

/// What was read of a heap besides its account.
pub enum HeapContents {
    /// The classes of its objects, and who holds those of the largest.
    Classes(ClassesReport),
    /// All that is in it.
    All {
        /// What it is.
        held: Box<ReadHeld>,
        /// Whether that is of one moment.
        is_moment: bool,
    },
}

impl HeapContents {
    fn is_moment(&self) -> bool {
        match self {
            Self::Classes(classes) => classes.is_moment,
            Self::All { is_moment, .. } => *is_moment,
        }
    }
}

/// A read of a heap, and whether its worker stayed off a CPU meanwhile.
pub struct HeapTry {
    pub read: Result<HeapRead, MmRefusal>,
    pub stayed: bool,
}

impl HeapTry {
    /// How much of it is there and of one moment: more is greater.
    fn rank(&self) -> [bool; 4] {
        let Ok(read) = &self.read else {
            return [false; 4];
        };
        let contents = read.contents.as_ref();
        let are_moment = contents.is_some_and(|it| it.as_ref().is_ok_and(HeapContents::is_moment));
        [true, read.heap.is_moment, are_moment, contents.is_some()]
    }
}

/// Tries until a read is of one moment. `read` gets whether its try is the last one in any case.
pub fn best_try(
    mut read: impl FnMut(bool) -> HeapTry,
    until: Instant,
) -> Result<HeapRead, MmRefusal> {
    let mut best = read(false);
    for left in (0..TRIES - 1).rev() {
        if best.stayed || Instant::now() >= until {
            break;
        }
        let next = read(left == 0);
        if next.rank() >= best.rank() {
            best = next;
        }
    }
    best.read
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn tries_end_with_a_moment_or_the_time() {
        let now = Instant::now();
        let check = |until: Instant, stays_at: usize, expected: &[bool]| {
            let mut tries = Vec::new();
            let read = |is_last: bool| {
                tries.push(is_last);
                HeapTry {
                    read: Err(MmRefusal::NoHeap),
                    stayed: tries.len() == stays_at,
                }
            };
            assert!(best_try(read, until).is_err());
            assert_eq!(tries, expected);
        };
        check(now + LONG, 1, &[false]);
        check(now + LONG, 2, &[false, false]);
        check(now + LONG, 9, &[false, false, true]);
        check(now, 9, &[false]);
    }

    /// A torn try, or one whose account is of one moment, with or without its classes.
    fn try_of(is_moment: bool, classes: Option<bool>) -> HeapTry {
        let heap = HeapReport {
            is_moment,
            ..HeapReport::default()
        };
        let contents = classes.map(|is_moment| {
            Ok(HeapContents::Classes(ClassesReport {
                is_moment,
                ..ClassesReport::default()
            }))
        });
        HeapTry {
            read: Ok(HeapRead { heap, contents }),
            stayed: false,
        }
    }

    #[test]
    fn best_try_has_most_of_one_moment() {
        let check = |tries: [(bool, Option<bool>); 3], expected: (bool, Option<bool>)| {
            let mut tries = tries.into_iter();
            let read = |_| {
                let (is_moment, classes) = tries.next().unwrap();
                try_of(is_moment, classes)
            };
            let best = best_try(read, Instant::now() + LONG).unwrap();
            let classes = best.contents.map(|it| it.unwrap().is_moment());
            assert_eq!((best.heap.is_moment, classes), expected);
        };
        let torn = (false, None);
        let last = (false, Some(false));
        let sizes = (true, Some(false));
        check([torn, torn, last], last);
        check([torn, sizes, last], sizes);
        check([sizes, torn, last], sizes);
        check([torn, torn, sizes], sizes);
    }
}
