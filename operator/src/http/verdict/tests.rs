//! Who may ask, what is started, and what each method answers, with comparisons in memory.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::http::Request;
use futures::FutureExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::metrics::Now;
use crate::testing::at;

const TOKEN: &str = "0123456789abcdef";
const RIGHT: Option<&str> = Some("Bearer 0123456789abcdef");

/// The comparisons that the mock has, and what was asked of it.
#[derive(Default)]
struct MockComparisons {
    all: BTreeMap<String, ProfileComparison>,
    reads: usize,
    starts: usize,
    /// Why it starts nothing.
    refuses: Option<NotStarted>,
    is_away: bool,
}

struct VerdictScene {
    router: Router,
    comparisons: Arc<Mutex<MockComparisons>>,
    metrics: Metrics,
    _tokens: tempfile::TempDir,
}

fn comparison(name: &str, is_template: bool) -> ProfileComparison {
    let object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")},
        "spec": {"before": {"request": "a"}, "after": {"target": {"podName": "b"}}, "template": is_template},
    });
    serde_json::from_value(object).unwrap()
}

fn scene() -> VerdictScene {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shop"), TOKEN).unwrap();
    let tokens = Some(NamespaceTokens::new(folder.path().to_owned()));
    scene_with(folder, tokens)
}

fn scene_with(folder: tempfile::TempDir, tokens: Option<NamespaceTokens>) -> VerdictScene {
    let comparisons = Arc::new(Mutex::new(MockComparisons::default()));
    for comparison in [comparison("web", true), comparison("once", false)] {
        let mut all = comparisons.lock().unwrap();
        all.all.insert(comparison.name_any(), comparison);
    }
    let (reads, starts) = (comparisons.clone(), comparisons.clone());
    let fetch = move |namespace: String, name: String| {
        let mut all = reads.lock().unwrap();
        all.reads += 1;
        let found = if all.is_away {
            Err(kube::Error::LinesCodecMaxLineLengthExceeded)
        } else {
            Ok(all.all.get(&name).filter(|_| namespace == "shop").cloned())
        };
        async move { found }.boxed()
    };
    let start = move |run: ProfileComparison| {
        let mut all = starts.lock().unwrap();
        all.starts += 1;
        let started = match all.refuses.take() {
            Some(why) => Err(why),
            None => {
                all.all.insert(run.name_any(), run.clone());
                Ok(run)
            }
        };
        async move { started }.boxed()
    };
    let metrics = Metrics::default();
    let verdicts = Verdicts {
        tokens,
        fetch: Box::new(fetch),
        start: Box::new(start),
        metrics: metrics.clone(),
    };
    VerdictScene {
        router: verdicts.router(),
        comparisons,
        metrics,
        _tokens: folder,
    }
}

impl VerdictScene {
    async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        let body = serde_json::from_slice(&body.unwrap()).unwrap_or_default();
        (status, body)
    }

    /// Asks with the token. Returns the status and the message.
    async fn asked(&self, method: &str, path: &str) -> (u16, String) {
        let (status, body) = self.ask(method, path, RIGHT, "").await;
        (
            status,
            body["message"].as_str().unwrap_or_default().to_owned(),
        )
    }

    fn change(&self, change: impl FnOnce(&mut MockComparisons)) {
        change(&mut self.comparisons.lock().unwrap());
    }

    fn counts(&self) -> [usize; 2] {
        let all = self.comparisons.lock().unwrap();
        [all.reads, all.starts]
    }

    /// Ends a comparison with this verdict.
    fn end(&self, name: &str, verdict: &str) {
        let status = json!({"completionTime": at(0), "verdict": verdict});
        let mut all = self.comparisons.lock().unwrap();
        let ended = all.all.get_mut(name).unwrap();
        ended.status = serde_json::from_value(status).unwrap();
    }
}

