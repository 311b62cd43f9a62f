//! What stops all profiling: the administrator's switch, and the label of a namespace.
//!
//! The operator watches the switch, a ConfigMap, and the namespaces with the label. An operator
//! with rights in some namespaces only can read these, but not watch them. It polls the labels of
//! the namespaces with running requests.
//!
//! Invariant: while the API server does not answer, its last answer applies. Until its first answer
//! about the switch, no sampler is added and none is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};
use phpprof_crds::NAMESPACE_LABEL;
use phpprof_decide::namespace::{by_label, is_disabled, is_enabled};

use crate::lifecycle::observed::Halt;
use crate::reconcile::calls::AT_ONCE;
use crate::reconcile::watches::paged;

/// Running samplers learn of a stop within five seconds. Two of these are for their own polling.
const EVERY: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);
/// The chart's key of the switch, from the value `killSwitch`.
const KEY: &str = "profiling";
/// People's annotation of the switch. The chart never writes it: a server-side apply (Helm 4) would
/// refuse a key of its own that somebody else has changed, and an upgrade would undo the stop.
const ANNOTATION: &str = "phpprof.dev/profiling";
/// The value that stops profiling, of both.
const STOPPED: &str = "stopped";

/// Where profiling is stopped by the administrator's switch or by namespaces' labels, as last seen
/// by the watches.
#[derive(Default)]
pub struct Halts(Mutex<HaltState>);

/// The administrator's switch.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Switch {
    /// Profiling is allowed, or there is no switch.
    #[default]
    On,
    /// It stops all profiling.
    Off,
    /// There is one, but it has not been read yet.
    Unread,
}

#[derive(Default)]
struct HaltState {
    switch: Switch,
    /// Namespaces that are stopped by their label.
    namespaces: BTreeSet<String>,
    /// The uids of the namespaces that have opted in, as last seen by a watch.
    enabled: BTreeMap<String, String>,
    /// Whether a watch has listed all of them once.
    has_listed: bool,
}

