//! Specs of comparisons that break one rule each, with words of the refusal, and similar ones that
//! break none.

use serde_json::{Value, json};

/// What is wrong, the spec, and words of the refusal.
type ComparisonRow = (String, Value, &'static str);

const SIDE: &str = "a side needs exactly one of request, target and archive";
const NAME: &str = "request must be the name of a ProfileRequest";
const PERCENT: &str = "maxIncreasePercent must be from 0 to 1000, for instance 0.5";
const MILLISECONDS: &str = "minMilliseconds must be from 0 to 3600000, for instance 5";
const VISIBLE: &str = "visiblePercent must be above 0 and at most 1000, for instance 10";
const DURATION: &str = "durationSeconds must be from 1 to 3600, for instance 60";
const RATE: &str = "samplesPerSecond must be from 1 to 1000, for instance 99";
const TTL: &str = "ttlSecondsAfterFinished must be from 0 to 2147483647";
const TYPE: &str = "must be of type";
const VALUES: &str = "Unsupported value";
const UNKNOWN: &str = "unknown field";
const ROUTE: &str = "route must be a route as a verdict names it, for instance /users/{id}";
const LIMIT: &str = "a route needs maxIncreasePercent, minMilliseconds or both";
const REQUIRED: &str = "Required value";
const ONE: &str = "target needs exactly one of podName, selector and workloadRef";

/// Two pods, with one field more or changed.
fn pods(field: &str, value: Value) -> Value {
    let pod = |name: &str| json!({"target": {"podName": name}});
    let mut spec = json!({"before": pod("a"), "after": pod("b")});
    spec[field] = value;
    spec
}

/// A stored run of a Deployment before a time.
fn archived(before: Value) -> Value {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let mut side = json!({"archive": {"workloadRef": web}});
    if !before.is_null() {
        side["archive"]["before"] = before;
    }
    side
}

fn requests(field: &str, value: Value) -> Value {
    let mut spec = json!({"before": {"request": "old"}, "after": {"request": "new"}});
    spec[field] = value;
    spec
}

pub fn invalid() -> Vec<ComparisonRow> {
    let of_runs = [
        ("durationSeconds", json!(0), DURATION),
        ("durationSeconds", json!(3601), DURATION),
        ("durationSeconds", json!("60s"), TYPE),
        ("samplesPerSecond", json!(0), RATE),
        ("samplesPerSecond", json!(1001), RATE),
        ("maxIncreasePercent", json!(-0.1), PERCENT),
        ("maxIncreasePercent", json!(1000.5), PERCENT),
        ("maxIncreasePercent", json!("1%"), TYPE),
        ("minMilliseconds", json!(-1), MILLISECONDS),
        ("minMilliseconds", json!(3_600_001), MILLISECONDS),
        ("visiblePercent", json!(0), VISIBLE),
        ("visiblePercent", json!(1001), VISIBLE),
        ("ttlSecondsAfterFinished", json!(-1), TTL),
        (
            "ttlSecondsAfterFinished",
            json!(1_i64 << 31),
            "ttlSecondsAfterFinished",
        ),
        ("measure", json!("cpu"), VALUES),
        ("measure", json!("Heap"), VALUES),
        ("force", json!("yes"), TYPE),
        ("template", json!("web"), TYPE),
        ("cancel", json!(1), TYPE),
        ("duration", json!(60), UNKNOWN),
        ("before", json!({}), SIDE),
        (
            "before",
            json!({"request": "old", "target": {"podName": "a"}}),
            SIDE,
        ),
        (
            "before",
            json!({"target": {}}),
            "target needs exactly one of podName, selector and workloadRef",
        ),
        (
            "before",
            json!({"target": {"podName": "../a"}}),
            "podName must be the name of one pod",
        ),
        (
            "before",
            json!({"target": {"podName": "a", "maxPods": 101}}),
            "maxPods must be from 1 to 100",
        ),
        (
            "before",
            json!({"target": {"selector": {}}}),
            "selector must not be empty",
        ),
        ("before", json!({"archive": "old"}), TYPE),
        ("before", json!({"archive": {}}), REQUIRED),
        (
            "before",
            json!({"archive": {"workloadRef": {"apiVersion": "apps/v1", "kind": "deploy", "name": "web"}}}),
            "kind must be the kind of a workload as in its manifest",
        ),
        ("before", archived(json!("yesterday")), TYPE),
        ("before", archived(json!(1_700_000_000)), TYPE),
        (
            "before",
            json!({"request": "old", "archive": archived(Value::Null)["archive"]}),
            SIDE,
        ),
        ("before", json!("old"), TYPE),
    ];
    let of_requests = [
        ("before", json!({"request": ""}), NAME),
        ("before", json!({"request": "Old"}), NAME),
        ("before", json!({"request": "a/b"}), NAME),
        ("before", json!({"request": "old-"}), NAME),
        ("before", json!({"request": "x".repeat(254)}), "253"),
        ("before", json!({"request": 7}), TYPE),
        (
            "before",
            json!({"request": "new"}),
            "before and after name the same request; name two",
        ),
        (
            "durationSeconds",
            json!(60),
            "durationSeconds is for a side with a target; leave it out",
        ),
        (
            "samplesPerSecond",
            json!(99),
            "samplesPerSecond is for a side with a target; leave it out",
        ),
    ];
    let row = |place: fn(&str, Value) -> Value| {
        move |(field, value, words): (&str, Value, &'static str)| {
            let text = value.to_string();
            let shown = text.get(..60).unwrap_or(&text);
            (
                format!("{field}: {shown}"),
                place(field, value.clone()),
                words,
            )
        }
    };
    let mut rows: Vec<ComparisonRow> = of_runs.map(row(pods)).into();
    rows.extend(of_requests.map(row(requests)));
    rows.extend(of_targets().map(row(target)));
    rows.extend(of_routes().map(row(routes)));
    rows.push(("no side".to_owned(), json!({}), "Required value"));
    rows.push((
        "one side".to_owned(),
        json!({"after": {"request": "new"}}),
        "spec.before: Required value",
    ));
    rows
}

/// The pod `b` after, with one more or another field of the target.
fn target(field: &str, value: Value) -> Value {
    let mut spec = pods("cancel", json!(false));
    spec["after"]["target"][field] = value;
    spec
}

/// Fields of a target, which are those of a request.
fn of_targets() -> [(&'static str, Value, &'static str); 11] {
    let selector = json!({"matchLabels": {"app": "web"}});
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    [
        ("podName", json!(5), TYPE),
        ("podName", json!(["a", "b"]), TYPE),
        (
            "containerName",
            json!("php.fpm"),
            "containerName must be the name of a container",
        ),
        ("maxPods", json!(0), "maxPods must be from 1 to 100"),
        ("maxPods", json!("all"), TYPE),
        (
            "runAsUser",
            json!(0),
            "runAsUser must be the non-root user id",
        ),
        ("runAsGroup", json!(33), "runAsGroup needs runAsUser too"),
        ("selector", selector, ONE),
        ("workloadRef", workload, ONE),
        ("pod", json!("b"), UNKNOWN),
        ("podName", json!("x".repeat(254)), "253"),
    ]
}

/// Two pods, with these limits of routes.
fn routes(_field: &str, value: Value) -> Value {
    pods("routes", value)
}

fn of_routes() -> [(&'static str, Value, &'static str); 15] {
    let one = |field: &str, value: Value| {
        let mut route = json!({"route": "/cart", "maxIncreasePercent": 5});
        route[field] = value;
        json!([route])
    };
    let many = |count: usize| {
        let route = |number: usize| json!({"route": format!("/{number}"), "minMilliseconds": 2});
        (0..count).map(route).collect::<Value>()
    };
    let twice = json!([
        {"route": "/cart", "minMilliseconds": 2},
        {"route": "/cart", "maxIncreasePercent": 5},
    ]);
    [
        ("routes", json!("/cart"), TYPE),
        ("routes", json!(["/cart"]), TYPE),
        ("routes", json!([{"maxIncreasePercent": 5}]), REQUIRED),
        ("routes", json!([{"route": "/cart"}]), LIMIT),
        ("routes", one("route", json!("cart")), ROUTE),
        ("routes", one("route", json!("")), ROUTE),
        ("routes", one("route", json!("/".repeat(513))), "512"),
        ("routes", one("maxIncreasePercent", json!(-1)), PERCENT),
        ("routes", one("maxIncreasePercent", json!(1001)), PERCENT),
        ("routes", one("maxIncreasePercent", json!("5%")), TYPE),
        ("routes", one("minMilliseconds", json!(-1)), MILLISECONDS),
        ("routes", one("minMilliseconds", json!("5ms")), TYPE),
        ("routes", one("visiblePercent", json!(5)), UNKNOWN),
        ("routes", twice, "Duplicate value"),
        ("routes", many(21), "at most 20 items"),
    ]
}

pub fn valid() -> Vec<(&'static str, Value)> {
    let hash = json!({"app": "web", "pod-template-hash": "7d9f5c6b8"});
    let labelled = json!({"target": {"selector": {"matchLabels": hash}}});
    vec![
        ("two requests", requests("cancel", json!(false))),
        ("two pods", pods("durationSeconds", json!(3600))),
        ("one of each", pods("before", json!({"request": "old"}))),
        ("a label of one release", pods("after", labelled)),
        ("whole numbers", pods("maxIncreasePercent", json!(5))),
        ("the smallest", pods("visiblePercent", json!(0.001))),
        ("the largest", pods("maxIncreasePercent", json!(1000))),
        ("a template", pods("template", json!(true))),
        (
            "a stored run",
            pods("before", archived(json!("2026-11-30T12:00:00Z"))),
        ),
        (
            "two stored runs",
            json!({"before": archived(json!("2026-11-01T00:00:00Z")), "after": archived(Value::Null)}),
        ),
        ("CPU time", requests("measure", json!("CPU"))),
        (
            "limits of routes",
            requests(
                "routes",
                json!([
                    {"route": "/users/{id}", "maxIncreasePercent": 0, "minMilliseconds": 0.5},
                    {"route": "/", "minMilliseconds": 3_600_000},
                ]),
            ),
        ),
        (
            "deleted at once",
            requests("ttlSecondsAfterFinished", json!(0)),
        ),
    ]
}

/// Changes of a stored, cancelled comparison of two requests, and words of the refusal.
pub fn changes() -> [(Value, &'static str); 9] {
    const FIXED: &str = "the spec cannot be changed, except cancel and ttlSecondsAfterFinished";
    [
        (json!({"before": {"request": "other"}}), FIXED),
        (
            json!({"after": {"request": null, "target": {"podName": "a"}}}),
            FIXED,
        ),
        (json!({"measure": "CPU"}), FIXED),
        (json!({"maxIncreasePercent": 1}), FIXED),
        (
            json!({"routes": [{"route": "/", "minMilliseconds": 1}]}),
            FIXED,
        ),
        (json!({"force": true}), FIXED),
        (json!({"template": true}), FIXED),
        (json!({"cancel": false}), "cancel cannot be undone"),
        (json!({"ttlSecondsAfterFinished": 9}), ""),
    ]
}
