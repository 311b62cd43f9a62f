//! Which jobs of a request have begun, and the outcomes that no reconciliation has taken.
//!
//! Invariant: a job runs only once until a reconciliation has taken its outcome. If that is lost,
//! the work is repeated and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use crate::lifecycle::effect::{Done, JobKey};

/// A job without an outcome is still running.
#[derive(Debug, Default)]
pub struct RunningJobs(BTreeMap<JobKey, Option<Done>>);

impl RunningJobs {
    /// Jobs whose outcome has not been taken.
    pub fn under_way(&self) -> BTreeSet<JobKey> {
        self.0.keys().cloned().collect()
    }

    /// The number of outcomes that have not been taken.
    pub fn ended(&self) -> usize {
        self.0.values().flatten().count()
    }

    /// Returns whether the job was not under way.
    pub fn begin(&mut self, key: &JobKey) -> bool {
        let is_new = !self.0.contains_key(key);
        self.0.entry(key.clone()).or_default();
        is_new
    }

    /// Records the outcome of a job that has begun, and drops that of any other one.
    pub fn end(&mut self, key: &JobKey, done: Done) {
        if let Some(outcome) = self.0.get_mut(key) {
            *outcome = Some(done);
        }
    }

    /// Takes the outcomes of finished jobs.
    pub fn take(&mut self) -> Vec<Done> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (ended, open): (BTreeMap<_, _>, _) = all.partition(|(_, outcome)| outcome.is_some());
        self.0 = open;
        ended.into_values().flatten().collect()
    }

    /// Forgets the jobs that do not matter once the request is over.
    pub fn finish(&mut self) {
        self.0.retain(|key, _| *key == JobKey::Export);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_under_way_until_its_outcome() {
        let mut jobs = RunningJobs::default();
        let (one, other) = (JobKey::Target("a".into()), JobKey::Collection);
        assert!(jobs.begin(&one) && jobs.begin(&other));
        jobs.end(&one, Done::Listed);
        assert!(!jobs.begin(&one));
        assert_eq!(jobs.ended(), 1);
        assert_eq!(jobs.take(), [Done::Listed]);
        assert_eq!((jobs.ended(), jobs.under_way()), (0, [other].into()));
        assert!(jobs.begin(&one));
    }

    #[test]
    fn end_drops_a_job_that_has_not_begun() {
        let mut jobs = RunningJobs::default();
        jobs.end(&JobKey::Collection, Done::Listed);
        assert!(jobs.is_empty());
    }

    #[test]
    fn finish_keeps_the_export() {
        let mut jobs = RunningJobs::default();
        assert!(jobs.begin(&JobKey::Collection) && jobs.begin(&JobKey::Export));
        jobs.finish();
        assert_eq!(jobs.under_way(), [JobKey::Export].into());
    }
}
