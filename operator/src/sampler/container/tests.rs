//! Compares the container with the contract's golden files, and checks real answers of admission.

use jiff::Timestamp;
use phpprof_crds::{Filter, RequestLabel, UploadMode, UploadRoute};

use super::*;
use crate::http::runs::digest;
use crate::sampler::injection::{ReadMode, Task};
use crate::sampler::offer::{OfferedRun, RunsOffer};

const STEM: &str =
    "phpprof/shop/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/web-7d9f5c6b8-x2x4z.fpm.4f9c7a1d.0";

fn subject() -> Subject {
    Subject {
        namespace: "shop".into(),
        pod_name: "web-7d9f5c6b8-x2x4z".into(),
        pod_uid: "4f9c7a1d-0000-4000-8000-000000000000".into(),
        pod_addresses: Vec::new(),
        container_name: "fpm".into(),
        container_id:
            "containerd://4f9c7a1d2b3e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c".into(),
    }
}

fn run() -> PodRun {
    PodRun {
        object_key: format!("{STEM}.pb.gz"),
        checkpoint_seconds: 60,
        checkpoint_times: Vec::new(),
        checkpoint_keys: Vec::new(),
        requests_key: Some(format!("{STEM}.requests.json.gz")),
        upload_mode: UploadMode::Auto,
        duration_seconds: 30,
        samples_per_second: 99,
        include_idle: true,
        heap: true,
        include_suspended: true,
        is_snapshot: true,
        is_heap_snapshot: false,
        is_live: true,
        labels: vec![RequestLabel::Method, RequestLabel::Route],
        filter: Some(Filter {
            path_prefix: Some("/shop".into()),
            methods: vec!["GET".into(), "POST".into()],
            scripts: vec!["index.php".into()],
            min_request_age_milliseconds: Some(2000),
            include_young: true,
        }),
        not_after: Timestamp::from_second(1_790_000_090).expect("a second"),
        upload_until: Timestamp::from_second(1_790_000_690).expect("a second"),
    }
}

fn injection(mode: ReadMode) -> Injection {
    Injection {
        subject: subject(),
        ephemeral_container_name: "phpprof-0b1c2d3e-0".into(),
        mode,
        task: Task::Once(Box::new(run())),
    }
}

fn of_a_short_run_given() -> ContainerSettings {
    ContainerSettings::once(&subject(), &run(), &of_a_short_run(), &config())
}

fn config() -> SamplerConfig {
    SamplerConfig {
        image: "example.org/phpprof:0.1.0".into(),
        pull_policy: "IfNotPresent".into(),
        cpu_budget_percent: 25,
        routes: vec!["/shop/*/cart=/shop/{id}/cart".into()],
        ca_bundle: Some("-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n".into()),
        direct_checksum: Some(DirectChecksum::Md5),
    }
}

/// The grants of a run of 17 seconds.
fn grants() -> SamplerGrants {
    let unasked = |file: &str| {
        let unasked = |grant| KeyGrant {
            stop: String::new(),
            live: String::new(),
            ..grant
        };
        let routes = routes(&format!("{STEM}.{file}"));
        routes.into_iter().map(unasked).collect()
    };
    SamplerGrants {
        profile: routes(&format!("{STEM}.pb.gz")),
        checkpoint_seconds: 60,
        checkpoint_times: vec![5, 10],
        checkpoints: ["checkpoint-1.pb.gz", "checkpoint-2.pb.gz"]
            .map(unasked)
            .into(),
        requests: unasked("requests.json.gz"),
        relay_addresses: relay_addresses().into(),
    }
}

fn relay_addresses() -> [IpAddr; 2] {
    ["10.96.0.5", "fd00:10:96::5"].map(|address| address.parse().unwrap())
}

fn of_a_short_run() -> SamplerGrants {
    SamplerGrants {
        checkpoints: Vec::new(),
        ..grants()
    }
}

