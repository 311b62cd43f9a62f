//! Kubernetes users who run the plugin. Each has its own rights, and is authenticated by a client
//! certificate or impersonated by the administrator.
//!
//! The fixture's namespace owns their roles and bindings in other namespaces, so these are deleted
//! with it.
//!
//! Invariant: a user from here has every right that the test asked for, and no other.

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::terminal::Terminal;
use crate::wait::poll;
use crate::{Fixture, command, kubectl, release};

/// Longer than any command of the tests takes.
const LONGEST: Duration = Duration::from_secs(90);
const READY: Duration = Duration::from_secs(20);

/// A right of RBAC: a verb, and a resource with its subresource. `services/proxy` is for the
/// operator's service in its namespace; the others apply to the fixture's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// For instance `create`.
    pub verb: &'static str,
    /// For instance `pods/ephemeralcontainers`.
    pub resource: &'static str,
}

impl Right {
    /// The right, written as in the plugin's guide.
    pub fn words(&self) -> String {
        format!("{} {}", self.verb, self.resource)
    }

    fn is_of_operator(&self) -> bool {
        self.resource == "services/proxy"
    }

    fn group(&self) -> &'static str {
        match self.resource {
            "profilerequests" | "profilearchives" | "profilecomparisons" | "profiletriggers" => {
                "phpprof.dev"
            }
            "deployments" => "apps",
            _ => "",
        }
    }

    fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group()], "resources": [self.resource], "verbs": [self.verb]});
        if self.is_of_operator() {
            rule["resourceNames"] = json!([RESULTS]);
        }
        rule
    }
}

const RESULTS: &str = "phpprof-operator:results";

/// A user who runs `kubectl phpprof`.
pub struct User {
    /// Flags that authenticate the user.
    flags: Vec<String>,
    folder: PathBuf,
}

/// What the plugin printed, and its exit code.
#[derive(Debug)]
pub struct Output {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Output {
    /// Its standard output; an error if it failed.
    pub fn well(self) -> Result<String> {
        ensure!(
            self.code == 0,
            "exit code {}\n{}{}",
            self.code,
            self.out,
            self.err
        );
        Ok(self.out)
    }
}

impl User {
    /// Runs `kubectl phpprof` with these arguments, in the user's own folder.
    pub async fn run(&self, line: &str) -> Result<Output> {
        let words = line.split_whitespace().map(str::to_owned);
        self.execute(words.chain(self.flags.iter().cloned())).await
    }

    /// Runs `kubectl phpprof` with these arguments on a terminal.
    pub async fn on_a_terminal(&self, line: &str) -> Result<Terminal> {
        let flags = self.flags.join(" ");
        Terminal::start(&format!("kubectl phpprof {line} {flags}"), &self.folder)
    }

    /// What the shell completion proposes for the last of these words.
    pub async fn proposals(&self, line: &str) -> Result<String> {
        let words = line.split_whitespace().map(str::to_owned);
        let before = ["__complete".to_owned()]
            .into_iter()
            .chain(self.flags.iter().cloned());
        self.execute(before.chain(words)).await?.well()
    }

    async fn execute(&self, words: impl Iterator<Item = String>) -> Result<Output> {
        let words: Vec<String> = words.collect();
        let mut command = tokio::process::Command::new("kubectl");
        command
            .arg("phpprof")
            .args(&words)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(LONGEST, command.output())
            .await
            .with_context(|| {
                format!(
                    "kubectl phpprof {} took more than {LONGEST:?}",
                    words.join(" ")
                )
            })??;
        Ok(Output {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// A file that a command wrote.
    pub fn file(&self, name: &str) -> Result<Vec<u8>> {
        std::fs::read(self.folder.join(name)).with_context(|| format!("{name} was not written"))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // It does not matter if the folder stays: it is a temporary one.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Fixture {
    /// The user of the tests' kubeconfig.
    pub fn administrator(&self) -> Result<User> {
        self.user("administrator", Vec::new())
    }

    /// A user with these rights only, impersonated.
    pub async fn with_rights(&self, name: &str, rights: &[Right]) -> Result<User> {
        let user = format!("{}-{name}", self.namespace);
        self.impersonated(name, &user, rights).await
    }

    /// The user whose requests a resident sampler serves, with the rights for a dump. The cluster
    /// has one, so one test at a time may use it.
    pub async fn resident_user(&self) -> Result<User> {
        let rights = [
            ("create", "profilerequests"),
            ("profile", "profilerequests"),
            ("get", "profilerequests"),
            ("get", "services/proxy"),
            ("create", "services/proxy"),
        ]
        .map(|(verb, resource)| Right { verb, resource });
        self.impersonated("resident", release::RESIDENT_USER, &rights)
            .await
    }

    async fn impersonated(&self, name: &str, user: &str, rights: &[Right]) -> Result<User> {
        let (of_operator, here): (Vec<Right>, Vec<Right>) =
            rights.iter().partition(|right| right.is_of_operator());
        self.grant(&self.namespace, user, &here).await?;
        self.grant(release::NAMESPACE, user, &of_operator).await?;
        self.has(user, rights).await?;
        self.user(name, vec![format!("--as={user}")])
    }

    /// Gives a user of another fixture rights in this namespace.
    pub async fn grant_to(&self, user: &str, rights: &[Right]) -> Result<()> {
        self.grant(&self.namespace, user, rights).await?;
        self.has(user, rights).await
    }

    /// A user with a client certificate and the roles that the documentation names: `edit` here,
    /// and the chart's role for readers of results.
    pub async fn developer(&self) -> Result<User> {
        let user = format!("{}-developer", self.namespace);
        self.bind(&self.namespace, &user, "ClusterRole", "edit")
            .await?;
        self.bind(
            release::NAMESPACE,
            &user,
            "Role",
            "phpprof-operator-results",
        )
        .await?;
        let needed = [
            ("create", "profilerequests"),
            ("profile", "profilerequests"),
            ("get", "services/proxy"),
        ]
        .map(|(verb, resource)| Right { verb, resource });
        self.has(&user, &needed).await?;
        let mut developer = self.user("developer", Vec::new())?;
        let kubeconfig = developer.folder.join("kubeconfig");
        let signed = self.kubeconfig(&user, &developer.folder).await?;
        std::fs::write(&kubeconfig, signed.to_string())?;
        developer
            .flags
            .push(format!("--kubeconfig={}", kubeconfig.display()));
        Ok(developer)
    }

    /// A user with the cluster role `admin` here and no right to the release, impersonated.
    pub async fn namespace_admin(&self) -> Result<User> {
        let user = format!("{}-admin", self.namespace);
        self.bind(&self.namespace, &user, "ClusterRole", "admin")
            .await?;
        let needed = [
            ("create", "profilerequests"),
            ("profile", "profilerequests"),
        ]
        .map(|(verb, resource)| Right { verb, resource });
        self.has(&user, &needed).await?;
        self.user("admin", vec![format!("--as={user}")])
    }

    fn user(&self, name: &str, mut flags: Vec<String>) -> Result<User> {
        let folder = std::env::temp_dir().join(format!("phpprof-{}-{name}", self.namespace));
        std::fs::create_dir_all(&folder)?;
        flags.push(format!("--namespace={}", self.namespace));
        Ok(User { flags, folder })
    }

    async fn grant(&self, namespace: &str, user: &str, rights: &[Right]) -> Result<()> {
        if rights.is_empty() {
            return Ok(());
        }
        let rules: Vec<Value> = rights.iter().map(Right::rule).collect();
        let role: Role =
            serde_json::from_value(json!({"metadata": self.owned(user).await?, "rules": rules}))?;
        let roles: Api<Role> = Api::namespaced(self.client.clone(), namespace);
        create(&roles, &role).await?;
        self.bind(namespace, user, "Role", user).await
    }

    async fn bind(&self, namespace: &str, user: &str, kind: &str, role: &str) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": self.owned(user).await?,
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }))?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        create(&bindings, &binding).await
    }

