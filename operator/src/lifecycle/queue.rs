//! Whose turn it is: the queue of waiting requests, first come first served within a namespace and
//! fair between namespaces.
//!
//! It is pure, so all requests that ask about the same state of the cluster get consistent answers.
//!
//! Invariant: no more requests run than the limits of each namespace and of the cluster allow. In a
//! namespace with a free place, a waiting request moves up with each request that ends.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// How many requests may run at the same time; the chart's `limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    pub of_namespace: usize,
    pub of_cluster: usize,
}

/// A request that is not accepted yet, but may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingRequest {
    pub created: Timestamp,
    pub namespace: String,
    /// Orders two requests of the same second, and tells a request from a later one of the same
    /// name.
    pub uid: String,
}

/// A request's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePosition {
    Now,
    /// The place, counted from 1, among this many waiting requests.
    Wait {
        place: usize,
        of: usize,
    },
}

/// The queue. Within a namespace, the oldest request comes first. Among namespaces, the one with
/// the fewest requests comes first, then the one whose last turn is longest ago.
#[derive(Clone, Debug, Default)]
pub struct RequestQueue {
    /// Requests in order, and whether it is their turn.
    order: Vec<(WaitingRequest, bool)>,
}

impl RequestQueue {
    /// `running` is the number of running requests by namespace. `served` lists the namespaces that
    /// had their turns, the latest at the end.
    pub fn of(
        mut waiting: Vec<WaitingRequest>,
        running: &BTreeMap<String, usize>,
        served: &[&str],
        places: Places,
    ) -> Self {
        let last = served.iter().enumerate();
        let last: BTreeMap<&str, usize> = last.map(|(at, namespace)| (*namespace, at)).collect();
        waiting.sort_unstable();
        let mut taken: BTreeMap<String, usize> = running.clone();
        let mut ranked: Vec<(usize, WaitingRequest)> = Vec::new();
        let mut ranks = taken.clone();
        for one in waiting {
            let rank = ranks.entry(one.namespace.clone()).or_default();
            ranked.push((*rank, one));
            *rank += 1;
        }
        let key =
            |(rank, one): &(usize, WaitingRequest)| (*rank, last.get(&*one.namespace).copied());
        // The sort is stable: within a namespace, and among namespaces that had no turn, the oldest
        // request stays first.
        ranked.sort_by_key(key);
        let mut free = places.of_cluster.saturating_sub(taken.values().sum());
        let order = ranked.into_iter().map(|(_, one)| {
            let here = taken.entry(one.namespace.clone()).or_default();
            let now = free > 0 && *here < places.of_namespace;
            if now {
                free -= 1;
                *here += 1;
            }
            (one, now)
        });
        RequestQueue {
            order: order.collect(),
        }
    }

