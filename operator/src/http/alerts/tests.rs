//! Who may send alerts, and what is answered, with triggers in memory.

use std::sync::Mutex;

use axum::http::Request;
use futures::FutureExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use crate::metrics::Now;

const TOKEN: &str = "0123456789abcdef";
const RIGHT: Option<&str> = Some("Bearer 0123456789abcdef");

struct AlertScene {
    router: Router,
    /// Namespaces and lengths of the payloads that were handled.
    handled: Arc<Mutex<Vec<(String, usize)>>>,
    metrics: Metrics,
    _tokens: tempfile::TempDir,
}

type Handled = fn() -> Result<FiredTriggers, NotHandled>;

fn scene_with(handled: Handled, is_on: bool) -> AlertScene {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop"), TOKEN).unwrap();
    let tokens = is_on.then(|| NamespaceTokens::new(folder.path().to_owned()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sees, metrics) = (seen.clone(), Metrics::default());
    let fire = move |namespace: String, payload: Bytes| {
        sees.lock().unwrap().push((namespace, payload.len()));
        async move { handled() }.boxed()
    };
    let alerts = Alerts {
        tokens,
        fire: Box::new(fire),
        metrics: metrics.clone(),
    };
    AlertScene {
        router: alerts.router(),
        handled: seen,
        metrics,
        _tokens: folder,
    }
}

fn scene() -> AlertScene {
    scene_with(|| Ok(FiredTriggers::default()), true)
}

impl AlertScene {
    async fn send(&self, path: &str, token: Option<&str>, body: Body) -> (u16, Value) {
        let mut request = Request::builder().method("POST").uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, retry) = (
            response.status().as_u16(),
            response.headers().contains_key(header::RETRY_AFTER),
        );
        assert_eq!(retry, status == 503);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        (
            status,
            serde_json::from_slice(&body.unwrap()).unwrap_or_default(),
        )
    }

    fn count(&self) -> usize {
        self.handled.lock().unwrap().len()
    }
}

#[tokio::test]
async fn without_the_token_no_payload_is_read() {
    let scene = scene();
    let basic = "Basic eDpvdGhlcg==";
    for token in [
        None,
        Some("Bearer "),
        Some("Bearer x"),
        Some(basic),
        Some(TOKEN),
    ] {
        let (status, said) = scene.send("/alerts/shop", token, Body::from("{}")).await;
        assert_eq!(status, 401);
        assert!(
            said["message"]
                .as_str()
                .unwrap()
                .contains("alerts.tokensSecret")
        );
    }
    // The token of another namespace.
    for path in ["/alerts/blog", "/alerts/..%2Fshop", "/alerts/%2e"] {
        let (status, _) = scene.send(path, RIGHT, Body::from("{}")).await;
        assert_eq!(status, 401, "{path}");
    }
    assert_eq!(scene.count(), 0);
    let text = scene.metrics.text(Now::default());
    assert!(
        text.contains("phpprof_alert_answers_total{code=\"401\"} 8"),
        "{text}"
    );
}

#[tokio::test]
async fn alerts_are_off_without_tokens() {
    let scene = scene_with(|| Ok(FiredTriggers::default()), false);
    let (status, said) = scene.send("/alerts/shop", RIGHT, Body::empty()).await;
    assert_eq!((status, scene.count()), (404, 0));
    assert!(said["message"].as_str().unwrap().contains("alerts are off"));
}

#[tokio::test]
async fn large_payloads_are_refused_unread() {
    let scene = scene();
    let body = |length: usize| Body::from(vec![b' '; length]);
    let (status, said) = scene
        .send("/alerts/shop", RIGHT, body(LARGEST_PAYLOAD + 1))
        .await;
    assert_eq!((status, scene.count()), (413, 0));
    assert!(said["message"].as_str().unwrap().contains("max_alerts"));
    let (status, _) = scene
        .send("/alerts/shop", RIGHT, body(LARGEST_PAYLOAD))
        .await;
    assert_eq!((status, scene.count()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_never_ends_is_given_up() {
    let scene = scene();
    let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let (status, _) = scene.send("/alerts/shop", RIGHT, silent).await;
    assert_eq!((status, scene.count()), (408, 0));
}

#[tokio::test]
async fn answers_say_whether_to_send_again() {
    let away = || {
        Err(NotHandled::Away(
            kube::Error::LinesCodecMaxLineLengthExceeded,
        ))
    };
    let cases: [(Handled, u16); 6] = [
        (|| Err(NotHandled::Late), 503),
        (|| Ok(FiredTriggers::default()), 200),
        (
            || {
                Ok(FiredTriggers {
                    is_incomplete: true,
                    ..FiredTriggers::default()
                })
            },
            503,
        ),
        (|| Err(NotHandled::Payload("it is none".to_owned())), 400),
        (|| Err(NotHandled::NoTriggers), 404),
        (away, 503),
    ];
    for (handled, expected) in cases {
        let scene = scene_with(handled, true);
        let (status, _) = scene.send("/alerts/shop", RIGHT, Body::empty()).await;
        assert_eq!(status, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn few_payloads_are_in_memory_at_a_time() {
    let scene = Arc::new(scene());
    let silent = || Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let sends = (0..SHARE + 2).map(|_| {
        let scene = scene.clone();
        async move { scene.send("/alerts/shop", RIGHT, silent()).await.0 }
    });
    let mut answers = futures::future::join_all(sends).await;
    answers.sort_unstable();
    // Two were read until they took too long. Of the others, two had waited, and two were too many.
    assert_eq!(answers, [408, 408, 503, 503, 503, 503]);
    let (status, _) = scene.send("/alerts/shop", RIGHT, Body::empty()).await;
    assert_eq!((status, scene.count()), (200, 1));
}

#[tokio::test]
async fn the_answer_has_counts_and_requests() {
    let fired = || {
        Ok(FiredTriggers {
            firing: 3,
            resolved: 1,
            triggers: vec![FiredTrigger {
                trigger: "slow".to_owned(),
                alerts: 2,
                created: vec!["slow-1".to_owned()],
                repeated: 1,
                reason: TriggerReason::RequestCreated,
                message: "created slow-1".to_owned(),
            }],
            ..FiredTriggers::default()
        })
    };
    let scene = scene_with(fired, true);
    let (_, said) = scene.send("/alerts/shop", RIGHT, Body::empty()).await;
    let expected = serde_json::json!({
        "firing": 3, "resolved": 1, "leftOut": 0, "triggersLeftOut": false,
        "triggers": [{"trigger": "slow", "alerts": 2, "created": ["slow-1"], "repeated": 1,
            "reason": "RequestCreated", "message": "created slow-1"}],
    });
    assert_eq!(said, expected);
}
