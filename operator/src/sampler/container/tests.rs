//! The container against the contract's golden files, and admission's answers as they were seen.

use jiff::Timestamp;
use kube::core::Status;
use phpprof_crds::{UploadMode, UploadRoute};

use super::*;

const STEM: &str =
    "phpprof/shop/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/web-7d9f5c6b8-x2x4z.fpm.4f9c7a1d.0";

fn injection(mode: Mode) -> Injection {
    Injection {
        namespace: "shop".into(),
        pod_name: "web-7d9f5c6b8-x2x4z".into(),
        pod_uid: "4f9c7a1d-0000-4000-8000-000000000000".into(),
        pod_addresses: Vec::new(),
        container_name: "fpm".into(),
        container_id:
            "containerd://4f9c7a1d2b3e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c".into(),
        ephemeral_container_name: "phpprof-0b1c2d3e-0".into(),
        object_key: format!("{STEM}.pb.gz"),
        checkpoint_seconds: 60,
        checkpoint_keys: Vec::new(),
        upload_mode: UploadMode::Auto,
        duration_seconds: 30,
        samples_per_second: 99,
        include_idle: true,
        not_after: Timestamp::from_second(1_790_000_090).expect("a second"),
        upload_until: Timestamp::from_second(1_790_000_690).expect("a second"),
        mode,
    }
}

fn config() -> SamplerConfig {
    SamplerConfig {
        image: "example.org/phpprof:0.1.0".into(),
        pull_policy: "IfNotPresent".into(),
        cpu_budget_percent: 25,
        ca_bundle: Some("-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n".into()),
    }
}

/// Of a run of 150 seconds.
fn grants() -> Grants {
    let unasked = |number: u8| {
        let routes = routes(&format!("{STEM}.checkpoint-{number}.pb.gz"));
        let unasked = |grant| Grant {
            stop: String::new(),
            ..grant
        };
        routes.into_iter().map(unasked).collect()
    };
    Grants {
        profile: routes(&format!("{STEM}.pb.gz")),
        checkpoint_seconds: 60,
        checkpoints: [1, 2].map(unasked).into(),
    }
}

fn of_a_short_run() -> Grants {
    Grants {
        checkpoints: Vec::new(),
        ..grants()
    }
}

fn routes(key: &str) -> Vec<Grant> {
    let pin = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
    let query = format!(
        "key={}&pod=4f9c7a1d-0000-4000-8000-000000000000&expires=1790000690",
        key.replace('/', "%2F")
    );
    let relay = "https://phpprof-operator.phpprof-system.svc:8443/v1";
    let store = format!("https://s3.phpprof-store.svc/profiles/{key}");
    vec![
        Grant {
            route: UploadRoute::Direct,
            method: "PUT".into(),
            url: format!("{store}?X-Amz-Signature=0"),
            headers: [("if-none-match".into(), "*".into())].into(),
            stop: format!("{store}.stop?X-Amz-Signature=0"),
            pins: Vec::new(),
        },
        Grant {
            route: UploadRoute::Relay,
            method: "PUT".into(),
            url: format!("{relay}/object?{query}"),
            headers: [("authorization".into(), format!("Bearer {pin}"))].into(),
            stop: format!("{relay}/stop?{query}"),
            pins: vec![pin.into(); 2],
        },
    ]
}

const SAME_USER: Mode = Mode::SameUser {
    uid: 1000,
    gid: 1001,
};
const PTRACE: Mode = Mode::Ptrace { user_known: false };

#[test]
fn the_arguments_are_those_of_the_contract() {
    let expected: Vec<String> =
        serde_json::from_str(include_str!("../../../../contract/args.json")).unwrap();
    assert_eq!(args(&injection(SAME_USER), &config()), expected);
}

#[test]
fn the_environment_is_that_of_the_contract() {
    let expected: Value =
        serde_json::from_str(include_str!("../../../../contract/env.json")).unwrap();
    let mut actual: Value = env(&config(), &grants())
        .into_iter()
        .map(|variable| (variable.name, Value::from(variable.value)))
        .collect();
    // What is packed need not be packed into the same bytes.
    let packed = [&actual, &expected].map(|env| unpacked(&env["PHPPROF_CHECKPOINTS"]));
    assert_eq!(packed[0], packed[1]);
    let checkpoints: Value =
        serde_json::from_str(include_str!("../../../../contract/checkpoints.json")).unwrap();
    assert_eq!(packed[0], checkpoints);
    actual["PHPPROF_CHECKPOINTS"] = expected["PHPPROF_CHECKPOINTS"].clone();
    assert_eq!(actual, expected);
}

