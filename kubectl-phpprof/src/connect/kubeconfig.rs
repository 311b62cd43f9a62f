//! Reads the text of a kubeconfig as kubectl does.
//!
//! Pure.
//!
//! Invariant: what kubectl refuses to load is refused here, and is never an empty kubeconfig: that
//! would be a reason to be somebody else, a pod's service account for instance. A message quotes
//! nothing of the file, which has credentials.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use secrecy::ExposeSecret as _;
use serde::Deserialize as _;
use serde_json::{Map, Value};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it is not text in UTF-8 or UTF-16")]
    Encoding,
    #[error("it is no YAML{0}")]
    Yaml(String),
    #[error("it has no fields")]
    NoFields,
    #[error("it is not a kubeconfig: its kind must be Config, and its apiVersion v1")]
    Kind,
    #[error("{0} is not what a kubeconfig has there; kubectl config view says more")]
    Field(String),
    #[error("{kind} {name:?} is there twice")]
    Twice { kind: &'static str, name: String },
    #[error("{field} of {name:?} is not base64")]
    Base64 { field: &'static str, name: String },
}

/// A file's kubeconfig; of several documents the first, as in kubectl. A file without content is an
/// empty one.
pub fn parsed(bytes: &[u8]) -> Result<Kubeconfig, Malformed> {
    let text = text(bytes).ok_or(Malformed::Encoding)?;
    let Some(first) = serde_yaml::Deserializer::from_str(&text).next() else {
        return Ok(Kubeconfig::default());
    };
    let mut document = serde_yaml::Value::deserialize(first).map_err(|error| no_yaml(&error))?;
    document.apply_merge().map_err(|error| no_yaml(&error))?;
    let document = serde_json::to_value(document).map_err(|_| Malformed::Yaml(String::new()))?;
    let fields = match document {
        Value::Null => return Ok(Kubeconfig::default()),
        Value::Object(fields) => fields,
        _ => return Err(Malformed::NoFields),
    };
    if !is_named(&fields, "kind", "Config") || !is_named(&fields, "apiVersion", "v1") {
        return Err(Malformed::Kind);
    }
    let read = |fields: &Map<String, Value>| Kubeconfig::deserialize(Value::Object(fields.clone()));
    let mut kubeconfig = read(&fields).map_err(|_| {
        let is_wrong = |(name, value): &(&String, &Value)| {
            read(&[((*name).clone(), (*value).clone())].into_iter().collect()).is_err()
        };
        let wrong = fields.iter().find(is_wrong).map_or("a field", |it| it.0);
        Malformed::Field(wrong.to_owned())
    })?;
    check(&kubeconfig)?;
    // Both are judged; kube would compare them between files.
    (kubeconfig.kind, kubeconfig.api_version) = (None, None);
    Ok(kubeconfig)
}

fn no_yaml(error: &serde_yaml::Error) -> Malformed {
    let place = error.location().map(|it| {
        let (line, column) = (it.line(), it.column());
        format!(": line {line}, column {column}")
    });
    Malformed::Yaml(place.unwrap_or_default())
}

fn text(bytes: &[u8]) -> Option<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        rest.is_empty().then(|| String::from_utf16(&units).ok())?
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => String::from_utf8(rest.to_vec()).ok(),
    }
}

/// Whether the field says this, or nothing: kubectl then takes it for said.
fn is_named(fields: &Map<String, Value>, field: &str, wanted: &str) -> bool {
    match fields.get(field) {
        None | Some(Value::Null) => true,
        Some(value) => value == wanted || value == "",
    }
}

/// What kubectl checks of each entry while it loads a file, also of those that no context names.
fn check(kubeconfig: &Kubeconfig) -> Result<(), Malformed> {
    once("cluster", kubeconfig.clusters.iter().map(|it| &it.name))?;
    once("user", kubeconfig.auth_infos.iter().map(|it| &it.name))?;
    once("context", kubeconfig.contexts.iter().map(|it| &it.name))?;
    for named in &kubeconfig.clusters {
        let cluster = named.cluster.as_ref();
        let data = cluster.and_then(|it| it.certificate_authority_data.as_deref());
        base64("certificate-authority-data", &named.name, data)?;
    }
    for named in &kubeconfig.auth_infos {
        let user = named.auth_info.as_ref();
        let certificate = user.and_then(|it| it.client_certificate_data.as_deref());
        let key = user.and_then(|it| it.client_key_data.as_ref());
        base64("client-certificate-data", &named.name, certificate)?;
        base64(
            "client-key-data",
            &named.name,
            key.map(|it| it.expose_secret()),
        )?;
    }
    Ok(())
}

