//! Which way a call goes to the operator: the API server's proxy, or a port-forward where the
//! control plane does not reach pods.
//!
//! [`unreached`] is pure: whether an answer is the API server's word that it does not reach the
//! operator, not the operator's own.
//!
//! Invariant: the proxy is always tried first, and a failure of both names the port to open and the
//! Role that helps.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use kube::client::Body;
use tokio::time::timeout;

use super::exchange::{OperatorCall, OperatorResponse, boxed};
use super::forward::{self, NoForward};
use super::{PORT, action};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};

/// The proxy's answer is waited for this long before another way is tried.
const PROXY_ANSWERS: Duration = Duration::from_secs(5);
/// The time limit of the operator's answer to a trivial call.
const TRIVIAL: Duration = Duration::from_secs(3);
/// What the operator answers at once, with 404.
const NOTHING: &str = "/";
/// The largest body of an answer that may be the API server's own.
const LONGEST_WORD: usize = 64 << 10;
const LONGEST_SHOWN: usize = 300;

/// How the operator's results can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Proxy,
    /// Not by the proxy, but by a port-forward. The text says why.
    Forward(String),
    /// By neither. The texts are for people: what was found, and what to do.
    Nowhere(String, String),
    /// The question could not be asked, for instance because a right is missing.
    Unknown(String),
}

/// Calls the operator's service at a path that is [`super::safe`], and returns any answer of the
/// operator, or of the API server if it refuses the call.
pub fn call<'a>(
    cluster: &'a Cluster,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> BoxFuture<'a, Result<OperatorResponse, Failure>> {
    let question = OperatorCall {
        method,
        path: path.to_owned(),
        body,
    };
    answered(cluster, question).boxed()
}

async fn answered(cluster: &Cluster, question: OperatorCall) -> Result<OperatorResponse, Failure> {
    if cluster.forwards.is_chosen() {
        let sent = forward::send(cluster, &question).await;
        return sent.map_err(|why| nowhere(cluster, "it did not answer before", &why));
    }
    let proxied = proxied(cluster, &question);
    tokio::pin!(proxied);
    let (why, is_late) = match timeout(PROXY_ANSWERS, &mut proxied).await {
        Ok(answer) => match reached(answer?).await {
            Ok(answer) => return Ok(answer),
            Err(why) => (why, false),
        },
        Err(_) => (silent(PROXY_ANSWERS), true),
    };
    match forward::send(cluster, &question).await {
        Ok(answer) => {
            cluster.forwards.choose();
            Ok(answer)
        }
        // The operator may need its time, for instance to render a page.
        Err(_) if is_late && tried(cluster, TRIVIAL).await.is_ok() => proxied.await,
        Err(forward) => Err(nowhere(cluster, &why, &forward)),
    }
}

/// Tries both ways by one GET each.
pub async fn reach(cluster: &Cluster) -> Reach {
    let why = match tried(cluster, PROXY_ANSWERS).await {
        Ok(None) => return Reach::Proxy,
        Ok(Some(refusal)) => return Reach::Unknown(refusal),
        Err(why) => why,
    };
    match forward::send(cluster, &nothing()).await {
        Ok(_) => Reach::Forward(why),
        Err(forward) => {
            let failure = nowhere(cluster, &why, &forward);
            Reach::Nowhere(failure.message, failure.hint)
        }
    }
}

fn nothing() -> OperatorCall {
    OperatorCall {
        method: Method::GET,
        path: NOTHING.to_owned(),
        body: Vec::new(),
    }
}

/// Whether the operator answers through the proxy within this time; if the API server refuses the
/// call itself, its words; an error says why the operator is not reached.
async fn tried(cluster: &Cluster, within: Duration) -> Result<Option<String>, String> {
    let answer = timeout(within, proxied(cluster, &nothing())).await;
    let answer = answer.map_err(|_| silent(within))?;
    let answer = answer.map_err(|failure| failure.message)?;
    let answer = reached(answer).await?;
    let (code, words) = (answer.status().as_u16(), text(answer).await);
    let word = status_message(&words).map(|word| format!("{code}: {word}"));
    Ok(word)
}

fn silent(time: Duration) -> String {
    format!("no answer within {} s", time.as_secs())
}

