//! The record of a request: what the operator knew about it at its acceptance. The store has it
//! while the request runs.
//!
//! If the request is deleted, a later operator learns from it which samplers to stop and what they
//! may have stored.
//!
//! Invariant: a record describes only the folder that it is in.

use futures::Stream;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use phpprof_crds::ProfileRequest;
use phpprof_decide::limits::AdminLimits;

use super::collector::Collector;
use crate::sampler::object_keys::{MANIFEST, RECORD, key};
use crate::storage::manifest::LARGEST_MANIFEST;
use crate::storage::store::StoreError;

impl Collector {
    /// Writes the record of a request, unless there is one.
    ///
    /// # Errors
    /// The store does not accept it.
    pub async fn record(
        &self,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Result<(), StoreError> {
        let record = ProfileRequest {
            metadata: ObjectMeta {
                name: Some(request.name_any()),
                namespace: request.namespace(),
                uid: request.uid(),
                ..ObjectMeta::default()
            },
            ..request.clone()
        };
        // Serialising strings, numbers and lists cannot fail.
        let bytes = serde_json::to_vec(&record).unwrap_or_default();
        let key = key(request, &limits.key_prefix, RECORD);
        self.store.create(&key, bytes).await.map(drop)
    }

    /// The keys of all records.
    pub fn records(&self) -> impl Stream<Item = Result<String, StoreError>> + '_ {
        self.store.keys_ending(RECORD)
    }

    /// The request of a record; `None` if the record was deleted meanwhile, or is not one of
    /// phpprof.
    ///
    /// # Errors
    /// The record cannot be read.
    pub async fn recorded(
        &self,
        record: &str,
        limits: &AdminLimits,
    ) -> Result<Option<ProfileRequest>, StoreError> {
        let bytes = match self.store.read(record, LARGEST_MANIFEST).await {
            Ok(bytes) => bytes,
            Err(StoreError::Missing(_) | StoreError::TooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let request = serde_json::from_slice::<ProfileRequest>(&bytes).ok();
        Ok(request.filter(|request| {
            let folder = record.strip_suffix(RECORD).unwrap_or_default();
            let status = request.status.as_ref();
            let mut targets = status.into_iter().flat_map(|status| &status.targets);
            key(request, &limits.key_prefix, RECORD) == record
                && targets.all(|target| target.object_key.starts_with(folder))
        }))
    }

    /// Whether the request has its manifest.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn is_listed(
        &self,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Result<bool, StoreError> {
        let manifest = key(request, &limits.key_prefix, MANIFEST);
        Ok(self.store.size(&manifest).await?.is_some())
    }

    /// Deletes the record of a request that no longer needs one.
    ///
    /// # Errors
    /// The record cannot be deleted.
    pub async fn forget(
        &self,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Result<(), StoreError> {
        let record = key(request, &limits.key_prefix, RECORD);
        self.store.delete(&record).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use object_store::memory::InMemory;
    use phpprof_crds::{ProfileRequestStatus, TargetStatus};
    use serde_json::json;

    use super::*;
    use crate::lifecycle::deletion::deletion;
    use crate::storage::store::ProfileStore;
    use crate::testing::{NAMESPACE_UID, at, request};

    fn accepted() -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}, "durationSeconds": 130}));
        request.metadata.annotations = Some([("x".into(), "y".repeat(1 << 20))].into());
        request.status = Some(ProfileRequestStatus {
            start_time: Some(Time(at(0))),
            namespace_uid: Some(NAMESPACE_UID.into()),
            ..ProfileRequestStatus::default()
        });
        let target = TargetStatus {
            pod_uid: "web".into(),
            object_key: key(&request, "", "web.pb.gz"),
            checkpoint_seconds: Some(60),
            ..TargetStatus::default()
        };
        request.status.as_mut().unwrap().targets = vec![target];
        request
    }

    #[tokio::test]
    async fn a_record_decides_the_same_as_its_request() {
        let (request, limits) = (accepted(), AdminLimits::default());
        let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
        let collector = Collector::new(store.clone());
        collector.record(&request, &limits).await.unwrap();
        let keys: Vec<_> = futures::TryStreamExt::try_collect(collector.records())
            .await
            .unwrap();
        let [record]: [String; 1] = keys.try_into().unwrap();
        assert!(store.size(&record).await.unwrap().unwrap() < 4096);
        let recorded = collector.recorded(&record, &limits).await.unwrap().unwrap();
        let decided = deletion(at(30), &recorded, &limits);
        assert_eq!(decided, deletion(at(30), &request, &limits));
        assert_eq!(decided.unwrap().cancellations.len(), 1);
        assert!(!collector.is_listed(&recorded, &limits).await.unwrap());
        collector.list(&recorded, &limits).await;
        assert!(collector.is_listed(&recorded, &limits).await.unwrap());
        collector.forget(&recorded, &limits).await.unwrap();
        assert_eq!(collector.recorded(&record, &limits).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_record_of_another_folder_is_none() {
        let (request, limits) = (accepted(), AdminLimits::default());
        let collector = Collector::new(ProfileStore::in_memory(Arc::new(InMemory::new())));
        let check = async |change: fn(&mut ProfileRequest)| {
            let mut lie = request.clone();
            change(&mut lie);
            let place = format!("elsewhere/{RECORD}");
            let bytes = serde_json::to_vec(&lie).unwrap();
            for place in [&place, &key(&request, "", RECORD)] {
                collector.store.delete(place).await.unwrap();
                collector.store.create(place, bytes.clone()).await.unwrap();
                let read = collector.recorded(place, &limits).await.unwrap();
                assert_eq!(read, None);
            }
        };
        check(|lie| lie.metadata.name = Some("second".into())).await;
        check(|lie| {
            let target = &mut lie.status.as_mut().unwrap().targets[0];
            target.object_key = "blog/web.pb.gz".into();
        })
        .await;
    }
}
