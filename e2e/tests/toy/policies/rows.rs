//! Containers that a holder of the operator's token may try to add to a pod, and the clause that refuses each.

use e2e::pods;
use serde_json::{Value, json};

pub const ONE: &str = "the operator may add one ephemeral container at a time";
pub const PREFIX: &str =
    "the operator may only add ephemeral containers whose names begin with phpprof-";
pub const IMAGE: &str =
    "if a webhook rewrites image names, add the new name to policies.samplerImages in the chart";
pub const OPT_IN: &str = "phpprof.dev/profiling=enabled";
pub const PRIVILEGED: &str = "a sampler may not be privileged";
pub const ESCALATION: &str = "a sampler must have allowPrivilegeEscalation: false";
pub const SECCOMP: &str = "a sampler must have the seccomp profile RuntimeDefault";
pub const PROC: &str = "a sampler must have the default procMount";
pub const ROOT: &str = "a sampler must have a read-only root file system";
pub const DROP: &str = "a sampler must drop all capabilities";
pub const ADD: &str = "a sampler may not have capabilities, except SYS_PTRACE with user 0";
pub const VOLUME: &str = "a sampler may not have volumes";
pub const ENV_FROM: &str = "a sampler may not have envFrom";
pub const VALUE_FROM: &str = "a sampler may not have valueFrom";
pub const STDIN: &str = "a sampler may have neither stdin nor a terminal";
pub const COMMAND: &str = "a sampler may not have a command; it runs its image's entrypoint";
pub const NAMES: &str = "ephemeral container names that begin with phpprof- are reserved for the operator; choose another name";

/// A container as the operator adds it to a pod of user 1000.
pub fn sampler(name: &str) -> Value {
    json!({
        "name": name, "image": pods::image("phpprof"), "args": ["record"],
        "env": [{"name": "PHPPROF_GRANTS", "value": "{}"}],
        "securityContext": {
            "runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true, "privileged": false, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

/// A container for the pod `web`, or for one with a user namespace of its own: its name, its change, and the clause that refuses it.
pub type PolicyRow = (&'static str, fn(&mut Value), Option<&'static str>);

pub const ROWS: &[PolicyRow] = &[
    ("nothing", |_| (), None),
    (
        "root with SYS_PTRACE",
        |it| {
            it["securityContext"]["runAsUser"] = json!(0);
            it["securityContext"]["runAsNonRoot"] = json!(false);
            it["securityContext"]["capabilities"]["add"] = json!(["SYS_PTRACE"]);
        },
        None,
    ),
    (
        "another name",
        |it| it["name"] = json!("debugger"),
        Some(PREFIX),
    ),
    (
        "another image",
        |it| it["image"] = json!("busybox"),
        Some(IMAGE),
    ),
    (
        "another tag of the image",
        |it| it["image"] = json!(format!("{}-evil", pods::image("phpprof"))),
        Some(IMAGE),
    ),
    (
        "escalation",
        |it| it["securityContext"]["allowPrivilegeEscalation"] = json!(true),
        Some(ESCALATION),
    ),
    (
        "no word of escalation",
        |it| it["securityContext"]["allowPrivilegeEscalation"] = Value::Null,
        Some(ESCALATION),
    ),
    (
        "no seccomp",
        |it| it["securityContext"]["seccompProfile"] = Value::Null,
        Some(SECCOMP),
    ),
    (
        "seccomp Unconfined",
        |it| it["securityContext"]["seccompProfile"] = json!({"type": "Unconfined"}),
        Some(SECCOMP),
    ),
    (
        "a writable root",
        |it| it["securityContext"]["readOnlyRootFilesystem"] = json!(false),
        Some(ROOT),
    ),
    (
        "no word of the root",
        |it| it["securityContext"]["readOnlyRootFilesystem"] = Value::Null,
        Some(ROOT),
    ),
    (
        "the runtime's capabilities",
        |it| it["securityContext"]["capabilities"] = Value::Null,
        Some(DROP),
    ),
    (
        "one dropped capability",
        |it| it["securityContext"]["capabilities"]["drop"] = json!(["KILL"]),
        Some(DROP),
    ),
    (
        "SYS_PTRACE of an ordinary user",
        |it| it["securityContext"]["capabilities"]["add"] = json!(["SYS_PTRACE"]),
        Some(ADD),
    ),
    (
        "another capability",
        |it| it["securityContext"]["capabilities"]["add"] = json!(["SYS_ADMIN"]),
        Some(ADD),
    ),
    (
        "root with one more",
        |it| {
            it["securityContext"]["runAsUser"] = json!(0);
            it["securityContext"]["runAsNonRoot"] = json!(false);
            it["securityContext"]["capabilities"]["add"] = json!(["SYS_PTRACE", "SYS_ADMIN"]);
        },
        Some(ADD),
    ),
    (
        "a volume",
        |it| it["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]),
        Some(VOLUME),
    ),
    (
        "a Secret's keys",
        |it| it["envFrom"] = json!([{"secretRef": {"name": "passwords"}}]),
        Some(ENV_FROM),
    ),
    (
        "a key of a Secret",
        |it| {
            let from = json!({"secretKeyRef": {"name": "passwords", "key": "root"}});
            it["env"] = json!([{"name": "PASSWORD", "valueFrom": from}]);
        },
        Some(VALUE_FROM),
    ),
    ("stdin", |it| it["stdin"] = json!(true), Some(STDIN)),
    ("a terminal", |it| it["tty"] = json!(true), Some(STDIN)),
    (
        "a command",
        |it| it["command"] = json!(["sh"]),
        Some(COMMAND),
    ),
];
