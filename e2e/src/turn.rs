//! The order of the tests on the one cluster. Tests that do not change the cluster share it, a few at a time. A test that stops parts of it
//! runs alone. Tests on the same release run one after another, because changing the release takes longer than many tests.
//!
//! It orders the tests that this process has started. It does that best if many of them wait, so the Makefile sets `--test-threads`.
//! It does not install a release.
//!
//! Invariant: at any moment one exclusive test runs, or up to `WIDTH` others on one release.

use std::sync::LazyLock;

use tokio::sync::watch;

/// How many tests share the cluster. They wait most of the time, but their pods use CPU.
const WIDTH: usize = 6;

static QUEUE: LazyLock<watch::Sender<Queue>> =
    LazyLock::new(|| watch::Sender::new(Queue::default()));

/// The `--set` values that distinguish a release from that of most tests.
pub type Values = &'static [&'static str];

/// What a test requires.
#[derive(Clone, Copy)]
pub struct Requirements {
    pub values: Values,
    pub exclusive: bool,
    /// It begins before the others, because it takes longer.
    pub early: bool,
}

impl Requirements {
    fn shares_with(&self, other: &Requirements) -> bool {
        self.values == other.values && !self.exclusive && !other.exclusive
    }
}

/// A test's turn, until it is dropped.
pub struct Turn(usize);

/// Waits for the turn.
pub async fn take(required: Requirements) -> Turn {
    let mut changes = QUEUE.subscribe();
    let mut id = 0;
    QUEUE.send_modify(|queue| id = queue.add(required));
    while !QUEUE.send_if_modified(|queue| queue.begin(id)) {
        // An error would mean that the queue is gone, but it is static.
        let _ = changes.changed().await;
    }
    Turn(id)
}

impl Drop for Turn {
    fn drop(&mut self) {
        QUEUE.send_modify(|queue| queue.end(self.0));
    }
}

#[derive(Default)]
struct Queue {
    added: usize,
    waiting: Vec<(usize, Requirements)>,
    running: Vec<(usize, Requirements)>,
    /// The release of the tests that run, or of those that ran last.
    values: Values,
}

impl Queue {
    fn add(&mut self, required: Requirements) -> usize {
        self.added += 1;
        self.waiting.push((self.added, required));
        self.added
    }

    /// The test that may begin next, if any. Tests on the current release come first, among them those that share it, among these the early
    /// ones.
    fn next(&self) -> Option<usize> {
        let may_begin = |required: &Requirements| match self.running.first() {
            None => true,
            Some((_, other)) => required.shares_with(other) && self.running.len() < WIDTH,
        };
        let waiting = self
            .waiting
            .iter()
            .filter(|(_, required)| may_begin(required));
        let rank = |required: &Requirements| {
            (
                required.values != self.values,
                required.exclusive,
                !required.early,
            )
        };
        let next = waiting.min_by_key(|(_, required)| rank(required));
        next.map(|(id, _)| *id)
    }

    /// Lets a test begin if it is next.
    fn begin(&mut self, id: usize) -> bool {
        let is_next = self.next() == Some(id);
        if is_next && let Some(at) = self.waiting.iter().position(|(waits, _)| *waits == id) {
            let begun = self.waiting.remove(at);
            self.values = begun.1.values;
            self.running.push(begun);
        }
        is_next
    }

    fn end(&mut self, id: usize) {
        self.running.retain(|(runs, _)| *runs != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which tests run at the same time, one set after the other. A test is `s` for shared, `e` for early or `a` for exclusive
    /// (alone), and its release.
    fn check(tests: &[&str], expected: &[&[usize]]) {
        let mut queue = Queue::default();
        for test in tests {
            let values: Values = match &test[1..] {
                "" => &[],
                " volume" => &["volume"],
                _ => &["other"],
            };
            let (exclusive, early) = (test.starts_with('a'), test.starts_with('e'));
            queue.add(Requirements {
                values,
                exclusive,
                early,
            });
        }
        let mut sets = Vec::new();
        while !queue.waiting.is_empty() {
            while let Some(id) = queue.next() {
                assert!(queue.begin(id));
            }
            let running: Vec<usize> = queue.running.iter().map(|(id, _)| *id).collect();
            running.iter().for_each(|id| queue.end(*id));
            sets.push(running);
        }
        assert_eq!(sets, expected);
    }

    #[test]
    fn tests_that_share_come_first_and_six_at_a_time() {
        check(
            &["s", "a", "s", "s", "s", "s", "s", "s", "s"],
            &[&[1, 3, 4, 5, 6, 7], &[8, 9], &[2]],
        );
    }

    #[test]
    fn of_those_that_share_the_early_ones_come_first() {
        let tests = ["a", "s", "s", "s", "s", "s", "s", "e", "e other", "s other"];
        check(&tests, &[&[8, 2, 3, 4, 5, 6], &[7], &[1], &[9, 10]]);
    }

    #[test]
    fn a_release_is_changed_once_for_all_who_want_it() {
        let tests = ["a volume", "s", "s volume", "a", "s other", "s volume", "a"];
        check(&tests, &[&[2], &[4], &[7], &[3, 6], &[1], &[5]]);
    }

    #[test]
    fn nobody_begins_beside_one_who_is_alone() {
        let mut queue = Queue::default();
        let exclusive = queue.add(Requirements {
            values: &[],
            exclusive: true,
            early: false,
        });
        assert!(queue.begin(exclusive));
        let other = queue.add(Requirements {
            values: &[],
            exclusive: false,
            early: false,
        });
        assert!(!queue.begin(other));
        queue.end(exclusive);
        assert!(queue.begin(other));
    }
}
