//! A server that judges pushes and annotations as Pyroscope and Grafana do.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use jiff::Timestamp;
use phpprof_profile::{DecodeLimits as Bounds, Profile, decode, total};
use serde_json::{Value, json};

use crate::export::receivers;

pub const TOKEN: &str = "glsa_secret";

pub type ReceivedLabels = HashMap<String, String>;
type ScriptedAnswer = (StatusCode, String);

/// What the server received, and how often it will answer that it is busy.
#[derive(Clone, Default)]
pub struct ExportServer(Arc<Mutex<Told>>);

#[derive(Default)]
pub struct Told {
    pub busy: u32,
    pub calls: u32,
    pub pushes: Vec<(ReceivedLabels, Profile)>,
    pub tenants: Vec<String>,
    pub annotations: Vec<Value>,
}

impl ExportServer {
    pub fn told<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub async fn start(&self) -> String {
        let router = Router::new()
            .route("/push.v1.PusherService/Push", post(push))
            .route(
                "/querier.v1.QuerierService/SelectMergeStacktraces",
                post(select),
            )
            .route("/api/annotations", post(annotate))
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }
}

/// A refusal in Connect's format.
fn refusal(status: StatusCode, code: &str, message: &str) -> ScriptedAnswer {
    let body = json!({"code": code, "message": message});
    (status, body.to_string())
}

async fn push(
    State(server): State<ExportServer>,
    headers: HeaderMap,
    body: String,
) -> ScriptedAnswer {
    let busy = server.told(|told| {
        told.calls += 1;
        let busy = told.busy > 0;
        told.busy -= u32::from(busy);
        busy
    });
    if busy {
        let message = "the limit of ingested bytes is reached";
        return refusal(StatusCode::TOO_MANY_REQUESTS, "resource_exhausted", message);
    }
    if headers["content-type"] != "application/json" {
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown", "");
    }
    let tenant = headers.get("x-scope-orgid");
    let tenant = tenant
        .and_then(|tenant| tenant.to_str().ok())
        .map(str::to_owned);
    server.told(|told| told.tenants.extend(tenant));
    match judged(&body) {
        Ok(pushes) => {
            server.told(|told| told.pushes.extend(pushes));
            (StatusCode::OK, "{}".to_owned())
        }
        Err(message) => refusal(StatusCode::BAD_REQUEST, "invalid_argument", &message),
    }
}

/// Judges a push as Pyroscope does. It also refuses samples with labels, because Pyroscope would
/// make a series for each of their values.
fn judged(body: &str) -> Result<Vec<(ReceivedLabels, Profile)>, String> {
    let request: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let mut pushes = Vec::new();
    for series in request["series"].as_array().ok_or("no series")? {
        let labels = labels(&series["labels"])?;
        for sample in series["samples"].as_array().ok_or("no samples")? {
            let raw = sample["rawProfile"].as_str().ok_or("no profile")?;
            let raw = STANDARD.decode(raw).map_err(|error| error.to_string())?;
            let bounds = Bounds {
                decompressed_bytes: 4 << 20,
                ..Bounds::default()
            };
            let profile = decode(&raw, &bounds).map_err(|error| error.to_string())?;
            receivers::pyroscope(&labels, &profile, Timestamp::now())?;
            if profile.sample_type.len() != 1 {
                return Err("one type each".to_owned());
            }
            if profile.sample.iter().any(|sample| !sample.label.is_empty()) {
                return Err("would become a series each".to_owned());
            }
            pushes.push((labels.iter().cloned().collect(), profile));
        }
    }
    Ok(pushes)
}

fn labels(given: &Value) -> Result<Vec<(String, String)>, String> {
    let given = given.as_array().ok_or("no labels")?.iter();
    let label = |label: &Value| {
        let text = |key: &str| label[key].as_str().map(str::to_owned);
        text("name").zip(text("value"))
    };
    let labels: Option<_> = given.map(label).collect();
    labels.ok_or("a label is a name and a value".to_owned())
}

/// The sum of what was pushed and the functions in it, as a flame graph has them.
async fn select(State(server): State<ExportServer>, body: String) -> ScriptedAnswer {
    let query: Value = serde_json::from_str(&body).unwrap();
    let text = |key: &str| query[key].as_str().unwrap().to_owned();
    let (kind, selector) = (text("profileTypeID"), text("labelSelector"));
    let (name, rest) = kind.split_once(':').unwrap();
    let sample_type = rest.split(':').next().unwrap();
    let wanted: Vec<(&str, &str)> = selector
        .trim_matches(['{', '}'])
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .chain([("__name__", name)])
        .collect();
    let number = |key: &str| text(key).parse::<i64>().unwrap();
    let range = number("start")..=number("end");
    let flamegraph = server.told(|told| {
        let chosen = told.pushes.iter().filter(|(labels, profile)| {
            let named =
                |(name, value): &(&str, &str)| labels.get(*name).is_some_and(|is| is == value);
            wanted.iter().all(named) && range.contains(&(profile.time_nanos / 1_000_000))
        });
        let (mut sum, mut names) = (0, BTreeSet::new());
        for (_, profile) in chosen {
            sum += total(profile, sample_type);
            let functions = profile.function.iter();
            names.extend(functions.map(|function| profile.string(function.name)));
        }
        json!({"total": sum.to_string(), "names": names})
    });
    let body = json!({"flamegraph": flamegraph});
    (StatusCode::OK, body.to_string())
}

async fn annotate(
    State(server): State<ExportServer>,
    headers: HeaderMap,
    body: String,
) -> ScriptedAnswer {
    if headers["authorization"] != format!("Bearer {TOKEN}").as_str() {
        return (StatusCode::UNAUTHORIZED, "Invalid API key".to_owned());
    }
    let body = serde_json::from_str(&body).unwrap();
    server.told(|told| told.annotations.push(body));
    (
        StatusCode::OK,
        r#"{"message":"Annotation added","id":1}"#.to_owned(),
    )
}
