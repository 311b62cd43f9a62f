//! The last version of a request that this operator wrote. A watch shows it a moment later, and
//! changes of pods arrive before that.
//!
//! Invariant: no decision is based on a version of a request that this operator has replaced. If
//! this memory is lost, the cost is a conflict and repeated work, nothing else.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

use crate::lifecycle::pace::StatusWrites;
use crate::lifecycle::status::is_over;

/// The last version of a request that this operator wrote.
#[derive(Debug)]
pub struct Written {
    request: Arc<ProfileRequest>,
    writes: StatusWrites,
    /// Earlier versions that the watch may still show.
    replaced: HashSet<String>,
}

/// How a version of a request that a watch shows relates to the one that was written.
#[derive(Debug, PartialEq)]
pub enum ShownVersion {
    /// The written one has replaced it. Has the written one.
    Replaced(Arc<ProfileRequest>),
    /// The written one, or somebody else's.
    Newest,
    /// The same, and the request is over. So nothing more is written that the watch may not show.
    Over,
}

impl Written {
    /// `written` is a version that replaced that one; `before` is the version that was written
    /// before it.
    pub fn after(
        before: Option<Written>,
        replaced: Option<String>,
        written: &ProfileRequest,
        now: Timestamp,
    ) -> Self {
        let count = before.as_ref().map_or(0, |before| before.writes.count);
        let mut versions = before.map(|before| before.replaced).unwrap_or_default();
        versions.extend(replaced);
        Written {
            request: Arc::new(written.clone()),
            writes: StatusWrites {
                count: count + 1,
                last: now,
            },
            replaced: versions,
        }
    }

    /// Compares with a version that the watch shows.
    pub fn compare(&mut self, seen: &ProfileRequest) -> ShownVersion {
        let version = seen.resource_version();
        if version.is_some_and(|version| self.replaced.contains(&version)) {
            return ShownVersion::Replaced(self.request.clone());
        }
        self.replaced.clear();
        if is_over(seen) {
            ShownVersion::Over
        } else {
            ShownVersion::Newest
        }
    }

    /// How often the request was written, and when last.
    pub fn writes(&self) -> StatusWrites {
        self.writes
    }
}