    /// A request that is not in the queue has its turn, because it is too new to be known.
    pub fn turn(&self, uid: &str) -> QueuePosition {
        let waits = self.order.iter().filter(|(_, now)| !now);
        let place = self.order.iter().position(|(one, _)| one.uid == uid);
        match place.and_then(|place| self.order.get(place)) {
            Some((_, false)) => {
                let before = waits.clone().position(|(one, _)| one.uid == uid);
                QueuePosition::Wait {
                    place: before.unwrap_or(0) + 1,
                    of: waits.count(),
                }
            }
            _ => QueuePosition::Now,
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.order.iter().filter(|(_, now)| !now).count()
    }

    /// The requests whose turn it is.
    pub fn next(&self) -> impl Iterator<Item = &WaitingRequest> {
        self.order
            .iter()
            .filter_map(|(one, now)| now.then_some(one))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::at;

    const PLACES: Places = Places {
        of_namespace: 2,
        of_cluster: 3,
    };

    fn waiting(namespace: &str, second: i64) -> WaitingRequest {
        WaitingRequest {
            created: at(second),
            namespace: namespace.to_owned(),
            uid: format!("{namespace}{second}"),
        }
    }

    fn running(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
        let owned = |(name, count): &(&str, usize)| ((*name).to_owned(), *count);
        counts.iter().map(owned).collect()
    }

    #[track_caller]
    fn check(all: &[(&str, i64)], counts: &[(&str, usize)], expected: &str) {
        check_after(&[], all, counts, expected);
    }

    /// `expected` lists the requests in order; those before the bar have their turn.
    #[track_caller]
    fn check_after(served: &[&str], all: &[(&str, i64)], counts: &[(&str, usize)], expected: &str) {
        let all = all.iter().map(|(name, second)| waiting(name, *second));
        let line = RequestQueue::of(all.collect(), &running(counts), served, PLACES);
        let names = |now: bool| {
            let chosen = line.order.iter().filter(move |(_, its)| *its == now);
            let names: Vec<&str> = chosen.map(|(one, _)| one.uid.as_str()).collect();
            names.join(" ")
        };
        assert_eq!(format!("{} | {}", names(true), names(false)), expected);
    }

    #[test]
    fn a_namespace_is_served_in_order_of_requests() {
        check(&[("a", 3), ("a", 1), ("a", 2)], &[], "a1 a2 | a3");
        check(&[("a", 1)], &[("a", 1)], "a1 | ");
        check(&[("a", 1)], &[("a", 2)], " | a1");
    }

    #[test]
    fn namespaces_take_turns_whoever_came_first() {
        let all = [("a", 1), ("a", 2), ("a", 3), ("b", 9), ("c", 8)];
        check(&all, &[], "a1 c8 b9 | a2 a3");
        check(&all, &[("a", 1)], "c8 b9 | a1 a2 a3");
        check(&all, &[("a", 1), ("b", 2)], " | c8 a1 a2 b9 a3");
        check(&all, &[("z", 2)], "a1 | c8 b9 a2 a3");
    }

    #[test]
    fn among_equals_the_longest_waiting_namespace_is_next() {
        let all = [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 9)];
        check_after(&["a", "b"], &all, &[], "c9 a1 b3 | a2 b4");
        check_after(&["b", "c", "a"], &all, &[], "b3 c9 a1 | b4 a2");
        check_after(&["b", "a"], &all, &[("z", 2)], "c9 | b3 a1 b4 a2");
    }

    #[test]
    fn who_waits_is_told_their_place() {
        let all =
            [("a", 1), ("a", 2), ("a", 3), ("a", 4)].map(|(name, second)| waiting(name, second));
        let line = RequestQueue::of(all.into(), &running(&[]), &[], PLACES);
        assert_eq!(line.turn("a2"), QueuePosition::Now);
        assert_eq!(line.turn("a3"), QueuePosition::Wait { place: 1, of: 2 });
        assert_eq!(line.turn("a4"), QueuePosition::Wait { place: 2, of: 2 });
        assert_eq!(line.turn("unknown"), QueuePosition::Now);
        assert_eq!(line.next().count(), 2);
    }

    proptest! {
        #[test]
        fn everybody_runs_in_the_end_within_the_places(all in proptest::collection::vec((0..4usize, 0..50i64), 0..40)) {
            let mut left: Vec<WaitingRequest> = all
                .iter()
                .enumerate()
                .map(|(index, (name, second))| WaitingRequest { uid: index.to_string(), ..waiting(["a", "b", "c", "d"][*name], *second) })
                .collect();
            for _ in 0..=all.len() {
                let line = RequestQueue::of(left.clone(), &BTreeMap::new(), &[], PLACES);
                let now: Vec<WaitingRequest> = line.next().cloned().collect();
                prop_assert!(now.len() <= PLACES.of_cluster);
                prop_assert!(!now.is_empty() || left.is_empty());
                for name in ["a", "b", "c", "d"] {
                    prop_assert!(now.iter().filter(|one| one.namespace == name).count() <= PLACES.of_namespace);
                }
                left.retain(|one| !now.contains(one));
            }
            prop_assert!(left.is_empty());
        }
    }
}
