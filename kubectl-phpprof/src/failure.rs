//! What went wrong, what to do about it, and the exit code that says so to a script.
//!
//! It prints nothing.
//!
//! Invariant: every failure has a hint; what the API server refused names the right that is missing.

use std::fmt;

use phpprof_crds::chain;

/// The exit codes, in the order of `docs/guides/kubectl-plugin.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Anything that has no code of its own.
    Failed = 1,
    /// The command line is wrong; clap ends with it too.
    Usage = 2,
    /// There is no such request, workload, pod or file.
    NotFound = 3,
    /// The API server refused: a right is missing, or the user is not known.
    Forbidden = 4,
    /// The request ended without a profile; its reason is printed.
    NoProfile = 5,
    /// It was not over within `--timeout`.
    Timeout = 6,
    /// The API server or the operator does not answer.
    Unreachable = 7,
    /// `doctor` found that the workload cannot be profiled.
    Unfit = 8,
    /// `diff --fail-above`: a function grew by more.
    Grew = 9,
    /// Ctrl-C.
    Interrupted = 130,
}

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

    /// An answer of the API server to `action`, for instance "create profilerequests in namespace shop".
    pub fn of_api(action: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Failure::new(
                Exit::Unreachable,
                format!(
                    "cannot {action}: the API server does not answer: {}",
                    chain(error)
                ),
                "check the kubeconfig and its context: kubectl cluster-info",
            );
        };
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
                    "ask for the right to {action}; the chart's roles are part of the cluster roles view and edit"
                ),
            ),
            404 if no_such_api(&status.message) => Failure::new(
                Exit::Failed,
                format!("cannot {action}: this cluster does not have the API phpprof.dev"),
                "install the chart, or choose another cluster with --context",
            ),
            404 => Failure::new(
                Exit::NotFound,
                message,
                "see what there is: kubectl phpprof list -A",
            ),
            409 => Failure::new(
                Exit::Failed,
                message,
                "choose another --name, or leave it out",
            ),
            400 | 422 => Failure::new(
                Exit::Usage,
                message,
                "see docs/reference/profilerequest.md for what each field may be",
            ),
            429 | 500.. => Failure::new(
                Exit::Unreachable,
                message,
                "try again; kubectl get --raw /readyz says how the API server is",
            ),
            _ => Failure::new(Exit::Failed, message, "try again with kubectl to see more"),
        }
    }
}

/// What an API server says to a path of a group that it does not have.
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
