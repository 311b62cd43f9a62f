//! Values that the tests of several files and of the operator use.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use phpprof_crds::ProfileRequest;
use serde_json::json;

use crate::pod::{
    ContainerView, PodView, SamplerDeadlines, SamplerKind, SamplerState, SamplerView,
};

/// This many seconds after the tests' start.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).expect("a second of this century")
}

/// A ready pod with one running container, fpm, of uid and gid 1000.
pub fn pod(name: &str) -> PodView {
    PodView {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        node: "node".into(),
        ready: true,
        containers: vec![ContainerView {
            name: "fpm".into(),
            image: "shop:1".into(),
            id: "containerd://4f9c".into(),
            running: true,
            uid: Some(1000),
            gid: Some(1000),
        }],
        ..PodView::default()
    }
}

/// A sampler that was added at second 0 for 30 seconds.
pub fn sampler(state: SamplerState) -> SamplerView {
    SamplerView {
        kind: SamplerKind::Once(SamplerDeadlines {
            not_after: at(90),
            upload_until: at(690),
        }),
        state,
    }
}

/// A request with this spec, created a moment before second 0.
pub fn request(spec: serde_json::Value) -> ProfileRequest {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": "first", "namespace": "shop", "uid": "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d", "generation": 1},
        "spec": spec,
    }))
    .expect("a request that the schema accepts")
}

/// A pod as the API server has it, with fields that are used and fields that never are.
pub fn api_pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web-1", "uid": "u1", "labels": {"app": "web"}, "annotations": {crate::pod::DEFAULT_CONTAINER: "fpm", "x": "y", crate::pod::MIRROR: "hash"}},
        "spec": {
            "nodeName": "n1", "hostNetwork": true, "shareProcessNamespace": true, "dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["example.org"]},
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1001},
            "containers": [
                {"name": "nginx", "env": [{"name": "SECRET", "value": "s"}], "securityContext": {"runAsUser": 101}},
                {"name": "fpm", "image": "php:8.2-fpm"},
            ],
            "initContainers": [
                {"name": "migrate", "image": "php:8.2-cli", "env": [{"name": "SECRET", "value": "s"}]},
                {"name": "cache", "image": "redis:8", "restartPolicy": "Always", "securityContext": {"runAsUser": 999},
                 "env": [{"name": "SECRET", "value": "s"}]},
            ],
            "ephemeralContainers": [
                {"name": "debugger", "args": ["sh"]},
                {"name": "phpprof-0b1c2d3e-0", "env": [{"name": "PHPPROF_GRANTS", "value": "secret"}],
                 "args": ["record", "--not-after=1790000090", "--upload-until=1790000690"]},
                {"name": "phpprof-resident-0", "args": ["resident", "--container-id=4f9c"]},
            ],
        },
        "status": {
            "podIPs": [{"ip": "10.244.0.5"}, {"ip": "fd00::5"}, {"ip": "x"}], "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [
                {"name": "fpm", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://4f9c",
                 "state": {"running": {}}, "user": {"linux": {"uid": 33, "gid": 34}}},
            ],
            "initContainerStatuses": [
                {"name": "migrate", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://0",
                 "state": {"terminated": {"exitCode": 0}}},
                {"name": "cache", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://77",
                 "state": {"running": {}}, "user": {"linux": {"uid": 998, "gid": 997}}},
            ],
            "ephemeralContainerStatuses": [
                {"name": "phpprof-0b1c2d3e-0", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                 "state": {"terminated": {"exitCode": 0, "message": "{}", "finishedAt": "2026-09-21T14:13:20Z"}}},
            ],
        },
    }))
    .expect("a pod")
}
