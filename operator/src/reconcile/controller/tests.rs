//! The controller at an API server whose watch breaks.

use serde_json::Value;

use super::*;
use crate::testing::api::{ApiServer, context};
use crate::testing::request;

/// The reasons that the status of the request gets in the minute after it had this spec, if it has the other one once the watch is
/// repaired. A request without a spec does not exist.
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
async fn a_request_that_was_created_while_the_watch_was_broken_is_handled() {
    let reasons = reasons(None, json!({"target": {"podName": "web"}})).await;
    assert!(
        reasons.contains(&json!("NamespaceNotEnabled")),
        "{reasons:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_go_on_since_the_watch_was_broken_goes_on() {
    let suspended = json!({"target": {"podName": "web"}, "suspend": true});
    let reasons = reasons(Some(suspended), json!({"target": {"podName": "web"}})).await;
    assert_eq!(reasons.first(), Some(&json!("Suspended")));
    assert!(
        reasons.contains(&json!("NamespaceNotEnabled")),
        "{reasons:?}"
    );
}