    /// Metadata of an object that is deleted with the fixture's namespace.
    async fn owned(&self, name: &str) -> Result<Value> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let uid = namespaces.get(&self.namespace).await?.uid();
        let owner =
            json!({"apiVersion": "v1", "kind": "Namespace", "name": self.namespace, "uid": uid});
        Ok(json!({"name": name, "ownerReferences": [owner]}))
    }

    /// Waits until the API server knows these rights.
    async fn has(&self, user: &str, rights: &[Right]) -> Result<()> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        for right in rights {
            let (resource, subresource) = right
                .resource
                .split_once('/')
                .unwrap_or((right.resource, ""));
            let of_operator = right.is_of_operator();
            let namespace = if of_operator {
                release::NAMESPACE
            } else {
                &self.namespace
            };
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(user.to_owned()),
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(namespace.to_owned()),
                        verb: Some(right.verb.to_owned()),
                        group: Some(right.group().to_owned()),
                        resource: Some(resource.to_owned()),
                        subresource: Some(subresource.to_owned()),
                        name: of_operator.then(|| RESULTS.to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            poll(&right.words(), READY, async || {
                let answer = reviews.create(&PostParams::default(), &review).await?;
                Ok(answer.status.filter(|status| status.allowed))
            })
            .await?;
        }
        Ok(())
    }

    /// The tests' kubeconfig, with a client certificate that the cluster signed for this user.
    async fn kubeconfig(&self, user: &str, folder: &std::path::Path) -> Result<Value> {
        let key = folder.join("key");
        let key_file = key.display().to_string();
        let subject = format!("/CN={user}");
        let csr = command::run(
            "openssl",
            &[
                "req",
                "-new",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-subj",
                &subject,
                "-keyout",
                &key_file,
            ],
            &[],
        )
        .await?;
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let request: CertificateSigningRequest = serde_json::from_value(json!({
            "metadata": self.owned(user).await?,
            "spec": {
                "request": BASE64.encode(csr), "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"], "expirationSeconds": 600,
            },
        }))?;
        requests.create(&PostParams::default(), &request).await?;
        kubectl(&["certificate", "approve", user]).await?;
        let certificate = poll("a client certificate", READY, async || {
            Ok(requests
                .get(user)
                .await?
                .status
                .and_then(|status| status.certificate))
        })
        .await?;
        requests.delete(user, &DeleteParams::default()).await?;
        let shown = kubectl(&[
            "config",
            "view",
            "--raw",
            "--minify",
            "--flatten",
            "--output=json",
        ])
        .await?;
        let mut config: Value = serde_json::from_str(&shown)?;
        config["users"][0]["user"] = json!({
            "client-certificate-data": BASE64.encode(certificate.0), "client-key-data": BASE64.encode(std::fs::read(key)?),
        });
        Ok(config)
    }
}

/// Creates an object, in place of one that an earlier try of the same test has left: the garbage
/// collector deletes it some time after its namespace.
async fn create<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    poll(
        "rights that an earlier try has left are gone",
        READY,
        async || {
            match api.create(&PostParams::default(), object).await {
                Ok(_) => Ok(Some(())),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    // Another one may have deleted it meanwhile.
                    let _ = api.delete(&name, &DeleteParams::default()).await;
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            }
        },
    )
    .await
}
