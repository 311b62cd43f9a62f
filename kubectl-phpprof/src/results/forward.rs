//! HTTP to the operator's results by a port-forward: through the API server and the kubelet, not
//! from the control plane to the pod.
//!
//! A user needs rights of their own for it, which the chart's Role `…-operator-port-forward` has.
//!
//! Invariant: only the port `results` of a ready pod behind the operator's Service is forwarded,
//! for one call.

use std::fmt;
use std::time::Duration;

use http::{Request, header};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Portforwarder};
use kube::client::{Body, UpgradeConnectionError};
use phpprof_crds::chain;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::PORT;
use super::exchange::{OperatorCall, OperatorResponse, boxed};
use crate::connect::Cluster;

/// The time limit of a connection to the pod.
const CONNECTS: Duration = Duration::from_secs(5);
/// The time limit of an answer's head. The operator renders a page within 30 s.
const ANSWERS: Duration = Duration::from_secs(60);
/// The most replicas of the operator, and some that are ending.
const MOST_PODS: u32 = 20;
/// The time that the kubelet's word has to arrive after the connection broke.
const SAID_WITHIN: Duration = Duration::from_millis(200);
const FORWARD: &str = "create pods/portforward";

/// Why a port-forward did not work.
#[derive(Debug, PartialEq, Eq)]
pub enum NoForward {
    /// The API server refuses it: verb and resource.
    Forbidden(&'static str),
    /// Any other cause.
    Failed(String),
}

impl fmt::Display for NoForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoForward::Forbidden(right) => write!(f, "you may not {right}"),
            NoForward::Failed(why) => f.write_str(why),
        }
    }
}

/// A port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodPort {
    pod: String,
    port: u16,
}

/// Asks one of the operator's pods.
pub async fn send(
    cluster: &Cluster,
    question: &OperatorCall,
) -> Result<OperatorResponse, NoForward> {
    let places = find(cluster).await?;
    let turn = cluster.forwards.next_turn();
    let place = turn.checked_rem(places.len()).and_then(|at| places.get(at));
    let place = place.ok_or_else(|| failed("no pod of the operator is ready"))?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.operator_namespace);
    let ports = [place.port];
    let forward = pods.portforward(&place.pod, &ports);
    let mut forward = in_time(CONNECTS, forward)
        .await?
        .map_err(|error| refused(FORWARD, &error))?;
    let taken = forward.take_stream(place.port);
    let stream = taken.ok_or_else(|| failed("the port-forward has no stream"))?;
    let said = forward.take_error(place.port);
    let answer = answer_of(stream, request(cluster, question)?, forward).await;
    let Err(why) = answer else { return answer };
    // The kubelet says more than that the connection broke.
    let said = async { said?.await };
    match timeout(SAID_WITHIN, said).await.ok().flatten() {
        Some(said) => Err(failed(format!(
            "port {} of pod {}: {}",
            place.port,
            place.pod,
            said.trim()
        ))),
        None => Err(why),
    }
}

async fn answer_of(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
    forward: Portforwarder,
) -> Result<OperatorResponse, NoForward> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = in_time(CONNECTS, handshake).await?.map_err(broken)?;
    // The forward ends with the connection, which ends with the answer's body.
    tokio::spawn(async move {
        let _ = connection.await;
        drop(forward);
    });
    let answer = in_time(ANSWERS, sender.send_request(request)).await?;
    answer.map(|answer| answer.map(boxed)).map_err(broken)
}

fn request(cluster: &Cluster, question: &OperatorCall) -> Result<Request<Body>, NoForward> {
    Request::builder()
        .method(question.method.clone())
        .uri(&question.path)
        .header(header::HOST, &cluster.operator_name)
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(question.body.clone()))
        .map_err(|error| failed(error.to_string()))
}

