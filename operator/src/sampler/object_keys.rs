//! The keys of a request's files.
//!
//! Invariant: keys contain the uid of the namespace, so that a recreated namespace has none of the
//! old one's objects. Requests that an older operator accepted have no such uid, and keep their
//! keys.

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

/// The merged profile of all pods.
pub const MERGED: &str = "merged.pb.gz";
/// The slowest requests of all pods, and what ran when.
pub const REQUESTS: &str = "requests.json.gz";
/// Everything that is known about a request's profiles.
pub const MANIFEST: &str = "manifest.json";
/// What was known about a request at its acceptance. It exists while the request runs.
pub const RECORD: &str = "accepted.json";

/// The length of a Kubernetes uid.
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

/// The folder of everything that a namespace has stored, below the store's prefix.
pub fn namespace_folder(namespace: &str, namespace_uid: &str) -> String {
    format!("{namespace}/{namespace_uid}")
}

/// The folder of a request in that of its namespace.
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

/// The receipt of a resident sampler's run, next to the run's profile.
pub fn receipt_key(key: &str) -> String {
    format!("{key}.receipt")
}

/// The object whose presence tells a sampler to stop, next to the sampler's own object.
pub fn stop_key(key: &str) -> String {
    format!("{key}.stop")
}
