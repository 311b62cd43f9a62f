//! What the operator remembers between two reconciliations: one entry for each request, in one
//! place.
//!
//! It is pure: it waits for nothing, and reads no clock. If it is lost, the cost is a conflict and
//! repeated work, nothing else.
//!
//! Invariant: all that is kept of a request is in its entry, so to forget a request is to drop its
//! entry. An entry with nothing in it is dropped too.

mod entry;
mod jobs;
mod samplers;
mod written;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

pub use entry::LedgerEntry;

use crate::lifecycle::effect::{Done, JobKey};
use crate::lifecycle::status::{is_over, is_running};
use crate::reconcile::watches::{RequestRef, reference};

/// Far more than can finish before a watch shows it.
const ENDED: usize = 1024;
/// Far more than wait for a place at the same time.
const SERVED: usize = 1024;

/// The entries, by name. The uid in an entry tells its request from a later one of the same name.
#[derive(Default)]
pub struct Ledger {
    entries: HashMap<RequestRef, LedgerEntry>,
    /// Uids of requests whose end the watch may not show yet, the latest at the end.
    ended: VecDeque<String>,
    /// Namespaces whose requests got places, the latest turn at the end.
    served: VecDeque<String>,
}

/// What a request that a watch has shown is to this operator.
#[derive(Debug, PartialEq)]
pub struct Arrival {
    /// The request. This operator's own last version of it, if the watch shows one that it
    /// replaced.
    pub newest: ProfileRequest,
    /// A request of the same name that ran. It must have been deleted meanwhile.
    pub deleted: Option<ProfileRequest>,
}

impl Ledger {
    /// Takes a request from a watch. Each reconciliation begins with this.
    pub fn arrive(&mut self, seen: &ProfileRequest) -> Arrival {
        let reference = reference(seen);
        let is_another = self
            .entries
            .get(&reference)
            .is_some_and(|entry| !entry.is_of(seen));
        let deleted = if is_another {
            self.forget(&reference)
        } else {
            None
        };
        let entry = self.entries.get_mut(&reference);
        let newest = entry.map_or_else(|| seen.clone(), |entry| entry.newest(seen));
        self.prune(&reference);
        Arrival { newest, deleted }
    }

    /// The entry of a request that has arrived. It is made if there is none.
    pub fn entry(&mut self, request: &ProfileRequest) -> &mut LedgerEntry {
        let made = || LedgerEntry::of(request);
        let entry = self.entries.entry(reference(request)).or_insert_with(made);
        if !entry.is_of(request) {
            *entry = LedgerEntry::of(request);
        }
        entry
    }

    /// The entry of a request, if something is remembered.
    pub fn get(&self, request: &ProfileRequest) -> Option<&LedgerEntry> {
        let entry = self.entries.get(&reference(request));
        entry.filter(|entry| entry.is_of(request))
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, request: &ProfileRequest) -> Option<&mut LedgerEntry> {
        let entry = self.entries.get_mut(&reference(request));
        entry.filter(|entry| entry.is_of(request))
    }

    /// Records whether the request runs. Of one that is over, it keeps what its end needs: the
    /// version that was written, and the export.
    pub fn see(&mut self, request: &ProfileRequest) {
        if is_running(request) {
            let is_new = self.entry(request).run(request);
            if is_new {
                self.serve(request.namespace().unwrap_or_default());
            }
        } else if let Some(entry) = self.get_mut(request) {
            let has_run = entry.end_run();
            if is_over(request) {
                entry.finish();
            }
            if has_run {
                self.end(request.uid());
            }
            self.prune(&reference(request));
        }
    }

    /// Records results of effects and jobs, as far as the next reconciliation needs them.
    pub fn record(&mut self, request: &ProfileRequest, done: &[Done], now: Timestamp) {
        if !done.is_empty() {
            self.entry(request).record(done, now);
            self.prune(&reference(request));
        }
    }

    /// Records that the operator wrote this version of a request, which replaced that one.
    pub fn wrote(&mut self, replaced: Option<String>, written: &ProfileRequest, now: Timestamp) {
        self.entry(written).wrote(replaced, written, now);
    }

    /// Records that a job begins. Returns whether none of its key was under way.
    pub fn begin(&mut self, request: &ProfileRequest, key: &JobKey) -> bool {
        self.entry(request).jobs.begin(key)
    }

    /// Records the outcome of a job. It is dropped if the request was forgotten meanwhile.
    pub fn end_job(&mut self, request: &ProfileRequest, key: &JobKey, done: Done) {
        if let Some(entry) = self.get_mut(request) {
            entry.jobs.end(key, done);
        }
    }

    /// Takes the outcomes of finished jobs.
    pub fn take_outcomes(&mut self, request: &ProfileRequest) -> Vec<Done> {
        let entry = self.get_mut(request);
        let outcomes = entry.map(|entry| entry.jobs.take()).unwrap_or_default();
        self.prune(&reference(request));
        outcomes
    }

    /// Forgets a request that is gone. Returns its last known state if it ran.
    pub fn forget(&mut self, reference: &RequestRef) -> Option<ProfileRequest> {
        let gone = self.entries.remove(reference)?.into_running()?;
        self.end(gone.uid());
        Some(Arc::unwrap_or_clone(gone))
    }

    /// Forgets all but which requests run, because another replica handles them now. This replica
    /// still has to notice their deletion.
    pub fn step_down(&mut self) {
        self.entries.retain(|_, entry| {
            entry.step_down();
            !entry.is_empty()
        });
    }

    /// Requests that run, by this operator's own last knowledge.
    pub fn running(&self) -> impl Iterator<Item = &ProfileRequest> {
        self.entries.values().filter_map(LedgerEntry::running)
    }

    /// Uids of requests that this operator saw finish. The watch may not show it yet.
    pub fn ended(&self) -> HashSet<&str> {
        self.ended.iter().map(String::as_str).collect()
    }

    /// Namespaces whose requests got places, the latest turn at the end.
    pub fn served(&self) -> Vec<&str> {
        self.served.iter().map(String::as_str).collect()
    }

    fn serve(&mut self, namespace: String) {
        self.served.retain(|served| *served != namespace);
        self.served.push_back(namespace);
        if self.served.len() > SERVED {
            self.served.pop_front();
        }
    }

    fn end(&mut self, uid: Option<String>) {
        self.ended.extend(uid);
        if self.ended.len() > ENDED {
            self.ended.pop_front();
        }
    }

    fn prune(&mut self, reference: &RequestRef) {
        if self
            .entries
            .get(reference)
            .is_some_and(LedgerEntry::is_empty)
        {
            self.entries.remove(reference);
        }
    }
}

#[cfg(test)]
mod tests;