fn once<'a>(kind: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), Malformed> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            let name = name.clone();
            return Err(Malformed::Twice { kind, name });
        }
    }
    Ok(())
}

fn base64(field: &'static str, name: &str, data: Option<&str>) -> Result<(), Malformed> {
    match decoded(data.unwrap_or_default()) {
        Some(_) => Ok(()),
        None => Err(Malformed::Base64 {
            field,
            name: name.to_owned(),
        }),
    }
}

/// The bytes of a field. Go's decoder passes line breaks over.
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let whole: String = text
        .chars()
        .filter(|it| !matches!(it, '\r' | '\n'))
        .collect();
    STANDARD.decode(whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "current-context: t\nclusters: [{name: c, cluster: {server: 'https://a'}}]\nusers: [{name: u, user: {token: x}}]\ncontexts: [{name: t, context: {cluster: c, user: u}}]\n";

    fn context(bytes: &[u8]) -> Result<Option<String>, Malformed> {
        parsed(bytes).map(|it| it.current_context)
    }

    #[test]
    fn a_kubeconfig_is_read_in_every_form() {
        let good = |bytes: &[u8]| assert_eq!(context(bytes), Ok(Some("t".into())));
        good(GOOD.as_bytes());
        good(format!("---\nkind: Config\napiVersion: v1\n{GOOD}").as_bytes());
        good(format!("kind: ''\n{GOOD}").as_bytes());
        good(format!("{GOOD}\n---\n: broken: [\n").as_bytes());
        good(format!("\u{feff}{GOOD}").as_bytes());
        let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let marked = format!("\u{feff}{GOOD}");
            marked.encode_utf16().flat_map(order).collect()
        };
        good(&wide(u16::to_le_bytes));
        good(&wide(u16::to_be_bytes));
        good(b"current-context: t\nclusters: null\nextra: 1\n");
        let merged = "x: &x {server: s}\nclusters: [{name: c, cluster: {<<: *x}}]\n";
        let clusters = parsed(merged.as_bytes()).unwrap().clusters;
        let server = clusters[0].cluster.clone().unwrap().server;
        assert_eq!(server.as_deref(), Some("s"));
    }

    #[test]
    fn a_file_without_content_is_an_empty_kubeconfig() {
        for empty in ["", " \n", "---\n", "# none\n", "null\n", "kind: Config\n"] {
            assert_eq!(context(empty.as_bytes()), Ok(None), "{empty:?}");
        }
        for wrong in [
            "kind: Config\nclusters: [",
            "text",
            "[]",
            "clusters:\n\t- name: c\n",
            "kind: Pod\n",
            "kind: config\n",
            "apiVersion: v2\n",
            "clusters: x",
            "clusters: {}",
            "clusters: [{cluster: {}}]",
            "users: [{name: u, user: {token: 123}}]",
            "users: [{name: u, user: {exec: {command: 5}}}]",
            "clusters: [{name: c, cluster: {insecure-skip-tls-verify: 'true'}}]",
            "contexts: [{name: c, context: {cluster: c, user: u, namespace: 5}}]",
            "clusters: [{name: c}, {name: c}]",
            "users: [{name: u, user: {client-key-data: '!'}}]",
            "current-context: a\ncurrent-context: b\n",
        ] {
            assert!(context(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        for wrong in [&b"kind: \xe9"[..], b"\xff\xfe{", b"\0"] {
            assert!(context(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_message_names_the_place_without_any_credential() {
        let said = |text: &str| parsed(text.as_bytes()).unwrap_err().to_string();
        for text in [
            "users: [{name: u, user: {token: {secret: 1}}}]",
            "users: [{name: u, user: {password: [secret]}}]",
            "users: [{name: u, user: {client-key-data: secret!}}]",
            "users: [{name: u, user: {token: secret",
            "users: [{name: u, user: {token: \"secret\\z\"}}]",
            "secret",
        ] {
            assert!(!said(text).contains("secret"), "{}", said(text));
        }
        let field = said("users: [{name: u, user: {token: {secret: 1}}}]");
        assert!(field.starts_with("users is not"), "{field}");
        assert!(said("clusters:\n\t- a\n").contains("line 2"));
    }
}