fn routes(key: &str) -> Vec<KeyGrant> {
    let pin = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
    let query = format!(
        "key={}&pod=4f9c7a1d-0000-4000-8000-000000000000&expires=1790000690",
        key.replace('/', "%2F")
    );
    let relay = "https://phpprof-operator.phpprof-system.svc:8443/v1";
    let store = format!("https://s3.phpprof-store.svc/profiles/{key}");
    vec![
        KeyGrant {
            route: UploadRoute::Direct,
            method: "PUT".into(),
            url: format!("{store}?X-Amz-Signature=0"),
            headers: [("if-none-match".into(), "*".into())].into(),
            stop: format!("{store}.stop?X-Amz-Signature=0"),
            live: String::new(),
            pins: Vec::new(),
        },
        KeyGrant {
            route: UploadRoute::Relay,
            method: "PUT".into(),
            url: format!("{relay}/object?{query}"),
            headers: [("authorization".into(), format!("Bearer {pin}"))].into(),
            stop: format!("{relay}/stop?{query}"),
            live: format!("{relay}/live?{query}"),
            pins: vec![pin.into(); 2],
        },
    ]
}

const SAME_USER: ReadMode = ReadMode::SameUser {
    uid: 1000,
    gid: 1001,
};
const PTRACE: ReadMode = ReadMode::Ptrace { user_known: false };

#[test]
fn the_arguments_are_those_of_the_contract() {
    let expected: Vec<String> =
        serde_json::from_str(include_str!("../../../../contract/args.json")).unwrap();
    let given = ContainerSettings::once(&subject(), &run(), &grants(), &config());
    assert_eq!(given.arguments, expected);
}

#[test]
fn arguments_for_heaps_are_those_of_the_contract() {
    let expected: Vec<String> =
        serde_json::from_str(include_str!("../../../../contract/args_heap.json")).unwrap();
    let of_heaps = PodRun {
        duration_seconds: 1,
        include_idle: false,
        heap: false,
        include_suspended: false,
        is_snapshot: false,
        is_heap_snapshot: true,
        is_live: false,
        labels: Vec::new(),
        filter: None,
        requests_key: None,
        ..run()
    };
    let given = ContainerSettings::once(&subject(), &of_heaps, &of_a_short_run(), &config());
    assert_eq!(given.arguments, expected);
}

fn asks() -> PollGrant {
    let pin = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
    let relay = "https://phpprof-operator.phpprof-system.svc:8443/v1";
    let query = "sampler=phpprof-resident-0&namespace=shop&pod=4f9c7a1d-0000-4000-8000-000000000000&from=10.244.0.5&expires=1790000900";
    PollGrant {
        url: format!("{relay}/runs?{query}"),
        headers: [("authorization".into(), format!("Bearer {pin}"))].into(),
        pins: vec![pin.into(); 2],
    }
}

#[test]
fn a_resident_sampler_gets_what_the_contract_says() {
    let expected: Value =
        serde_json::from_str(include_str!("../../../../contract/resident.json")).unwrap();
    let residence = Residence {
        first_answer_seconds: 60,
        idle_seconds: 21_600,
        ask_until: Timestamp::from_second(1_790_000_900).expect("a second"),
    };
    let given = ContainerSettings::resident(&subject(), residence, &asks(), &relay_addresses());
    let [(number, said), (name, ask), (variable, addresses)] = &given.environment[..] else {
        panic!("{given:?}");
    };
    assert_eq!(json!(said), expected["environment"][number]);
    assert_eq!(json!(addresses), expected["environment"][variable]);
    assert_eq!(json!(given.arguments), expected["arguments"]);
    let expected = expected["environment"][name].as_str().unwrap();
    let [ask, expected] = [ask.as_str(), expected].map(serde_json::from_str::<Value>);
    assert_eq!(ask.unwrap(), expected.unwrap());
}

