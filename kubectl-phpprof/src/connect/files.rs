//! Reads the kubeconfig files, and takes the context, cluster and user out of them.
//!
//! Invariant: they are merged as client-go does (tools/clientcmd, `ClientConfigLoadingRules.Load`):
//! a file that KUBECONFIG names and that is not there is passed over, the first file that has a
//! name wins, and an empty value is none.

use std::path::{Path, PathBuf};

use kube::config::{
    AuthInfo, Cluster, ExecAuthCluster, KubeConfigOptions, Kubeconfig, KubeconfigError,
};

use super::keep::KeptUser;
use super::kubeconfig::{self, Malformed};

#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("{path} cannot be read")]
    Read {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{path} cannot be read as a kubeconfig")]
    Malformed {
        path: String,
        #[source]
        error: Malformed,
    },
    #[error("the kubeconfig files do not fit together")]
    Merge(#[source] Box<KubeconfigError>),
    #[error("there is no kubeconfig at {0}")]
    Missing(String),
    #[error("no context is chosen: the kubeconfig has no current-context")]
    NoContext,
    #[error("the kubeconfig has no {kind} {name}")]
    NotThere { kind: &'static str, name: String },
    #[error("the certificate authority for the exec plugin cannot be read")]
    ClusterInfo(#[source] Box<KubeconfigError>),
}

impl FilesError {
    /// Nothing is chosen. Any other error is about something that somebody chose: nothing else may
    /// take its place.
    pub fn is_nothing(&self) -> bool {
        matches!(self, FilesError::Missing(_) | FilesError::NoContext)
    }
}

/// What is chosen of the files.
#[derive(Default)]
pub struct Entries {
    /// The context's name; `None` for a service account.
    pub context: Option<String>,
    pub cluster: Cluster,
    pub user: AuthInfo,
    pub namespace: Option<String>,
    /// Where the user is written, if it is in a file.
    pub kept: Option<KeptUser>,
}

/// Only where they are from: kube shows a provider's tokens and a plugin's variables.
impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries")
            .field("server", &self.cluster.server)
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

/// The files, each with its path, in their order. None is there: an error with the paths.
pub fn read(
    paths: &[PathBuf],
    must_be_there: bool,
) -> Result<Vec<(PathBuf, Kubeconfig)>, FilesError> {
    let mut found = Vec::new();
    for path in paths {
        let shown = || path.display().to_string();
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_be_there => {
                continue;
            }
            Err(error) => {
                return Err(FilesError::Read {
                    path: shown(),
                    error,
                });
            }
        };
        let mut kubeconfig = kubeconfig::parsed(&bytes).map_err(|error| FilesError::Malformed {
            path: shown(),
            error,
        })?;
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        resolve(&mut kubeconfig, whole.parent().unwrap_or(Path::new("/")));
        found.push((path.clone(), kubeconfig));
    }
    if found.is_empty() {
        let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
        return Err(FilesError::Missing(paths.join(", ")));
    }
    Ok(found)
}

/// A relative path is one next to its file (clientcmd's `GetClusterFileReferences` and
/// `GetAuthInfoFileReferences`).
fn resolve(kubeconfig: &mut Kubeconfig, folder: &Path) {
    let whole = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|it| !it.is_empty()) {
            *path = folder.join(&*path).display().to_string();
        }
    };
    for cluster in kubeconfig
        .clusters
        .iter_mut()
        .filter_map(|it| it.cluster.as_mut())
    {
        whole(&mut cluster.certificate_authority);
    }
    for user in kubeconfig
        .auth_infos
        .iter_mut()
        .filter_map(|it| it.auth_info.as_mut())
    {
        whole(&mut user.client_certificate);
        whole(&mut user.client_key);
        whole(&mut user.token_file);
        // A command without a slash is looked for in PATH.
        let exec = user.exec.as_mut();
        if let Some(exec) = exec.filter(|it| it.command.iter().any(|it| it.contains('/'))) {
            whole(&mut exec.command);
        }
    }
}

/// Where kubeconfig files are: the flag, else the variable's, else the one at home.
pub fn paths(flag: Option<&Path>, variable: Option<&str>, home: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = flag {
        return vec![path.to_owned()];
    }
    let listed: Vec<PathBuf> = std::env::split_paths(variable.unwrap_or_default())
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if !listed.is_empty() {
        return listed;
    }
    home.map(|home| home.join(".kube").join("config"))
        .into_iter()
        .collect()
}

