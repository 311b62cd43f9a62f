//! Under which keys a request's files are stored.
//!
//! Invariant: what is stored lies below the uid of its namespace, so that a namespace made anew has nothing of the old one's. Requests that an
//! older operator accepted have no such uid, and keep the keys that they had.

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

/// The merged profile of all pods.
pub const MERGED: &str = "merged.pb.gz";
/// The slowest requests of all pods, and what ran when.
pub const REQUESTS: &str = "requests.json.gz";
/// All that is known of a request's profiles.
pub const MANIFEST: &str = "manifest.json";
/// What was known of a request when it was accepted; there while it runs.
pub const RECORD: &str = "accepted.json";

/// What a uid of Kubernetes has.
pub const UID_LENGTH: usize = 36;

/// The key of a file of this request.
pub fn key(request: &ProfileRequest, prefix: &str, file: &str) -> String {
    below(prefix, &format!("{}/{file}", folder(request)))
}

/// The folder of a request's files, below the store's prefix.
pub fn folder(request: &ProfileRequest) -> String {
    let (namespace, uid) = (request.namespace().unwrap_or_default(), request.uid());
    let status = request.status.as_ref();
    let namespace = match status.and_then(|status| status.namespace_uid.as_deref()) {
        Some(namespace_uid) => namespace_folder(&namespace, namespace_uid),
        None => namespace,
    };
    let (name, uid) = (request.name_any(), uid.unwrap_or_default());
    format!("{namespace}/{}", request_folder(&name, &uid))
}

/// The folder of all that a namespace has stored, below the store's prefix.
pub fn namespace_folder(namespace: &str, namespace_uid: &str) -> String {
    format!("{namespace}/{namespace_uid}")
}

/// The folder of a request within that of its namespace.
pub fn request_folder(name: &str, uid: &str) -> String {
    format!("{name}-{uid}")
}

/// The key of a path below the store's prefix.
pub fn below(prefix: &str, path: &str) -> String {
    match prefix {
        "" => path.to_owned(),
        prefix => format!("{prefix}/{path}"),
    }
}

/// Beside the profile of a resident sampler's run: the run's receipt.
pub fn receipt_key(key: &str) -> String {
    format!("{key}.receipt")
}

/// Beside an object: its presence says that its sampler shall stop.
pub fn stop_key(key: &str) -> String {
    format!("{key}.stop")
}
