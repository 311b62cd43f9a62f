//! Credential plugins, as shell scripts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::authority::Pair;

const V1: &str = "client.authentication.k8s.io/v1";

/// A plugin that prints noise to standard error, and answers with this status.
pub fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(
        &path,
        format!("#!/bin/sh\necho noise of {name} >&2\n{body}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

pub fn answering(folder: &Path, name: &str, status: &serde_json::Value) -> PathBuf {
    let answer = serde_json::json!({"apiVersion": V1, "kind": "ExecCredential", "status": status});
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, answer.to_string()).unwrap();
    script(folder, name, &format!("cat '{}'", file.display()))
}

/// The status with a certificate.
pub fn certificate(pair: &Pair) -> serde_json::Value {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    serde_json::json!({"clientCertificateData": read(&pair.certificate), "clientKeyData": read(&pair.key)})
}

/// A user's entry.
pub fn user(command: &str, mode: &str) -> serde_json::Value {
    serde_json::json!({"exec": {"apiVersion": V1, "command": command, "interactiveMode": mode, "provideClusterInfo": true}})
}

/// A user's entry with these fields of `exec` in addition to the command.
pub fn user_with(command: &str, fields: &serde_json::Value) -> serde_json::Value {
    let mut exec = fields.clone();
    exec["command"] = command.into();
    serde_json::json!({"exec": exec})
}
