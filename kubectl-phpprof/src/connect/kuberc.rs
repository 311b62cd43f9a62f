//! Which credential plugins the user lets kubectl run: `credentialPluginPolicy` of a kuberc, since
//! Kubernetes 1.35.
//!
//! Only `load` reads a file. Sources: k8s.io/kubectl pkg/kuberc, and client-go
//! plugin/pkg/client/auth/exec.
//!
//! Invariant: no plugin runs that kubectl would refuse. A kuberc that is there and cannot be
//! understood permits none; kubectl would only warn of the one at home, and run all.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_yaml::Value;

use super::path;

/// What a kuberc permits, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubercPolicy {
    pub path: PathBuf,
    pub rule: PluginRule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginRule {
    AllowAll,
    DenyAll,
    /// Names and paths of programs.
    Allowlist(Vec<String>),
}

#[derive(Debug, thiserror::Error)]
pub enum KubercError {
    #[error("{path} cannot be read")]
    Read {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{path} says which credential plugins may run, and {why}")]
    Wrong { path: String, why: String },
}

/// The user's policy, if there is one.
pub fn load(
    home: Option<&Path>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<KubercPolicy>, KubercError> {
    let Some(place) = place(home, variable) else {
        return Ok(None);
    };
    let shown = || place.path.display().to_string();
    let text = match std::fs::read(&place.path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| KubercError::Wrong {
            path: shown(),
            why: "is not UTF-8".to_owned(),
        })?,
        Err(error) if !place.is_named && error.kind() == ErrorKind::NotFound => return Ok(None),
        // A home that belongs to somebody else. kubectl warns too.
        Err(error) if !place.is_named => {
            eprintln!("warning: {} cannot be read: {error}", shown());
            return Ok(None);
        }
        Err(error) => {
            let path = shown();
            return Err(KubercError::Read { path, error });
        }
    };
    let wrong = |why| KubercError::Wrong { path: shown(), why };
    match rule(&text).map_err(wrong)? {
        FoundPolicy::Rule(rule) => Ok(Some(KubercPolicy {
            path: place.path,
            rule,
        })),
        FoundPolicy::Nothing => Ok(None),
        FoundPolicy::OtherKinds if place.is_named => Err(wrong(
            "has no Preference of kubectl.config.k8s.io".to_owned(),
        )),
        FoundPolicy::OtherKinds => {
            eprintln!(
                "warning: {} has no Preference of kubectl.config.k8s.io",
                shown()
            );
            Ok(None)
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct KubercPlace {
    path: PathBuf,
    /// By KUBERC. Such a file must be there.
    is_named: bool,
}

fn place(home: Option<&Path>, variable: &dyn Fn(&str) -> Option<String>) -> Option<KubercPlace> {
    if variable("KUBECTL_KUBERC").is_some_and(|it| it.eq_ignore_ascii_case("false")) {
        return None;
    }
    match variable("KUBERC").filter(|it| !it.is_empty()) {
        Some(off) if off == "off" => None,
        Some(path) => Some(KubercPlace {
            path: path.into(),
            is_named: true,
        }),
        None => Some(KubercPlace {
            path: home?.join(".kube").join("kuberc"),
            is_named: false,
        }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum FoundPolicy {
    Rule(PluginRule),
    Nothing,
    OtherKinds,
}

/// The rule of the first Preference. An error says what is wrong with it.
fn rule(text: &str) -> Result<FoundPolicy, String> {
    let mut found = FoundPolicy::Nothing;
    for document in serde_yaml::Deserializer::from_str(text) {
        let document =
            Value::deserialize(document).map_err(|error| format!("is no YAML: {error}"))?;
        if document.is_null() {
            continue;
        }
        let word = |field| document.get(field).and_then(Value::as_str).unwrap_or("");
        match (word("apiVersion").split_once('/'), word("kind")) {
            // It has none of the fields.
            (Some(("kubectl.config.k8s.io", "v1alpha1")), "Preference") => {
                return Ok(FoundPolicy::Rule(PluginRule::AllowAll));
            }
            (Some(("kubectl.config.k8s.io", _)), "Preference") => {
                return of_preference(&document).map(FoundPolicy::Rule);
            }
            _ => found = FoundPolicy::OtherKinds,
        }
    }
    Ok(found)
}

fn of_preference(document: &Value) -> Result<PluginRule, String> {
    let wrong = |why: &str| Err(format!("its {why}"));
    let list = match document.get("credentialPluginAllowlist") {
        None | Some(Value::Null) => None,
        Some(Value::Sequence(entries)) => Some(entries),
        Some(_) => return wrong("credentialPluginAllowlist is not a list"),
    };
    let policy = match document.get("credentialPluginPolicy") {
        None | Some(Value::Null) => "",
        Some(Value::String(policy)) => policy,
        Some(_) => return wrong("credentialPluginPolicy is not text"),
    };
    match (policy, list) {
        ("" | "AllowAll", None) => Ok(PluginRule::AllowAll),
        ("DenyAll", None) => Ok(PluginRule::DenyAll),
        ("" | "AllowAll" | "DenyAll", Some(_)) => {
            wrong("credentialPluginAllowlist is set, but credentialPluginPolicy is not Allowlist")
        }
        ("Allowlist", None) => wrong("credentialPluginAllowlist is missing"),
        ("Allowlist", Some(entries)) if entries.is_empty() => {
            wrong("credentialPluginAllowlist is empty: write credentialPluginPolicy: DenyAll")
        }
        ("Allowlist", Some(entries)) => entries
            .iter()
            .map(entry)
            .collect::<Result<_, _>>()
            .map(PluginRule::Allowlist),
        _ => wrong("credentialPluginPolicy is none of AllowAll, DenyAll and Allowlist"),
    }
}

/// `name` is what Kubernetes 1.35 calls it.
fn entry(entry: &Value) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("an entry of its credentialPluginAllowlist {why}"));
    let word = |field| match entry.get(field) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    };
    let (Some(command), Some(name)) = (word("command"), word("name")) else {
        return wrong("is not text");
    };
    let command = match (command, name) {
        ("", "") => return wrong("has no command"),
        ("", name) => name,
        (command, "") => command,
        (command, name) if command == name => command,
        _ => return wrong("has a name and another command"),
    };
    if path::clean(command) == command {
        Ok(command.to_owned())
    } else {
        wrong("is not the shortest form of its path")
    }
}

impl PluginRule {
    /// Whether a kubeconfig's command may run. `resolved` is the program that will, and `find`
    /// finds one as the shell does.
    pub fn permits(
        &self,
        command: &str,
        resolved: &str,
        find: impl Fn(&str) -> Option<String>,
    ) -> bool {
        let entries = match self {
            PluginRule::AllowAll => return true,
            PluginRule::DenyAll => return false,
            PluginRule::Allowlist(entries) => entries,
        };
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        entries.iter().any(|entry| {
            entry == command
                || entry == resolved
                || (last(entry) == last(resolved) && find(entry).as_deref() == Some(resolved))
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            PluginRule::AllowAll => "AllowAll",
            PluginRule::DenyAll => "DenyAll",
            PluginRule::Allowlist(_) => "Allowlist",
        }
    }
}

#[cfg(test)]
#[path = "kuberc_tests.rs"]
mod tests;
