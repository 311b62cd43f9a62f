//! The scopes of the operator: the whole cluster, or the namespaces that the administrator named.

use std::fmt::Debug;
use std::hash::Hash;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource};

/// One `Api` for each namespace, or one for the whole cluster if there are no namespaces.
pub fn scopes<K>(client: &Client, namespaces: &[String]) -> Vec<Api<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespaces {
        [] => vec![Api::all(client.clone())],
        some => some
            .iter()
            .map(|name| Api::namespaced(client.clone(), name))
            .collect(),
    }
}

/// Splits the changes by namespace. The future moves them to the receivers. Without namespaces,
/// there is one receiver.
pub fn routed<K>(
    mut changes: UnboundedReceiver<ObjectRef<K>>,
    namespaces: Vec<String>,
) -> (
    impl Future<Output = ()> + Send,
    Vec<UnboundedReceiver<ObjectRef<K>>>,
)
where
    K: Resource<DynamicType = ()> + 'static,
    ObjectRef<K>: Send + Debug + Hash,
{
    let count = namespaces.len().max(1);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded()).unzip();
    let routes = async move {
        while let Some(change) = changes.next().await {
            let of = |name: &String| Some(name) == change.namespace.as_ref();
            let place = if namespaces.is_empty() {
                Some(0)
            } else {
                namespaces.iter().position(of)
            };
            if let Some(sender) = place.and_then(|place| senders.get(place)) {
                // A closed channel means that the controller has ended, and soon the process will.
                let _ = sender.unbounded_send(change);
            }
        }
    };
    (routes, receivers)
}