#[test]
fn a_run_is_offered_as_the_contract_says() {
    let expected: Value =
        serde_json::from_str(include_str!("../../../../contract/runs.json")).unwrap();
    let receipt = KeyGrant {
        stop: String::new(),
        live: String::new(),
        ..routes(&format!("{STEM}.pb.gz.receipt")).remove(1)
    };
    let offered = OfferedRun {
        key: run().object_key,
        arguments: arguments_of_offer(&subject(), &run(), &config()),
        environment: environment(&config(), &of_a_short_run(), NUMBER)
            .into_iter()
            .collect(),
        receipt,
    };
    let answer = RunsOffer {
        ask_again_seconds: 30,
        hold_seconds: Some(25),
        lease_seconds: 900,
        ask: asks().having_seen(&digest([&*offered.key].into_iter())),
        runs: vec![offered],
    };
    assert_eq!(serde_json::to_value(answer).unwrap(), expected["answer"]);
}

#[test]
fn a_run_says_the_number_its_sampler_understands() {
    for spoken in [0, 7] {
        let said = environment(&config(), &grants(), spoken).swap_remove(0);
        assert_eq!(said, ("PHPPROF_CONTRACT".to_owned(), spoken.to_string()));
    }
}

#[test]
fn the_environment_is_that_of_the_contract() {
    let expected: Value =
        serde_json::from_str(include_str!("../../../../contract/env.json")).unwrap();
    let mut actual: Value = environment(&config(), &grants(), NUMBER)
        .into_iter()
        .map(|(name, value)| (name, Value::from(value)))
        .collect();
    // The compressed bytes may differ, so this compares the content.
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
    let names: Vec<String> = environment(&config(), &of_a_short_run(), NUMBER)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "PHPPROF_CONTRACT",
            "PHPPROF_GRANTS",
            "PHPPROF_REQUESTS",
            "PHPPROF_RELAY_ADDRESSES",
            "PHPPROF_DIRECT_CHECKSUM",
            "PHPPROF_CA_BUNDLE"
        ]
    );
}

#[test]
fn no_checksum_is_the_default() {
    let config = SamplerConfig {
        direct_checksum: None,
        ..config()
    };
    let given = environment(&config, &of_a_short_run(), NUMBER);
    assert!(
        given
            .iter()
            .all(|(name, _)| name != "PHPPROF_DIRECT_CHECKSUM")
    );
}

#[test]
fn the_longest_runs_checkpoints_take_few_bytes() {
    use std::fmt::Write as _;
    let signed = |number: u32| {
        // Signatures have nothing in common. URLs with a session token are the longest.
        let mut signature = String::new();
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &number.to_be_bytes());
        for byte in sum.as_ref() {
            let _ = write!(signature, "{byte:02x}");
        }
        let token = "x".repeat(1500);
        let mut routes = routes(&format!("{STEM}.checkpoint-{number}.pb.gz"));
        for grant in &mut routes {
            grant.stop.clear();
            grant.live.clear();
            grant.url += &format!("&X-Amz-Security-Token={token}&X-Amz-Signature={signature}");
        }
        routes
    };
    let grants = SamplerGrants {
        checkpoints: (1..30).map(signed).collect(),
        ..grants()
    };
    let bytes = packed(&checkpoints(&grants)).len();
    assert!(bytes < 8000, "{bytes} bytes");
}

#[test]
fn the_patch_for_a_user_adds_no_capability() {
    insta::assert_snapshot!(
        serde_json::to_string_pretty(&patch(
            &injection(SAME_USER),
            &of_a_short_run_given(),
            &config()
        ))
        .unwrap()
    );
}

#[test]
fn the_patch_for_root_adds_only_sys_ptrace() {
    let container = container(&injection(PTRACE), &of_a_short_run_given(), &config());
    insta::assert_snapshot!(serde_json::to_string_pretty(&container.security_context).unwrap());
}

#[test]
fn relay_addresses_have_both_families() {
    let relay = ["10.96.0.5", "fd00::5"].map(|text| text.parse().unwrap());
    let expected = ("PHPPROF_RELAY_ADDRESSES", "10.96.0.5,fd00::5");
    let expected = (expected.0.to_owned(), expected.1.to_owned());
    assert_eq!(addresses(&relay), Some(expected));
    assert_eq!(addresses(&[]), None);
}
