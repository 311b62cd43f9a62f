//! The bounds of a timeline's times and lists.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};

/// The largest difference between two times, about 70 years in nanoseconds. So sums of a few of
/// them do not overflow.
pub(super) const MAX_TIME: i64 = i64::MAX / 4;

/// Reads a list of at most this many elements.
pub(super) fn bounded<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct BoundedList<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for BoundedList<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = elements.next_element()? {
                if list.len() == MOST {
                    return Err(A::Error::custom(format_args!("more than {MOST} elements")));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    from.deserialize_seq(BoundedList::<T, MOST>(PhantomData))
}
