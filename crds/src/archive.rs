//! ProfileArchive: the right to read all stored profiles of a namespace. Each namespace has one.
//!
//! The operator creates it with the namespace's first accepted request. Users who may get it may
//! read every stored profile of the namespace, even profiles whose requests were deleted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Secret;

/// The name of a namespace's only ProfileArchive.
pub const ARCHIVE: &str = "profiles";

/// What can be said about a namespace's archive.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "phpprof.dev",
    version = "v1alpha1",
    kind = "ProfileArchive",
    plural = "profilearchives",
    doc = "Opens the stored profiles of a namespace. The operator creates it, with the name profiles.",
    category = "phpprof",
    namespaced,
    cel,
    status = "ProfileArchiveStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'profiles'")
        .message("a namespace has one ProfileArchive, named profiles; the operator creates it"),
    printcolumn = r#"{"name":"Profiles","type":"integer","description":"Requests with stored profiles.","jsonPath":".status.profiles"}"#,
    printcolumn = r#"{"name":"Bytes","type":"integer","description":"Bytes of these profiles in the store.","jsonPath":".status.bytes"}"#,
    printcolumn = r#"{"name":"Updated","type":"date","jsonPath":".status.lastUpdateTime"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ProfileArchiveSpec {
    /// Raise it to get another status.accessKey. The old key then opens nothing. The number cannot
    /// go down.
    #[serde(default)]
    #[x_kube(
        validation = Rule::new("self >= 0").message("accessKeyGeneration must be 0 or more"),
        validation = Rule::new("self >= oldSelf")
            .message("accessKeyGeneration cannot go down, because old access keys would open the archive again; raise it instead")
    )]
    pub access_key_generation: i64,
}

/// The archive's access key, and what the archive contains.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileArchiveStatus {
    /// UID of the namespace. Its stored profiles are in a folder of that name. accessKey does not
    /// open any other folder.
    #[serde(rename = "namespaceUID")]
    #[schemars(length(max = 128))]
    pub namespace_uid: String,
    /// Opens all stored profiles of the namespace: POST {"accessKey": …} to /a/NAMESPACE at the
    /// operator.
    #[schemars(length(max = 256))]
    pub access_key: Secret,
    /// URL of the operator's results, if the administrator has set one. Otherwise use the API
    /// server's proxy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub url: String,
    /// Requests with stored profiles. Absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<i64>,
    /// Bytes of all stored profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// When this status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}
