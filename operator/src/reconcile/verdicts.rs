//! Reads comparisons for `/verdict`, and starts the runs of templates there.
//!
//! Any replica does it: a run is only created, and its name follows from the release. The leading
//! replica handles it like any other comparison.
//!
//! Invariant: starts are made one by one, and none while the namespace has [`UNFINISHED`]
//! comparisons that are not over.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use kube::api::PostParams;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt as _};
use phpprof_crds::{ProfileComparison, chain};
use tokio::sync::Mutex;

use crate::http::tokens::NamespaceTokens;
use crate::http::verdict::{NotStarted, Verdicts};
use crate::metrics::Metrics;
use crate::reconcile::calls::call;

/// The most comparisons of a namespace that are not over, for another one to be started.
pub const UNFINISHED: usize = 8;
/// How long a start waits until the watch shows it, so that the next one counts it.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);

/// A comparison of the API server, which may not be parsed.
pub type GuardedComparison = DeserializeGuard<ProfileComparison>;

/// The comparisons of the cluster.
pub struct ComparisonLookup {
    client: Client,
    known: OnceLock<Vec<Store<GuardedComparison>>>,
    starting: Mutex<()>,
}

impl ComparisonLookup {
    /// Knows no comparisons until it gets the controller's memory.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: OnceLock::new(),
            starting: Mutex::default(),
        }
    }

    pub(crate) fn know(&self, known: Vec<Store<GuardedComparison>>) {
        // There is one controller in a process.
        let _ = self.known.set(known);
    }

    /// What answers on the results' port, with the tokens if verdicts are on.
    pub fn verdicts(
        self: &Arc<Self>,
        tokens: Option<NamespaceTokens>,
        metrics: Metrics,
    ) -> Verdicts {
        let (read, started) = (self.clone(), self.clone());
        Verdicts {
            tokens,
            metrics,
            fetch: Box::new(move |namespace, name| {
                let comparisons = read.clone();
                async move { comparisons.fetch(&namespace, &name).await }.boxed()
            }),
            start: Box::new(move |run| {
                let comparisons = started.clone();
                async move { comparisons.start(run).await }.boxed()
            }),
        }
    }

    fn api(&self, namespace: &str) -> Api<ProfileComparison> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn fetch(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ProfileComparison>, kube::Error> {
        let api = self.api(namespace);
        call(|| api.get_opt(name)).await
    }

    async fn start(&self, run: ProfileComparison) -> Result<ProfileComparison, NotStarted> {
        let namespace = run.namespace().unwrap_or_default();
        let _alone = self.starting.lock().await;
        if self.unfinished(&namespace) >= UNFINISHED {
            return Err(NotStarted::TooMany(UNFINISHED));
        }
        let (api, params) = (self.api(&namespace), PostParams::default());
        match call(|| api.create(&params, &run)).await {
            Ok(started) => {
                self.wait_for(&namespace, &run.name_any()).await;
                Ok(started)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Err(NotStarted::Exists),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 413 | 422) => {
                Err(NotStarted::Refused(status.message))
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "creating the run of a template failed");
                Err(NotStarted::Away)
            }
        }
    }

    /// The comparisons of a namespace that run or wait.
    fn unfinished(&self, namespace: &str) -> usize {
        let known = self.known.get().into_iter().flatten();
        let all = known.flat_map(Store::state);
        all.filter(|it| it.0.as_ref().is_ok_and(|it| is_unfinished(it, namespace)))
            .count()
    }

    async fn wait_for(&self, namespace: &str, name: &str) {
        let reference = ObjectRef::new(name).within(namespace);
        let is_shown = || {
            let mut known = self.known.get().into_iter().flatten();
            known.any(|known| known.get(&reference).is_some())
        };
        let shown = async {
            while !is_shown() {
                tokio::time::sleep(LOOK).await;
            }
        };
        // If the watch is behind, starts are slow, and so few.
        let _ = tokio::time::timeout(SHOWN_WITHIN, shown).await;
    }
}

