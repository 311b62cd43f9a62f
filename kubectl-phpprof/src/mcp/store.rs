//! Where profiles come from: a cluster, whose connection is kept, or files.
//!
//! Invariant: with files, there is no call to a cluster. After a failure to reach the cluster, the
//! next question reads the kubeconfig again, for the same context and namespace.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::DynamicObject;
use phpprof_profile::timeline::CellTable;

use super::answer::AgentPlace;
use super::files::FileList;
use super::quote::quoted;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::RequestView;
use crate::results::ResultPart;
use crate::source::{self, ProfileSource, is_request_name, request_name};
use crate::stored::{self, AskedName, NamedResult};
use crate::verdict::{beside, cells_in};

/// Decoded profiles that are kept: those of a comparison.
const KEPT: usize = 2;

/// What an agent can read.
pub struct AgentStore {
    /// `None`: a cluster.
    files: Option<FileList>,
    cluster: tokio::sync::Mutex<KeptCluster>,
    /// Of the newest connection.
    place: Mutex<AgentPlace>,
    /// With what distinguishes a profile from others of its name, the newest last.
    kept: Mutex<VecDeque<(String, Arc<ProfileSource>)>>,
}

/// The connection, and how it is made: after the first one with its context and namespace, whatever
/// the kubeconfig chooses then.
struct KeptCluster {
    global: Global,
    connected: Option<Cluster>,
}

/// A profile that is compared, and the cells of its list of requests, if it has any.
pub struct AgentSide {
    pub source: Arc<ProfileSource>,
    pub cells: Option<CellTable>,
}

/// What a name of the cluster refers to.
pub struct AgentSubject {
    pub cluster: Cluster,
    pub name: String,
    pub named: NamedResult,
}

impl AgentSubject {
    pub fn object(&self) -> Option<&DynamicObject> {
        match &self.named {
            NamedResult::Request(object) => Some(object),
            NamedResult::Stored(_) => None,
        }
    }

    /// A text that changes with the profile.
    fn key(&self) -> Result<String, Failure> {
        let id = match &self.named {
            NamedResult::Request(object) => {
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                let request = RequestView::of(object);
                let url = request.words("/status/profile/url");
                format!(
                    "{uid} {url} {}",
                    request.number("/status/profile/sizeBytes")
                )
            }
            NamedResult::Stored(stored) => {
                let (entry, _) = stored.find(AskedName::of(&self.name))?;
                entry.words("uid").to_owned()
            }
        };
        Ok(id)
    }
}

impl AgentStore {
    pub fn of_cluster(global: &Global) -> Self {
        let place = AgentPlace {
            context: global.context.as_deref().map(quoted),
            namespace: global.namespace.as_deref().map(quoted),
            ..AgentPlace::default()
        };
        Self::of(global.clone(), None, place)
    }

    pub fn of_files(files: FileList) -> Self {
        let place = AgentPlace {
            local_files: true,
            ..AgentPlace::default()
        };
        Self::of(Global::default(), Some(files), place)
    }

    fn of(global: Global, files: Option<FileList>, place: AgentPlace) -> Self {
        AgentStore {
            files,
            cluster: tokio::sync::Mutex::new(KeptCluster {
                global,
                connected: None,
            }),
            place: Mutex::new(place),
            kept: Mutex::new(VecDeque::new()),
        }
    }

    pub fn files(&self) -> Option<&FileList> {
        self.files.as_ref()
    }

    pub fn place(&self) -> AgentPlace {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }

    /// The kept connection, or a new one.
    pub async fn cluster(&self) -> Result<Cluster, Failure> {
        let mut kept = self.cluster.lock().await;
        if let Some(cluster) = &kept.connected {
            return Ok(cluster.clone());
        }
        let cluster = Cluster::of(&kept.global).await?;
        kept.global.namespace = Some(cluster.namespace.clone());
        // A service account has no context.
        if cluster.is_of_file {
            kept.global.context = Some(cluster.context.clone());
        }
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.context = Some(quoted(&cluster.context));
        place.namespace = Some(quoted(&cluster.namespace));
        Ok(kept.connected.insert(cluster).clone())
    }