#[tokio::test]
async fn without_the_token_nothing_is_read_or_started() {
    let scene = scene();
    let basic = "Basic eDpvdGhlcg==";
    for token in [
        None,
        Some("Bearer "),
        Some("Bearer x"),
        Some(basic),
        Some(TOKEN),
    ] {
        for method in ["GET", "PUT", "POST"] {
            for path in [
                "/verdict/shop/web?run=a",
                "/verdict/blog/web",
                "/verdict/shop/none",
            ] {
                let (status, body) = scene.ask(method, path, token, "").await;
                assert_eq!(status, 401, "{method} {path} {token:?}");
                assert!(
                    body["message"]
                        .as_str()
                        .unwrap()
                        .contains("needs the token")
                );
            }
        }
    }
    // A right token of another namespace is a wrong one.
    assert_eq!(
        scene.ask("GET", "/verdict/blog/web", RIGHT, "").await.0,
        401
    );
    assert_eq!(scene.counts(), [0, 0]);
    let text = scene.metrics.text(Now::default());
    let line = "phpprof_verdict_answers_total{code=\"401\"} 46";
    assert!(text.lines().any(|it| it == line), "{text}");
}

#[tokio::test]
async fn without_tokens_verdicts_are_off() {
    let scene = scene_with(tempfile::tempdir().unwrap(), None);
    let (status, message) = scene.asked("POST", "/verdict/shop/once").await;
    assert_eq!((status, message.as_str()), (404, OFF));
    assert_eq!(scene.counts(), [0, 0]);
}

#[tokio::test]
async fn a_run_is_started_once_for_each_release() {
    let scene = scene();
    let path = "/verdict/shop/web?run=7d9f";
    let (status, message) = scene.asked("GET", path).await;
    assert_eq!(status, 404);
    assert!(message.contains("has no run 7d9f yet"), "{message}");
    for _ in 0..3 {
        let (status, body) = scene.ask("PUT", path, RIGHT, "").await;
        assert_eq!((status, &body["phase"]), (200, &json!("Running")));
        assert_eq!(body["comparison"], "web-7d9f");
    }
    assert_eq!(scene.counts()[1], 1);
    assert_eq!(scene.asked("GET", path).await.0, 200);
    let payload = r#"{"name": "web", "checksum": "85d557f47b"}"#;
    for _ in 0..3 {
        let (status, _) = scene.ask("POST", "/verdict/shop/web", RIGHT, payload).await;
        assert_eq!(status, 425);
    }
    assert_eq!(scene.counts()[1], 2);
    // The query's name precedes the payload's.
    scene.ask("POST", path, RIGHT, payload).await;
    assert_eq!(scene.counts()[1], 2);
}

#[tokio::test]
async fn a_webhook_passes_only_what_may_go_on() {
    let scene = scene();
    let path = |allow: &str| format!("/verdict/shop/web?run=a&allow={allow}");
    assert_eq!(scene.asked("POST", &path("")).await.0, 425);
    assert_eq!(scene.asked("POST", &path("running")).await.0, 200);
    for (verdict, codes) in [
        ("NoChange", [200, 200]),
        ("Worse", [409, 409]),
        ("Inconclusive", [409, 200]),
    ] {
        scene.end("web-a", verdict);
        for (allow, code) in ["running", "inconclusive"].into_iter().zip(codes) {
            assert_eq!(
                scene.asked("POST", &path(allow)).await.0,
                code,
                "{verdict} {allow}"
            );
        }
        // A metric reads the words, whatever they are.
        let (status, body) = scene.ask("PUT", &path(""), RIGHT, "").await;
        assert_eq!((status, &body["verdict"]), (200, &json!(verdict)));
    }
    assert_eq!(scene.counts()[1], 1);
}

