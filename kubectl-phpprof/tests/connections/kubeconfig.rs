//! The form of a kubeconfig.

use serde_json::{Value, json};

/// A kubeconfig with one context. JSON is valid YAML.
pub fn config(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "ann", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "ann"}}],
    })
    .to_string()
}