pub fn chosen(
    files: Vec<(PathBuf, Kubeconfig)>,
    options: &KubeConfigOptions,
) -> Result<Entries, FilesError> {
    let places: Vec<(PathBuf, Vec<String>)> = files
        .iter()
        .map(|(path, it)| {
            (
                path.clone(),
                it.auth_infos.iter().map(|it| it.name.clone()).collect(),
            )
        })
        .collect();
    let mut whole = Kubeconfig::default();
    for (_, mut file) in files {
        // An empty one would win over a later file's.
        file.current_context = file.current_context.filter(|it| !it.is_empty());
        whole = whole
            .merge(file)
            .map_err(|error| FilesError::Merge(Box::new(error)))?;
    }
    let name = options.context.as_ref().or(whole.current_context.as_ref());
    let name = name.ok_or(FilesError::NoContext)?;
    let context = whole.contexts.iter().find(|it| &it.name == name);
    let context = context
        .and_then(|it| it.context.clone())
        .ok_or_else(|| not_there("context", name))?;
    let cluster_name = options.cluster.as_ref().unwrap_or(&context.cluster);
    let cluster = whole.clusters.iter().find(|it| &it.name == cluster_name);
    let cluster = cluster
        .and_then(|it| it.cluster.clone())
        .ok_or_else(|| not_there("cluster", cluster_name))?;
    let user_name = options.user.as_ref().or(context.user.as_ref());
    let user = user_name.and_then(|name| whole.auth_infos.iter().find(|it| &it.name == name));
    // As in client-go, a context may name a user that is not there: it is then nobody.
    if let (Some(name), None) = (&options.user, user) {
        return Err(not_there("user", name));
    }
    let kept = user.and_then(|user| {
        let place = places.iter().find(|it| it.1.contains(&user.name))?;
        Some(KeptUser {
            path: place.0.clone(),
            user: user.name.clone(),
        })
    });
    let mut user = user.and_then(|it| it.auth_info.clone()).unwrap_or_default();
    if let Some(exec) = &mut user.exec
        && exec.provide_cluster_info
    {
        let info = ExecAuthCluster::try_from(&cluster);
        exec.cluster = Some(info.map_err(|error| FilesError::ClusterInfo(Box::new(error)))?);
    }
    Ok(Entries {
        context: Some(name.clone()),
        cluster,
        user,
        namespace: context.namespace.filter(|it| !it.is_empty()),
        kept,
    })
}

fn not_there(kind: &'static str, name: &str) -> FilesError {
    FilesError::NotThere {
        kind,
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, current: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: '{current}'\nclusters: [{{name: {name}, cluster: {{server: 'https://{name}'}}}}]\n\
             users: [{{name: {name}, user: {{tokenFile: token}}}}]\ncontexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: ''}}}}]\n"
        )
    }

    fn choose(paths: &[PathBuf], context: Option<&str>) -> Result<Entries, FilesError> {
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        chosen(read(paths, false)?, &options)
    }

    #[test]
    fn files_are_merged_and_missing_ones_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), entry("a", "")).unwrap();
        std::fs::write(path("b"), entry("b", "b")).unwrap();
        std::fs::write(path("empty"), "").unwrap();
        let all = [path("none"), path("empty"), path("a"), path("b")];
        let current = choose(&all, None).unwrap();
        assert_eq!(current.cluster.server.as_deref(), Some("https://b"));
        assert_eq!(current.namespace, None);
        assert_eq!(
            current.kept,
            Some(KeptUser {
                path: path("b"),
                user: "b".into()
            })
        );
        // A relative path is one next to its file.
        assert_eq!(
            current.user.token_file,
            Some(path("token").display().to_string())
        );
        let named = choose(&all, Some("a")).unwrap();
        assert_eq!(named.cluster.server.as_deref(), Some("https://a"));
        let wrong = choose(&all, Some("c")).unwrap_err().to_string();
        assert_eq!(wrong, "the kubeconfig has no context c");
        assert!(matches!(
            choose(&all[2..3], None),
            Err(FilesError::NoContext)
        ));
        assert!(matches!(
            choose(&all[..1], None),
            Err(FilesError::Missing(_))
        ));
        assert!(matches!(
            read(&all[..1], true),
            Err(FilesError::Read { .. })
        ));
    }

    #[test]
    fn a_relative_path_is_one_beside_its_file() {
        let text = "users: [{name: u, user: {client-key: k, exec: {command: ./login}}}, {name: v, user: {exec: {command: login}}}]\n\
                    clusters: [{name: c, cluster: {certificate-authority: /ca}}]\n";
        let mut kubeconfig = kubeconfig::parsed(text.as_bytes()).unwrap();
        resolve(&mut kubeconfig, Path::new("/a"));
        let user = |at: usize| kubeconfig.auth_infos[at].auth_info.clone().unwrap();
        let command = |at: usize| user(at).exec.unwrap().command.unwrap();
        assert_eq!(user(0).client_key.as_deref(), Some("/a/k"));
        assert_eq!(
            (command(0), command(1)),
            ("/a/./login".into(), "login".into())
        );
        let authority = kubeconfig.clusters[0].cluster.clone().unwrap();
        assert_eq!(authority.certificate_authority.as_deref(), Some("/ca"));
        // The file's own path may be relative: a command next to it is still not one of PATH.
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = PathBuf::from(file.path().file_name().unwrap());
        let (_, read) = read(&[name], true).unwrap().remove(0);
        let exec = read.auth_infos[0].auth_info.clone().unwrap().exec.unwrap();
        assert!(Path::new(&exec.command.unwrap()).is_absolute());
    }

    #[test]
    fn a_flag_beats_the_variable_which_beats_home() {
        let home = Some(Path::new("/home/ann"));
        let of = |flag: Option<&str>, variable| paths(flag.map(Path::new), variable, home);
        assert_eq!(of(Some("x"), Some("a:b")), [PathBuf::from("x")]);
        assert_eq!(
            of(None, Some("a::b")),
            [PathBuf::from("a"), PathBuf::from("b")]
        );
        for none in [None, Some(""), Some(":")] {
            assert_eq!(of(None, none), [PathBuf::from("/home/ann/.kube/config")]);
        }
    }
}
