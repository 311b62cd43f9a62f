//! Merges the profiles of a request's pods, and writes the manifest of everything that is stored of
//! the request.
//!
//! Invariant: labels, time and duration of a pod's profile come from the operator, so no upload can
//! claim to be another pod's. Objects that the operator stored before a restart stay.

use phpprof_crds::{
    ProfileMode, ProfileRequest, ProfileRequestSpec, ProfileResult, Secret, TargetReason,
    TargetState, TargetStatus,
};
use phpprof_decide::limits::AdminLimits;
use phpprof_profile::in_use::{InHeap, is_in_use};
use phpprof_profile::{
    MergeLimits, Merged, Merger, SampleSource as _, Settings, TrustedMetadata, labels,
};

use super::collector::{Collector, Fault, PackedUpload, beside};
use crate::lifecycle::checkpoints::lists_requests;
use crate::lifecycle::effect::{Changed, Done, changed_in};
use crate::sampler::object_keys::{MANIFEST, MERGED, key};
use crate::sampler::receipt::UploadReceipt;
use crate::storage::manifest::{StoredRequestList, manifest};

/// The index of the sample type that receipts count.
const SAMPLES: usize = 0;

impl Collector {
    /// Stores the merged profile, then the manifest. A restarted operator would store the same.
    pub async fn merge(&self, request: &ProfileRequest, limits: &AdminLimits) -> Done {
        match self.try_merge(request, limits).await {
            Ok(StoredObjects {
                profile,
                note,
                changed,
            }) => Done::Merged {
                profile,
                note,
                changed,
                links: Vec::new(),
                cancelled: request.spec.cancel.then(|| "cancelled".to_owned()),
            },
            Err(Fault::Store(message)) => Done::StoreAway(message),
            // The pods' own profiles are in the store, so the manifest still lists them.
            Err(Fault::Target(_, message)) => match self.list(request, limits).await {
                Done::Listed => Done::MergeFailed(message),
                away => away,
            },
        }
    }

    /// Stores the manifest of a request without a merged profile.
    pub async fn list(&self, request: &ProfileRequest, limits: &AdminLimits) -> Done {
        let key = key(request, &limits.key_prefix, MANIFEST);
        match self.create(&key, manifest(request, None, None)).await {
            Ok(_) => Done::Listed,
            Err(Fault::Store(message) | Fault::Target(_, message)) => Done::StoreAway(message),
        }
    }