fn is_unfinished(comparison: &ProfileComparison, namespace: &str) -> bool {
    let status = comparison.status.as_ref();
    comparison.namespace().as_deref() == Some(namespace)
        && !comparison.spec.template
        && status.is_none_or(|it| it.completion_time.is_none())
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use kube::client::Body;
    use kube::runtime::{reflector, watcher};
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::testing::at;

    fn comparison(name: &str, template: bool, status: Value) -> ProfileComparison {
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
            "metadata": {"name": name, "namespace": "shop"}, "status": status,
            "spec": {"before": {"request": "a"}, "after": {"request": "b"}, "template": template},
        });
        serde_json::from_value(object).unwrap()
    }

    /// Comparisons, and an API server that creates every new one, gives this code for those called
    /// `refused`, and answers with what it was sent.
    fn lookup(
        known: Vec<ProfileComparison>,
        code: u16,
    ) -> (
        Arc<ComparisonLookup>,
        reflector::store::Writer<GuardedComparison>,
    ) {
        let answer = move |request: Request<Body>| async move {
            let body = axum::body::to_bytes(axum::body::Body::new(request.into_body()), 1 << 20);
            let body: Value = serde_json::from_slice(&body.await.unwrap()).unwrap_or_default();
            let is_refused = body["metadata"]["name"] == "refused";
            let (code, said) = if is_refused {
                (
                    code,
                    json!({"kind": "Status", "code": code, "message": "no"}),
                )
            } else {
                (201, body)
            };
            let body = Body::from(said.to_string().into_bytes());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        };
        let lookup = ComparisonLookup::new(Client::new(service_fn(answer), "default"));
        let (store, mut writer) = reflector::store();
        for comparison in known {
            let event = watcher::Event::Apply(DeserializeGuard(Ok(comparison)));
            writer.apply_watcher_event(&event);
        }
        lookup.know(vec![store]);
        (Arc::new(lookup), writer)
    }

    fn running(count: usize) -> Vec<ProfileComparison> {
        let name = |number| format!("running-{number}");
        (0..count)
            .map(|it| comparison(&name(it), false, json!({})))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_few_unfinished_comparisons() {
        let new = || comparison("new", false, json!({}));
        let mut most = running(UNFINISHED);
        let (full, _writer) = lookup(most.clone(), 0);
        let refused = full.start(new()).await;
        assert_eq!(refused, Err(NotStarted::TooMany(UNFINISHED)));
        // Those that are over, templates, and those of others do not count.
        most.truncate(UNFINISHED - 1);
        most.push(comparison("over", false, json!({"completionTime": at(0)})));
        most.push(comparison("template", true, json!({})));
        let mut other = comparison("other", false, json!({}));
        other.metadata.namespace = Some("blog".to_owned());
        most.push(other);
        let (room, _writer) = lookup(most, 0);
        assert!(room.start(new()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_of_the_api_server_keep_their_words() {
        for (code, expected) in [
            (409, NotStarted::Exists),
            (403, NotStarted::Refused("no".to_owned())),
            (422, NotStarted::Refused("no".to_owned())),
            (503, NotStarted::Away),
        ] {
            let (lookup, _writer) = lookup(Vec::new(), code);
            let refused = lookup.start(comparison("refused", false, json!({}))).await;
            assert_eq!(refused, Err(expected), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_is_counted_by_the_next_one() {
        let (lookup, mut writer) = lookup(running(UNFINISHED - 1), 0);
        let first = comparison("first", false, json!({}));
        let shown = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let event = watcher::Event::Apply(DeserializeGuard(Ok(first.clone())));
            writer.apply_watcher_event(&event);
        };
        let second = lookup.start(comparison("second", false, json!({})));
        let (first, second, ()) = tokio::join!(lookup.start(first.clone()), second, shown);
        assert!(first.is_ok());
        assert_eq!(second, Err(NotStarted::TooMany(UNFINISHED)));
    }
}
