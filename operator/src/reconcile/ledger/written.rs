//! The last version of each request that this operator wrote. A watch shows it a moment later, and changes of pods arrive before that.
//!
//! Invariant: no decision is based on a version of a request that this operator has replaced. If this memory is lost, the cost is a
//! conflict and repeated work, nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

use crate::decide::pace::Writes;
use crate::reconcile::fleet::reference;
use crate::reconcile::watches::RequestRef;

/// The last version of each request that this operator wrote. A watch may show an older version for a while.
#[derive(Default)]
pub struct Written(Mutex<HashMap<RequestRef, Last>>);

struct Last {
    request: Arc<ProfileRequest>,
    writes: Writes,
    /// Earlier versions that the watch may still show, of this request or of an earlier one of its name.
    replaced: HashSet<String>,
}

impl Written {
    fn all(&self) -> MutexGuard<'_, HashMap<RequestRef, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that this write replaced that version.
    pub fn remember(&self, replaced: Option<String>, written: &ProfileRequest, now: Timestamp) {
        let mut all = self.all();
        let reference = reference(written);
        let before = all.remove(&reference);
        let count = before.as_ref().map_or(0, |last| last.writes.count);
        let mut versions = before.map(|last| last.replaced).unwrap_or_default();
        versions.extend(replaced);
        let writes = Writes {
            count: count + 1,
            last: now,
        };
        let last = Last {
            request: Arc::new(written.clone()),
            writes,
            replaced: versions,
        };
        all.insert(reference, last);
    }

    /// The version that was written, if the watch shows one that it replaced; otherwise the version from the watch.
    pub fn newest(&self, seen: &ProfileRequest) -> ProfileRequest {
        let (reference, version) = (reference(seen), seen.resource_version());
        let mut all = self.all();
        let Some(last) = all.get_mut(&reference) else {
            return seen.clone();
        };
        if version.is_some_and(|version| last.replaced.contains(&version)) {
            return ProfileRequest::clone(&last.request);
        }
        last.replaced.clear();
        let status = seen.status.as_ref();
        if status.is_some_and(|status| status.completion_time.is_some()) {
            all.remove(&reference);
        }
        seen.clone()
    }

    /// How often the request was written; `None` if never.
    pub fn writes(&self, request: &ProfileRequest) -> Option<Writes> {
        let all = self.all();
        all.get(&reference(request)).map(|last| last.writes)
    }

    /// Forgets a request that is gone.
    pub fn forget(&self, reference: &RequestRef) {
        self.all().remove(reference);
    }

    /// Forgets everything, because another replica handles requests now.
    pub fn forget_all(&self) {
        self.all().clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

    fn version(number: u32) -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}}));
        request.metadata.resource_version = Some(number.to_string());
        request
    }

    fn over(number: u32) -> ProfileRequest {
        let mut over = version(number);
        let status = json!({"completionTime": at(0)});
        over.status = serde_json::from_value(status).ok();
        over
    }

    fn newest(written: &Written, seen: &ProfileRequest) -> Option<String> {
        written.newest(seen).resource_version()
    }

    #[test]
    fn a_version_that_was_replaced_here_is_not_decided_on_and_any_other_one_is() {
        let written = Written::default();
        assert_eq!(newest(&written, &version(1)).as_deref(), Some("1"));
        written.remember(Some("1".into()), &version(2), at(1));
        written.remember(Some("2".into()), &version(3), at(2));
        for seen in [1, 2, 3] {
            assert_eq!(newest(&written, &version(seen)).as_deref(), Some("3"));
        }
        let writes = Writes {
            count: 2,
            last: at(2),
        };
        assert_eq!(written.writes(&version(1)), Some(writes));
        // Somebody else has changed the request.
        assert_eq!(newest(&written, &version(4)).as_deref(), Some("4"));
    }

    #[test]
    fn of_a_request_that_the_watch_shows_as_over_nothing_is_kept() {
        let written = Written::default();
        written.remember(Some("1".into()), &over(2), at(1));
        assert_eq!(newest(&written, &version(1)).as_deref(), Some("2"));
        assert_eq!(newest(&written, &over(2)).as_deref(), Some("2"));
        assert_eq!(written.writes(&version(1)), None);
    }
}
