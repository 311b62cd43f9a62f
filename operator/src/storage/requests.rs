//! Makes one list of HTTP requests of those of a request's pods.
//!
//! Invariant: a list is not trusted: it is read up to its largest size and decoded within bounds, its pod and its time are those that the
//! operator knows, and what is none of ours is left out and said. Whatever becomes of lists, the merged profile is there.

use phpprof_crds::{ProfileRequest, TargetState};
use phpprof_profile::timeline::{MAX_BYTES, Merger, Timeline, decode, encode_within};

use super::collector::{Collector, Fault, beside};
use super::merge::Span;
use crate::decide::checkpoints::requests_key;
use crate::decide::limits::Limits;
use crate::sampler::object_keys::{REQUESTS, key};
use crate::storage::store::StoreError;

/// Pods that are named when their lists are left out.
const NAMED: usize = 3;
/// Memory of a list while it is merged. The largest that is decoded has a million moments of 24 bytes, 16 MiB of texts and 8 MiB of all else; the
/// merged one has as many texts, in its tree twice, and while it takes over a list there are two trees.
pub const OPENED: usize = MAX_BYTES + (24 << 20) + 2 * (16 << 20) + (8 << 20) + 3 * (20 << 20);

/// Key, size in bytes, and the number of pods whose list is in it.
pub(super) type List = (String, u64, usize);

impl Collector {
    /// Stores the list of all pods, in the turn of merging; says also which pods' lists are not in it, and why.
    pub(super) async fn store_requests(
        &self,
        request: &ProfileRequest,
        limits: &Limits,
    ) -> Result<(List, String), Fault> {
        let targets = request.status.iter().flat_map(|status| &status.targets);
        let targets = targets.filter(|target| target.state == TargetState::Uploaded);
        let (mut merger, mut pods, mut dropped) = (Merger::new(), 0, Vec::new());
        for target in targets {
            let span = Span::of(request, limits);
            let file = match self
                .store
                .read(&requests_key(target), MAX_BYTES as u64)
                .await
            {
                Ok(file) => file,
                // Its sampler has said why in its receipt, or was gone before it.
                Err(StoreError::Missing(_) | StoreError::Denied) => continue,
                Err(StoreError::TooLarge { .. }) => {
                    dropped.push(format!("{}: it is too large", target.pod_name));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let pod = target.pod_name.clone();
            let added = beside(move || match known(&file, &span) {
                Ok(list) => {
                    merger.add(list, &pod);
                    (merger, Ok(()))
                }
                Err(why) => (merger, Err(why)),
            });
            let why;
            (merger, why) = added.await.map_err(Fault::Store)?;
            match why {
                Ok(()) => pods += 1,
                Err(why) => dropped.push(format!("{}: {why}", target.pod_name)),
            }
        }
        let file = beside(move || encode_within(merger.finish(), MAX_BYTES)).await;
        let file = file.and_then(|file| file.map_err(|error| error.to_string()));
        let key = key(request, &limits.key_prefix, REQUESTS);
        let size = self.create(&key, file.map_err(Fault::Store)?).await?;
        Ok(((key, size, pods), note(&dropped)))
    }
}

/// A list of a run as long as this one, at its time.
fn known(file: &[u8], span: &Span) -> Result<Timeline, String> {
    let mut list = decode(file).map_err(|error| error.to_string())?;
    list.began_unix_nanoseconds = span.time(list.began_unix_nanoseconds);
    list.duration_nanoseconds = list.duration_nanoseconds.min(span.longest);
    if list.step_nanoseconds > span.longest {
        return Err("its steps are longer than the run".to_owned());
    }
    Ok(list)
}

/// Nothing where no list was left out.
fn note(dropped: &[String]) -> String {
    let more = match dropped.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named: Vec<&str> = dropped.iter().take(NAMED).map(String::as_str).collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(
            "the list of requests lacks pods: {}{more}",
            named.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests;