    async fn try_merge(
        &self,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Result<StoredObjects, Fault> {
        let targets: Vec<TargetStatus> = request
            .status
            .iter()
            .flat_map(|status| &status.targets)
            .filter(|target| target.state == TargetState::Uploaded)
            .cloned()
            .collect();
        let pods = targets.len();
        let _alone = self.merging.acquire().await;
        let settings = settings(&request.spec);
        let mut merger = Merger::new(&settings, pods, MergeLimits::default(), &labels::OF_WORKERS);
        let (mut changed, mut in_heap) = (Vec::new(), None);
        for target in targets {
            let _turn = self.desk.acquire().await;
            match self.upload(&target.object_key, &receipt_of(&target)).await {
                Ok(upload) if !is_as_asked(&upload, request) => changed.push(unlike(target)),
                Ok(upload) => {
                    in_heap = [in_heap, upload.receipt.in_heap]
                        .into_iter()
                        .flatten()
                        .reduce(InHeap::and);
                    merger = add(merger, upload, request, target, limits).await?;
                }
                Err(Fault::Target(reason, message)) => {
                    changed.push(Changed::of(target, reason, message))
                }
                Err(away) => return Err(away),
            }
        }
        if let [first, ..] = changed.as_slice()
            && changed.len() == pods
        {
            return Err(Fault::Target(first.reason, first.message.clone()));
        }
        let merged = beside(move || merger.finish()).await;
        let merged = merged
            .map_err(unmerged)?
            .map_err(|error| unmerged(error.to_string()))?;
        let note = note(&merged, in_heap.as_ref());
        self.store_merged(request, merged, note, changed, limits)
            .await
    }

    async fn store_merged(
        &self,
        request: &ProfileRequest,
        merged: Merged,
        note: String,
        changed: Vec<Changed>,
        limits: &AdminLimits,
    ) -> Result<StoredObjects, Fault> {
        let samples = total(&merged, SAMPLES);
        let merged_key = key(request, &limits.key_prefix, MERGED);
        let size = self.create(&merged_key, merged.file).await?;
        let profile = ProfileResult {
            url: self.store.uri(&merged_key),
            samples,
            size_bytes: i64::try_from(size).unwrap_or(i64::MAX),
            access_key: Secret::default(),
        };
        let (list, dropped) = if lists_requests(request) {
            self.store_requests(request, limits)
                .await
                .map(|it| (Some(it.0), it.1))?
        } else {
            (None, String::new())
        };
        let mut request = request.clone();
        let targets = request
            .status
            .iter_mut()
            .flat_map(|status| &mut status.targets);
        changed_in(targets, &changed);
        let listed = list
            .as_ref()
            .map(|(key, size_bytes, pods)| StoredRequestList {
                object_key: key,
                size_bytes: *size_bytes,
                pods: *pods,
            });
        let manifest = manifest(&request, Some((&merged_key, &profile)), listed);
        self.create(&key(&request, &limits.key_prefix, MANIFEST), manifest)
            .await?;
        let notes = [note, dropped].into_iter().filter(|note| !note.is_empty());
        Ok(StoredObjects {
            profile,
            note: notes.collect::<Vec<_>>().join("; "),
            changed,
        })
    }
}

/// The metadata of the merged profile.
fn settings(spec: &ProfileRequestSpec) -> Settings {
    if spec.mode == ProfileMode::Heap {
        return Settings::in_use();
    }
    let mut settings = Settings::default();
    if spec.heap {
        settings = settings.with_heap();
    }
    if spec.include_suspended {
        settings = settings.with_fibers();
    }
    settings.period = 1_000_000_000 / i64::from(spec.samples_per_second.max(1));
    settings
}

/// Whether a profile is of what is in heaps if and only if the request asks for that. Anyone with
/// the pod's grants can have written another one, which would not go into the merged profile.
fn is_as_asked(upload: &PackedUpload, request: &ProfileRequest) -> bool {
    is_in_use(upload.profile.head()) == (request.spec.mode == ProfileMode::Heap)
}

fn unlike(target: TargetStatus) -> Changed {
    Changed {
        message: format!(
            "the profile of pod {} has other sample types than the request's mode",
            target.pod_name
        ),
        pod_uid: target.pod_uid,
        reason: TargetReason::InvalidProfile,
    }
}

/// The stored objects.
struct StoredObjects {
    profile: ProfileResult,
    note: String,
    changed: Vec<Changed>,
}

async fn add(
    mut merger: Merger,
    upload: PackedUpload,
    request: &ProfileRequest,
    target: TargetStatus,
    limits: &AdminLimits,
) -> Result<Merger, Fault> {
    let span = SampleSpan::of(request, limits);
    let namespace = request.metadata.namespace.clone().unwrap_or_default();
    let added = beside(move || {
        let head = upload.profile.head();
        let known = TrustedMetadata {
            labels: vec![
                ("namespace", &namespace),
                ("pod", &target.pod_name),
                ("container", &target.container_name),
            ],
            time_nanos: span.time(head.time_nanos),
            duration_nanos: head.duration_nanos.clamp(0, span.longest),
        };
        merger.add(&upload.profile, &known).map(|()| merger)
    });
    added
        .await
        .map_err(unmerged)?
        .map_err(|error| unmerged(error.to_string()))
}
/// The earliest and the latest start of a request's samples, whatever a node's clock says, and
/// their longest duration; in nanoseconds.
pub(super) struct SampleSpan {
    first: i64,
    last: i64,
    pub(super) longest: i64,
}

impl SampleSpan {
    pub(super) fn of(request: &ProfileRequest, limits: &AdminLimits) -> Self {
        let nanos = |seconds: i64| seconds.saturating_mul(1_000_000_000);
        let start = request
            .status
            .as_ref()
            .and_then(|status| status.start_time.as_ref());
        let first = start.map_or(0, |start| nanos(start.0.as_second()));
        SampleSpan {
            first,
            // In this time, the sampler is added and then starts.
            last: first.saturating_add(nanos(2 * limits.start_slack.as_secs())),
            // The duration was rounded.
            longest: nanos(i64::from(request.spec.duration_seconds) + 1),
        }
    }

    pub(super) fn time(&self, said: i64) -> i64 {
        said.clamp(self.first, self.last.max(self.first))
    }
}

fn total(merged: &Merged, index: usize) -> i64 {
    merged.totals.get(index).copied().unwrap_or_default()
}

/// Says which part of the merged profile is combined because there was no room, and what is missing
/// of heaps. Empty if there was room for everything.
fn note(merged: &Merged, in_heap: Option<&InHeap>) -> String {
    let mut notes = in_heap.map_or_else(Vec::new, InHeap::losses);
    if in_heap.is_some() && total(merged, SAMPLES) == 0 {
        notes.push("the heaps hold nothing: php-fpm empties its heap between requests".to_owned());
    }
    if merged.cut > 0 {
        // Wall time, or the bytes of what is in heaps, is the last sample type.
        let last = |values: &[i64]| values.last().copied().unwrap_or_default();
        let percent = 100.0 * last(&merged.other) as f64 / last(&merged.totals).max(1) as f64;
        let of = in_heap.map_or("time", |_| "bytes");
        notes.push(format!(
            "{percent:.1} % of the {of} is [other]: {} of the profiles have more stacks than a merged profile may have; each pod's own profile is complete",
            merged.cut
        ));
    }
    notes.join("; ")
}

fn unmerged(message: String) -> Fault {
    let message = format!("{message}; each pod's profile is in the store");
    Fault::Target(TargetReason::InvalidProfile, message)
}

fn receipt_of(target: &TargetStatus) -> UploadReceipt {
    UploadReceipt {
        route: target.upload_mode,
        samples: target.samples.unwrap_or_default(),
        size: target
            .size_bytes
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or_default(),
        sha256: target.sha256.clone(),
    }
}

#[cfg(test)]
mod tests;
