//! The controller at an API server whose watch breaks.

use serde_json::Value;

use super::*;
use crate::testing::api::{ApiServer, context};
use crate::testing::request;

/// The reasons that the status of the request gets in the minute after it had this spec, if it has
/// the other one once the watch is repaired. A request without a spec does not exist.
async fn reasons(before: Option<Value>, after: Value) -> Vec<Value> {
    let after = json!(request(after));
    let before = before.map(|spec| json!(request(spec)));
    let objects = [before.into_iter().collect(), vec![after.clone()]];
    let server = ApiServer::new(objects, after);
    let (context, changes) = context(server.client());
    let context = Arc::new(context);
    let (known, writer) = reflector::store();
    context.cluster.requests.know(vec![known]);
    let requests = Api::all(context.cluster.client.clone());
    let looked = look_after_all(Reconciler::new(context), requests, writer, changes);
    let _ = tokio::time::timeout(Duration::from_secs(60), looked).await;
    let patches = server.patches();
    let reason = |patch: &Value| patch["status"]["conditions"][0]["reason"].clone();
    patches.iter().map(reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_from_a_broken_watch_is_handled() {
    let reasons = reasons(None, json!({"target": {"podName": "web"}})).await;
    assert!(
        reasons.contains(&json!("NamespaceNotEnabled")),
        "{reasons:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_resumes_after_a_broken_watch() {
    let suspended = json!({"target": {"podName": "web"}, "suspend": true});
    let reasons = reasons(Some(suspended), json!({"target": {"podName": "web"}})).await;
    assert_eq!(reasons.first(), Some(&json!("Suspended")));
    assert!(
        reasons.contains(&json!("NamespaceNotEnabled")),
        "{reasons:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn look_after_passes_a_replaced_requests_place_on() {
    let spec = json!({"target": {"podName": "web"}});
    let named = |name: &str, uid: &str| {
        let mut request = request(spec.clone());
        request.metadata.name = Some(name.to_owned());
        request.metadata.uid = Some(uid.to_owned());
        request
    };
    let server = ApiServer::new([vec![], vec![]], json!(named("first", "new")));
    let (mut context, mut changes) = context(server.client());
    context.policy.limits.requests_of_namespace = 1;
    let (known, mut writer) = reflector::store();
    let waiting = DeserializeGuard(Ok(named("second", "waits")));
    writer.apply_watcher_event(&watcher::Event::Apply(waiting));
    context.cluster.requests.know(vec![known]);
    let mut running = named("first", "old");
    running.status = serde_json::from_value(json!({"startTime": context.now()})).unwrap();
    context.ledger().see(&running);
    let reconciler = Reconciler::new(Arc::new(context));
    let newer = DeserializeGuard(Ok(named("first", "new")));
    let looked = look_after(Arc::new(newer), &reconciler);
    let _ = tokio::time::timeout(Duration::from_secs(60), looked).await;
    let next = RequestRef::new("second").within("shop");
    assert_eq!(changes.next().now_or_never().flatten(), Some(next));
}
