//! The command line of a schedule's CronJob: which runs it starts and keeps, and where their pods
//! run.
//!
//! It reads text only.
//!
//! Invariant: the API server accepts each label that is accepted here. It does not check the labels
//! of requests before the first run, because they are in a file.

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::Toleration;

/// The image of the release that this plugin belongs to, which `release/build` names.
const IMAGE: &str = match option_env!("PHPPROF_PLUGIN_IMAGE") {
    Some(image) => image,
    None => concat!("phpprof.dev/kubectl-phpprof:", env!("CARGO_PKG_VERSION")),
};

/// The same as the chart's values for its schedules.
#[derive(Args, Debug, Clone)]
pub struct JobArguments {
    /// Label of the requests. May be repeated.
    #[arg(long = "request-label", value_name = "KEY=VALUE", value_parser = label)]
    pub request_labels: Vec<(String, String)>,
    /// What happens if the Job of the previous run has not ended. A Job ends as soon as its request
    /// exists.
    #[arg(long, value_name = "POLICY", default_value = "forbid")]
    pub concurrency_policy: ConcurrencyPolicy,
    /// How late a run may start, at least 10s. A later run is skipped.
    #[arg(long, value_name = "DURATION", value_parser = starting_deadline, default_value = "60s")]
    pub starting_deadline: u64,
    /// How many successful Jobs to keep.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub successful_jobs_history_limit: u16,
    /// How many failed Jobs to keep.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub failed_jobs_history_limit: u16,
    /// Label of the nodes that the pods run on. May be repeated.
    #[arg(long = "node-selector", value_name = "KEY=VALUE", value_parser = label)]
    pub node_selector: Vec<(String, String)>,
    /// Taint that the pods tolerate, as kubectl taint writes it; without a value, any value. May be
    /// repeated.
    #[arg(long = "toleration", value_name = "KEY[=VALUE][:EFFECT]", value_parser = toleration)]
    pub tolerations: Vec<Toleration>,
    /// PriorityClass of the pods.
    #[arg(long, value_name = "NAME")]
    pub priority_class: Option<String>,
    /// Image of this plugin, which creates the requests in the cluster.
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    pub image: String,
    /// When to pull the image. Default: Kubernetes' default for its tag.
    #[arg(long, value_name = "POLICY")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Name of a Secret to pull the image with. May be repeated.
    #[arg(long = "image-pull-secret", value_name = "NAME")]
    pub image_pull_secrets: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrencyPolicy {
    Allow,
    Forbid,
    Replace,
}

impl ConcurrencyPolicy {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            ConcurrencyPolicy::Allow => "Allow",
            ConcurrencyPolicy::Forbid => "Forbid",
            ConcurrencyPolicy::Replace => "Replace",
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    #[value(name = "if-not-present")]
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            PullPolicy::Always => "Always",
            PullPolicy::IfNotPresent => "IfNotPresent",
            PullPolicy::Never => "Never",
        }
    }
}

/// The controller of CronJobs looks every 10 seconds: it may never start a run whose deadline is
/// shorter.
fn starting_deadline(text: &str) -> Result<u64, String> {
    match crate::duration::parse(text)? {
        seconds @ 10.. => Ok(seconds),
        _ => Err("a run may miss a deadline of less than 10s; use at least 10s".to_owned()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(key, value)| is_key(key) && is_value(value))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text:?} is not a label; use KEY=VALUE, for instance team=shop"))
}

fn toleration(text: &str) -> Result<Toleration, String> {
    let (taint, effect) = match text.rsplit_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let (key, value) = match taint.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (taint, None),
    };
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let is_one = is_key(key)
        && value.is_none_or(is_value)
        && effect.is_none_or(|effect| effects.contains(&effect));
    if !is_one {
        return Err(format!(
            "{text:?} is not a toleration; use KEY, KEY:EFFECT or KEY=VALUE:EFFECT, for instance dedicated=ci:NoSchedule; effects are {}",
            effects.join(", ")
        ));
    }
    let operator = if value.is_some() { "Equal" } else { "Exists" };
    Ok(Toleration {
        key: Some(key.to_owned()),
        operator: Some(operator.to_owned()),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
        ..Toleration::default()
    })
}

/// The key of a label or taint: a name, perhaps behind the name of a domain.
fn is_key(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let part = |part: &str| {
        let letter = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
        ends_with(part, letter) && part.bytes().all(|it| letter(it) || it == b'-')
    };
    !name.is_empty()
        && is_value(name)
        && domain.is_none_or(|domain| domain.len() <= 253 && domain.split('.').all(part))
}

fn is_value(text: &str) -> bool {
    let letter = |it: u8| it.is_ascii_alphanumeric();
    let letters = text.bytes().all(|it| letter(it) || b"-_.".contains(&it));
    text.is_empty() || (text.len() <= 63 && letters && ends_with(text, letter))
}

/// Whether it begins and ends with such a letter.
fn ends_with(text: &str, letter: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|it| letter(*it)) && bytes.last().is_some_and(|it| letter(*it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_that_the_api_server_accepts() {
        let long = "a".repeat(63);
        for right in [
            "team=shop",
            "a.example/Team_1=",
            &format!("{long}={long}"),
            "x-y.z=A.b_c-9",
        ] {
            assert!(label(right).is_ok(), "{right}");
        }
        for wrong in [
            "team",
            "=shop",
            "team=a b",
            "team=-a",
            "team=a.",
            "A.example/team=a",
            "a..b/team=a",
            "/team=a",
            "a/=b",
            "a/b/c=d",
            "te\u{e4}m=a",
            &format!("team={long}a"),
            &format!("{long}a=b"),
        ] {
            let refusal = label(wrong).unwrap_err();
            assert!(refusal.contains("use KEY=VALUE"), "{refusal}");
        }
    }

    #[test]
    fn tolerations_are_written_as_taints() {
        let of = |text| {
            let toleration = toleration(text).unwrap();
            serde_json::to_string(&toleration).unwrap()
        };
        assert_eq!(
            of("dedicated=ci:NoSchedule"),
            r#"{"effect":"NoSchedule","key":"dedicated","operator":"Equal","value":"ci"}"#
        );
        assert_eq!(
            of("a.example/spot"),
            r#"{"key":"a.example/spot","operator":"Exists"}"#
        );
        assert_eq!(
            of("spot:NoExecute"),
            r#"{"effect":"NoExecute","key":"spot","operator":"Exists"}"#
        );
        for wrong in ["", ":NoSchedule", "a:Nothing", "a=b:", "a=b c:NoExecute"] {
            let refusal = toleration(wrong).unwrap_err();
            assert!(refusal.contains("use KEY, KEY:EFFECT"), "{refusal}");
        }
    }

    #[test]
    fn a_deadline_below_ten_seconds_is_refused() {
        assert_eq!(starting_deadline("10s"), Ok(10));
        assert_eq!(starting_deadline("2m"), Ok(120));
        for wrong in ["9s", "0", "soon"] {
            assert!(starting_deadline(wrong).unwrap_err().contains("; use "));
        }
    }
}