#[tokio::test]
async fn an_ordinary_comparison_is_only_read() {
    let scene = scene();
    for method in ["GET", "PUT"] {
        assert_eq!(scene.asked(method, "/verdict/shop/once").await.0, 200);
    }
    let flagger = r#"{"checksum": "85d557f47b"}"#;
    let (status, _) = scene
        .ask("POST", "/verdict/shop/once", RIGHT, flagger)
        .await;
    assert_eq!(status, 425);
    let (status, message) = scene.asked("PUT", "/verdict/shop/once?run=a").await;
    assert_eq!((status, message.contains("is not a template")), (409, true));
    assert_eq!(scene.counts()[1], 0);
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let scene = scene();
    let check = async |method, path: &str, code, words: &str| {
        let (status, message) = scene.asked(method, path).await;
        assert_eq!(status, code, "{path}: {message}");
        assert!(message.contains(words), "{path}: {message}");
    };
    check("GET", "/verdict/shop/none", 404, "kubectl -n shop get pcmp").await;
    check("PUT", "/verdict/shop/web", 400, "add ?run=NAME").await;
    check("POST", "/verdict/shop/web", 400, "add ?run=NAME").await;
    check("PUT", "/verdict/shop/web?run=A", 400, "lower-case letters").await;
    check("PUT", "/verdict/shop/web?other=a", 400, "and nothing else").await;
    let large = "x".repeat(LARGEST_PAYLOAD + 1);
    let (status, _) = scene.ask("POST", "/verdict/shop/web", RIGHT, &large).await;
    assert_eq!(status, 413);
    let (status, _) = scene
        .ask("POST", "/verdict/shop/web", RIGHT, "no JSON")
        .await;
    assert_eq!(status, 400);
    for (why, code, words) in [
        (
            NotStarted::TooMany(8),
            429,
            "has 8 comparisons that are not over",
        ),
        (
            NotStarted::Refused("no rights".to_owned()),
            409,
            "no rights",
        ),
        (NotStarted::Away, 503, "did not answer"),
        (NotStarted::Exists, 409, "is not a run of template"),
    ] {
        scene.change(|it| it.refuses = Some(why));
        check("PUT", "/verdict/shop/web?run=new", code, words).await;
    }
    scene.change(|it| it.is_away = true);
    check("GET", "/verdict/shop/once", 503, "did not answer").await;
}

#[tokio::test]
async fn a_foreign_comparison_is_not_a_run() {
    let scene = scene();
    scene.change(|it| {
        let foreign = comparison("web-a", false);
        it.all.insert("web-a".to_owned(), foreign);
    });
    for method in ["GET", "PUT", "POST"] {
        let (status, message) = scene.asked(method, "/verdict/shop/web?run=a").await;
        assert_eq!((status, message.contains("is not a run")), (409, true));
    }
    assert_eq!(scene.counts()[1], 0);
}

#[tokio::test]
async fn a_cancelled_template_starts_nothing() {
    let scene = scene();
    scene.change(|it| it.all.get_mut("web").unwrap().spec.cancel = true);
    let (status, message) = scene.asked("PUT", "/verdict/shop/web?run=a").await;
    assert_eq!((status, message.contains("was cancelled")), (409, true));
    assert_eq!(scene.counts()[1], 0);
}

#[tokio::test]
async fn questions_of_a_namespace_are_bounded() {
    let scene = scene();
    let (unblock, blocked) = tokio::sync::watch::channel(());
    let fetch = move |_, _| {
        let mut blocked = blocked.clone();
        async move {
            let _ = blocked.changed().await;
            Ok(None)
        }
        .boxed()
    };
    let verdicts = Verdicts {
        tokens: Some(NamespaceTokens::new(scene._tokens.path().to_owned())),
        fetch: Box::new(fetch),
        start: Box::new(|_| async { Err(NotStarted::Away) }.boxed()),
        metrics: Metrics::default(),
    };
    let router = verdicts.router();
    let ask = || {
        let request =
            Request::get("/verdict/shop/web").header(header::AUTHORIZATION, RIGHT.unwrap());
        let request = request.body(Body::empty()).unwrap();
        tokio::spawn(router.clone().oneshot(request))
    };
    let held: Vec<_> = (0..SHARE).map(|_| ask()).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let refused = ask().await.unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    unblock.send(()).unwrap();
    for held in held {
        let answer = held.await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
}