async fn text(answer: OperatorResponse) -> String {
    let body = Limited::new(answer.into_body(), LONGEST_WORD);
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    String::from_utf8_lossy(&body.unwrap_or_default()).into_owned()
}

/// Calls the operator by the API server's proxy.
async fn proxied(cluster: &Cluster, question: &OperatorCall) -> Result<OperatorResponse, Failure> {
    let uri = format!(
        "/api/v1/namespaces/{}/services/{}:{PORT}/proxy{}",
        cluster.operator_namespace, cluster.operator_name, question.path
    );
    let request = Request::builder()
        .method(question.method.clone())
        .uri(uri)
        .header("content-type", "application/json")
        .body(Body::from(question.body.clone()));
    let request = request.map_err(|error| {
        Failure::new(
            Exit::Failed,
            error.to_string(),
            "check --operator-name and --operator-namespace",
        )
    })?;
    let action = action(cluster, &question.method);
    let answer = cluster.client.send(request).await;
    answer
        .map(|answer| answer.map(boxed))
        .map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))
}

/// The same answer if it is the operator's, or a refusal of the API server; an error says why the
/// operator was not reached.
async fn reached(answer: OperatorResponse) -> Result<OperatorResponse, String> {
    let code = answer.status().as_u16();
    if !(502..=504).contains(&code) {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, LONGEST_WORD).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes);
    let body = body.unwrap_or_default();
    match unreached(code, &body) {
        Some(why) => Err(why),
        None => Ok(Response::from_parts(parts, boxed(Full::new(body)))),
    }
}

/// Why the operator was not reached, if the answer says so: the API server's 503 is a Status, or
/// the text of its proxy; the operator's own 503 is neither, and it never answers 502 or 504.
fn unreached(code: u16, body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let of_api_server = status_message(&text);
    let is_of_proxy = text.contains("Trying to reach:") || text.contains("trying to reach service");
    if code == 503 && of_api_server.is_none() && !is_of_proxy {
        return None;
    }
    let words = of_api_server.unwrap_or_else(|| text.trim().to_owned());
    let words: String = words.chars().take(LONGEST_SHOWN).collect();
    Some(format!("HTTP {code}, {words}"))
}

/// The message of the API server's Status.
fn status_message(text: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(text).ok()?;
    (status["kind"] == "Status").then(|| status["message"].as_str().unwrap_or_default().to_owned())
}

fn nowhere(cluster: &Cluster, why: &str, forward: &NoForward) -> Failure {
    let (name, namespace) = (&cluster.operator_name, &cluster.operator_namespace);
    let message = format!(
        "the API server does not reach the operator's port {PORT}, {name} in namespace {namespace}: {why}; a port-forward to its pod does not \
         work either: {forward}"
    );
    let role = match forward {
        NoForward::Forbidden(_) => format!(
            ", or ask for the Role {name}-port-forward (chart value results.portForward.readers)"
        ),
        NoForward::Failed(_) => String::new(),
    };
    let hint = format!(
        "if the operator is ready, let the control plane reach TCP port 8080 of its pods (a firewall rule on private GKE clusters; EKS with \
         an overlay network cannot), or read results by its Ingress (chart value results.ingress.host){role}"
    );
    Failure::new(Exit::Unreachable, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: u16, body: &str, expected: Option<&str>) {
        assert_eq!(unreached(code, body.as_bytes()).as_deref(), expected);
    }

    #[test]
    fn an_unreachable_endpoint_differs_from_the_operators_503() {
        let status = r#"{"kind":"Status","message":"error trying to reach service: dial tcp 10.244.0.9:8080: i/o timeout","code":503}"#;
        let why = "HTTP 503, error trying to reach service: dial tcp 10.244.0.9:8080: i/o timeout";
        check(503, status, Some(why));
        let text = "Error: 'dial tcp: i/o timeout'\nTrying to reach: 'http://10.244.0.9:8080/'";
        check(503, text, Some(&format!("HTTP 503, {text}")));
        check(503, r#"{"message":"the store does not answer"}"#, None);
        check(503, "", None);
        check(504, "<html>", Some("HTTP 504, <html>"));
        check(502, "", Some("HTTP 502, "));
        let long = "x".repeat(1000);
        assert_eq!(unreached(502, long.as_bytes()).unwrap().len(), 310);
    }
}