async fn find(cluster: &Cluster) -> Result<Vec<PodPort>, NoForward> {
    let (client, namespace) = (&cluster.client, &cluster.operator_namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = in_time(CONNECTS, services.get(&cluster.operator_name)).await?;
    let service = service.map_err(|error| refused("get services", &error))?;
    let labels =
        selector(&service).ok_or_else(|| failed("the operator's Service has no selector"))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let some = ListParams::default().labels(&labels).limit(MOST_PODS);
    let pods = in_time(CONNECTS, pods.list(&some)).await?;
    let pods = pods.map_err(|error| refused("list pods", &error))?;
    Ok(places(&service, &pods.items))
}

fn selector(service: &Service) -> Option<String> {
    let labels = service.spec.as_ref()?.selector.as_ref()?;
    let pairs: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// The results' port of each ready pod, as the Service chooses it.
fn places(service: &Service, pods: &[Pod]) -> Vec<PodPort> {
    let spec = service.spec.iter();
    let mut ports = spec.flat_map(|spec| spec.ports.iter().flatten());
    let Some(port) = ports.find(|port| port.name.as_deref() == Some(PORT)) else {
        return Vec::new();
    };
    let place = |pod: &Pod| {
        let port = match &port.target_port {
            None => port.port,
            Some(IntOrString::Int(port)) => *port,
            Some(IntOrString::String(name)) => named(pod, name)?,
        };
        Some(PodPort {
            pod: pod.name_any(),
            port: u16::try_from(port).ok()?,
        })
    };
    pods.iter()
        .filter(|pod| is_ready(pod))
        .filter_map(place)
        .collect()
}

fn named(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    Some(port.container_port)
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, NoForward> {
    let late = |_| failed(format!("no answer within {} s", limit.as_secs()));
    timeout(limit, work).await.map_err(late)
}

/// The refusal of a right, which is verb and resource, or another failure.
fn refused(right: &'static str, error: &kube::Error) -> NoForward {
    let code = match error {
        kube::Error::Api(status) => status.code,
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            code.as_u16()
        }
        _ => 0,
    };
    match code {
        401 | 403 => NoForward::Forbidden(right),
        _ => failed(format!("cannot {right}: {}", chain(error))),
    }
}

fn broken(error: hyper::Error) -> NoForward {
    failed(chain(&error))
}

fn failed(why: impl Into<String>) -> NoForward {
    NoForward::Failed(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(target: Value) -> Service {
        let ports = json!([{"name": "relay", "port": 8443}, {"name": "results", "port": 8080, "targetPort": target}]);
        let selector = json!({"app": "phpprof", "part": "operator"});
        serde_json::from_value(json!({"spec": {"selector": selector, "ports": ports}})).unwrap()
    }

    fn pod(name: &str, ready: &str, port: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "operator", "ports": [{"name": "results", "containerPort": port}]}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(target: Value, pods: &[Pod], expected: &[(&str, u16)]) {
        let found = places(&service(target), pods);
        let found: Vec<_> = found.iter().map(|it| (it.pod.as_str(), it.port)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_forward_reaches_a_ready_pods_results_port() {
        let pods = [
            pod("a", "True", 9090),
            pod("b", "False", 9090),
            pod("c", "True", 9091),
        ];
        check(json!("results"), &pods, &[("a", 9090), ("c", 9091)]);
        check(json!(7070), &pods, &[("a", 7070), ("c", 7070)]);
        check(json!(null), &pods[..1], &[("a", 8080)]);
        check(json!("other"), &pods, &[]);
        check(json!(70_000), &pods, &[]);
        let mut ending = pod("d", "True", 9090);
        ending.metadata.deletion_timestamp =
            Some(serde_json::from_str("\"2026-09-21T14:00:00Z\"").unwrap());
        check(json!("results"), &[ending], &[]);
    }

    #[test]
    fn the_service_s_selector_chooses_the_pods() {
        let found = selector(&service(json!("results")));
        assert_eq!(found.as_deref(), Some("app=phpprof,part=operator"));
        assert_eq!(selector(&Service::default()), None);
    }
}