impl Halts {
    /// There is a switch, which nobody has read yet.
    pub fn with_switch() -> Self {
        let state = HaltState {
            switch: Switch::Unread,
            ..HaltState::default()
        };
        Halts(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, HaltState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps samplers from a namespace.
    pub fn of(&self, namespace: &str) -> Option<Halt> {
        let state = self.state();
        let is_labelled = state.namespaces.contains(namespace);
        match state.switch {
            Switch::Off => Some("the administrator has stopped profiling".to_owned()),
            _ if is_labelled => Some(by_label()),
            Switch::Unread => return Some(Halt::Unknown),
            Switch::On => None,
        }
        .map(Halt::Stopped)
    }

    /// Whether profiling is stopped in a namespace, also where it has begun.
    pub fn stops(&self, namespace: &str) -> bool {
        matches!(self.of(namespace), Some(Halt::Stopped(_)))
    }

    /// Whether the switch stops everything.
    pub fn is_off(&self) -> bool {
        self.state().switch == Switch::Off
    }

    /// The uid of a namespace if it has certainly opted in. Then the API server need not be asked.
    pub fn enabled(&self, namespace: &str) -> Option<String> {
        self.state().enabled.get(namespace).cloned()
    }

    /// Whether a namespace has certainly not opted in.
    pub fn is_closed(&self, namespace: &str) -> bool {
        let state = self.state();
        state.has_listed && !state.enabled.contains_key(namespace)
    }

    /// Returns whether the switch has changed.
    fn switch(&self, off: bool) -> bool {
        let switch = if off { Switch::Off } else { Switch::On };
        std::mem::replace(&mut self.state().switch, switch) != switch
    }

    fn label(&self, namespace: &str, is_disabled: bool) -> bool {
        let mut state = self.state();
        if is_disabled {
            state.namespaces.insert(namespace.to_owned())
        } else {
            state.namespaces.remove(namespace)
        }
    }

    /// Records a namespace from a watch. Returns whether profiling there was stopped or resumed.
    fn learn(&self, namespace: &str, uid: String, label: Option<&str>) -> bool {
        let mut state = self.state();
        if is_enabled(label) {
            state.enabled.insert(namespace.to_owned(), uid)
        } else {
            state.enabled.remove(namespace)
        };
        drop(state);
        self.label(namespace, is_disabled(label))
    }

    /// Keeps only the listed namespaces, because the others do not have the label.
    fn keep(&self, listed: &BTreeSet<String>) -> bool {
        let mut state = self.state();
        state.has_listed = true;
        state
            .enabled
            .retain(|namespace, _| listed.contains(namespace));
        let before = state.namespaces.len();
        state
            .namespaces
            .retain(|namespace| listed.contains(namespace));
        state.namespaces.len() < before
    }
}

/// Watches the switch, a ConfigMap of this namespace and name. Calls `changed` when profiling was
/// stopped or resumed.
pub async fn watch_switch(
    client: Client,
    halts: Arc<Halts>,
    namespace: String,
    name: String,
    changed: impl Fn(),
) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = watcher(maps, only).default_backoff().boxed();
    // A list without the ConfigMap says that it was deleted.
    let mut listed = false;
    while let Some(change) = changes.next().await {
        let off = match change {
            Ok(watcher::Event::Init) => {
                listed = false;
                continue;
            }
            Ok(watcher::Event::InitApply(map)) => {
                listed = is_off(&map);
                continue;
            }
            Ok(watcher::Event::InitDone) => listed,
            Ok(watcher::Event::Apply(map)) => is_off(&map),
            Ok(watcher::Event::Delete(_)) => false,
            Err(error) => {
                tracing::warn!(%error, "watching the switch that stops profiling failed; retrying");
                continue;
            }
        };
        if halts.switch(off) {
            tracing::info!(off, "the switch that stops profiling");
            changed();
        }
    }
}

fn is_off(map: &ConfigMap) -> bool {
    let charts = map.data.as_ref().and_then(|data| data.get(KEY));
    let peoples = map.annotations().get(ANNOTATION);
    [charts, peoples]
        .into_iter()
        .flatten()
        .any(|word| word == STOPPED)
}

/// Watches the namespaces with the label. Calls `changed` when profiling was stopped or resumed in
/// one.
pub async fn watch_labels(client: Client, halts: Arc<Halts>, changed: impl Fn()) {
    let mut changes = labelled(&client).default_backoff().boxed();
    let mut listed = BTreeSet::new();
    while let Some(change) = changes.next().await {
        let news = match change {
            Ok(watcher::Event::Init) => {
                listed.clear();
                false
            }
            Ok(watcher::Event::InitApply(namespace)) => {
                listed.insert(namespace.name_any());
                learn(&halts, &namespace, label(&namespace))
            }
            Ok(watcher::Event::InitDone) => halts.keep(&listed),
            Ok(watcher::Event::Apply(namespace)) => learn(&halts, &namespace, label(&namespace)),
            Ok(watcher::Event::Delete(namespace)) => learn(&halts, &namespace, None),
            Err(error) => {
                tracing::warn!(%error, "watching the labels of namespaces failed; retrying");
                false
            }
        };
        if news {
            changed();
        }
    }
}

/// Watches the namespaces with the label. The type of the `Api` makes it ask for their metadata
/// only.
fn labelled(
    client: &Client,
) -> impl Stream<Item = watcher::Result<watcher::Event<PartialObjectMeta<Namespace>>>> + use<> {
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    watcher(namespaces, paged().labels(NAMESPACE_LABEL))
}

fn learn(halts: &Halts, namespace: &impl ResourceExt, label: Option<&str>) -> bool {
    let uid = namespace.uid().unwrap_or_default();
    halts.learn(&namespace.name_any(), uid, label)
}

fn label(namespace: &impl ResourceExt) -> Option<&str> {
    namespace.labels().get(NAMESPACE_LABEL).map(String::as_str)
}

/// Polls the labels of the namespaces that have running requests, which `running` gives, or are
/// stopped. Calls `changed` as [`watch_labels`] does.
pub async fn poll_labels(
    client: Client,
    halts: Arc<Halts>,
    running: impl Fn() -> Vec<String>,
    changed: impl Fn(),
) {
    loop {
        tokio::time::sleep(EVERY).await;
        let mut namespaces = halts.state().namespaces.clone();
        namespaces.extend(running());
        let client = &client;
        let labels = stream::iter(namespaces)
            .map(|namespace| async move { (asked(client, &namespace).await, namespace) })
            .buffer_unordered(AT_ONCE);
        let news: Vec<bool> = labels
            .map(|(disabled, namespace)| {
                disabled.is_some_and(|disabled| halts.label(&namespace, disabled))
            })
            .collect()
            .await;
        if news.contains(&true) {
            changed();
        }
    }
}

/// Whether the namespace's label stops profiling; `None` if the API server did not answer in time.
async fn asked(client: &Client, namespace: &str) -> Option<bool> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let answer = tokio::time::timeout(ANSWER, namespaces.get_metadata(namespace)).await;
    let metadata = answer.ok()?.ok()?;
    Some(is_disabled(label(&metadata)))
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response, header::ACCEPT};
    use kube::client::Body;
    use phpprof_crds::{NAMESPACE_DISABLED, NAMESPACE_ENABLED};
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::testing::api::{ApiServer, LASTS};

    /// Answers with metadata only if the client asks for it, as the API server does; otherwise with
    /// the whole namespace.
    async fn answer(request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let accept = request.headers()[ACCEPT].to_str().unwrap_or_default();
        let named = json!({"name": "shop", "uid": "u", "resourceVersion": "1",
            "labels": {NAMESPACE_LABEL: NAMESPACE_ENABLED}});
        let (version, kind, item) = if accept.contains("as=PartialObjectMetadataList") {
            (
                "meta.k8s.io/v1",
                "PartialObjectMetadataList",
                json!({"metadata": named}),
            )
        } else {
            ("v1", "NamespaceList", json!({"whole": accept}))
        };
        let list = json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": [item]});
        Ok(Response::new(Body::from(list.to_string().into_bytes())))
    }

    #[tokio::test]
    async fn labelled_namespaces_are_read_as_metadata() {
        let client = Client::new(service_fn(answer), "default");
        let mut changes = std::pin::pin!(labelled(&client));
        assert!(matches!(
            changes.next().await,
            Some(Ok(watcher::Event::Init))
        ));
        let Some(Ok(watcher::Event::InitApply(namespace))) = changes.next().await else {
            panic!("no namespace");
        };
        assert_eq!(namespace.name_any(), "shop");
        assert_eq!(label(&namespace), Some(NAMESPACE_ENABLED));
    }

    #[test]
    fn the_switch_stops_all_and_labels_their_namespaces() {
        let halts = Halts::default();
        assert_eq!(halts.of("shop"), None);
        assert!(halts.label("shop", true) && !halts.label("shop", true));
        assert_eq!(halts.of("shop"), Some(Halt::Stopped(by_label())));
        assert_eq!(halts.of("blog"), None);
        assert!(halts.switch(true) && !halts.switch(true));
        let administrator = Halt::Stopped("the administrator has stopped profiling".into());
        assert_eq!(halts.of("blog"), Some(administrator.clone()));
        assert_eq!(halts.of("shop"), Some(administrator));
        assert!(halts.switch(false) && halts.label("shop", false));
        assert_eq!(halts.of("shop"), None);
    }

    #[test]
    fn an_unread_switch_warns_but_stops_nothing() {
        let halts = Halts::with_switch();
        assert_eq!(halts.of("shop"), Some(Halt::Unknown));
        assert!(!halts.stops("shop") && !halts.is_off());
        assert!(halts.label("shop", true) && halts.stops("shop"));
        // What waits has to be looked at again.
        assert!(halts.switch(false));
        assert_eq!(halts.of("blog"), None);
    }

    fn map(word: &str) -> serde_json::Value {
        json!({"metadata": {"name": "switch", "namespace": "ours"}, "data": {KEY: word}})
    }

    #[test]
    fn the_charts_key_or_peoples_annotation_stops() {
        let stops = |key: &str, annotation: Option<&str>| {
            let mut object = map(key);
            if let Some(word) = annotation {
                object["metadata"]["annotations"] = json!({ANNOTATION: word});
            }
            is_off(&serde_json::from_value(object).unwrap())
        };
        assert!(!stops("running", None) && stops(STOPPED, None));
        assert!(stops("running", Some(STOPPED)));
        assert!(!stops("running", Some("running")) && !stops("running", Some("")));
        // People do not lift what the chart has set.
        assert!(stops(STOPPED, Some("running")));
    }

    /// Whether the switch stops profiling before its watch breaks, and after that.
    async fn stopped(objects: [Vec<serde_json::Value>; 2]) -> [bool; 2] {
        let server = ApiServer::new(objects, json!({}));
        let halts = Arc::new(Halts::with_switch());
        let (namespace, name) = ("ours".to_owned(), "switch".to_owned());
        let watched = watch_switch(server.client(), halts.clone(), namespace, name, || {});
        tokio::spawn(watched);
        let mut stopped = Vec::new();
        for seconds in [LASTS / 2, 60 * LASTS] {
            tokio::time::sleep(seconds).await;
            let halt = halts.of("shop");
            assert_ne!(halt, Some(Halt::Unknown));
            stopped.push(halt.is_some());
        }
        [stopped[0], stopped[1]]
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_list_tells_a_missed_switch() {
        let (on, off) = (vec![map("running")], vec![map(STOPPED)]);
        assert_eq!(stopped([off.clone(), on.clone()]).await, [true, false]);
        assert_eq!(stopped([on, off.clone()]).await, [false, true]);
        assert_eq!(stopped([off.clone(), vec![]]).await, [true, false]);
        assert_eq!(stopped([vec![], off]).await, [false, true]);
    }

    #[test]
    fn a_label_holds_until_the_watch_shows_another() {
        let halts = Halts::default();
        let learn = |name: &str, label| halts.learn(name, "u".to_owned(), Some(label));
        let enabled = |name| halts.enabled(name);
        assert!(!learn("shop", NAMESPACE_ENABLED) && enabled("shop") == Some("u".to_owned()));
        assert!(learn("shop", NAMESPACE_DISABLED) && enabled("shop").is_none());
        assert!(halts.stops("shop"));
        assert!(!learn("blog", NAMESPACE_ENABLED));
        assert!(halts.keep(&["blog".to_owned()].into()));
        assert!(!halts.stops("shop"));
        assert!(!halts.keep(&BTreeSet::new()) && enabled("blog").is_none());
    }
}
