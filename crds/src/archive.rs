//! What a namespace has stored, and the right to read it: ProfileArchive, of which each namespace has one.
//!
//! The operator makes it with the namespace's first accepted request. Who may get it may read every profile that is stored of the namespace, also
//! those whose requests are gone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of a namespace's only ProfileArchive.
pub const ARCHIVE: &str = "profiles";

/// What can be said about a namespace's archive.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "phpprof.dev",
    version = "v1alpha1",
    kind = "ProfileArchive",
    plural = "profilearchives",
    doc = "Opens what is stored of the profiles of a namespace. The operator makes it, with the name profiles.",
    category = "phpprof",
    namespaced,
    cel,
    status = "ProfileArchiveStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'profiles'")
        .message("a namespace has one ProfileArchive, whose name is profiles; the operator makes it"),
    printcolumn = r#"{"name":"Profiles","type":"integer","description":"Requests of which profiles are stored.","jsonPath":".status.profiles"}"#,
    printcolumn = r#"{"name":"Bytes","type":"integer","description":"What they take in the store.","jsonPath":".status.bytes"}"#,
    printcolumn = r#"{"name":"Updated","type":"date","jsonPath":".status.lastUpdateTime"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ProfileArchiveSpec {
    /// Raise it to have another status.accessKey; the one before opens nothing from then on. It cannot go down.
    #[serde(default)]
    #[x_kube(
        validation = Rule::new("self >= 0").message("accessKeyGeneration must be 0 or more"),
        validation = Rule::new("self >= oldSelf")
            .message("accessKeyGeneration cannot go down, because old access keys would open the archive again; raise it instead")
    )]
    pub access_key_generation: i64,
}

/// How the archive is opened, and what is in it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileArchiveStatus {
    /// UID of the namespace: what is stored lies in a folder of that name, and accessKey opens no other.
    #[serde(rename = "namespaceUID")]
    #[schemars(length(max = 128))]
    pub namespace_uid: String,
    /// Opens all that is stored of the namespace at the operator: POST {"accessKey": …} to /a/NAMESPACE there.
    #[schemars(length(max = 256))]
    pub access_key: String,
    /// Where the operator is reached, if the administrator has said so; else through the API server's proxy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub url: String,
    /// Requests of which profiles are stored. Absent until they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<i64>,
    /// What all that is stored takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// When this status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}