fn unpacked(variable: &Value) -> Value {
    let bytes = STANDARD.decode(variable.as_str().unwrap()).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(&bytes[..])).unwrap()
}

#[test]
fn a_short_run_gets_no_variable_for_checkpoints() {
    let names: Vec<String> = env(&config(), &of_a_short_run())
        .into_iter()
        .map(|variable| variable.name)
        .collect();
    assert_eq!(names, ["PHPPROF_GRANTS", "PHPPROF_CA_BUNDLE"]);
}

#[test]
fn the_checkpoints_of_the_longest_run_take_few_bytes_in_a_pod() {
    use std::fmt::Write as _;
    let signed = |number: u32| {
        // A signature has nothing in common with another; URLs with a session's token are the longest.
        let mut signature = String::new();
        let sum = ring::digest::digest(&ring::digest::SHA256, &number.to_be_bytes());
        for byte in sum.as_ref() {
            let _ = write!(signature, "{byte:02x}");
        }
        let token = "x".repeat(1500);
        let mut routes = routes(&format!("{STEM}.checkpoint-{number}.pb.gz"));
        for grant in &mut routes {
            grant.stop.clear();
            grant.url += &format!("&X-Amz-Security-Token={token}&X-Amz-Signature={signature}");
        }
        routes
    };
    let grants = Grants {
        checkpoints: (1..30).map(signed).collect(),
        ..grants()
    };
    let bytes = packed(&checkpoints(&grants)).len();
    assert!(bytes < 8000, "{bytes} bytes");
}

#[test]
fn the_patch_for_an_ordinary_user_adds_no_capability() {
    insta::assert_snapshot!(
        serde_json::to_string_pretty(&patch(&injection(SAME_USER), &config(), &of_a_short_run()))
            .unwrap()
    );
}

#[test]
fn the_patch_for_root_adds_sys_ptrace_and_nothing_else() {
    let container = container(&injection(PTRACE), &config(), &grants());
    insta::assert_snapshot!(serde_json::to_string_pretty(&container.security_context).unwrap());
}

#[track_caller]
fn check(mode: Mode, code: u16, message: &str, expected: &str) {
    let error = kube::Error::Api(Status::failure(message, "").with_code(code).boxed());
    let actual = match refusal(&error, &injection(mode)) {
        Refusal::Final(reason, message) => format!("{reason}: {message}"),
        other => format!("{other:?}"),
    };
    assert!(actual.starts_with(expected), "{actual}");
}

const VIOLATION: &str = r#"pods "web" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities (container "phpprof-0b1c2d3e-0" must not include "SYS_PTRACE" in securityContext.capabilities.add)"#;

#[test]
fn a_refused_root_sampler_says_whose_user_is_missing() {
    check(
        PTRACE,
        403,
        VIOLATION,
        "UserUnknown: SYS_PTRACE is refused and the pod does not say its user: pods",
    );
    check(
        Mode::Ptrace { user_known: true },
        403,
        VIOLATION,
        "PodSecurityDenied: PHP starts as root",
    );
}

#[test]
fn a_refusal_for_the_sake_of_another_container_says_so() {
    let other = VIOLATION.replace("phpprof-0b1c2d3e-0", "debugger-1");
    check(
        SAME_USER,
        403,
        &other,
        "PodSecurityDenied: it is another container of the pod",
    );
}

#[test]
fn a_sampler_that_is_there_already_is_adopted() {
    let message = r#"Pod "web" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers "phpprof-0b1c2d3e-0" may not be changed"#;
    check(SAME_USER, 422, message, "AlreadyThere");
}

#[test]
fn a_webhook_without_dry_run_tells_nothing() {
    check(
        SAME_USER,
        400,
        r#"admission webhook "x.example.org" does not support dry run"#,
        "Unknown",
    );
}

#[test]
fn other_refusals_are_passed_on_and_faults_are_tried_again() {
    check(
        SAME_USER,
        403,
        r#"admission webhook "x" denied the request: no"#,
        "InjectionRefused: admission webhook",
    );
    check(SAME_USER, 404, r#"pods "web" not found"#, "PodDeleted");
    let replaced =
        r#"The Pod "web" is invalid: metadata.uid: Invalid value: "1": field is immutable"#;
    check(SAME_USER, 422, replaced, "PodDeleted: the pod was replaced");
    check(SAME_USER, 500, "etcd", "TryAgain");
    check(SAME_USER, 429, "slow down", "TryAgain");
}
