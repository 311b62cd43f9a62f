//! What went wrong, what to do about it, and the exit code for scripts.
//!
//! It prints nothing.
//!
//! Invariant: every failure has a hint; if the API server refused, the hint names the missing
//! right.

use std::fmt;

use phpprof_crds::chain;

use crate::certificate::RefusedCertificate;
pub use crate::exit::Exit;
use crate::suggest::Suggest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    pub hint: String,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure {
            exit,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// A file that could not be read or written.
    pub fn of_file(path: &str, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Failed,
        };
        Failure::new(
            exit,
            format!("{path}: {error}"),
            "name a file that you may read, or a folder that you may write to",
        )
    }

    /// A failure from the API server's answer to `action`, for instance "create profilerequests in
    /// namespace shop".
    pub fn of_api(suggest: &Suggest, action: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            let refused = refused(error);
            let why = refused.map_or_else(|| chain(error), ToString::to_string);
            return Failure::new(
                Exit::Unreachable,
                format!("cannot {action}: the API server does not answer: {why}"),
                refused
                    .map(|it| it.odd.remedy().to_owned())
                    .unwrap_or_else(|| {
                        format!(
                            "check the kubeconfig and its context: {}",
                            suggest.of_cluster("cluster-info")
                        )
                    }),
            );
        };
        Failure::of_status(suggest, action, status)
    }

    fn of_status(suggest: &Suggest, action: &str, status: &kube::core::Status) -> Self {
        let message = format!("cannot {action}: {}", status.message);
        match status.code {
            401 => Failure::new(
                Exit::Forbidden,
                message,
                "the API server does not know this user: renew the credentials of the context",
            ),
            403 => Failure::new(
                Exit::Forbidden,
                message,
                format!(
                    "ask for the right to {action}; `view` lets you read requests; to open profiles you also need the chart's reader Role. `edit` and `admin` also let you profile."
                ),
            ),
            404 if no_such_api(&status.message) => Failure::new(
                Exit::Failed,
                format!("cannot {action}: this cluster does not have the API phpprof.dev"),
                "ask the cluster's administrator to install the chart phpprof, or choose another cluster with --context",
            ),
            404 => Failure::new(
                Exit::NotFound,
                message,
                format!(
                    "list the requests: {}, with -n NAME for another namespace",
                    suggest.phpprof("list")
                ),
            ),
            409 => Failure::new(
                Exit::Failed,
                message,
                "choose another --name, or leave it out",
            ),
            400 | 422 => Failure::new(
                Exit::Usage,
                message,
                format!(
                    "{} describes each field",
                    suggest.of_cluster("explain profilerequest.spec")
                ),
            ),
            429 | 500.. => Failure::new(
                Exit::Unreachable,
                message,
                format!(
                    "try again; {} shows the API server's health",
                    suggest.of_cluster("get --raw /readyz")
                ),
            ),
            _ => Failure::new(
                Exit::Failed,
                message,
                format!(
                    "to see the whole answer: {}",
                    suggest.kubectl("get profilerequests -v=8")
                ),
            ),
        }
    }
}

/// The property of the server's certificate that TLS was refused for, if there is one.
fn refused(error: &kube::Error) -> Option<&RefusedCertificate> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        // An io::Error's source is the source of what it holds.
        let held = error
            .downcast_ref::<std::io::Error>()
            .and_then(|it| it.get_ref())
            .map(|it| it as &(dyn std::error::Error + 'static));
        let tls = held.unwrap_or(error).downcast_ref::<rustls::Error>();
        if let Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) = tls
        {
            return other.0.downcast_ref::<RefusedCertificate>();
        }
        next = error.source();
    }
    None
}

/// Whether an API server answers this way for an API group that it does not have.
fn no_such_api(message: &str) -> bool {
    ["could not find the requested resource", "page not found"]
        .into_iter()
        .any(|words| message.contains(words))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for Failure {}
