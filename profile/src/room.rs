//! What a run lost because one of the sampler's tables was full: counted by table, and as a text
//! for users.
//!
//! Invariant: each sample is counted once, for the first table without room.

/// The name that stands for what has no room.
pub const OVER: &str = "[over the memory cap]";

/// Samples for which a table had no room, of all samples in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// All samples, with those that have lost nothing.
    pub samples: i64,
    /// Samples with a function whose name has no room.
    pub names: i64,
    /// Samples that keep only the callers that were known.
    pub paths: i64,
    /// Samples without a stack.
    pub stacks: i64,
}

impl Lost {
    /// Both added up.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Lost {
            samples: self.samples.saturating_add(other.samples),
            names: self.names.saturating_add(other.names),
            paths: self.paths.saturating_add(other.paths),
            stacks: self.stacks.saturating_add(other.stacks),
        }
    }

    /// The samples that have lost something.
    #[must_use]
    pub fn count(&self) -> i64 {
        let [names, paths, stacks] = [self.names, self.paths, self.stacks].map(|it| it.max(0));
        names.saturating_add(paths).saturating_add(stacks)
    }

    /// The table that cost most samples.
    #[must_use]
    pub fn table(&self) -> &'static str {
        let tables = [
            (self.names, "function names"),
            (self.paths, "call paths"),
            (self.stacks, "stacks"),
        ];
        let most = tables.into_iter().max_by_key(|(count, _)| *count);
        most.map_or("", |(_, table)| table)
    }

    /// What was lost, why, and what to do; `None` if nothing was.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let count = self.count();
        let percent = 100.0 * count as f64 / self.samples.max(1) as f64;
        (count > 0).then(|| {
            format!(
                "{count} samples ({percent:.1} %) are {OVER} in part or as a whole: the table of {} is full; \
                 record for a shorter time, at a lower rate (-F), or only some requests (--path-prefix, --script)",
                self.table()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_names_the_share_and_the_costliest_table() {
        assert_eq!(Lost::default().told(), None);
        let one = Lost {
            samples: 1000,
            names: 40,
            paths: 2,
            stacks: 0,
        };
        let told = one.told().unwrap();
        assert!(told.starts_with("42 samples (4.2 %) are [over the memory cap]"));
        assert!(told.contains("the table of function names is full; record"));
        let both = one.and(Lost { paths: 60, ..one });
        assert_eq!(
            (both.samples, both.count(), both.table()),
            (2000, 142, "function names")
        );
        assert_eq!(both.and(both).table(), "function names");
        assert_eq!(Lost { stacks: 41, ..one }.table(), "stacks");
    }
}