    /// After a failure that another connection may not have, the next question makes one.
    pub async fn note(&self, failure: &Failure) {
        if matches!(failure.exit, Exit::Unreachable | Exit::Forbidden) {
            self.cluster.lock().await.connected = None;
        }
    }

    /// What a name refers to, in the cluster.
    pub async fn subject(&self, name: &str) -> Result<AgentSubject, Failure> {
        let name = request_name(name);
        // It becomes a part of a path at the API server.
        if !is_request_name(name) {
            return Err(Failure::new(
                Exit::Usage,
                "this is not the name of a profile",
                "use a name that list_profiles shows",
            ));
        }
        let cluster = self.cluster().await?;
        let named = stored::named(&cluster, name).await?;
        Ok(AgentSubject {
            cluster,
            name: name.to_owned(),
            named,
        })
    }

    /// The profile with this name.
    pub async fn profile(&self, name: &str) -> Result<Arc<ProfileSource>, Failure> {
        let Some(files) = &self.files else {
            return self.of_subject(&self.subject(name).await?).await;
        };
        let file = files.find(name)?;
        let key = format!("{} {} {}", file.name, file.bytes, file.modified);
        if let Some(kept) = self.known(&key) {
            return Ok(kept);
        }
        let path = file.name.clone();
        let read = move || source::read(&path).and_then(|bytes| source::of_bytes(&bytes, &path));
        Ok(self.keep(key, apart(read).await?))
    }

    /// The profile of a subject.
    pub async fn of_subject(&self, subject: &AgentSubject) -> Result<Arc<ProfileSource>, Failure> {
        let key = subject.key()?;
        if let Some(kept) = self.known(&key) {
            return Ok(kept);
        }
        let bytes = self.part(subject, ResultPart::Profile).await?;
        let title = format!("{}/{}", subject.cluster.namespace, subject.name);
        let source = apart(move || source::of_bytes(&bytes, &title)).await?;
        Ok(self.keep(key, source))
    }

    /// The bytes of the list of requests with this name.
    pub async fn requests(&self, name: &str) -> Result<Vec<u8>, Failure> {
        match &self.files {
            None => {
                let subject = self.subject(name).await?;
                self.part(&subject, ResultPart::Requests).await
            }
            Some(files) => {
                let path = files.find(name)?.name;
                apart(move || source::read(&path)).await
            }
        }
    }

    /// What the list of requests of a profile has for comparisons; `None` if there is no list, or
    /// an older one.
    async fn cells(&self, name: &str) -> Result<Option<CellTable>, Failure> {
        let list = match &self.files {
            None => name.to_owned(),
            Some(files) => match beside(&files.find(name)?.name) {
                Some(list) => list,
                None => return Ok(None),
            },
        };
        match self.requests(&list).await {
            Ok(bytes) => apart(move || cells_in(&bytes, "its list")).await,
            Err(failure) if failure.exit == Exit::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// A side of a comparison. Without a list that can be read, chance is by samples alone, which
    /// answers say.
    pub async fn side(&self, name: &str) -> Result<AgentSide, Failure> {
        let source = self.profile(name).await?;
        let cells = match self.cells(name).await {
            Err(failure) if failure.exit == Exit::Failed => None,
            other => other?,
        };
        Ok(AgentSide { source, cells })
    }

    async fn part(&self, subject: &AgentSubject, part: ResultPart<'_>) -> Result<Vec<u8>, Failure> {
        let AgentSubject {
            cluster,
            name,
            named,
        } = subject;
        source::part_of(cluster, named, name, part).await
    }

    fn known(&self, key: &str) -> Option<Arc<ProfileSource>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|(known, _)| known == key);
        found.map(|(_, source)| source.clone())
    }

    fn keep(&self, key: String, source: ProfileSource) -> Arc<ProfileSource> {
        let source = Arc::new(source);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != key);
        while kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((key, source.clone()));
        source
    }
}

/// Does what takes long on a thread of its own, so that other questions and cancellations are
/// heard meanwhile.
pub async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Failure::new(
            Exit::Failed,
            format!("the work ended early: {error}"),
            "report this as a fault of phpprof, with the profile",
        )),
    }
}
