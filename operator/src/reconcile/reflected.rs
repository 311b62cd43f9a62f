//! Keeps the objects of a watch in a store, and names those that have changed there.
//!
//! kube's `touched_objects` names the objects of a list as they arrive, but the store gets them all
//! when the list ends. If it has several pages, who looks in between finds the objects as they were
//! before, and nobody looks again.
//!
//! Invariant: an object is named when the store shows its change, or that it is gone, and not
//! earlier.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};

/// The objects of a watch that have changed in its store. After a list, these are all that it has,
/// and all that are gone since the list before.
pub(crate) fn reflected<K>(
    mut writer: Writer<K>,
    watch: impl Stream<Item = watcher::Result<Event<K>>>,
) -> impl Stream<Item = watcher::Result<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let known = writer.as_reader();
    let changed = move |event: Event<K>| {
        let before = match event {
            Event::InitDone => known.state(),
            _ => Vec::new(),
        };
        writer.apply_watcher_event(&event);
        let is_gone = |object: &Arc<K>| known.get(&ObjectRef::from_obj(&**object)).is_none();
        let changed = match event {
            Event::Init | Event::InitApply(_) => Vec::new(),
            Event::Apply(object) | Event::Delete(object) => vec![Arc::new(object)],
            Event::InitDone => {
                let gone = before.into_iter().filter(is_gone);
                known.state().into_iter().chain(gone).collect()
            }
        };
        stream::iter(changed).map(|object| Ok(Arc::unwrap_or_clone(object)))
    };
    watch.map_ok(changed).try_flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt as _;
    use kube::runtime::reflector::store;

    use super::*;

    fn pod(name: &str, version: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.resource_version = Some(version.to_owned());
        pod
    }

    #[tokio::test]
    async fn an_object_is_named_when_the_store_changes() {
        let events = [
            Event::Init,
            Event::InitApply(pod("old", "1")),
            Event::InitApply(pod("gone", "1")),
            Event::InitDone,
            Event::Apply(pod("old", "2")),
            Event::Init,
            Event::InitApply(pod("old", "3")),
            Event::InitApply(pod("new", "3")),
            Event::InitDone,
            Event::Delete(pod("new", "4")),
        ];
        let (known, writer) = store();
        let named = reflected(writer, stream::iter(events.map(Ok)));
        let looked_up = named.map_ok(|object| {
            let name = object.name_any();
            let found = known.get(&ObjectRef::new(&name));
            let version = found.and_then(|pod| pod.resource_version());
            format!("{name} {}", version.unwrap_or_default())
        });
        let mut looked_up: Vec<String> = looked_up.try_collect().await.unwrap();
        // A store has no order.
        looked_up[..2].sort();
        looked_up[3..6].sort();
        let expected = [
            "gone 1", "old 1", "old 2", "gone ", "new 3", "old 3", "new ",
        ];
        assert_eq!(looked_up, expected);
    }
}
