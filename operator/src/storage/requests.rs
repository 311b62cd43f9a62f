//! Merges the pods' lists of HTTP requests into one.
//!
//! Invariant: a list is not trusted: its size is limited and it is decoded within bounds. Pod and
//! time come from the operator. An invalid list is left out and reported, and of a valid list an
//! invalid table of cells. The merged profile is stored whatever happens to the lists.

use phpprof_crds::{ProfileRequest, TargetState};
use phpprof_decide::limits::AdminLimits;
use phpprof_profile::timeline::{
    MAX_BYTES, Timeline, TimelineMerger, decode_without_bad_cells, encode_within,
};

use super::collector::{Collector, Fault, beside};
use super::merge::SampleSpan;
use crate::lifecycle::checkpoints::requests_key;
use crate::sampler::object_keys::{REQUESTS, key};
use crate::storage::store::StoreError;

/// The most pods that are named if their lists are left out.
const NAMED: usize = 3;
/// Memory of a list while it is merged. The largest decoded list has a million moments of 24 bytes,
/// 16 MiB of texts and 8 MiB of other data. The merged list has the same amount of texts, which its
/// tree contains twice. While it takes over a list, there are two trees. A decoded table of cells
/// has 3 MiB and names of 2 MiB; the merged one has 5 MiB, twice while it changes, and names of
/// 8 MiB.
pub const OPENED: usize =
    MAX_BYTES + (24 << 20) + 2 * (16 << 20) + (8 << 20) + 3 * (20 << 20) + (24 << 20);

/// Key, size in bytes, and the number of pods whose list is in it.
pub(super) type StoredList = (String, u64, usize);

impl Collector {
    /// Stores the list of all pods, under the permit for merging. Also returns which pods' lists
    /// are missing from it, and why.
    pub(super) async fn store_requests(
        &self,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Result<(StoredList, String), Fault> {
        let targets = request.status.iter().flat_map(|status| &status.targets);
        let targets = targets.filter(|target| target.state == TargetState::Uploaded);
        let (mut merger, mut pods) = (TimelineMerger::new(), 0);
        let (mut dropped, mut without_cells) = (Vec::new(), Vec::new());
        for target in targets {
            let span = SampleSpan::of(request, limits);
            let file = match self
                .store
                .read(&requests_key(target), MAX_BYTES as u64)
                .await
            {
                Ok(file) => file,
                // The sampler's receipt says why, or the sampler was gone before it stored the
                // list.
                Err(StoreError::Missing(_) | StoreError::Denied(_)) => continue,
                Err(StoreError::TooLarge { .. }) => {
                    dropped.push(format!("{}: it is too large", target.pod_name));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let pod = target.pod_name.clone();
            let added = beside(move || match known(&file, &span) {
                Ok((list, fault)) => {
                    let other = merger.add(list, &pod);
                    (merger, Ok(fault.or(other)))
                }
                Err(why) => (merger, Err(why)),
            });
            let why;
            (merger, why) = added.await.map_err(Fault::Store)?;
            match why {
                Ok(fault) => {
                    pods += 1;
                    let named = fault.map(|fault| format!("{}: {fault}", target.pod_name));
                    without_cells.extend(named);
                }
                Err(why) => dropped.push(format!("{}: {why}", target.pod_name)),
            }
        }
        let file = beside(move || encode_within(merger.finish(), MAX_BYTES)).await;
        let file = file.and_then(|file| file.map_err(|error| error.to_string()));
        let key = key(request, &limits.key_prefix, REQUESTS);
        let size = self.create(&key, file.map_err(Fault::Store)?).await?;
        let notes = [
            note("the list of requests lacks pods", &dropped),
            note("it lacks the cells of pods", &without_cells),
        ];
        let notes: Vec<String> = notes.into_iter().filter(|it| !it.is_empty()).collect();
        Ok(((key, size, pods), notes.join("; ")))
    }
}

/// A pod's list with its time and duration limited to those of the request. Also returns what is
/// wrong with its cells, which it then lacks.
fn known(file: &[u8], span: &SampleSpan) -> Result<(Timeline, Option<&'static str>), String> {
    let (mut list, fault) = decode_without_bad_cells(file).map_err(|error| error.to_string())?;
    list.began_unix_nanoseconds = span.time(list.began_unix_nanoseconds);
    list.duration_nanoseconds = list.duration_nanoseconds.min(span.longest);
    if list.step_nanoseconds > span.longest {
        return Err("its steps are longer than the run".to_owned());
    }
    Ok((list, fault))
}

/// Empty if nothing was left out.
fn note(what: &str, dropped: &[String]) -> String {
    let more = match dropped.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named: Vec<&str> = dropped.iter().take(NAMED).map(String::as_str).collect();
    if named.is_empty() {
        String::new()
    } else {
        format!("{what}: {}{more}", named.join(", "))
    }
}

#[cfg(test)]
mod tests;
