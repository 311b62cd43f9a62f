//! Under which keys a request's files are stored.

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

/// The merged profile of all pods.
pub const MERGED: &str = "merged.pb.gz";
/// All that is known of a request's profiles.
pub const MANIFEST: &str = "manifest.json";

/// The key of a file of this request.
pub fn key(request: &ProfileRequest, prefix: &str, file: &str) -> String {
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let path = format!(
        "{namespace}/{name}-{}/{file}",
        request.uid().unwrap_or_default()
    );
    match prefix {
        "" => path,
        prefix => format!("{prefix}/{path}"),
    }
}

/// Beside an object: its presence says that its sampler shall stop.
pub fn stop_key(key: &str) -> String {
    format!("{key}.stop")
}
